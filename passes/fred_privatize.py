"""``fred-privatize``: partial copies of accumulators that nothing repairs."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.passes.fred_split_k import write_merges


@dataclass(frozen=True)
class FredPrivatize:
    """Writes the ``merge`` of each ``fred.rolling`` without repairs: copies are combined as elements are.

    So a reduction runs on several workers, or in several vector accumulators. Where partial results have to be repaired
    first, `fred-split-k` writes the merge.

    Before::

        "fred.rolling"() ({body}, {finish}, {})

    After, in short, for a sum::

        "fred.rolling"() ({body}, {finish}, {
        ^bb0(%s.a, %s.b):
          %s.new = s.a + s.b
          "fred.next"(%s.new)
        })
    """

    name: ClassVar[str] = "fred-privatize"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        write_merges(op, lambda rolling: not rolling.dependent)
