"""The templates, by the kind of target that they write for.

A template is a file in ``lowering/kernels/<target>/templates/`` that registers itself; such files are loaded when
somebody first asks for the target's templates. Files of the user's own register theirs the same way
(`covan_mlir.passes.framework.extensions`).
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, TypeVar

from covan_mlir.lowering.kernels.template import ChainKind, Template

_ROOM = "covan_mlir.lowering.kernels"
_templates: dict[str, dict[str, Template[Any, Any]]] = {}
_discovered: set[str] = set()

C = TypeVar("C", bound=type[Template[Any, Any]])


def register(template: C) -> C:
    """Makes a template known; also as the decorator of its class.

    Raises:
        ValueError: there is another one of this name for the target.
    """
    _discover(template.target)  # the package's own come first
    known = _templates.setdefault(template.target, {})
    if template.name in known:
        other = type(known[template.name]).__module__
        raise ValueError(f"{other} registers a template {template.name!r} for {template.target}: choose another name")
    known[template.name] = template()
    return template


def templates(target: str, chains: ChainKind) -> tuple[Template[Any, Any], ...]:
    """The templates for a kind of target that are asked about a kind of chain, in the order of their registration."""
    _discover(target)
    return tuple(template for template in _templates.get(target, {}).values() if chains in template.chains)


def _discover(target: str) -> None:
    """Loads the files of a target's templates, once."""
    if target in _discovered:
        return
    _discovered.add(target)
    package = f"{_ROOM}.{target}.templates"
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{info.name}")
