"""``prov-drop-table``: the provenance table out of the way of pipelines that take no op of ours."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.prov import detach_table, erase_table
from covan_mlir.dialects.prov_lines import lines_of, write_lines


@dataclass(frozen=True)
class ProvDropTable:
    """Removes the ``prov.table``: torch-mlir's backend contracts take no op at module level that they do not know.

    Traces stay. Nothing is left to check a pass against, but that it drops and invents none.

    Before::

        module {
          "prov.table"() ({
            "prov.action"() {id = 0, name = "mm", op = "aten.mm.default", frames = [{file = "model.py", line = 7, ...}]}
            "prov.part"() {id = 1, action = 0, ...}
          })

    After, with ``lines``::

        module attributes {prov.lines = [[[0, 1], "mm", "model.py", 7]]} {

    Options:
        lines: leave where the user wrote each action, for the line tables of code that is generated
    """

    name: ClassVar[str] = "prov-drop-table"
    op_name: ClassVar[str | None] = "builtin.module"

    lines: bool = False

    def run(self, op: ir.Operation) -> None:
        if self.lines:
            write_lines(op, lines_of(detach_table(op)))
        else:
            erase_table(op)
