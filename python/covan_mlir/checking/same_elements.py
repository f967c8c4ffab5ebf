"""Values of the source that hold the same elements in the same order, though they are computed of views of one another:
``exp(g[:, 0])`` and ``exp(g)`` where dimension 1 has one position. Compilers compute them once, and name either."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from math import prod

from covan_mlir.checking.sizes import has_symbols
from covan_mlir.checking.source_values import is_pointwise
from covan_mlir.checking.source_views import SourceViews
from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.bodies import shape_of
from covan_mlir.provenance.model import Part

_BEHIND = 256
"""Values that are looked at behind one."""
_DEEP = 64
"""Operators, one behind the other, by which two are computed alike."""


class SameElements:
    """Answers for the values of one source, remembered.

    An operator that works element by element gives the same elements wherever it stands, if it is called alike on the
    same elements; nothing is drawn or computed to find that out.
    """

    def __init__(self, views: SourceViews) -> None:
        self._views = views
        self._twin = views.drawn("normal", 0).twin
        self._known: dict[tuple[Operand, Operand], bool] = {}

    def standing(self, asked: Iterable[Operand], given: Sequence[Operand]) -> dict[Operand, Operand]:
        """Of the values that some are computed of, the nearest that hold the elements of one that is given."""
        by_operator: dict[str, list[Operand]] = {}
        for operand in given:
            if (part := self._pointwise(operand)) is not None:
                by_operator.setdefault(part.op, []).append(operand)
        alike: dict[Operand, Operand] = {}
        waiting, seen = deque(map(self._twin, asked)), set(map(self._twin, given))
        while waiting and by_operator and len(seen) < _BEHIND:
            current = waiting.popleft()
            if current in seen or current[0] != "p":
                continue
            seen.add(current)
            part = self._views.parts[int(current[1])]
            same = (one for one in by_operator.get(part.op, ()) if self._same(current, one, 0))
            if (holder := next(same, None)) is not None:
                alike[current] = holder
            else:
                waiting.extend(map(self._twin, arguments.operands(part.args)))
        return alike

    def _pointwise(self, operand: Operand) -> Part | None:
        """The operator that computes a value's elements, views of it looked through, if it works element by element."""
        (kind, name), layout = self._views.based(operand, None)
        part = self._views.parts[int(name)] if kind == "p" else None
        if part is None or layout is not None or len(part.types) != 1 or not is_pointwise(part.op):
            return None
        return part

    def _same(self, one: Operand, other: Operand, depth: int) -> bool:
        key = one, other
        if key not in self._known:
            self._known[key] = self._compared(one, other, depth)
        return self._known[key]

    def _compared(self, one: Operand, other: Operand, depth: int) -> bool:
        (first, layout), (second, moved) = self._views.based(one, None), self._views.based(other, None)
        if self._twin(first) == self._twin(second):
            return (layout is None and moved is None) or (
                layout is not None and moved is not None and layout.key == moved.key
            )
        left, right = self._pointwise(one), self._pointwise(other)
        if left is None or right is None or left.op != right.op or depth == _DEEP:
            return False
        if arguments.signature(left.args) != arguments.signature(right.args) or not self._one_size(left, right):
            return False
        pairs = zip(arguments.operands(left.args), arguments.operands(right.args), strict=True)
        return all(self._same(*pair, depth + 1) for pair in pairs)

    def _one_size(self, left: Part, right: Part) -> bool:
        """Whether two operators give as many elements of one type, and each of their operands has as many, or one: then
        the order is the operands', whatever the shapes."""
        sizes: list[int] = []
        for part in (left, right):
            kinds = [*part.types, *map(self._views.type_of, arguments.operands(part.args))]
            if any(map(has_symbols, kinds)):
                return False
            whole, *read = (prod(shape_of(kind)[1] or ()) for kind in kinds)
            if any(size not in (1, whole) for size in read):
                return False
            sizes += [whole, len(read)]
        return sizes[:2] == sizes[2:] and shape_of(left.types[0])[0] == shape_of(right.types[0])[0]
