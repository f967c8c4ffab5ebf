"""The table of a module's actions, for passes that ask what parts are of."""

from __future__ import annotations

from torch_mlir import ir

from covan_mlir.dialects.prov import has_table, read_table
from covan_mlir.dialects.prov_kept import kept_text, parse_kept
from covan_mlir.dialects.prov_table import Table
from covan_mlir.passes.framework.interface import PassFailure


def table_of(module: ir.Operation) -> Table:
    """The parts of the module's table, or of the one that was put aside.

    Raises:
        PassFailure: it has none.
    """
    if has_table(module):
        return read_table(module)
    text = kept_text(module)
    if text is None:
        raise PassFailure("the module has no table of provenance: nothing says what the parts are of")
    return parse_kept(text)
