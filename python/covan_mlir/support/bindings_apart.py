"""Libraries with an LLVM of their own keep to themselves in a process that has TensorFlow.

TensorFlow offers the symbols of its LLVM to all libraries that are loaded behind it. Those of torch-mlir, IREE and
Triton would take them for theirs, and LLVM ends the process ("Option ... registered more than once").
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from types import ModuleType

_LIBRARIES = ("torch_mlir._mlir_libs.", "iree.compiler._mlir_libs.", "triton._C.")
_ALONE = getattr(os, "RTLD_DEEPBIND", 0)
"""Symbols of a library's own come before those of others. Elsewhere than with glibc they do so anyway."""


class _Loader(ExtensionFileLoader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        if not _ALONE or "tensorflow" not in sys.modules:
            return super().create_module(spec)
        flags = sys.getdlopenflags()
        sys.setdlopenflags(flags | _ALONE)
        try:
            return super().create_module(spec)
        finally:
            sys.setdlopenflags(flags)


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith(_LIBRARIES):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, ExtensionFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """Have these libraries loaded so from now on, whoever imports them."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
