"""``fred-split-k``: loops that can run in parts, each with a state of its own, and the repair that merges two."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.fred_chain import chains
from covan_mlir.dialects.fred_fused import read_fusion, rolling_ops, write_merge
from covan_mlir.fred.check import ClaimError, recover
from covan_mlir.fred.forms import Rolling
from covan_mlir.fred.rolling import write
from covan_mlir.passes.framework.interface import PassFailure


@dataclass(frozen=True)
class FredSplitK:
    """Writes the ``merge`` of each ``fred.rolling`` that repairs something: local partial reductions, a global repair.

    The state of a part is what its positions alone give. The merge repairs both sides to the statistics of the union:
    with attention this is FlashDecoding. Loops without repairs are `fred-privatize`'s.

    Before::

        "fred.rolling"() ({body}, {finish}, {})

    After, in short, for the sum of a softmax::

        "fred.rolling"() ({body}, {finish}, {
        ^bb0(%m.a, %l.a, %m.b, %l.b):
          %m.new = max(m.a, m.b)
          %l.new = l.a * exp(m.a - m.new) + l.b * exp(m.b - m.new)
          "fred.next"(%m.new), "fred.next"(%l.new)
        })
    """

    name: ClassVar[str] = "fred-split-k"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        write_merges(op, lambda rolling: rolling.dependent)


def write_merges(op: ir.Operation, wanted: Callable[[Rolling], bool]) -> None:
    """Writes the merges of those loops in ``op`` that are wanted and have none yet.

    Raises:
        PassFailure: a loop is not what follows from its repairs, so that nobody knows how its states merge.
    """
    for fused_op in chains(op, "fred.fused"):
        fusion = read_fusion(fused_op)
        loops = [stage for stage in fusion.stages if stage.rolling is not None]
        for loop, stage in zip(rolling_ops(fused_op), loops, strict=True):
            assert stage.rolling is not None
            if stage.split is not None or not wanted(stage.rolling):
                continue
            try:
                split = write(recover(fusion.chain, stage.rolling))[1]
            except ClaimError as error:
                raise PassFailure(str(error), loop.location) from error
            write_merge(loop, split, fusion.chain)
