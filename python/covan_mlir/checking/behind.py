"""What of the source lies behind a value."""

from __future__ import annotations

from collections.abc import Iterator

from covan_mlir.checking.source_values import SourceValues
from covan_mlir.checking.source_views import SourceViews
from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.model import Part


def varying_parts(views: SourceViews, operand: Operand, source: SourceValues) -> Iterator[tuple[Operand, Part]]:
    """The parts behind a value that are no constants, it first. What was drawn is not looked behind."""
    stack, seen = [operand], set[Operand]()
    while stack:
        current = stack.pop()
        kind, name = current
        if current in seen or kind != "p" or views.constant.get(int(name), False):
            continue
        seen.add(current)
        if current != operand and source.twin(current) in source.given:
            continue
        part = views.parts[int(name)]
        stack += arguments.operands(part.args)
        yield current, part
