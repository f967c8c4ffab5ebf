"""Chains with contractions and many rows: vector lanes run along the rows (queries), the loop over what they share.

For attention, with queries q[i, d], keys k[j, d] and values v[j, e], a workgroup runs this nest::

    i = vectors * lanes rows of one position of the other axes
    packed[d, i] = q[i, d]                            # transposed in registers; in scratch, like all tiles
    features[e, i] = initial                          # accumulators of the values
    statistics[i] = initial                           # registers: one vector each per vector of rows
    for start in range(low, high, block):             # low, high: what masks leave to any of the rows
        inputs[j, i] = bias[i, start + j]             # inputs with a value per row and key: transposed
        widened[j, d] = k[start + j, d]               # halves only
        for j in block step unroll:                   # the first pass: scores
            for d:
                score[unroll, i] += packed[d, i] * k[start + j, d]          # keys are scalars, read in place
            elements[j, i] = element(score[unroll, i], inputs[j, i])
            local[i] = max(local[i], elements[j, i])                        # the pass's reductions per row
        statistics[i] = update(statistics[i], local[i])
        for each further pass:
            for j in block:
                local[i] += exp(elements[j, i] - statistics[i])
                parts[j, i] = exp(elements[j, i] - statistics[i])           # what values are weighted by
            statistics[i] = update(statistics[i], local[i])
            widened[j, e] = v[start + j, e]           # halves only
            for e step unroll:                        # where the pass has reductions per feature
                for j in block:
                    local[unroll, i] += parts[j, i] * v[start + j, e]
                features[e, i] = update(features[e, i], local[unroll, i])
    for e:                                            # see `covan_mlir.lowering.kernels.cpu.group_outputs`
        features[e, i] = finish(features[e, i], statistics[i])              # in place
    y[i, e] = features[e, i]                          # transposed back

No reduction crosses lanes, keys and values are read in place as scalars, and nothing of them is packed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from covan_mlir.fred.chain import Reduce
from covan_mlir.fred.expression import Apply, Expr, Read, reads
from covan_mlir.fred.forms import Fusion, Update
from covan_mlir.lowering.kernels.cpu.accumulators import combining
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.elements import accumulated, computed
from covan_mlir.lowering.kernels.cpu.evaluator import (
    Lanes,
    Position,
    Result,
    Uniform,
    VectorEvaluator,
    inputs,
)
from covan_mlir.lowering.kernels.cpu.group_outputs import GroupOutputs
from covan_mlir.lowering.kernels.cpu.loop_range import loop_range
from covan_mlir.lowering.kernels.cpu.row_group import GroupTiles, Known, PackedTile, RowGroup
from covan_mlir.lowering.kernels.cpu.schedule import VectorSchedule
from covan_mlir.lowering.kernels.cpu.staging import Staging
from covan_mlir.lowering.kernels.cpu.tiles import ScratchTile, padded
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.hoist import Parts
from covan_mlir.lowering.kernels.reductions.masks import span
from covan_mlir.lowering.kernels.reductions.plan import LoopPass, counted, plan, transposed
from covan_mlir.lowering.kernels.reductions.roles import LoopRoles

Reader = Callable[[Value, Value, Value | None], Value]
"""Gives a vector along an axis for a row: of row, first position, mask of the positions that exist."""


class ManyRowsWriter:
    """Writes the code of a workgroup."""

    def __init__(
        self, code: KernelBuilder, fusion: Fusion, sizes: Mapping[str, Size], schedule: VectorSchedule, roles: LoopRoles
    ) -> None:
        self.code, self.fusion, self.sizes, self.schedule, self.roles = code, fusion, sizes, schedule, roles
        self.lane, self.reduction_axis, self.feature_axis = schedule.lane, roles.reduction_axis, roles.feature_axis
        self.vectors = schedule.vectors
        length = sizes[self.reduction_axis]
        self.block = schedule.block // schedule.unroll * schedule.unroll
        self.block = min(self.block, length) if isinstance(length, int) else self.block
        self.plan = plan(fusion, roles, [self.lane])
        self.evaluator = VectorEvaluator(code, fusion.chain, inputs(code, fusion.chain, sizes), self.plan.elements)
        self.transposed = transposed(self.plan, self.lane)
        self.batch = tuple(axis for axis in roles.rows if axis != self.lane)
        self.dtype = computed(roles.rolling.state[0].dtype)
        self.packs = Parts("pack")
        self.contractions = [(step, self._contraction(step)) for step in roles.inner]
        self.span = span(fusion, roles, sizes)
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

        def of_the_row(expr: Expr) -> bool:
            axes = self.plan.scope.axes(expr)
            return {self.lane, step.over[0]} <= axes and self.reduction_axis not in axes

        return self.packs.take(self.plan.scope.inlined(step.expr), of_the_row)

    # The function

    def write(self) -> None:
        """The whole function."""
        code = self.code
        group = self._group()
        tiles = self._tiles()
        for packed in tiles.packed.values():
            size = self.sizes[packed.axis]
            packed.tile.pack(size, self._reader(group, packed.expr, packed.axis), size)
        for state in self.roles.rolling.state:
            if state.name in tiles.features:
                initial = code.splat(state.initial.value, self.dtype)
                tiles.features[state.name].fill(self.sizes[self.feature_axis or ""], initial)
        rows = {**group.position, self.lane: group.first}
        last = {**group.position, self.lane: self._last_row(group)}
        low, high = loop_range(code, self.span, self.sizes, self.schedule.unroll, rows, last)
        if counted(self.roles.rolling):
            low, high = 0, self.sizes[self.reduction_axis]
        known = self._loop(group, tiles, low, high)
        GroupOutputs(code, self.plan, self.sizes, self.evaluator, group).write(tiles, known)

    def _group(self) -> RowGroup:
        code, size = self.code, self.sizes[self.lane]
        rest, number = code.divmod(code.workgroup, self._groups(self.sizes))
        position: dict[str, Value] = {}
        for axis in reversed(self.batch):
            rest, position[axis] = code.divmod(rest, self.sizes[axis])
        first = code.mul(number, self.vectors * code.lanes)
        valid: list[Value | None] = [None] * self.vectors
        if self.ragged:
            for u in range(self.vectors):
                left = code.op("subi", code.size(size), code.add(first, u * code.lanes))
                valid[u] = code.prefix(code.min(code.max(left, 0), code.lanes))
        return RowGroup(code, self.lane, position, first, tuple(valid))

    def _last_row(self, group: RowGroup) -> Value:
        end = self.code.add(group.first, self.vectors * self.code.lanes - 1)
        return self.code.min(end, self.code.add(self.sizes[self.lane], -1))

    def _tile(self, rows: int, dtype: str = "") -> ScratchTile:
        return ScratchTile.make(self.code, rows, self.vectors, dtype or self.dtype)

    def _tiles(self) -> GroupTiles:
        lanes = self.code.lanes
        rows = padded(self.block, lanes)
        elements = {name: self._tile(rows) for name in self.plan.elements}
        transposed_inputs = {value.name: self._tile(rows, self._tile_dtype(value.dtype)) for value in self.transposed}
        parts: dict[str, ScratchTile] = {}
        free = [name for name in self.plan.elements if not self.plan.read_per_feature(name)]
        for number, loop_pass in enumerate(self.plan.passes):
            for name in loop_pass.parts:
                # In place of an element that nobody reads any more.
                over = next((element for element in free if self.plan.last_read(element) <= number), None)
                if over is None:
                    parts[name] = self._tile(rows)
                else:
                    free.remove(over)
                    parts[name] = elements[over]
        staging = Staging(self.code, self.fusion.chain, self.sizes, self.reduction_axis, self.lane, self.block)
        feature_rows = padded(self.sizes[self.feature_axis], lanes) if self.feature_axis else 0
        features = {
            state.name: self._tile(feature_rows)
            for state in self.roles.rolling.state
            if self.plan.per_feature(state.axes)
        }
        packed: dict[str, PackedTile] = {}
        for inner, expr in self.contractions:
            axis = inner.over[0]
            for part, name in self.packs.named.items():
                if name in reads(expr) and name not in packed:
                    packed[name] = PackedTile(self._tile(padded(self.sizes[axis], lanes)), part, axis)
        return GroupTiles(elements, transposed_inputs, parts, features, packed, staging)

    def _tile_dtype(self, dtype: str) -> str:
        return "i32" if dtype == "i1" else accumulated(dtype)

    def _reader(self, group: RowGroup, expr: Expr, axis: str, start: Value | int = 0) -> Reader:
        code = self.code

        def read(column: Value, row: Value, valid: Value | None) -> Value:
            at = code.min(code.add(group.first, column), code.add(self.sizes[self.lane], -1))
            index = {**group.position, self.lane: at, axis: code.add(row, start)}
            value = self.evaluator.vector(expr, Position(index, axis, valid))
            return code.cast("extui", value, "i32") if code.dtype(value) == "i1" else value

        return read

    # The loop

    def _loop(self, group: RowGroup, tiles: GroupTiles, low: Value | int, high: Value | int) -> Known:
        code = self.code
        states = [state for state in self.roles.rolling.state if state.name not in tiles.features]
        initial = [code.splat(s.initial.value, accumulated(s.dtype)) for s in states for _ in range(self.vectors)]

        def named(values: Sequence[Value], moment: str) -> Known:
            return [
                {f"{s.name}.{moment}": Lanes(values[n * self.vectors + u]) for n, s in enumerate(states)}
                for u in range(self.vectors)
            ]

        def block(start: Value, values: list[Value], count: Value | int) -> list[Value]:
            known = named(values, "old")
            if counted(self.roles.rolling):
                for moment, number in (("local", count), ("old", start)):
                    whole = code.cast("index_cast", code.add(number), "i64")
                    for known_here in known:
                        known_here[f"count.{moment}"] = Uniform(code.cast("sitofp", whole, self.dtype))
            self._block(group, tiles, start, count, known)
            return [self.evaluator.lanes(known[u][f"{s.name}.new"]) for s in states for u in range(self.vectors)]

        if isinstance(low, int) and isinstance(high, int):
            return named(code.spans(low, high, self.block, initial, block), "new")

        def body(start: Value, values: list[Value]) -> list[Value]:
            return block(start, values, code.min(code.op("subi", code.add(high), start), self.block))

        return named(code.loop(low, high, self.block, initial, body), "new")

    def _block(self, group: RowGroup, tiles: GroupTiles, start: Value, count: Value | int, known: Known) -> None:
        for value in self.transposed:
            reader = self._reader(group, Read(value.name, value.dtype), self.reduction_axis, start)
            tiles.inputs[value.name].pack(count, reader, self.block)

        def staged(exprs: list[Expr]) -> VectorEvaluator:
            return tiles.staging.fill(self.evaluator, exprs, start, count, group.position)

        for number, loop_pass in enumerate(self.plan.passes):
            if number == 0:
                evaluator = staged([expr for _, expr in self.contractions])
                self._first_pass(evaluator, group, tiles, start, count, loop_pass, known)
            else:
                self._further_pass(group, tiles, start, count, loop_pass, known)
            for update in loop_pass.row_updates:
                for u in range(self.vectors):
                    known[u][update.name] = self.evaluator.run(update.expr, group.at(u, known[u]))
            if loop_pass.feature_reductions or loop_pass.feature_updates:
                evaluator = staged([line.expr for line in loop_pass.feature_reductions])
                self._features(evaluator, group, tiles, start, count, loop_pass, known)

    def _unrolled(
        self,
        count: Value | int,
        initial: list[Value],
        body: Callable[[Value, list[Value], int], list[Value]],
    ) -> list[Value]:
        # ``unroll`` positions at a time; one at a time where their number may leave some over.
        code, unroll = self.code, self.schedule.unroll
        if isinstance(count, int):
            whole: Value | int = count - count % unroll
        else:
            whole = code.mul(code.divmod(count, unroll)[0], unroll)
        values = code.loop(0, whole, unroll, initial, lambda n, v: body(n, v, unroll))
        # Where loops are bounded by a mask, they are in whole steps: then the axis' own length is what may leave some.
        length = count if isinstance(count, int) else self.sizes[self.reduction_axis]
        if not isinstance(length, int) or length % unroll:
            values = code.loop(whole, count, 1, values, lambda n, v: body(n, v, 1))
        return values

    def _start(self, loop_pass: LoopPass) -> list[Value]:
        return [
            self.code.splat(line.local.reduce.initial.value, accumulated(line.local.reduce.dtype))
            for line in loop_pass.row_reductions
            for _ in range(self.vectors)
        ]

    def _learn(self, loop_pass: LoopPass, final: list[Value], known: Known) -> None:
        for n, line in enumerate(loop_pass.row_reductions):
            for u in range(self.vectors):
                known[u][line.local.name] = Lanes(final[n * self.vectors + u])

    def _accumulate(
        self, evaluator: VectorEvaluator, loop_pass: LoopPass, values: list[Value], u: int, position: Position
    ) -> None:
        for n, line in enumerate(loop_pass.row_reductions):
            slot = n * self.vectors + u
            value = evaluator.vector(line.expr, position)
            values[slot] = self.code.op(combining(line.local.reduce)[0], values[slot], value)

    def _first_pass(
        self,
        evaluator: VectorEvaluator,
        group: RowGroup,
        tiles: GroupTiles,
        start: Value,
        count: Value | int,
        loop_pass: LoopPass,
        known: Known,
    ) -> None:
        code = self.code

        def keys(n: Value, values: list[Value], together: int) -> list[Value]:
            totals = list(values)
            at = [code.add(start, n, k) for k in range(together)]
            scores = {
                inner.name: self._contract(evaluator, group, tiles, inner, expr, at)
                for inner, expr in self.contractions
            }
            for k in range(together):
                for u in range(self.vectors):
                    given = known[u] | {name: Lanes(score[k][u]) for name, score in scores.items()}
                    given |= self._transposed(tiles, code.add(n, k), u)
                    position = group.at(u, given, **{self.reduction_axis: at[k]})
                    for name, element in self.plan.elements.items():
                        value = evaluator.vector(element, position)
                        tiles.elements[name].store(value, code.add(n, k), u)
                        given[name] = Lanes(value)
                    self._accumulate(evaluator, loop_pass, totals, u, position)
            return totals

        self._learn(loop_pass, self._unrolled(count, self._start(loop_pass), keys), known)

    def _transposed(self, tiles: GroupTiles, row: Value, u: int) -> dict[str, Result]:
        loaded: dict[str, Result] = {}
        for value in self.transposed:
            lanes = tiles.inputs[value.name].load(row, u)
            loaded[value.name] = Lanes(self.code.nonzero(lanes) if value.dtype == "i1" else lanes)
        return loaded

    def _contract(
        self,
        evaluator: VectorEvaluator,
        group: RowGroup,
        tiles: GroupTiles,
        step: Reduce,
        expr: Expr,
        keys: list[Value],
    ) -> list[list[Value]]:
        """A contraction at some positions of the loop -> for each of them, a vector per vector of rows."""
        code, (axis,) = self.code, step.over
        op, neutral = combining(step)
        initial = [code.splat(neutral, self.dtype)] * (len(keys) * self.vectors)

        def body(n: Value, values: list[Value]) -> list[Value]:
            packed: Known = [
                {name: Lanes(packed.tile.load(n, u)) for name, packed in tiles.packed.items() if packed.axis == axis}
                for u in range(self.vectors)
            ]
            totals = []
            for k, key in enumerate(keys):
                for u in range(self.vectors):
                    position = group.at(u, packed[u], **{self.reduction_axis: key, axis: n})
                    value = evaluator.vector(expr, position)
                    totals.append(code.op(op, values[k * self.vectors + u], value))
            return totals

        final = code.loop(0, self.sizes[axis], 1, initial, body)
        if step.initial.value != neutral:
            first = code.splat(step.initial.value, self.dtype)
            final = [code.op(op, value, first) for value in final]
        return [final[k * self.vectors : (k + 1) * self.vectors] for k in range(len(keys))]

    def _further_pass(
        self, group: RowGroup, tiles: GroupTiles, start: Value, count: Value | int, loop_pass: LoopPass, known: Known
    ) -> None:
        code = self.code

        def keys(n: Value, values: list[Value]) -> list[Value]:
            totals = list(values)
            for u in range(self.vectors):
                given = known[u] | {name: Lanes(tile.load(n, u)) for name, tile in tiles.elements.items()}
                position = group.at(u, given, **{self.reduction_axis: code.add(start, n)})
                self._accumulate(self.evaluator, loop_pass, totals, u, position)
                for name, expr in loop_pass.parts.items():
                    tiles.parts[name].store(self.evaluator.vector(expr, position), n, u)
            return totals

        self._learn(loop_pass, code.loop(0, count, 1, self._start(loop_pass), keys), known)

    def _features(
        self,
        evaluator: VectorEvaluator,
        group: RowGroup,
        tiles: GroupTiles,
        start: Value,
        count: Value | int,
        loop_pass: LoopPass,
        known: Known,
    ) -> None:
        code, feature_axis = self.code, self.feature_axis or ""
        reductions = loop_pass.feature_reductions
        wanted = {name for line in reductions for name in reads(line.expr)}
        updates, hoisted = self._hoisted(group, loop_pass.feature_updates, known)

        def features(first: Value, none: list[Value], together: int) -> list[Value]:
            at = [code.add(first, e) for e in range(together)]
            initial = [
                code.splat(line.local.reduce.initial.value, self.dtype)
                for line in reductions
                for _ in at
                for _ in known
            ]

            def keys(n: Value, values: list[Value]) -> list[Value]:
                given = []
                for u in range(self.vectors):
                    loaded = {name: tile.load(n, u) for name, tile in tiles.elements.items() if name in wanted}
                    loaded |= {name: tile.load(n, u) for name, tile in tiles.parts.items()}
                    given.append(known[u] | {name: Lanes(value) for name, value in loaded.items()})
                totals: list[Value] = []
                for line in reductions:
                    for e in at:
                        for u in range(self.vectors):
                            index = {self.reduction_axis: code.add(start, n), feature_axis: e}
                            value = evaluator.vector(line.expr, group.at(u, given[u], **index))
                            totals.append(code.op(combining(line.local.reduce)[0], values[len(totals)], value))
                return totals

            final = code.loop(0, count, 1, initial, keys)
            for n, e in enumerate(at):
                for u in range(self.vectors):
                    given = {**known[u], **hoisted[u]}
                    for m, line in enumerate(reductions):
                        given[line.local.name] = Lanes(final[(m * together + n) * self.vectors + u])
                    for name, tile in tiles.features.items():
                        given[f"{name}.old"] = Lanes(tile.load(e, u))
                    for update, expr in updates:
                        given[update.name] = evaluator.run(expr, group.at(u, dict(given), **{feature_axis: e}))
                        state, _, moment = update.name.rpartition(".")
                        if moment == "new":
                            tiles.features[state].store(evaluator.lanes(given[update.name]), e, u)
            return none

        code.spans(0, self.sizes[feature_axis], self.schedule.unroll, [], features)

    def _hoisted(self, group: RowGroup, updates: list[Update], known: Known) -> tuple[list[tuple[Update, Expr]], Known]:
        # Factors of a repair are the same for all features.
        factors = Parts("row")

        def of_the_row(expr: Expr) -> bool:
            axes = self.plan.scope.axes(expr)
            return isinstance(expr, Apply) and self.lane in axes and self.feature_axis not in axes

        rest = [(update, factors.take(self.plan.scope.inlined(update.expr), of_the_row)) for update in updates]
        values: Known = [
            {name: self.evaluator.run(expr, group.at(u, known[u])) for expr, name in factors.named.items()}
            for u in range(self.vectors)
        ]
        return rest, values
