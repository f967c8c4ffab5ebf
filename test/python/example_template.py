"""Sums of a matrix: for row in parallel: total = 0; for j in 0, lanes, ...: total += x[row, j : j + lanes]."""

from dataclasses import dataclass
from functools import reduce

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Read
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.reductions.operands import operands, traffic
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.template import Match, Schedule, Template
from covan_mlir.lowering.source_lines import SourceLines


@dataclass(frozen=True)
class SumSchedule(Schedule):
    lanes: int


@dataclass(frozen=True)
class SumMatch(Match[SumSchedule]):
    chain: Chain
    target: CpuTarget

    def schedules(self) -> list[SumSchedule]:
        widest, length = self.target.machine.lanes("f32"), operands(self.chain)[0][0].shape[-1]
        return [SumSchedule(lanes) for lanes in (widest, widest // 2, 1) if length % lanes == 0]

    def predict(self, schedule: SumSchedule) -> float:
        return traffic(self.chain) / (self.target.machine.bandwidth * self.target.machine.cores)

    def emit(self, schedule: SumSchedule, name: str, lines: SourceLines) -> Executable:
        (x,), (y,) = operands(self.chain)
        code = KernelBuilder(name, [x], [y], schedule.lanes)

        def body() -> None:
            def add(j: Value, totals: list[Value]) -> list[Value]:
                at = code.add(code.mul(code.workgroup, x.shape[-1]), j)
                return [code.op("addf", totals[0], code.load(code.memory[x.name], at))]

            (total,) = code.loop(0, x.shape[-1], schedule.lanes, [code.splat(0.0, "f32")], add)
            lanes = [code.lane(total, lane) for lane in range(schedule.lanes)]
            code.set_scalar(reduce(lambda a, b: code.op("addf", a, b), lanes), code.memory[y.name], code.workgroup)

        return Executable.single(name, code.write(body, lambda sizes: x.shape[0]), (x,), (y,))


@register
class Sum(Template[CpuTarget, SumSchedule]):
    name, target, chains = "example_sum", "cpu", ("rows",)

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> SumMatch | Refusal:
        x, step = chain.inputs[0], chain.reductions[0]
        plain = len(chain.steps) == 1 and len(x.axes) == 2 and not chain.extents and float(step.initial.value) == 0
        plain &= (step.combine, step.expr, step.over) == ("add", Read(x.name, "f32"), x.axes[-1:])
        return SumMatch(chain, target) if plain else Refusal("no sum of a matrix over its last axis", suits=False)
