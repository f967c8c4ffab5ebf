"""``prov-lower-locations``: traces in builtin attributes, so that IR can leave the context."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.prov import detach_table, read_table
from covan_mlir.dialects.prov_locations import lower, rewrite_locations


@dataclass(frozen=True)
class ProvLowerLocations:
    """Replaces ``#prov.trace`` by names ``prov:<id>:<name>``, which every MLIR context can read.

    Before::

        linalg.add ... loc(fused<#prov.trace<[3, 5]>>["prov:3:mm"("model.py":7:0), "add"])

    After, where the module's table calls 5 ``add``::

        linalg.add ... loc(fused["prov:3:mm"("model.py":7:0), "prov:5:add"])

    Options:
        drop-table: also remove the table, whose op no other context knows.
    """

    name: ClassVar[str] = "prov-lower-locations"
    op_name: ClassVar[str | None] = "builtin.module"

    drop_table: bool = False

    def run(self, op: ir.Operation) -> None:
        table = detach_table(op) if self.drop_table else read_table(op)
        names = {id_: row.name for id_, row in table.rows.items()}
        rewrite_locations(op, lambda location: lower(location, names))
