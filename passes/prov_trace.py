"""``prov-trace``: one canonical form for every trace."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.prov_locations import TraceReader, fuse, rewrite_locations


@dataclass(frozen=True)
class ProvTrace:
    """Turns every location that names a trace into the fused form with ``#prov.trace``, without nesting.

    Before::

        %0 = linalg.matmul ... loc("prov:3:mm"("model.py":7:0))
        %1 = linalg.add ... loc(fused[fused<#prov.trace<[3]>>["prov:3:mm"], "prov:5:add"])

    After::

        %0 = linalg.matmul ... loc(fused<#prov.trace<[3]>>["prov:3:mm"("model.py":7:0)])
        %1 = linalg.add ... loc(fused<#prov.trace<[3, 5]>>["prov:3:mm", "prov:5:add"])

    Locations without a trace stay as they are.
    """

    name: ClassVar[str] = "prov-trace"
    op_name: ClassVar[str | None] = None

    def run(self, op: ir.Operation) -> None:
        reader = TraceReader()
        context = op.context

        def canonical(location: ir.Location) -> ir.Location:
            return fuse([location], context, reader) if reader.ids(location) else location

        rewrite_locations(op, canonical)
