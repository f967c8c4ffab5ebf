"""Chains whose reductions run over the same axes: a row is swept several times while it is in cache.

Vector lanes run along a reduced axis (partial results per lane, combined at the end of a sweep) or along a kept one (a
vector of rows at a time, nothing to combine). Everything else is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from iree.compiler.dialects import arith

from covan_mlir.fred.chain import Chain, Map, Reduce
from covan_mlir.fred.expression import Read, reads
from covan_mlir.lowering.cpu.analysis import Sweeps
from covan_mlir.lowering.cpu.emit import Code, Value, computed
from covan_mlir.lowering.cpu.evaluate import (
    Evaluator,
    Lanes,
    Place,
    Result,
    Source,
    Uniform,
    address,
    inputs,
    load,
    narrow,
)
from covan_mlir.lowering.cpu.schedule import Schedule

_FLOAT = {
    "add": ("addf", 0.0),
    "mul": ("mulf", 1.0),
    "max": ("maximumf", float("-inf")),
    "min": ("minimumf", float("inf")),
    "maxnum": ("maxnumf", float("-inf")),
    "minnum": ("minnumf", float("inf")),
}
_INTEGER = {
    "add": ("addi", 0),
    "mul": ("muli", 1),
    "max": ("maxsi", -(2**63)),
    "min": ("minsi", 2**63 - 1),
    "and": ("andi", -1),
    "or": ("ori", 0),
}


def combining(step: Reduce) -> tuple[str, float | int]:
    """-> (operation of the arith dialect, its neutral element)."""
    return (_FLOAT if computed(step.dtype)[0] == "f" else _INTEGER)[step.combine]


def across(code: Code, op: str, value: Value) -> Value:
    """All lanes of a vector combined, by halves: the compiler's own order for maxima is one lane after the other."""
    half = code.lanes // 2
    while half:
        value = code.op(op, value, code.shuffle(value, value, [n ^ half for n in range(code.lanes)]))
        half //= 2
    return code.first(value)


def tree(code: Code, op: str, values: Sequence[Value]) -> Value:
    """Several values combined, with as few dependences as possible."""
    rest = list(values)
    while len(rest) > 1:
        pairs = [code.op(op, a, b) for a, b in zip(rest[::2], rest[1::2], strict=False)]
        rest = pairs + ([rest[-1]] if len(rest) % 2 else [])
    return rest[0]


def accumulated(dtype: str) -> str:
    """The element type that a reduction is computed in: narrow integers in 64 bits."""
    return computed(dtype) if computed(dtype)[0] == "f" or dtype == "i1" else "i64"


@dataclass
class Row:
    """A row (or a vector of them) being computed."""

    index: Mapping[str, Value]
    valid: Value | None
    evaluator: Evaluator
    known: dict[str, Result] = field(default_factory=dict)

    def learn(self, name: str, value: Result) -> None:
        """Makes a value known to the expressions of this row."""
        self.known[name] = value
        self.evaluator.sources[name] = lambda _place: value


