"""Chains with contractions and many rows: vector lanes run along the rows (queries), the loop over what they share.

Per group of rows, what belongs to the rows is transposed once into a scratch tile; scores come out as vectors of
rows, one per key, so that no reduction crosses lanes, keys and values are read in place as scalars, and nothing of
them is packed. Statistics are registers; the accumulators of the values are a scratch tile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from covan_mlir.fred.chain import Reduce
from covan_mlir.fred.expression import Apply, Expr, Read, reads
from covan_mlir.fred.forms import Fusion, Update
from covan_mlir.lowering.kernels.cpu.accumulators import accumulated, combining
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value, computed
from covan_mlir.lowering.kernels.cpu.evaluator import (
    Lanes,
    Position,
    Result,
    Uniform,
    VectorEvaluator,
    address,
    inputs,
    narrow,
)
from covan_mlir.lowering.kernels.cpu.schedule import Schedule
from covan_mlir.lowering.kernels.cpu.staging import Staging
from covan_mlir.lowering.kernels.cpu.tiles import ScratchTile, padded
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.hoist import Parts
from covan_mlir.lowering.kernels.reductions.masks import Span
from covan_mlir.lowering.kernels.reductions.plan import Pass, counted, plan, row_steps, transposed
from covan_mlir.lowering.kernels.reductions.roles import LoopRoles

Reader = Callable[[Value, Value, Value | None], Value]
Known = list[dict[str, Result]]
"""What is known of the rows, per vector of them."""


class ManyRowsWriter:
    """Writes the code of a workgroup."""

    def __init__(
        self, code: KernelBuilder, fusion: Fusion, sizes: Mapping[str, Size], schedule: Schedule, found: LoopRoles
    ) -> None:
        self.code, self.fusion, self.sizes, self.schedule, self.roles = code, fusion, sizes, schedule, found
        self.lane, self.stream, self.wide = schedule.lane, found.reduction_axis, found.feature_axis
        self.vectors = schedule.vectors
        length = sizes[self.stream]
        self.block = schedule.block // schedule.unroll * schedule.unroll
        self.block = min(self.block, length) if isinstance(length, int) else self.block
        self.plan = plan(fusion, found, [self.lane])
        self.evaluator = VectorEvaluator(code, fusion.chain, inputs(code, fusion.chain, sizes))
        self.evaluator.aliases = self.plan.elements
        self.batch = tuple(axis for axis in found.rows if axis != self.lane)
        self.dtype = computed(found.rolling.state[0].dtype)
        self.packs = Parts("pack")
        self.contractions = [(step, self._contraction(step)) for step in found.inner]
        self.span = Span(fusion, found, sizes, schedule.unroll)
        self.counted = counted(found.rolling)
        rows = sizes[self.lane]
        self.ragged = not isinstance(rows, int) or rows % (self.vectors * code.lanes) != 0

    def _groups(self, sizes: Mapping[str, Size]) -> Size:
        """Groups of rows per position of the other axes."""
        return self.code.ceildiv(sizes[self.lane], self.vectors * self.code.lanes)

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """Workgroups, one per group of rows, of sizes that may be others than the writer's own."""
        return self.code.mul(self.code.product(sizes[axis] for axis in self.batch), self._groups(sizes))

    def _contraction(self, step: Reduce) -> Expr:
        # What a score needs of its row alone is transposed into a tile before the loop.
        if len(step.over) != 1:
            raise UnsupportedError(f"{step.name} is a contraction over {len(step.over)} axes")

        def wanted(expr: Expr) -> bool:
            axes = self.plan.names.axes(expr)
            return {self.lane, step.over[0]} <= axes and self.stream not in axes

        return self.packs.take(self.plan.names.inlined(step.expr), wanted)

    # The function

    def write(self) -> None:
        """The whole function."""
        code = self.code
        rest, group = code.divmod(code.workgroup, self._groups(self.sizes))
        self.position: dict[str, Value] = {}
        for axis in reversed(self.batch):
            rest, self.position[axis] = code.divmod(rest, self.sizes[axis])
        self.first = code.mul(group, self.vectors * code.lanes)
        self._masks()
        self._tiles()
        for tile, expr, axis in self.pack_tiles.values():
            tile.pack(self.sizes[axis], self._reader(expr, axis), self.sizes[axis])
        for state in self.roles.rolling.state:
            if state.name in self.wide_tiles:
                tile = self.wide_tiles[state.name]
                tile.fill(self.sizes[self.wide or ""], code.splat(state.initial.value, self.dtype))
        rows = {**self.position, self.lane: self.first}
        low, high = self.span.bounds(code, rows, {**self.position, self.lane: self._last_row()})
        if self.counted:
            low, high = 0, self.sizes[self.stream]
        self._finish(self._loop(low, high))

    def _last_row(self) -> Value:
        end = self.code.add(self.first, self.vectors * self.code.lanes - 1)
        return self.code.min(end, self.code.add(self.sizes[self.lane], -1))

    def _masks(self) -> None:
        code, size = self.code, self.sizes[self.lane]
        self.valid: list[Value | None] = [None] * self.vectors
        if self.ragged:
            for u in range(self.vectors):
                left = code.op("subi", code.size(size), code.add(self.first, u * code.lanes))
                self.valid[u] = code.prefix(code.min(code.max(left, 0), code.lanes))

    def _tiles(self) -> None:
        code, lanes = self.code, self.code.lanes
        rows = padded(self.block, lanes)
        self.stored = {name: ScratchTile.make(code, rows, self.vectors, self.dtype) for name in self.plan.elements}
        self.inputs = {
            value.name: ScratchTile.make(code, rows, self.vectors, self._tile_dtype(value.dtype))
            for value in transposed(self.plan, self.lane)
        }
        self.parts: dict[str, ScratchTile] = {}
        free = [name for name in self.plan.elements if not self.plan.read_by_wide(name)]
        for number, step in enumerate(self.plan.passes):
            for name in step.parts:
                spare = next((n for n in free if self.plan.last_read(n) <= number), None)
                if spare is None:
                    self.parts[name] = ScratchTile.make(code, rows, self.vectors, self.dtype)
                else:
                    free.remove(spare)
                    self.parts[name] = self.stored[spare]
        self.staging = Staging(code, self.plan.names, self.sizes, self.stream, self.lane, self.block)
        self.read_in_place = dict(self.evaluator.sources)
        features = padded(self.sizes[self.wide], lanes) if self.wide else 0
        self.wide_tiles = {
            state.name: ScratchTile.make(code, features, self.vectors, self.dtype)
            for state in self.roles.rolling.state
            if self.plan.is_wide(state.axes)
        }
        self.pack_tiles: dict[str, tuple[ScratchTile, Expr, str]] = {}
        for inner, expr in self.contractions:
            axis = inner.over[0]
            for part, name in self.packs.named.items():
                if name in reads(expr) and name not in self.pack_tiles:
                    tile = ScratchTile.make(code, padded(self.sizes[axis], lanes), self.vectors, self.dtype)
                    self.pack_tiles[name] = (tile, part, axis)

    def _tile_dtype(self, dtype: str) -> str:
        return "i32" if dtype == "i1" else computed(dtype) if computed(dtype)[0] == "f" else "i64"

    def _reader(self, expr: Expr, axis: str, start: Value | int = 0) -> Reader:
        code = self.code

        def read(column: Value, row: Value, valid: Value | None) -> Value:
            at = code.min(code.add(self.first, column), code.add(self.sizes[self.lane], -1))
            value = self.evaluator.vector(
                expr, Position({**self.position, self.lane: at, axis: code.add(row, start)}, axis, valid)
            )
            return code.cast("extui", value, "i32") if code.dtype(value) == "i1" else value

        return read

    def _place(self, u: int, given: Mapping[str, Result], **index: Value) -> Position:
        at = self.code.add(self.first, u * self.code.lanes)
        return Position({**self.position, **index, self.lane: at}, self.lane, self.valid[u], given)

    # The loop

    def _loop(self, low: Value | int, high: Value | int) -> Known:
        code = self.code
        states = [state for state in self.roles.rolling.state if state.name not in self.wide_tiles]
        initial = [code.splat(s.initial.value, accumulated(s.dtype)) for s in states for _ in range(self.vectors)]

        def block(start: Value, values: list[Value], count: Value | int) -> list[Value]:
            known: Known = [
                {f"{s.name}.old": Lanes(values[n * self.vectors + u]) for n, s in enumerate(states)}
                for u in range(self.vectors)
            ]
            if self.counted:
                for moment, number in (("local", count), ("old", start)):
                    whole = code.cast("index_cast", code.add(number), "i64")
                    for row in known:
                        row[f"count.{moment}"] = Uniform(code.cast("sitofp", whole, self.dtype))
            self._block(start, count, known)
            return [self.evaluator.lanes(known[u][f"{s.name}.new"]) for s in states for u in range(self.vectors)]

        if isinstance(low, int) and isinstance(high, int):
            final = code.spans(low, high, self.block, initial, block)
        else:

            def body(start: Value, values: list[Value]) -> list[Value]:
                return block(start, values, code.min(code.op("subi", code.add(high), start), self.block))

            final = code.loop(low, high, self.block, initial, body)
        return [
            {f"{s.name}.new": Lanes(final[n * self.vectors + u]) for n, s in enumerate(states)}
            for u in range(self.vectors)
        ]

    def _block(self, start: Value, count: Value | int, known: Known) -> None:
        for value in transposed(self.plan, self.lane):
            tile = self.inputs[value.name]
            tile.pack(count, self._reader(Read(value.name, value.dtype), self.stream, start), self.block)
        for number, step in enumerate(self.plan.passes):
            if number == 0:
                self._stage([expr for _, expr in self.contractions], start, count)
                self._scores(start, count, step, known)
            else:
                self._pass(start, count, step, known)
            for line in step.rows:
                for u in range(self.vectors):
                    known[u][line.name] = self.evaluator.run(line.expr, self._place(u, known[u]))
            if step.wide or step.wide_rows:
                self._stage([line.expr for line in step.wide], start, count)
                self._wide(start, count, step, known)

    def _stage(self, exprs: list[Expr], start: Value, count: Value | int) -> None:
        self.staging.restore(self.evaluator, self.read_in_place)
        self.staging.fill(self.evaluator, exprs, start, count, self.position)

    def _sweep(
        self,
        count: Value | int,
        unroll: int,
        initial: list[Value],
        body: Callable[[Value, list[Value], int], list[Value]],
    ) -> list[Value]:
        # ``unroll`` positions at a time; one at a time where their number may leave some over.
        code = self.code
        if isinstance(count, int):
            whole: Value | int = count - count % unroll
        else:
            whole = code.mul(code.divmod(count, unroll)[0], unroll)
        values = code.loop(0, whole, unroll, initial, lambda n, v: body(n, v, unroll))
        # Where loops are bounded by a mask, they are in whole steps: then the axis' own length is what may leave some.
        length = count if isinstance(count, int) else self.sizes[self.stream]
        if not isinstance(length, int) or length % unroll:
            values = code.loop(whole, count, 1, values, lambda n, v: body(n, v, 1))
        return values

    def _start(self, step: Pass) -> list[Value]:
        return [
            self.code.splat(line.local.reduce.initial.value, accumulated(line.local.reduce.dtype))
            for line in step.narrow
            for _ in range(self.vectors)
        ]

    def _learn(self, step: Pass, final: list[Value], known: Known) -> None:
        for n, line in enumerate(step.narrow):
            for u in range(self.vectors):
                known[u][line.local.name] = Lanes(final[n * self.vectors + u])

    def _accumulate(self, step: Pass, values: list[Value], u: int, place: Position) -> None:
        for n, line in enumerate(step.narrow):
            slot = n * self.vectors + u
            value = self.evaluator.vector(line.expr, place)
            values[slot] = self.code.op(combining(line.local.reduce)[0], values[slot], value)

    def _scores(self, start: Value, count: Value | int, step: Pass, known: Known) -> None:
        code = self.code

        def keys(n: Value, values: list[Value], together: int) -> list[Value]:
            result = list(values)
            at = [code.add(start, n, k) for k in range(together)]
            scores = [self._contract(inner, expr, at) for inner, expr in self.contractions]
            for k in range(together):
                for u in range(self.vectors):
                    given = dict(known[u])
                    given |= {
                        inner.name: Lanes(s[k][u]) for (inner, _), s in zip(self.contractions, scores, strict=True)
                    }
                    given |= self._transposed(code.add(n, k), u)
                    place = self._place(u, given, **{self.stream: at[k]})
                    for name, element in self.plan.elements.items():
                        value = self.evaluator.vector(element, place)
                        self.stored[name].store(value, code.add(n, k), u)
                        given[name] = Lanes(value)
                    self._accumulate(step, result, u, place)
            return result

        self._learn(step, self._sweep(count, self.schedule.unroll, self._start(step), keys), known)

    def _transposed(self, row: Value, u: int) -> dict[str, Result]:
        found: dict[str, Result] = {}
        for value in transposed(self.plan, self.lane):
            loaded = self.inputs[value.name].load(row, u)
            if value.dtype == "i1":
                loaded = self.code.nonzero(loaded)
            found[value.name] = Lanes(loaded)
        return found

    def _contract(self, step: Reduce, expr: Expr, keys: list[Value]) -> list[list[Value]]:
        code = self.code
        op, neutral = combining(step)
        initial = [code.splat(neutral, self.dtype)] * (len(keys) * self.vectors)

        def body(n: Value, values: list[Value]) -> list[Value]:
            packed: Known = [
                {
                    name: Lanes(tile.load(n, u))
                    for name, (tile, _, axis) in self.pack_tiles.items()
                    if axis == step.over[0]
                }
                for u in range(self.vectors)
            ]
            result = []
            for k, key in enumerate(keys):
                for u in range(self.vectors):
                    place = self._place(u, packed[u], **{self.stream: key, step.over[0]: n})
                    value = self.evaluator.vector(expr, place)
                    result.append(code.op(op, values[k * self.vectors + u], value))
            return result

        final = code.loop(0, self.sizes[step.over[0]], 1, initial, body)
        if step.initial.value != neutral:
            first = code.splat(step.initial.value, self.dtype)
            final = [code.op(op, value, first) for value in final]
        return [final[k * self.vectors : (k + 1) * self.vectors] for k in range(len(keys))]

    def _stored(self, row: Value, u: int) -> dict[str, Result]:
        return {name: Lanes(tile.load(row, u)) for name, tile in self.stored.items()}

    def _pass(self, start: Value, count: Value | int, step: Pass, known: Known) -> None:
        code = self.code

        def keys(n: Value, values: list[Value]) -> list[Value]:
            result = list(values)
            for u in range(self.vectors):
                place = self._place(u, {**known[u], **self._stored(n, u)}, **{self.stream: code.add(start, n)})
                self._accumulate(step, result, u, place)
                for name, expr in step.parts.items():
                    self.parts[name].store(self.evaluator.vector(expr, place), n, u)
            return result

        self._learn(step, code.loop(0, count, 1, self._start(step), keys), known)

    def _wide(self, start: Value, count: Value | int, step: Pass, known: Known) -> None:
        code, wide = self.code, self.wide or ""
        updates, hoisted = self._hoisted(step.wide_rows, known)

        def features(first: Value, none: list[Value], together: int) -> list[Value]:
            at = [code.add(first, e) for e in range(together)]
            initial = [
                code.splat(line.local.reduce.initial.value, self.dtype) for line in step.wide for _ in at for _ in known
            ]

            def keys(n: Value, values: list[Value]) -> list[Value]:
                result = []
                given = [
                    {
                        **known[u],
                        **self._stored_for(step, n, u),
                        **{k: Lanes(t.load(n, u)) for k, t in self.parts.items()},
                    }
                    for u in range(self.vectors)
                ]
                slot = 0
                for line in step.wide:
                    for e in at:
                        for u in range(self.vectors):
                            place = self._place(u, given[u], **{self.stream: code.add(start, n), wide: e})
                            value = self.evaluator.vector(line.expr, place)
                            result.append(code.op(combining(line.local.reduce)[0], values[slot], value))
                            slot += 1
                return result

            final = code.loop(0, count, 1, initial, keys)
            for n, e in enumerate(at):
                for u in range(self.vectors):
                    given = {**known[u], **hoisted[u]}
                    for m, line in enumerate(step.wide):
                        given[line.local.name] = Lanes(final[(m * together + n) * self.vectors + u])
                    for name, tile in self.wide_tiles.items():
                        given[f"{name}.old"] = Lanes(tile.load(e, u))
                    for update, expr in updates:
                        place = self._place(u, dict(given), **{wide: e})
                        given[update.name] = self.evaluator.run(expr, place)
                        state, _, moment = update.name.rpartition(".")
                        if moment == "new":
                            self.wide_tiles[state].store(self.evaluator.lanes(given[update.name]), e, u)
            return none

        code.spans(0, self.sizes[wide], self.schedule.unroll, [], features)

    def _stored_for(self, step: Pass, row: Value, u: int) -> dict[str, Result]:
        wanted = {name for line in step.wide for name in reads(line.expr)}
        return {name: Lanes(tile.load(row, u)) for name, tile in self.stored.items() if name in wanted}

    def _hoisted(self, lines: list[Update], known: Known) -> tuple[list[tuple[Update, Expr]], Known]:
        # Factors of a repair are the same for all features.
        parts = Parts("row")

        def wanted(expr: Expr) -> bool:
            axes = self.plan.names.axes(expr)
            return isinstance(expr, Apply) and self.lane in axes and self.wide not in axes

        taken = [(line, parts.take(self.plan.names.inlined(line.expr), wanted)) for line in lines]
        values: Known = [
            {name: self.evaluator.run(expr, self._place(u, known[u])) for expr, name in parts.named.items()}
            for u in range(self.vectors)
        ]
        return taken, values

    # After the loop

    def _finish(self, known: Known) -> None:
        code, rolling = self.code, self.roles.rolling
        for update in rolling.finish:
            if not self.plan.is_wide(update.axes):
                for u in range(self.vectors):
                    known[u][update.name] = self.evaluator.run(update.expr, self._place(u, known[u]))
        for step in row_steps(self.plan):
            if not self.plan.is_wide(step.axes):
                for u in range(self.vectors):
                    known[u][step.name] = self.evaluator.run(step.expr, self._place(u, known[u]))
        spare = list(self.wide_tiles.values())
        wide_outputs = [
            name for name in self.fusion.chain.outputs if self.plan.is_wide(self.fusion.chain.values[name].axes)
        ]
        tiles = {}
        for name in wide_outputs:
            # In place: a position is read before it is written, once for all outputs.
            tiles[name] = (
                spare.pop(0)
                if spare
                else ScratchTile.make(code, padded(self.sizes[self.wide or ""], code.lanes), self.vectors, self.dtype)
            )
        if wide_outputs:
            code.loop(0, self.sizes[self.wide or ""], 1, [], lambda e, _: self._feature(e, tiles, known))
        for name in self.fusion.chain.outputs:
            if name in tiles:
                self._write_wide(name, tiles[name])
            else:
                for u in range(self.vectors):
                    self._write(name, u, self.evaluator.lanes(known[u][name]), self._place(u, {}))

    def _feature(self, e: Value, tiles: Mapping[str, ScratchTile], known: Known) -> list[Value]:
        for u in range(self.vectors):
            given = dict(known[u])
            for name, tile in self.wide_tiles.items():
                given[f"{name}.new"] = Lanes(tile.load(e, u))
            for update in self.roles.rolling.finish:
                if self.plan.is_wide(update.axes):
                    given[update.name] = self.evaluator.run(
                        update.expr, self._place(u, dict(given), **{self.wide or "": e})
                    )
            place = self._place(u, given, **{self.wide or "": e})
            values = {name: self.evaluator.vector(Read(name, ""), place) for name in tiles}
            for name, tile in tiles.items():
                tile.store(values[name], e, u)
        return []

    def _write(self, name: str, u: int, value: Value, place: Position) -> None:
        code, step = self.code, self.fusion.chain.values[name]
        at, distance = address(code, step.axes, self.sizes, place)
        lanes = narrow(code, value, step.dtype)
        if distance == 1:
            code.store(lanes, code.memory[name], at, place.valid)
        else:
            code.scatter(lanes, code.memory[name], at, distance, place.valid)

    def _write_wide(self, name: str, tile: ScratchTile) -> None:
        code, step, wide = self.code, self.fusion.chain.values[name], self.wide or ""
        if step.axes[-1] == self.lane:

            def direct(e: Value, _: list[Value]) -> list[Value]:
                for u in range(self.vectors):
                    self._write(name, u, tile.load(e, u), self._place(u, {}, **{wide: e}))
                return []

            code.loop(0, self.sizes[wide], 1, [], direct)
            return
        if step.axes[-1] != wide:
            raise UnsupportedError(f"{name} is not contiguous along {wide}")

        def write(value: Value, column: Value, first: Value, valid: Value | None) -> None:
            row = code.add(self.first, column)
            place = Position({**self.position, self.lane: row, wide: first}, wide)
            at, _ = address(code, step.axes, self.sizes, place)
            if self.ragged:
                valid = code.op(
                    "andi",
                    code.broadcast(code.below(row, self.sizes[self.lane])),
                    valid if valid is not None else code.splat(1, "i1"),
                )
            code.store(narrow(code, value, step.dtype), code.memory[name], at, valid)

        tile.unpack(self.sizes[wide], write)
