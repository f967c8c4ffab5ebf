"""Cache stages: the part of an input that a workgroup reads for some loops, copied into scratch before them.

What is copied is a box, in an order in which lanes read what is contiguous, with what is outside of the input around
it: so reads in the inner loops need neither gathers nor checks. A dimension along which lanes move by more than one
element is taken apart by its axes; of all others a box holds each element once, however many taps read it::

    x[c, 2 w + s]    lanes along w:    box[c, s, w]          each tap has a row of its own
    x[c, w + s]      lanes along w:    box[c, w + s]
    x[w, c]          lanes along w:    box[c, w]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from iree.compiler.dialects import arith

from covan_mlir.lowering.kernels.cpu.accesses import Access
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Lanes, Position, Result, Uniform, widen
from covan_mlir.lowering.kernels.cpu.tiles import transpose


@dataclass(frozen=True)
class Coordinate:
    """A dimension of a box.

    Attributes:
        extent: positions.
        moves: how far a step moves in the input, on each dimension.
        terms: axes, and how far a step along them moves here.
        low: the least sum of the terms.
    """

    extent: int
    moves: tuple[int, ...]
    terms: tuple[tuple[str, int], ...]
    low: int = 0


@dataclass(frozen=True)
class Box:
    """The part of an input that some loops read.

    Attributes:
        sizes: of all axes.
        spans: positions that the loops have on each axis.
        lane: the axis that lanes run along.
    """

    access: Access
    sizes: Mapping[str, int]
    spans: Mapping[str, int]
    lane: str
    lanes: int

    @cached_property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """Dimensions of the box, the one that lanes run along last."""
        whole: list[Coordinate] = []
        apart: dict[str, list[int]] = {}
        rank = len(self.access.at)
        for d, position in enumerate(self.access.at):
            terms = tuple((axis, by) for axis, by in position.terms if self.spans[axis] > 1)
            if dict(terms).get(self.lane, 1) != 1:
                for axis, by in terms:
                    apart.setdefault(axis, [0] * rank)[d] = by
            elif terms:
                low = sum(min(0, by * (self.spans[axis] - 1)) for axis, by in terms)
                high = sum(max(0, by * (self.spans[axis] - 1)) for axis, by in terms)
                moves = tuple(int(n == d) for n in range(rank))
                whole.append(Coordinate(high - low + 1, moves, terms, low))
        whole += [Coordinate(self.spans[axis], tuple(by), ((axis, 1),)) for axis, by in apart.items()]
        of_lanes = [each for each in whole if self.lane in dict(each.terms)]
        return (*(each for each in whole if each not in of_lanes), *of_lanes) or (Coordinate(1, (0,) * rank, ()),)

    @cached_property
    def pitches(self) -> tuple[int, ...]:
        """Elements from one position to the next, on each coordinate; rows are whole vectors."""
        pitches, one = [], 1
        for n, each in enumerate(reversed(self.coordinates)):
            pitches.append(one)
            one *= each.extent if n else -(-each.extent // self.lanes) * self.lanes
        return tuple(reversed(pitches))

    @property
    def elements(self) -> int:
        """That it takes of scratch: lanes beyond the last position read what nobody uses."""
        return self.rows * self.vectors * self.lanes + self.lanes * max(1, self.distance)

    @property
    def rows(self) -> int:
        """All positions but those along the last coordinate."""
        return prod(each.extent for each in self.coordinates[:-1])

    @property
    def vectors(self) -> int:
        """Of a row."""
        return -(-self.coordinates[-1].extent // self.lanes)

    @property
    def distance(self) -> int:
        """Elements between two lanes."""
        pairs = zip(self.coordinates, self.pitches, strict=True)
        return sum(dict(each.terms).get(self.lane, 0) * pitch for each, pitch in pairs)

    @cached_property
    def across(self) -> int | None:
        """The coordinate along which the input lies together, where that is not the last one."""
        near = (*([0] * (len(self.access.at) - 1)), 1)
        if self.source_step in (0, 1):
            return None
        return next((n for n, each in enumerate(self.coordinates[:-1]) if each.moves == near), None)

    @property
    def source_step(self) -> int:
        """Elements of the input between two that lie side by side in a row."""
        strides = self.access.strides(self.sizes)
        return sum(by * stride for by, stride in zip(self.coordinates[-1].moves, strides, strict=True))


@dataclass
class CacheStage:
    """A box in scratch."""

    code: KernelBuilder
    box: Box

    def __post_init__(self) -> None:
        self.memory = self.code.scratch(self.box.elements, computed(self.box.access.value.dtype))
        self._first: Mapping[str, Value] = {}

    def fill(self, first: Mapping[str, Value]) -> None:
        """Copies the box.

        Args:
            first: the first position of the loops on each axis.
        """
        code, box = self.code, self.box
        self._first = first
        base = []
        for d, position in enumerate(box.access.at):
            low = sum(each.low * each.moves[d] for each in box.coordinates)
            terms = [code.mul(first[axis], by) for axis, by in position.terms]
            base.append(code.add(code.index(0), *terms, position.offset + low))
        self._nest(0, base, code.index(0))

    def _nest(self, level: int, positions: list[Value], to: Value) -> None:
        code, box = self.code, self.box
        if level == len(box.coordinates) - 1:
            if box.across is None:
                self._row(positions, to)
            else:
                self._transposed(positions, to, box.across)
            return
        if level == box.across:
            self._nest(level + 1, positions, to)
            return
        each, pitch = box.coordinates[level], box.pitches[level]

        def body(at: Value, none: list[Value]) -> list[Value]:
            self._nest(level + 1, self._moved(positions, each.moves, at), code.add(to, code.mul(at, pitch)))
            return none

        code.loop(0, each.extent, 1, [], body)

    def _moved(self, positions: list[Value], moves: tuple[int, ...], at: Value) -> list[Value]:
        return [self.code.add(start, self.code.mul(at, by)) for start, by in zip(positions, moves, strict=True)]

    def _row(self, positions: list[Value], to: Value) -> None:
        """Copies all along the last coordinate."""
        code, last = self.code, self.box.coordinates[-1]

        def body(at: Value, none: list[Value], length: int) -> list[Value]:
            value = self._read(self._moved(positions, last.moves, at), last.moves, self.box.source_step, length)
            code.store(value, self.memory, code.add(to, at))
            return none

        code.spans(0, last.extent, code.lanes, [], body)

    def _transposed(self, positions: list[Value], to: Value, across: int) -> None:
        """Copies all along the last coordinate and along the one that lies together in the input, by blocks that are
        transposed in registers."""
        code, box, lanes = self.code, self.box, self.code.lanes
        last, near, pitch = box.coordinates[-1], box.coordinates[across], box.pitches[across]

        def along(at: Value, none: list[Value], length: int) -> list[Value]:
            def block(start: Value, none: list[Value], count: int) -> list[Value]:
                there = self._moved(positions, near.moves, start)
                # Beyond the last one, that one once more: nobody reads it.
                places = [self._moved(there, last.moves, code.add(at, min(n, length - 1))) for n in range(lanes)]
                columns = [self._read(place, near.moves, 1, count) for place in places]
                for n, value in enumerate(transpose(code, columns)[:count]):
                    code.store(value, self.memory, code.add(to, at, code.mul(code.add(start, n), pitch)))
                return none

            code.spans(0, near.extent, lanes, [], block)
            return none

        code.spans(0, last.extent, lanes, [], along)

    def _read(self, positions: list[Value], moves: tuple[int, ...], step: int, length: int) -> Value:
        """Elements of the input, or what is outside of it.

        Args:
            positions: of the first one.
            moves, step: from one to the next, on each dimension and in memory.
            length: how many there are.
        """
        code, box, access = self.code, self.box, self.box.access
        valid = code.prefix(length) if length < code.lanes else None
        inside = self._inside(positions, moves)
        mask = valid if inside is None else inside if valid is None else code.op("andi", inside, valid)
        strides = access.strides(box.sizes)
        source = code.add(code.index(0), *(code.mul(p, s) for p, s in zip(positions, strides, strict=True)))
        memory = code.memory[access.value.name]
        value = code.load(memory, source, mask) if step == 1 else code.gather(memory, source, code.offsets(step), mask)
        value = widen(code, value, access.value.dtype)
        if inside is not None and access.outside.value != 0:
            value = code.op("select", inside, value, code.splat(access.outside.value, computed(access.value.dtype)))
        return value

    def _inside(self, positions: list[Value], moves: tuple[int, ...]) -> Value | None:
        """A mask of the elements that lie inside of the input; None if all do."""
        code, box = self.code, self.box
        mask: Value | None = None
        shape, leaving = box.access.shape(box.sizes), box.access.leaving(box.sizes)
        for position, by, size, leaves in zip(positions, moves, shape, leaving, strict=True):
            if not leaves:
                continue
            if by == 0:
                one = code.broadcast(code.within(position, size))
            else:
                # As numbers without a sign, negative ones are large.
                first = code.broadcast(code.cast("index_cast", position, "i32"))
                along = code.op("addi", first, code.iota(by))
                one = arith.cmpi(arith.CmpIPredicate.ult, along, code.splat(size, "i32"))
            mask = one if mask is None else code.op("andi", mask, one)
        return mask

    def read(self, position: Position) -> Result:
        """What is read at a position."""
        code, box = self.code, self.box
        terms = [code.index(-sum(each.low * pitch for each, pitch in zip(box.coordinates, box.pitches, strict=True)))]
        for each, pitch in zip(box.coordinates, box.pitches, strict=True):
            for axis, by in each.terms:
                terms.append(code.mul(code.op("subi", position.index[axis], self._first[axis]), by * pitch))
        at, distance = code.add(*terms), box.distance
        if distance == 0:
            return Uniform(code.scalar(self.memory, at))
        if distance == 1:
            return Lanes(code.load(self.memory, at))
        return Lanes(code.gather(self.memory, at, code.offsets(distance), None))
