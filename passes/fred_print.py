"""``fred-print``: chains and fused forms as formulas."""

import sys
from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.fred_chain import chains, read_chain
from covan_mlir.dialects.fred_fused import read_fusion
from covan_mlir.fred.formulas import chain_lines
from covan_mlir.fred.sweep_formulas import sweep_lines


@dataclass(frozen=True)
class FredPrint:
    """Writes each ``fred.chain`` and ``fred.fused`` to standard error as formulas; the IR stays as it is.

    Before, and After, for nothing changes::

        %y = "fred.chain"(%x) ({softmax over j}) {axes = ["i", "j"], sizes = [5, 7], ...}

    On standard error::

        softmax: chain
          i = 5, j = 7
          x0[i, j]: f32
          v0[i]: f32 = max[j] (x0)
          v1[i, j]: f32 = x0 - v0
          v2[i, j]: f32 = exp(v1)
          v3[i]: f32 = add[j] (v2)
          v4[i, j]: f32 = v2 / v3
          return v4

    Of a fused form, the sweeps are written, each with its axes and why it is not part of the one before.
    """

    name: ClassVar[str] = "fred-print"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        function = ir.StringAttr(op.attributes["sym_name"]).value
        for chain in chains(op, "fred.chain", "fred.fused"):
            # The bindings can emit no remark.
            print("\n".join(lines(function, chain)), file=sys.stderr)


def lines(function: str, op: ir.Operation) -> list[str]:
    """The text of one ``fred.chain`` or ``fred.fused`` of a function."""
    if op.name == "fred.chain":
        return [f"{function}: chain", *(f"  {text}" for text in chain_lines(read_chain(op)))]
    written = [f"{function}: fused"]
    for stage in read_fusion(op).stages:
        why = f" ({stage.why})" if stage.why else ""
        written.append(f"  sweep over {', '.join(stage.axes) or 'rows'}{why}")
        written += (f"    {text}" for text in sweep_lines(stage))
    return written
