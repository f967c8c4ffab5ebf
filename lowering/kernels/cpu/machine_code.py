"""Machine code of kernels, each compiled by itself, beside the program that dispatches it.

IREE compiles all executables of a program as one library, on one core. A kernel is known long before: from then on it
is compiled on a core that the program leaves idle, once for all of its dispatches, to an object file that is linked to
the program's other code (`covan_mlir.lowering.kernels.cpu.linked_code`). An object file depends on the kernel's text,
the target and the compiler alone, so it is kept, and taken again for any program with that kernel.

IREE's own way from an executable to LLVM's dialect is some eighty passes, most of them for tensors, of which a kernel
has none: those that a kernel needs take a quarter of the time (`_LOWERING`). IREE writes an object file for programs
that are linked statically (``--iree-llvmcpu-link-static``): its only symbol is a function that gives the table of the
executable's functions (``NAME_library_query``).
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import iree.compiler.ir as ir
import msgspec
from elftools.elf.elffile import ELFFile
from iree.compiler.api import Session

from covan_mlir.lowering import exact_decisions, iree_phases
from covan_mlir.lowering.cache import question
from covan_mlir.lowering.cache.store import KERNELS_LIMIT, Store
from covan_mlir.lowering.kernels.code_aside import SOURCE
from covan_mlir.lowering.targets.resolve import target_attribute
from covan_mlir.machine.reading import cores
from covan_mlir.support import source_digest

log = logging.getLogger(__name__)

MOST_THREADS = 16
"""Each has a compiler of its own in memory."""
_FILE = "/covan-kernel.o"
_STATIC = (
    "--iree-llvmcpu-link-embedded=false",
    "--iree-llvmcpu-link-static",
    f"--iree-llvmcpu-static-library-output-path={_FILE}",
    "--iree-llvmcpu-enable-ukernels=none",  # they would be read for each kernel, and none has any
)
_REASSOCIATE = "--iree-llvmcpu-reassociate-fp-reductions"
_OF_FUNCTIONS = (
    "iree-llvmcpu-expand-f16-op-to-f32",
    "iree-codegen-inject-assume-alignment",
    "iree-codegen-erase-hal-descriptor-type-from-memref",
    "iree-convert-bf16-arith-to-f32",
    "iree-codegen-math-transform",
    "iree-codegen-vector-transfer-lowering",
    "fold-memref-alias-ops",
    "iree-codegen-expand-strided-metadata",
    "iree-llvmcpu-check-ir-before-llvm-conversion",
    "convert-scf-to-cf",
    "canonicalize",
    "cse",
    "iree-affine-expand-index-ops",
    "iree-convert-unsupported-float-arith",
    "iree-codegen-emulate-narrow-type",
)
_OF_CODE = (
    "iree-lower-affine",
    f"func.func({','.join(_OF_FUNCTIONS)})",
    "iree-convert-to-llvm{{reassociateFpReductions={reassociate}}}",
    "reconcile-unrealized-casts",
    "iree-llvmcpu-synchronize-symbol-visibility",
    "llvm.func(canonicalize,cse,iree-codegen-add-fast-math-flags)",
)
_LOWERING = f"hal.executable(hal.executable.variant(builtin.module({','.join(_OF_CODE)})))"
"""The passes of IREE's that a kernel needs, in IREE's order."""


class MachineCode:
    """Kernels that are compiled on threads of their own.

    Args:
        flags: of the compiler.
        kept: folder of object files; empty: nothing is kept.
        beside: whether on threads of their own; else while they are begun.
    """

    def __init__(self, flags: tuple[str, ...], kept: str, *, beside: bool = True) -> None:
        self.beside = beside
        self._flags = flags
        self._store = Store(Path(kept), KERNELS_LIMIT) if kept else None
        self._threads = ThreadPoolExecutor(min(MOST_THREADS, cores()), "kernels")
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._begun: dict[str, Future[Path]] = {}

    def begin(self, name: str, text: str) -> None:
        """Begin to compile a kernel, unless it is begun.

        Args:
            name: symbol of its ``hal.executable.source``, which says all of it (`covan_mlir.lowering.kernels.choice`).
            text: of a module with that, and perhaps others.

        Raises:
            StepError: the compiler refused it.
        """
        if name in self._begun:
            return
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="covan-kernels-")
        file = Path(self._folder.name, f"{name}.o")
        begun = self._threads.submit(self._compile, name, text, file)
        if not self.beside:
            begun.result()
        self._begun[name] = begun

    def files(self) -> dict[str, Path]:
        """The object files of all kernels that were begun, once they are there.

        Of those alone that call no function of a library: processors without fused multiply-adds have one for these,
        which IREE gives whole programs.

        Raises:
            StepError: the compiler refused one.
        """
        files: dict[str, Path] = {}
        for name, begun in self._begun.items():
            if called := _undefined(file := begun.result()):
                log.info("%s is compiled within the program: it calls %s", name, ", ".join(called))
            else:
                files[name] = file
        return files

    def close(self) -> None:
        """Remove the files; what was not begun to be compiled is not."""
        self._threads.shutdown(cancel_futures=True)
        if self._folder is not None:
            self._folder.cleanup()

    def _compile(self, name: str, text: str, file: Path) -> Path:
        key = _key(name, text, self._flags)
        if self._store is not None and (known := self._store.read(key)) is not None:
            file.write_bytes(known[1])
            return file
        compile_kernel(name, text, self._flags, file)
        if self._store is not None:
            self._store.write(key, b"", file.read_bytes())
        return file


def compile_kernel(name: str, text: str, flags: tuple[str, ...], file: Path) -> None:
    """Write a kernel's object file.

    Args:
        name, text, flags: as of `MachineCode`.

    Raises:
        StepError: the compiler refused it.
    """
    session = Session()
    session.set_flags(*flags, *_STATIC)
    target = target_attribute((*flags, *_STATIC)).replace(_FILE, str(file))
    with session.context, ir.Location.unknown():
        module = ir.Module.parse(
            f"module @kernel {{ hal.executable public @{name} {{"
            f" hal.executable.variant public @code target({target}) {{ }} }} }}"
        )
        (executable,) = module.body.operations
        variant, _ = _block(executable)
        (end,) = _block(variant)
        owner = ir.Module.parse(text)  # of what is in it until that is moved
        for op in list(_block(_source(owner, name)))[:-1]:  # without its end
            op.detach_from_parent()
            ir.InsertionPoint(end).insert(op)
    iree_phases.run_passes(session, module, _LOWERING.format(reassociate=_reassociate(flags)))
    with session.context:
        exact_decisions.uncontract_in(module)  # as in whole programs (`covan_mlir.lowering.sequence`)
    iree_phases.execute(session, module, "executable-targets", "hal")


def _undefined(file: Path) -> list[str]:
    """Symbols that an object file expects from others."""
    with file.open("rb") as opened:
        table = ELFFile(opened).get_section_by_name(".symtab")
        return sorted(s.name for s in table.iter_symbols() if s.name and s["st_shndx"] == "SHN_UNDEF")


def _reassociate(flags: tuple[str, ...]) -> str:
    """Whether sums may be computed in another order: of two flags for one option the last counts."""
    chosen = "true"
    for flag in flags:
        option, _, value = flag.partition("=")
        if option == _REASSOCIATE:
            chosen = value or "true"
    return chosen


def _source(module: Any, name: str) -> Any:
    for op in module.body.operations:
        if op.operation.name == SOURCE and ir.StringAttr(op.attributes["sym_name"]).value == name:
            return op
    raise ValueError(f"no kernel {name}")


def _block(op: Any) -> Any:
    return op.operation.regions[0].blocks[0]


def _key(name: str, text: str, flags: tuple[str, ...]) -> str:
    """SHA-256 of all that decides on an object file, as hexadecimal digits."""
    ours = [source_digest.of_file(Path(file)) for file in (__file__, exact_decisions.__file__)]
    facts = [name, text, flags, question.compilers(), ours]
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()
