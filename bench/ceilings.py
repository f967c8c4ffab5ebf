"""What the machine can do at most: fused multiply-adds and copies, measured through the same compiler and runtime."""

from __future__ import annotations

import time

import numpy as np

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.cpu.functions import fma
from covan_mlir.lowering.kernels.kernel import Executable, Operand
from covan_mlir.lowering.kernels.standalone import Standalone
from covan_mlir.machine.description import Machine

_CHAINS = 24
_STEPS = 400_000


def _operands(size: int) -> tuple[tuple[Operand], tuple[Operand]]:
    return (Operand("x", (size,), "f32"),), (Operand("y", (size,), "f32"),)


def _multiply_add(machine: Machine) -> Executable:
    lanes = machine.lanes("f32")
    size = machine.cores * lanes
    inputs, outputs = _operands(size)
    code = KernelBuilder("fma", inputs, outputs, lanes)

    def body() -> None:
        at = code.mul(code.workgroup, lanes)
        x = code.load(code.memory["x"], at)
        # Accumulators start apart from each other, so that no two chains are the same computation.
        start = [code.op("addf", x, code.splat(n, "f32")) for n in range(_CHAINS)]

        def step(_: Value, values: list[Value]) -> list[Value]:
            return [fma(code, v, x, x) for v in values]

        final = code.loop(0, _STEPS, 1, start, step)
        total = final[0]
        for value in final[1:]:
            total = code.op("addf", total, value)
        code.store(total, code.memory["y"], at)

    return Executable.single("fma", code.write(body, lambda sizes: machine.cores), inputs, outputs)


def _copy(machine: Machine, size: int) -> Executable:
    lanes, groups = machine.lanes("f32"), machine.cores * 8
    inputs, outputs = _operands(size)
    code = KernelBuilder("copy", inputs, outputs, lanes)

    def body() -> None:
        start = code.mul(code.workgroup, size // groups)

        def step(n: Value, _: list[Value]) -> list[Value]:
            loaded = [code.load(code.memory["x"], code.add(n, u * lanes)) for u in range(4)]
            for u, value in enumerate(loaded):
                code.store(value, code.memory["y"], code.add(n, u * lanes))
            return []

        code.loop(start, code.add(start, size // groups), 4 * lanes, [], step)

    return Executable.single("copy", code.write(body, lambda sizes: groups), inputs, outputs)


class Ceilings:
    """Calls that run at the machine's limits.

    Args:
        copied: bytes that the copy reads; as much is written.
    """

    def __init__(self, machine: Machine, copied: int = 8 << 20) -> None:
        groups = machine.cores * 8
        self.copied = copied // (groups * 256) * (groups * 256)
        alone = Standalone([_multiply_add(machine), _copy(machine, self.copied // 4)])
        self._x = alone.buffer(np.full(machine.cores * machine.lanes("f32"), 1e-3, np.float32))
        self._source = alone.buffer(np.ones(self.copied // 4, np.float32))
        self._fma, self._copy = alone["fma"], alone["copy"]
        self._flops = 2.0 * machine.cores * machine.lanes("f32") * _CHAINS * _STEPS

    def run_fma(self) -> object:
        """Fused multiply-adds on all cores."""
        return self._fma(self._x)

    def run_copy(self) -> object:
        """One copy."""
        return self._copy(self._source)

    def rates(self, fma: float, copy: float) -> tuple[float, float]:
        """-> (FLOP/s, bytes/s read and written) from the seconds of the two."""
        return self._flops / fma, 2 * self.copied / copy

    def flops(self) -> float:
        """FLOP/s of one run."""
        start = time.perf_counter()
        self.run_fma()
        return self.rates(time.perf_counter() - start, 1.0)[0]

    def bandwidth(self) -> float:
        """Bytes/s of one copy, read and written ones counted."""
        start = time.perf_counter()
        self.run_copy()
        return self.rates(1.0, time.perf_counter() - start)[1]
