"""Products side by side in one dispatch: each workgroup is one of one of them.

::

    if workgroup < workgroups of the first: that workgroup of the first
    else:                                   that, less these, of the others
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size
from covan_mlir.lowering.kernels.cpu.dense import Writer


class SiblingsWriter:
    """Writes the code of a workgroup."""

    def __init__(self, code: KernelBuilder, sizes: Mapping[str, Size], writers: Sequence[Writer]) -> None:
        self.code, self.sizes, self.writers = code, sizes, writers

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """See `Writer`."""
        counts = [writer.workgroups(sizes) for writer in self.writers]
        return sum(counts) if all(isinstance(count, int) for count in counts) else self.code.add(*counts)

    def write(self) -> None:
        """See `Writer`."""
        self._write(self.writers)

    def _write(self, writers: Sequence[Writer]) -> None:
        code, (first, *others) = self.code, writers
        if not others:
            first.write()
            return
        number, count = code.workgroup, first.workgroups(self.sizes)

        def rest() -> None:
            with code.numbered(code.op("subi", number, code.size(count))):
                self._write(others)

        code.branch(code.below(number, count), first.write, rest)
