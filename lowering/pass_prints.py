"""What single passes leave behind: each pass that changes something prints what it changed into a folder.

Passes inside IREE's phases cannot be reached from Python. But its compiler, and torch-mlir's, can print IR after each
pass that changed it, as a tree of files::

    builtin_module_no-symbol-name/4_inline.mlir                after a pass over the module
    builtin_module_no-symbol-name/util_func_main/4_9_cse.mlir  after a pass over one function

The first number counts the passes over the module, up to this one; the second one those over the function. For IREE
this is a switch of the whole process, to be thrown before the first session, so such compilations have workers of
their own.
Files are parsed again, in generic form and without the dialects, whose verifiers want the rest of the program: what is
read are names of operations and their locations.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from iree.compiler._mlir_libs._mlir import ir as raw  # its Context knows no dialects; the public one loads them
from iree.compiler.api import ctypes_dl

_NAME = re.compile(r"(?P<numbers>\d+(?:_\d+)*)_(?P<name>.*)\.mlir")
_LARGE = 8  # elements of constants that are printed: nobody reads their values
_NESTED = "builtin_module_no-symbol-name"
_File = tuple[tuple[int, int], str, Path]  # place in the order, pass, where


@dataclass(frozen=True)
class Print:
    """The IR after one pass.

    Attributes:
        name: the pass, ``canonicalize``.
        root: what it ran on: the module, or one operation of its body.
    """

    name: str
    root: Any


class PrintError(Exception):
    """What a pass printed cannot be read."""


class PassPrints:
    """The folder of one process. `__init__` makes IREE print there until the process ends."""

    def __init__(self, folder: str) -> None:
        self._tree = Path(folder) / "tree"
        self._root = self._tree
        self.shut()
        ctypes_dl._initializeGlobalCL(
            "covan",
            "--mlir-print-ir-after-all",
            "--mlir-print-ir-after-change",
            f"--mlir-print-ir-tree-dir={self._tree}",
            "--mlir-print-debuginfo",
            "--mlir-print-op-generic",
            "--mlir-print-unique-ssa-ids",  # without dialects, regions do not hide outer names
            f"--mlir-elide-elementsattrs-if-larger={_LARGE}",
            f"--mlir-elide-resource-strings-if-larger={_LARGE}",
        )

    def enable(self, manager: Any) -> None:
        """Make a pass manager of torch-mlir print there too."""
        manager.enable_ir_printing(
            print_after_all=True,
            print_after_change=True,
            large_elements_limit=_LARGE,
            large_resource_limit=_LARGE,
            enable_debug_info=True,
            print_generic_op_form=True,
            tree_printing_dir_path=str(self._tree),
        )

    def open(self, module: Any) -> None:
        """Take prints of passes over ``module`` from now on; what was there is forgotten."""
        self._clear()
        names = module.operation.attributes
        symbol = names["sym_name"].value if "sym_name" in names else "no-symbol-name"
        root = self._root = self._tree / f"builtin_module_{symbol}"
        root.mkdir(parents=True)
        # A file in the way of the folder: constants are evaluated at compile time by compiling a module inside this
        # one, and printing that would take longer than all the rest.
        (root / _NESTED).touch()

    def shut(self) -> None:
        """Take no more prints: a file in the way of the whole tree."""
        self._clear()
        self._tree.touch()

    def read(self) -> Iterator[Print]:
        """What was printed since `open`, in order, of passes over the module and over operations of its body.

        Raises:
            PrintError: a file cannot be parsed.
        """
        files: list[_File] = []
        for path in self._root.glob("*.mlir"):
            if match := _NAME.fullmatch(path.name):
                files.append(((int(match["numbers"]), -1), match["name"], path))
        for path in self._root.glob("*/*.mlir"):
            match = _NAME.fullmatch(path.name)
            # Initialisers have no names: their files overwrite each other's.
            if match and match["numbers"].count("_") == 1 and not path.parent.name.endswith("no-symbol-name"):
                last, own = map(int, match["numbers"].split("_"))
                files.append(((last, own), match["name"], path))
        context = raw._Context()
        context.allow_unregistered_dialects = True
        for _, name, path in _without_inliner(sorted(files)):
            try:
                with context:
                    root = raw.Operation.parse(path.read_text(encoding="utf-8"))
            except raw.MLIRError as error:
                raise PrintError(f"{path.name}: {error}") from error
            yield Print(name, root.operation)

    def _clear(self) -> None:
        if self._tree.is_dir():
            shutil.rmtree(self._tree)
        else:
            self._tree.unlink(missing_ok=True)


def _without_inliner(files: list[_File]) -> list[_File]:
    """Without what the inliner does inside: it simplifies functions while those inlined still stand beside them."""
    kept: list[_File] = []
    for file in files:
        if file[1] == "inline":
            while kept and kept[-1][1] == "canonicalize":
                kept.pop()
        kept.append(file)
    return kept
