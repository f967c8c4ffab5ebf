"""The provenance table put aside: as text, an attribute of the module, where the op cannot stand.

torch-mlir's pipelines take no op at module level that they do not know, and let attributes pass. ``prov.kept`` is the
table as JSON.
"""

from __future__ import annotations

import msgspec
from torch_mlir import ir

from covan_mlir.dialects.prov_table import Table

KEPT = "prov.kept"


def keep_table(module: ir.Operation, table: Table) -> None:
    """Puts a table aside."""
    module.attributes[KEPT] = ir.StringAttr.get(msgspec.json.encode(table).decode(), module.context)


def kept_text(module: ir.Operation) -> str | None:
    """The table that was put aside, as it stands there: equal texts are equal tables."""
    return str(module.attributes[KEPT].value) if KEPT in module.attributes else None


def parse_kept(text: str) -> Table:
    """The table that a text is.

    Raises:
        ValueError: it is none; the message says where it is wrong.
    """
    return msgspec.json.decode(text, type=Table)
