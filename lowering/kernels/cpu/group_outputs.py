"""What a group of rows leaves after its loop: statistics from registers, accumulators of features from tiles.

With vector lanes along the rows i::

    result[i] = finish(statistics[i])
    for e:
        tile[e, i] = finish(accumulator[e, i], statistics[i])          # in place of the accumulators
    for e, i in blocks of lanes:
        y[i, e] = transpose(tile[e, i])                                # or as it is, where y has the rows last
"""

from __future__ import annotations

from collections.abc import Mapping

from covan_mlir.fred.chain import Map
from covan_mlir.fred.expression import Read
from covan_mlir.fred.forms import Update
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Lanes, Position, VectorEvaluator, address, narrow
from covan_mlir.lowering.kernels.cpu.row_group import GroupTiles, Known, RowGroup
from covan_mlir.lowering.kernels.cpu.tiles import ScratchTile, padded
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.plan import LoopPlan, row_steps

_SMALL = frozenset({"i8", "i16"})
"""Integers that a tile of floats holds as they are."""


class GroupOutputs:
    """Writes the outputs of a group of rows."""

    def __init__(
        self,
        code: KernelBuilder,
        plan: LoopPlan,
        sizes: Mapping[str, Size],
        evaluator: VectorEvaluator,
        group: RowGroup,
    ) -> None:
        self.code, self.plan, self.sizes, self.evaluator, self.group = code, plan, sizes, evaluator, group
        self.values, self.outputs = plan.fusion.chain.values, plan.fusion.chain.outputs
        self.feature_axis = plan.roles.feature_axis or ""

    def write(self, tiles: GroupTiles, known: Known) -> None:
        """All outputs, of what is known of the rows after the loop."""
        group = self.group
        steps: list[Update | Map] = [*self.plan.roles.rolling.finish, *row_steps(self.plan)]
        for step in steps:
            if not self.plan.per_feature(step.axes):
                for u in range(group.vectors):
                    known[u][step.name] = self.evaluator.run(step.expr, group.at(u, known[u]))
        finished = self._tiles(tiles)

        def feature(e: Value, _: list[Value]) -> list[Value]:
            self._finish(tiles, finished, e, known)
            return []

        if finished:
            self.code.loop(0, self.sizes[self.feature_axis], 1, [], feature)
        for name in self.outputs:
            if name in finished:
                self._write_features(name, finished[name])
            else:
                for u in range(group.vectors):
                    self._write(name, self.evaluator.lanes(known[u][name]), group.at(u, {}))

    def _tiles(self, tiles: GroupTiles) -> dict[str, ScratchTile]:
        # In place of accumulators: a position is read before it is written, once for all outputs.
        accumulators = iter(tiles.features.values())
        finished: dict[str, ScratchTile] = {}
        for name in self.outputs:
            if self.plan.per_feature(self.values[name].axes):
                tile = next(accumulators, None)
                if tile is None:
                    rows = padded(self.sizes[self.feature_axis], self.code.lanes)
                    dtype = computed(self.plan.roles.rolling.state[0].dtype)
                    tile = ScratchTile.make(self.code, rows, self.group.vectors, dtype)
                finished[name] = tile
        return finished

    def _finish(self, tiles: GroupTiles, finished: Mapping[str, ScratchTile], e: Value, known: Known) -> None:
        group, feature = self.group, {self.feature_axis: e}
        for u in range(group.vectors):
            given = dict(known[u])
            for name, tile in tiles.features.items():
                given[f"{name}.new"] = Lanes(tile.load(e, u))
            for update in self.plan.roles.rolling.finish:
                if self.plan.per_feature(update.axes):
                    given[update.name] = self.evaluator.run(update.expr, group.at(u, dict(given), **feature))
            position = group.at(u, given, **feature)
            values = {name: self.evaluator.vector(Read(name, ""), position) for name in finished}
            for name, tile in finished.items():
                tile.store(self._kept(values[name], name, tile), e, u)

    def _kept(self, value: Value, name: str, tile: ScratchTile) -> Value:
        """A result in the type of the tile that keeps it until it is written: small integers are floats there.

        Raises:
            UnsupportedError: it is one that floats do not hold.
        """
        dtype = self.values[name].dtype
        if computed(dtype)[0] == "f":
            return value
        if dtype not in _SMALL:
            raise UnsupportedError(f"{name} is of {dtype}, which no tile of floats holds")
        return self.code.cast("sitofp", value, str(tile.memory.type.element_type))

    def _computed(self, value: Value, name: str) -> Value:
        """What was kept, as it was computed."""
        return self.code.cast("fptosi", value, "i64") if self.values[name].dtype in _SMALL else value

    def _write(self, name: str, value: Value, position: Position) -> None:
        code, step = self.code, self.values[name]
        at, distance = address(code, step.axes, self.sizes, position)
        code.scatter(narrow(code, value, step.dtype), code.memory[name], at, distance, position.valid)

    def _write_features(self, name: str, tile: ScratchTile) -> None:
        code, group, step, feature_axis = self.code, self.group, self.values[name], self.feature_axis
        if step.axes[-1] == group.lane:

            def direct(e: Value, _: list[Value]) -> list[Value]:
                for u in range(group.vectors):
                    self._write(name, self._computed(tile.load(e, u), name), group.at(u, {}, **{feature_axis: e}))
                return []

            code.loop(0, self.sizes[feature_axis], 1, [], direct)
            return
        if step.axes[-1] != feature_axis:
            raise UnsupportedError(f"{name} is not contiguous along {feature_axis}")
        ragged = any(valid is not None for valid in group.valid)

        def write(value: Value, column: Value, first: Value, valid: Value | None) -> None:
            row = code.add(group.first, column)
            position = Position({**group.position, group.lane: row, feature_axis: first}, feature_axis)
            at, _ = address(code, step.axes, self.sizes, position)
            if ragged:
                exists = code.broadcast(code.below(row, self.sizes[group.lane]))
                valid = code.op("andi", exists, valid if valid is not None else code.splat(1, "i1"))
            code.store(narrow(code, self._computed(value, name), step.dtype), code.memory[name], at, valid)

        tile.unpack(self.sizes[feature_axis], write)
