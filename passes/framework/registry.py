"""Passes by name.

A covan pass is a frozen dataclass whose fields are its options, with a class attribute ``name`` and a method
``run(op)``. ``prov-strip`` lives in ``prov_strip.py`` of a package of passes; nothing else registers it. ``op_name``, a
class attribute, is the op that it runs on: ``builtin.module`` by default, None for any.
"""

import dataclasses
import importlib
import pkgutil
import typing
from functools import cache

from covan_mlir.passes.framework.interface import Pass

_packages: list[str] = ["covan_mlir.passes"]
_registered: dict[str, type[Pass]] = {}


def add_package(name: str) -> None:
    """Makes the passes known that are files of a package; none of them is imported before it is looked up."""
    if name not in _packages:
        _packages.append(name)


def register(pass_class: type[Pass]) -> type[Pass]:
    """Makes a pass from outside of the packages known under its ``name``. Usable as a decorator.

    Raises:
        TypeError: it is not a dataclass with a ``name`` and a ``run``.
    """
    if not is_pass(pass_class):
        raise TypeError(f"{pass_class!r} is not a pass: a pass is a dataclass with a name and a method run(op)")
    _registered[pass_class.name] = pass_class
    return pass_class


def is_pass(value: object) -> typing.TypeGuard[type[Pass]]:
    """Whether ``value`` is the class of a pass: a dataclass with a ``name`` and a method ``run``."""
    return (
        isinstance(value, type)
        and dataclasses.is_dataclass(value)
        and isinstance(getattr(value, "name", None), str)
        and callable(getattr(value, "run", None))
    )


@cache
def _files(package: str) -> frozenset[str]:
    """Names of the files of a package."""
    folder = importlib.import_module(package).__path__
    return frozenset(info.name for info in pkgutil.iter_modules(folder) if not info.ispkg)


def lookup(name: str) -> type[Pass] | None:
    """The covan pass called ``name``, or None. Imports the file that is named after it and no other."""
    if name in _registered:
        return _registered[name]
    file = name.replace("-", "_")
    for package in _packages:
        if file in _files(package):
            module = importlib.import_module(f"{package}.{file}")
            return next((value for value in vars(module).values() if is_pass(value) and value.name == name), None)
    return None


def names() -> list[str]:
    """Names of all covan passes. Imports none of them."""
    files = {file.replace("_", "-") for package in _packages for file in _files(package)}
    return sorted(files | _registered.keys())


def all_passes() -> list[type[Pass]]:
    """Every covan pass, by name. Imports all of them."""
    return [pass_class for name in names() if (pass_class := lookup(name)) is not None]


def summary(pass_class: type[Pass]) -> str:
    """The first line of a pass's docstring."""
    return (pass_class.__doc__ or "").strip().split("\n")[0]
