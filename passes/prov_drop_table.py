"""``prov-drop-table``: the provenance table out of the way of pipelines that take no op of ours."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.prov import detach_table, erase_table, has_table
from covan_mlir.dialects.prov_kept import keep_table
from covan_mlir.dialects.prov_lines import lines_of, write_lines


@dataclass(frozen=True)
class ProvDropTable:
    """Removes the ``prov.table``: torch-mlir's backend contracts take no op at module level that they do not know.

    Traces stay.

    Before::

        module {
          "prov.table"() ({
            "prov.action"() {id = 0, name = "mm", op = "aten.mm.default", frames = [{file = "model.py", line = 7, ...}]}
            "prov.part"() {id = 1, action = 0, ...}
          })

    After, with ``lines`` and ``keep``::

        module attributes {prov.kept = "{\\22actions\\22:...}", prov.lines = [[[0, 1], "mm", "model.py", 7]]} {

    Options:
        lines: leave where the user wrote each action, for the line tables of code that is generated
        keep: leave the table as text, for checks later on (prov-check)
    """

    name: ClassVar[str] = "prov-drop-table"
    op_name: ClassVar[str | None] = "builtin.module"

    lines: bool = False
    keep: bool = False

    def run(self, op: ir.Operation) -> None:
        if not has_table(op):
            return
        if not (self.lines or self.keep):
            erase_table(op)
            return
        table = detach_table(op)
        if self.lines:
            write_lines(op, lines_of(table))
        if self.keep:
            keep_table(op, table)
