"""What is done with the code of kernels while IREE compiles the program that dispatches them: it is put aside, compiled
apart where that can be, and given back or called at the end. In programs and of kernels on their own alike."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import iree.compiler.ir as ir

from covan_mlir.lowering.kernels import code_aside
from covan_mlir.lowering.kernels.cpu import linked_code
from covan_mlir.lowering.kernels.cpu.machine_code import MachineCode
from covan_mlir.lowering.kernels.kernel import Executable


class KernelCode:
    """The code of one program's kernels.

    Args:
        apart: compiles kernels apart from the program, and is closed with this; None: they are compiled with it.
    """

    def __init__(self, apart: MachineCode | None) -> None:
        self._apart = apart
        self._aside: dict[str, Any] = {}
        self._files: dict[str, Path] = {}

    @property
    def beside(self) -> bool:
        """Whether kernels are compiled while something else is done."""
        return self._apart is not None and self._apart.beside

    @property
    def is_aside(self) -> bool:
        return bool(self._aside)

    def put_aside(self, module: Any) -> None:
        """Take the code out of a module of IREE's, in whose context the caller is."""
        self._aside = code_aside.put_aside(module)

    def begin(self, kernels: Iterable[Executable]) -> None:
        """Begin to compile kernels apart, if any are.

        Raises:
            StepError: the compiler refused one.
        """
        if self._apart is not None:
            for kernel in kernels:
                for step in kernel.dispatches:
                    self._apart.begin(step.name, kernel.text)

    def restore(self, module: Any) -> None:
        """Give kernels their code back, or what stands for it where it was compiled apart: before IREE's
        phase ``executable-sources``, the first that looks at it.

        Raises:
            StepError: the compiler refused one that was compiled apart.
        """
        with ir.Location.unknown():
            if self._apart is not None:
                self._files = self._apart.files()
                self._aside |= {name: linked_code.stub(name) for name in self._files if name in self._aside}
            code_aside.put_back(module, self._aside)

    def link(self, module: Any) -> None:
        """Have kernels call the machine code that was compiled apart: after IREE's phase
        ``executable-targets``, which makes code of the rest."""
        with ir.Location.unknown():
            linked_code.call(module, self._files)

    def close(self) -> None:
        """Nothing is compiled any more."""
        if self._apart is not None:
            self._apart.close()
