"""A template whose kernels or code generation go wrong, for the process that measures: a user's own file."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.templates.product import ProductTemplate
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.template import Match, Schedule, Template
from covan_mlir.lowering.source_lines import SourceLines


@dataclass(frozen=True)
class Fault(Schedule):
    how: str


HOW = ("wrong", "crashes", "refuses", "no code", "aborts", "hangs")


@dataclass(frozen=True)
class FaultyMatch(Match[Fault]):
    right: Match
    target: CpuTarget

    def schedules(self) -> list[Fault]:
        return [Fault(how) for how in HOW]

    def predict(self, schedule: Fault) -> float:
        return 1.0

    def emit(self, schedule: Fault, name: str, lines: SourceLines) -> Executable:
        if schedule.how == "refuses":
            raise UnsupportedError("there is no code for it")
        if schedule.how == "aborts":
            os.abort()
        if schedule.how == "hangs":
            time.sleep(3600)
        (best, *_) = self.right.schedules()
        executable = self.right.emit(best, name, lines)
        if schedule.how == "no code":
            return replace(executable, text=executable.text.replace("arith.mulf", "arith.no_such_operation"))
        if schedule.how == "crashes":
            trap = """%w = arith.constant 16 : i64
              %q = llvm.inttoptr %w : i64 to !llvm.ptr
              llvm.store %w, %q : i64, !llvm.ptr
              """
            return replace(executable, text=executable.text.replace("return\n", trap + "return\n"))
        return replace(executable, text=executable.text.replace("arith.maximumf", "arith.minimumf"))


@register
class Faulty(Template[CpuTarget, Fault]):
    """What may happen."""

    name: ClassVar[str] = "faulty"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[str, ...]] = ("products",)

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> FaultyMatch | Refusal:
        right = ProductTemplate().match(chain, target)
        return right if isinstance(right, Refusal) else FaultyMatch(right, target)