class RowWriter:
    """Writes the code of a workgroup."""

    def __init__(self, code: Code, chain: Chain, sizes: Mapping[str, int], schedule: Schedule) -> None:
        self.code = code
        self.chain = chain
        self.sizes = sizes
        self.schedule = schedule
        self.sweeps = Sweeps(chain)
        self.inner = schedule.lane in self.sweeps.over
        self.outer = tuple(a.name for a in chain.axes if a.name in self.sweeps.over and a.name != schedule.lane)
        self.kept = tuple(a.name for a in chain.axes if a.name not in self.sweeps.over and a.name != schedule.lane)
        self.spare = self._places_for_kept()

    def _places_for_kept(self) -> dict[str, tuple[Value, tuple[str, ...], str]]:
        # A kept value goes where an output of later sweeps will be written, if there is one of its shape.
        free = list(self.sweeps.outputs)
        found: dict[str, tuple[Value, tuple[str, ...], str]] = {}
        for name in self.schedule.keep:
            step = self.chain.values[name]
            assert isinstance(step, Map)
            dtype = computed(step.dtype)
            last = max(s for s in range(self.sweeps.count) if name in self.sweeps.needed(s))
            for output in free:
                other = self.chain.values[output]
                if other.axes == step.axes and other.dtype == dtype and self.sweeps.level[output] >= last:
                    free.remove(output)
                    found[name] = (self.code.memory[output], other.axes, dtype)
                    break
        return found

    def write(self) -> None:
        """The whole function."""
        code, schedule = self.code, self.schedule
        rows = prod(self.sizes[a] for a in self.kept)
        (_, per_group) = schedule.parallel[0]
        if self.inner:
            start = code.mul(code.workgroup, per_group)
            stop = code.min(code.add(start, per_group), rows)
            code.loop(start, stop, schedule.unroll, [], lambda n, _: self._rows(n))
            return
        width = schedule.lanes * schedule.unroll
        blocks = -(-self.sizes[schedule.lane] // width)
        start = code.mul(code.workgroup, per_group)
        stop = code.min(code.add(start, per_group), rows * blocks)

        def block(n: Value, _: list[Value]) -> list[Value]:
            row, column = code.divmod(n, blocks)
            return self._columns(row, code.mul(column, width))

        code.loop(start, stop, 1, [], block)

    def _position(self, row: Value) -> dict[str, Value]:
        found = {}
        for axis in reversed(self.kept):
            row, found[axis] = self.code.divmod(row, self.sizes[axis])
        return found

    def _row(self, index: Mapping[str, Value], valid: Value | None) -> Row:
        sources: dict[str, Source] = inputs(self.code, self.chain, self.sizes)
        return Row(index, valid, Evaluator(self.code, self.chain, sources))

    def _rows(self, first: Value) -> list[Value]:
        count = self.schedule.unroll
        self._compute([self._row(self._position(self.code.add(first, r)), None) for r in range(count)])
        return []

    def _columns(self, row: Value, column: Value) -> list[Value]:
        code, lane, lanes = self.code, self.schedule.lane, self.schedule.lanes
        position = self._position(row)
        rows = []
        for u in range(self.schedule.unroll):
            at = code.add(column, u * lanes)
            valid = None
            if self.sizes[lane] % (lanes * self.schedule.unroll):
                left = arith.subi(code.index(self.sizes[lane]), at)
                valid = code.prefix(code.min(code.max(left, 0), lanes))
            rows.append(self._row({**position, lane: at}, valid))
        self._compute(rows)
        return []

    def _compute(self, rows: list[Row]) -> None:
        for sweep in range(self.sweeps.count):
            self._sweep(sweep, rows)
            for row in rows:
                self._maps(row)
        for row in rows:
            for name in dict.fromkeys(self.chain.outputs):
                if not self.sweeps.element(name):
                    self._store(name, row, row.known[name])

    def _maps(self, row: Row) -> None:
        # What is the same for the whole row is computed once, as soon as it can be.
        for step in self.chain.steps:
            if isinstance(step, Map) and step.name not in row.known and not self.sweeps.element(step.name):
                names = reads(step.expr)
                if all(
                    n in row.known for n in names if not isinstance(self.chain.values[n], type(self.chain.inputs[0]))
                ):
                    place = Place(row.index, self.schedule.lane, row.valid)
                    row.learn(step.name, row.evaluator.run(step.expr, place))

    def _sweep(self, sweep: int, rows: list[Row]) -> None:
        code = self.code
        steps = self.sweeps.reductions(sweep)
        copies = self.schedule.vectors if self.inner else 1
        kinds = [(step, *combining(step)) for step in steps]
        initial = [code.splat(n, accumulated(step.dtype)) for _ in rows for step, _, n in kinds for _ in range(copies)]
        fresh = [name for name in self.spare if self._first(name) == sweep]

        def visit(index: dict[str, Value], values: list[Value], length: int) -> list[Value]:
            result = list(values)
            vectors = -(-length // code.lanes) if self.inner else 1
            for u in range(vectors):
                for r, row in enumerate(rows):
                    place = self._place(row, index, u, length)
                    for name in fresh:
                        self._keep(name, row, place)
                    for k, (step, op, neutral) in enumerate(kinds):
                        value = row.evaluator.vector(step.expr, place)
                        if self.inner and place.valid is not None:
                            value = code.op("select", place.valid, value, code.like(neutral, value))
                        slot = (r * len(kinds) + k) * copies + u
                        result[slot] = code.op(op, result[slot], value)
                    for name in self.sweeps.outputs:
                        if self.sweeps.level[name] == sweep:
                            self._store(name, row, row.evaluator.run(Read(name, ""), place), place)
            return result

        final = self._nest(list(self.outer), {}, initial, visit)
        for r, row in enumerate(rows):
            for k, (step, op, _) in enumerate(kinds):
                slot = (r * len(kinds) + k) * copies
                total = tree(code, op, final[slot : slot + copies])
                if self.inner:
                    total = across(code, op, total)
                start = code.like(step.initial.value, total)
                total = code.op(op, total, start)
                row.learn(step.name, Uniform(total) if self.inner else Lanes(total))
        for name in fresh:
            memory, axes, dtype = self.spare[name]
            for row in rows:
                row.evaluator.sources[name] = load(code, memory, dtype, axes, self.sizes)

    def _first(self, name: str) -> int:
        return min(s for s in range(self.sweeps.count) if name in self.sweeps.needed(s))

    def _place(self, row: Row, index: Mapping[str, Value], u: int, length: int) -> Place:
        code, lane = self.code, self.schedule.lane
        if not self.inner:
            return Place({**row.index, **index}, lane, row.valid)
        left = length - u * code.lanes
        valid = None if left >= code.lanes else code.prefix(left)
        return Place({**row.index, **index, lane: code.add(index[lane], u * code.lanes)}, lane, valid)

    def _nest(
        self,
        axes: list[str],
        index: dict[str, Value],
        values: list[Value],
        visit: Callable[[dict[str, Value], list[Value], int], list[Value]],
    ) -> list[Value]:
        code = self.code
        if axes:
            return code.loop(
                0, self.sizes[axes[0]], 1, values, lambda n, v: self._nest(axes[1:], {**index, axes[0]: n}, v, visit)
            )
        if not self.inner:
            return visit(index, values, 0)
        lane = self.schedule.lane
        step = code.lanes * self.schedule.vectors
        return code.spans(0, self.sizes[lane], step, values, lambda n, v, length: visit({**index, lane: n}, v, length))

    def _keep(self, name: str, row: Row, place: Place) -> None:
        memory, axes, _ = self.spare[name]
        value = row.evaluator.lanes(row.evaluator.run(Read(name, ""), place))
        at, _ = address(self.code, axes, self.sizes, place)
        self.code.store(value, memory, at, place.valid)

    def _store(self, name: str, row: Row, value: Result, place: Place | None = None) -> None:
        code = self.code
        step = self.chain.values[name]
        memory = code.memory[name]
        where = place or Place(row.index, self.schedule.lane, row.valid)
        at, distance = address(code, step.axes, self.sizes, where)
        if not distance:
            assert isinstance(value, Uniform)
            code.set_scalar(narrow(code, value.value, step.dtype), memory, at)
        elif distance == 1:
            lanes = narrow(code, row.evaluator.lanes(value), step.dtype)
            code.store(lanes, memory, at, where.valid, self.schedule.nontemporal)
        else:
            lanes = narrow(code, row.evaluator.lanes(value), step.dtype)
            code.scatter(lanes, memory, at, distance, where.valid)
