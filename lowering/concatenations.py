"""Concatenations in place: what is concatenated is written where it belongs, and read there by all others.

IREE writes a value straight into the concatenation that alone reads it; what others read as well it copies, once for
each concatenation. Where the pieces of a concatenation lie one behind the other in memory, copies are not needed::

    %y = dispatch @conv(%x)                               %y = dispatch @conv(%x, %empty[0 for 64]) -> %empty
    %z = dispatch @depthwise(%y)                   =>     %z = dispatch @depthwise(%y[0 for 64], %y[64 for 64]) -> %y
    %all = update %z, (update %y, %empty[0])[64]          dispatch @next(%z)
    dispatch @next(%all)

A concatenation that is a piece of a larger one is that piece: a block of a DenseNet is one allocation.

It is done on IREE's ``stream`` dialect, right after the conversion to it and before copies are made: dispatches say
there which bytes they read and write. Nothing that is computed changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import iree.compiler.ir as ir
from iree.compiler.dialects import arith, stream
from iree.compiler.passmanager import PassManager

from covan_mlir.lowering.pipeline import PipelineState

_CONVERSION = "builtin.module(iree-stream-conversion)"
_DISPATCH = "stream.tensor.dispatch"
_UPDATE = "stream.tensor.update"
_VIEW = "stream.tensor.clone"
_EMPTY = "stream.tensor.empty"
_RESOURCE = "!stream.resource<*>"
_TRANSIENT = "!stream.resource<transient>"


def in_place(state: PipelineState) -> None:
    """The step, after IREE's flow phase, that writes the pieces of a module's concatenations in place."""
    module = state.module.operation
    with state.session.context, ir.Location.unknown():
        if not any(_concatenates(block) for block in _blocks(module)):
            return
        PassManager.parse(_CONVERSION).run(module)
        for block in _blocks(module):
            _Placement(block).write()


def _blocks(module: Any) -> list[Any]:
    functions = [view.operation for view in module.regions[0].blocks[0] if view.operation.name == "util.func"]
    return [block for function in functions for block in function.regions[0]]


def _concatenates(block: Any) -> bool:
    return any(view.operation.name == "flow.tensor.update" for view in block)


@dataclass(frozen=True)
class _Piece:
    """A value and where it goes in a concatenation, in bytes; ``update`` writes it there."""

    value: Any
    offset: int
    length: int
    update: Any


@dataclass(frozen=True, eq=False)
class _Concatenation:
    """Values that lie one behind the other.

    Attributes:
        result: all of them.
        length: of it, in bytes.
    """

    result: Any
    pieces: tuple[_Piece, ...]
    length: int


@dataclass(frozen=True)
class _Place:
    """Where a value lies: bytes of a concatenation."""

    home: _Concatenation
    offset: int
    length: int


class _Placement:
    """Where the values of a block lie, and the block with them there."""

    def __init__(self, block: Any) -> None:
        self._operations = [view.operation for view in block]
        self._known = set(self._operations)
        self._concatenations: dict[Any, _Concatenation] = {}
        self._places: dict[Any, _Place] = {}
        self._homes: list[_Concatenation] = []
        self._versions: dict[_Concatenation, Any] = {}
        """Of homes: with all that is written so far."""
        self._numbers: dict[int, Any] = {}
        for op in self._operations:
            if op.name == _UPDATE and (concatenation := self._concatenation(op)) is not None:
                self._concatenations[op.results[0]] = concatenation
        for concatenation in sorted(self._concatenations.values(), key=lambda each: -each.length):
            self._place(concatenation)

    # What there is.

    def _concatenation(self, last: Any) -> _Concatenation | None:
        """What an update completes, if each piece of it is a run of bytes."""
        if any(
            reader.name == _UPDATE and reader.operands[0] == last.results[0] for reader in _readers(last.results[0])
        ):
            return None
        pieces: list[_Piece] = []
        op, whole = last, _bytes(last.attributes["target_encoding"])
        while True:
            run = _run(op)
            if run is None or whole is None:
                return None
            value = self._origin(_segments(op)[4][0])
            inner = self._concatenations.get(value)
            pieces += [
                _Piece(piece.value, run[0] + piece.offset, piece.length, op if inner is None else piece.update)
                for piece in (inner.pieces if inner is not None else (_Piece(value, 0, run[1], op),))
            ]
            target = op.operands[0].owner
            if isinstance(target, ir.Block):
                return None
            if target.name == _EMPTY:
                break
            if target.name != _UPDATE or len(_readers(target.results[0])) != 1:
                return None
            op = target
        return _Concatenation(last.results[0], tuple(sorted(pieces, key=lambda piece: piece.offset)), whole)

    def _origin(self, value: Any) -> Any:
        """What a value is in another shape."""
        owner = value.owner
        while not isinstance(owner, ir.Block) and _is_view(owner):
            value = owner.operands[0]
            owner = value.owner
        return value

    def _final_readers(self, value: Any) -> Iterator[Any]:
        """Who reads a value, in whatever shape."""
        for reader in _readers(value):
            if _is_view(reader):
                yield from self._final_readers(reader.results[0])
            else:
                yield reader

    def _is_plain(self, op: Any) -> bool:
        return op in self._known and _is_plain(op)

    # Where it lies.

    def _place(self, concatenation: _Concatenation) -> None:
        for home in self._homes:
            offset = _within(concatenation, home)
            if offset is not None:
                self._places[concatenation.result] = _Place(home, offset, concatenation.length)
                return
        pieces = [piece for piece in concatenation.pieces if self._can_lie(piece)]
        if not self._stays(concatenation.result):
            # What leaves the program is in memory of another kind: no operation both reads and writes it in place.
            written = {piece.value.owner for piece in pieces}
            pieces = [piece for piece in pieces if not written.intersection(self._final_readers(piece.value))]
        if pieces:
            self._homes.append(concatenation)
            self._places[concatenation.result] = _Place(concatenation, 0, concatenation.length)
            for piece in pieces:
                self._places[piece.value] = _Place(concatenation, piece.offset, piece.length)

    def _stays(self, value: Any) -> bool:
        """Whether only dispatches and concatenations read a value, and what is written in its place."""
        for reader in self._final_readers(value):
            if reader.name not in (_DISPATCH, _UPDATE):
                return False
            for result, operand in zip(reader.results, _tied(reader), strict=False):
                if operand is not None and self._origin(operand) == self._origin(value) and not self._stays(result):
                    return False
        return True

    def _can_lie(self, piece: _Piece) -> bool:
        """Whether a piece can be written in place, and read there by all that read it."""
        owner = piece.value.owner
        return (
            piece.value not in self._places
            and not isinstance(owner, ir.Block)
            and self._is_plain(owner)
            and len(owner.results) == 1
            and "tied_operands" not in owner.attributes
            and _bytes(next(iter(owner.attributes["result_encodings"]))) == piece.length
            and all(
                self._is_plain(reader) or (reader.name == _UPDATE and reader in self._known)
                for reader in self._final_readers(piece.value)
            )
        )

    # The block with it there.

    def write(self) -> None:
        """Rewrites the block, in order. What is read is the last version, for pieces do not overlap."""
        if not self._homes:
            return
        copied: dict[Any, list[tuple[_Concatenation, _Piece]]] = defaultdict(list)
        gone: set[Any] = set()
        for value, place in self._places.items():
            if (concatenation := self._concatenations.get(value)) is not None:
                gone |= {piece.update for piece in concatenation.pieces}
                gone |= self._above(value)
                for piece in concatenation.pieces if place.home is concatenation else ():
                    if self._places.get(piece.value) != _Place(place.home, piece.offset, piece.length):
                        copied[piece.value].append((place.home, piece))
        first = self._operations[0]
        for value in [value for value in copied if isinstance(value.owner, ir.Block)]:
            self._copy(value, copied.pop(value), first)
        for op, following in zip(self._operations, [*self._operations[1:], None], strict=True):
            results = list(op.results)
            given = op if op in gone or _is_view(op) else self._redirected(op)
            for before, value in zip(results, given.results, strict=True):
                if before in copied:
                    self._copy(value if before not in self._places else before, copied[before], following)
        for op in reversed(self._operations):
            replaced = op in gone or op.name in (_VIEW, _DISPATCH, _EMPTY)
            if replaced and not any(True for result in op.results for _ in result.uses):
                op.erase()

    def _above(self, value: Any) -> set[Any]:
        """The updates that end in a value."""
        updates: set[Any] = set()
        while (op := value.owner).name == _UPDATE:
            updates.add(op)
            value = op.operands[0]
        return updates

    def _redirected(self, op: Any) -> Any:
        """The operation with operands read where they lie, and its result written there."""
        places = [self._places.get(self._origin(operand)) for operand in op.operands]
        target = self._places.get(op.results[0]) if len(op.results) == 1 else None
        if target is None and not any(places):
            return op
        with op.location, ir.InsertionPoint(op):
            if _is_plain(op):
                return self._dispatch(op, places, target)
            for k, place in enumerate(places):
                if place is not None:
                    op.operands[k] = self._piece(place)
        return op

    def _dispatch(self, op: Any, places: list[_Place | None], target: _Place | None) -> Any:
        workload, operands, sizes, _, result_sizes, _ = _segments(op)
        ends, offsets, lengths, wholes = [], [], [], []
        remaining = iter(sizes)
        for k, operand in enumerate(operands):
            if str(operand.type) != _RESOURCE:
                continue
            size = next(remaining)
            place = places[len(workload) + k]
            if place is not None:
                operands[k] = self._read(place, None if target is None else target.home)
            wholes.append(size if place is None else self._number(place.home.length))
            offsets.append(self._number(0 if place is None else place.offset))
            ends.append(size if place is None else self._number(place.offset + place.length))
            lengths.append(size if place is None else self._number(place.length))
        tied = None
        if target is not None:
            tied = ir.ArrayAttr.get([ir.IntegerAttr.get(ir.IndexType.get(), len(operands))])
            operands.append(self._version(target.home, op))
            wholes.append(self._number(target.home.length))
            offsets.append(self._number(target.offset))
            ends.append(self._number(target.offset + target.length))
            lengths.append(self._number(target.length))
            result_sizes = [self._number(target.home.length)]
        new = stream.AsyncDispatchOp(
            [result.type for result in op.results],
            workload,
            op.attributes["entry_points"],
            operands,
            wholes,
            offsets,
            ends,
            lengths,
            result_sizes,
            tied_operands=tied,
            affinity=_affinity(op),
        ).operation
        if target is not None:
            self._versions[target.home] = new.results[0]
        else:
            for before, result in zip(op.results, new.results, strict=True):
                before.replace_all_uses_with(result)
        return new

    def _read(self, place: _Place, written: _Concatenation | None) -> Any:
        """The concatenation that a value lies in, to be read by an operation that writes into another one, or none."""
        version = self._versions[place.home]
        if place.home is not written:
            return version
        # Of one value, read and written by one operation, a copy would be made; of a cast none is left.
        size = self._number(place.home.length)
        return stream.AsyncCastOp(ir.Type.parse(_TRANSIENT), version, size, size).result

    def _piece(self, place: _Place) -> Any:
        """A value that lies in a concatenation, by itself: a copy, unless it is all of it."""
        version, whole = self._versions[place.home], self._number(place.home.length)
        if place.length == place.home.length:
            return version
        start, end = self._number(place.offset), self._number(place.offset + place.length)
        return stream.AsyncSliceOp(version, whole, start, end, self._number(place.length)).result

    def _copy(self, value: Any, pieces: list[tuple[_Concatenation, _Piece]], before: Any) -> None:
        """Writes a value that lies elsewhere into concatenations."""
        for home, piece in pieces:
            with piece.update.location, ir.InsertionPoint(before):
                place = self._places.get(value)
                source = value if place is None else self._piece(place)
                numbers = [self._number(n) for n in (home.length, piece.offset, piece.offset + piece.length)]
                target, length = self._version(home, piece.update), self._number(piece.length)
                self._versions[home] = stream.AsyncUpdateOp(
                    target, *numbers, source, length, affinity=_affinity(piece.update)
                ).result

    def _version(self, home: _Concatenation, op: Any) -> Any:
        """A home with all that is written so far; at first, there is nothing."""
        if home not in self._versions:
            kind, size = ir.Type.parse(_RESOURCE), self._number(home.length)
            self._versions[home] = stream.AsyncAllocaOp(kind, size, affinity=_affinity(op)).result
        return self._versions[home]

    def _number(self, number: int) -> Any:
        if number not in self._numbers:
            with ir.Location.unknown(), ir.InsertionPoint.at_block_begin(self._operations[0].block):
                self._numbers[number] = arith.constant(ir.IndexType.get(), number)
        return self._numbers[number]


def _within(concatenation: _Concatenation, home: _Concatenation) -> int | None:
    """Where in a home all pieces of a concatenation lie one behind the other, as they do in itself."""
    first = concatenation.pieces[0]
    theirs = [(piece.value, piece.offset, piece.length) for piece in home.pieces]
    for value, offset, _ in theirs:
        start = offset - first.offset
        if value == first.value and all(
            (piece.value, start + piece.offset, piece.length) in theirs for piece in concatenation.pieces
        ):
            return start
    return None


def _readers(value: Any) -> list[Any]:
    return [use.owner.operation for use in value.uses]


def _is_view(op: Any) -> bool:
    """Whether an operation gives what it is given, in another shape."""
    if op.name != _VIEW:
        return False
    sizes = [_bytes(op.attributes[name]) for name in ("source_encoding", "result_encoding")]
    return sizes[0] is not None and sizes[0] == sizes[1]


def _is_plain(op: Any) -> bool:
    """Whether an operation is a dispatch that reads and gives tensors as they are, in memory of their own."""
    if op.name != _DISPATCH or "tied_operands" in op.attributes:
        return False
    encodings = [*op.attributes["operand_encodings"], *op.attributes["result_encodings"]]
    kinds = [encoding.value for encoding in encodings if isinstance(encoding, ir.TypeAttr)]
    return all(ir.RankedTensorType(kind).encoding is None for kind in kinds if isinstance(kind, ir.RankedTensorType))


def _run(update: Any) -> tuple[int, int] | None:
    """-> (offset, length) in bytes of what an update writes; None where that is no run of bytes."""
    whole, part = (update.attributes[name] for name in ("target_encoding", "update_encoding"))
    starts = [_constant(start) for start in _segments(update)[3]]
    length = _bytes(part)
    if length is None or _bytes(whole) is None or None in starts:
        return None
    extents, sizes = (list(ir.RankedTensorType(encoding.value).shape) for encoding in (whole, part))
    cut = max((i for i, size in enumerate(sizes) if size != extents[i]), default=0)
    if len(starts) != len(sizes) or any(size != 1 for size in sizes[:cut]):
        return None
    offset = 0
    for start, extent in zip(starts, extents, strict=True):
        offset = offset * extent + (start or 0)
    return offset * (length // prod(sizes)), length


def _bytes(encoding: Any) -> int | None:
    """How many a tensor has; None where that is not known, or its elements do not lie one behind the other."""
    kind = encoding.value if isinstance(encoding, ir.TypeAttr) else None
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape or kind.encoding is not None:
        return None
    element = kind.element_type
    if not isinstance(element, ir.FloatType | ir.IntegerType) or element.width % 8:
        return None
    return int(prod(kind.shape) * element.width // 8)


def _constant(value: Any) -> int | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    return int(ir.IntegerAttr(owner.attributes["value"]).value)


def _tied(dispatch: Any) -> list[Any]:
    """For each result of a dispatch the operand in whose place it is written, or None; nothing if there is none."""
    if "tied_operands" not in dispatch.attributes:
        return []
    operands = _segments(dispatch)[1]
    numbers = [ir.IntegerAttr(number).value for number in dispatch.attributes["tied_operands"]]
    return [operands[number] if number >= 0 else None for number in numbers]


def _segments(op: Any) -> list[list[Any]]:
    """The operands of an operation, by what they are."""
    operands = iter(op.operands)
    return [[next(operands) for _ in range(count)] for count in op.attributes["operandSegmentSizes"]]


def _affinity(op: Any) -> Any:
    return op.attributes.get("affinity")
