"""The launches of a chain as Triton functions: which nests they are, what each reads and leaves.

A program has a tile of rows i and of features e (all of those); other axes have programs of their own. Where rows fit
a tile whole (``shape="whole"``), there is no loop, and the chain is computed as it was given::

    x[i, j] = load                                    # j: all positions
    m[i] = max over j of x[i, j];  y[i, j] = exp(x[i, j] - m[i])
    store y

Else one loop over blocks runs per stage, with the fused form's repairs (`covan_mlir.fred.forms`)::

    s.old[i], o.old[i, e] = initial                   # states: variables
    low, high = what masks leave to any row of the tile (of the part); full_low, full_high = where they hide nothing
    for segment in (low .. full_low), (full_low .. full_high), (full_high .. high):
        for start in range(segment, block):
            cols = start + [0 .. block)               # masked at the end; and conditions, outside of full blocks
            score[i, j] = sum over d of q[i, d] * k[start + j, d]          # tl.dot where tiles are large enough
            s.local[i] = reduce(score);  s.new[i] = update(s.old[i], s.local[i])
            o.local[i, e] = sum over j of weight[i, j] * v[start + j, e]   # tl.dot
            o.new[i, e] = update(o.old[i, e], o.local[i, e])
            s.old, o.old = s.new, o.new
    y[i, e] = finish(o.new[i, e], s.new[i]);  store y

Where the loop is split, the first launch has programs for each part and stores the states; a second one merges them::

    a = initial
    for part in range(parts):
        b = load states[part, i, e]
        a = merge(a, b)
    y[i, e] = finish(a);  store y
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from covan_mlir.fred.chain import Chain, Map, Reduce
from covan_mlir.fred.expression import Expr, Read, reads
from covan_mlir.fred.forms import Fusion, Local, Rolling, Update
from covan_mlir.lowering.kernels.cuda.function import FunctionBuilder
from covan_mlir.lowering.kernels.cuda.kernel import Launch
from covan_mlir.lowering.kernels.cuda.layout import Layout, SweepRoles, dim_of_axes, power_of_two
from covan_mlir.lowering.kernels.cuda.ranges import BlockRanges, block_ranges
from covan_mlir.lowering.kernels.cuda.schedule import LEAST, TileSchedule
from covan_mlir.lowering.kernels.cuda.tiles import Block, Tile, summed
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Operand


def moments(rolling: Rolling) -> dict[str, tuple[str, ...]]:
    """Axes of what a loop and a merge name with a moment."""
    axes = {f"{s.name}.{m}": s.axes for s in rolling.state for m in ("old", "new", "a", "b")}
    axes |= {line.name: line.axes if isinstance(line, Update) else line.reduce.axes for line in rolling.body}
    return axes | {f"count.{m}": () for m in ("old", "local", "new", "a", "b")}


def state_operands(name: str, rolling: Rolling, parts: int, sizes: Mapping[str, int]) -> tuple[Operand, ...]:
    """The states of all parts, as tensors."""
    return tuple(
        Operand(f"{name}.{s.name}", (parts, *(sizes[a] for a in s.axes)), summed(s.dtype)) for s in rolling.state
    )


class LaunchWriter:
    """Writes the launches of a chain."""

    def __init__(
        self,
        name: str,
        fusion: Fusion,
        roles: SweepRoles,
        schedule: TileSchedule,
        sizes: dict[str, int],
        actions: Mapping[str, str],
    ) -> None:
        self.name, self.fusion, self.roles = name, fusion, roles
        self.schedule, self.sizes, self.actions = schedule, sizes, actions

    def operands(self, chain: Chain, names: Iterable[str]) -> tuple[Operand, ...]:
        """Tensors of values of the chain."""
        return tuple(
            Operand(v.name, tuple(self.sizes[a] for a in v.axes), v.dtype) for v in (chain.values[n] for n in names)
        )

    def layout(self, chain: Chain) -> Layout:
        """Where the chain's axes are."""
        schedule, roles, sizes = self.schedule, self.roles, self.sizes
        dims = []
        if schedule.rows:
            dims.append(dim_of_axes("rows", schedule.rows, sizes, schedule.block_rows))
        dims.append(dim_of_axes("stream", roles.reduction_axes, sizes, schedule.block_stream))
        if roles.feature_axes:
            wide = prod(sizes[a] for a in roles.feature_axes)
            dims.append(
                dim_of_axes("wide", roles.feature_axes, sizes, min(schedule.block_wide, max(LEAST, power_of_two(wide))))
            )
        for over in dict.fromkeys(step.over for step in roles.inner):
            depth = max(LEAST, power_of_two(prod(sizes[a] for a in over)))
            dims.append(dim_of_axes(f"deep{len(dims)}", over, sizes, depth))
        held = {axis for dim in dims for axis in dim.axes}
        grid = tuple(axis for axis in roles.rows if axis not in held)
        # The axes of an input that is read through a window are no positions of any step.
        known = {
            axis for step in chain.steps for axis in (*step.axes, *(step.over if isinstance(step, Reduce) else ()))
        }
        others = known - held - set(grid)
        if lost := {axis for axis in others if sizes[axis] > 1}:
            raise UnsupportedError(f"the axes {sorted(lost)} belong neither to the rows nor to the loop")
        ones = tuple(a.name for a in chain.axes if a.name in others)
        return Layout(tuple(dims), (*grid, *ones), sizes, "stream")

    def launches(self) -> tuple[Launch, ...]:
        """The launches, in order."""
        if self.schedule.shape == "whole":
            return (self._whole(),)
        if self.schedule.parts > 1:
            return self._split()
        return (self._loops(),)

    def _function(
        self,
        suffix: str,
        chain: Chain,
        read: tuple[Operand, ...],
        stored: tuple[Operand, ...],
        inner: Iterable[Reduce],
    ) -> FunctionBuilder:
        extra = {name: axes for loop in self.roles.loops for name, axes in moments(loop).items()}
        extra |= {line.name: line.axes for loop in self.roles.loops for line in loop.finish}
        extra = {name: axes for name, axes in extra.items() if name not in chain.values}
        return FunctionBuilder(
            self.name + suffix, chain, self.layout(chain), self.schedule, read, stored, extra,
            (step.name for step in inner), self.actions, self.fusion.source,
        )  # fmt: skip

    def _whole(self) -> Launch:
        chain = self.fusion.source
        read, stored = self.operands(chain, (v.name for v in chain.inputs)), self.operands(chain, chain.outputs)
        function = self._function("", chain, read, stored, chain.reductions)
        program = function.begin()
        function.whole_stream()
        for name in chain.outputs:
            self._store(function, name)
        return function.launch(program)

    def _store(self, function: FunctionBuilder, name: str) -> None:
        value = function.evaluator.chain.values[name]
        function.evaluator.store(name, value.axes, value.dtype, function.evaluator.tile(Read(name, value.dtype)))

    def _ranges(self, rolling: Rolling | None, function: FunctionBuilder, whole: bool) -> BlockRanges:
        counted = rolling is not None and any(name.startswith("count.") for name in _read(rolling))
        if whole or counted or rolling is None:
            return BlockRanges()
        return block_ranges(self.fusion, self.roles, rolling, function.evaluator.scope, self.sizes)

    def _loops(self) -> Launch:
        chain = self.fusion.chain
        read, stored = self.operands(chain, (v.name for v in chain.inputs)), self.operands(chain, chain.outputs)
        function = self._function("", chain, read, stored, self.roles.inner)
        program = function.begin()
        for stage in self.roles.stages:
            if stage.axes:
                ranges = self._ranges(stage.rolling, function, bool(stage.writes))
                variables = function.sweep(stage.rolling, stage.writes, ranges, program)
                self._finish(function, stage.rolling, variables)
            self._rows(function, stage.rows)
        for name in chain.outputs:
            if not set(self.roles.reduction_axes) & set(chain.values[name].axes):
                self._store(function, name)
        return function.launch(program)

    def _finish(self, function: FunctionBuilder, rolling: Rolling | None, variables: Mapping[str, Tile]) -> None:
        if rolling is None:
            return
        function.outer.named |= {f"{name}.new": tile for name, tile in variables.items()}
        function.lines(rolling.finish, 0)

    @staticmethod
    def _rows(function: FunctionBuilder, steps: Iterable[Map | Reduce]) -> None:
        for step in steps:
            if isinstance(step, Reduce):
                raise UnsupportedError(f"{step.name} is reduced over {', '.join(step.over)} after the loop")
            tile = function.evaluator.tile(Read(step.name, step.dtype))
            function.outer.named[step.name] = tile

    # Parts

    def _split(self) -> tuple[Launch, Launch]:
        chain = self.fusion.chain
        (stage,) = (stage for stage in self.roles.stages if stage.axes)
        assert stage.rolling is not None
        assert stage.split is not None
        parts = self.schedule.parts
        states = state_operands(self.name, stage.rolling, parts, self.sizes)
        loop_reads = self._inputs(
            chain, (line.reduce.expr if isinstance(line, Local) else line.expr for line in stage.rolling.body)
        )
        function = self._function("_parts", chain, self.operands(chain, loop_reads), states, self.roles.inner)
        program = function.begin(parts)
        assert program.part is not None
        variables = function.sweep(stage.rolling, (), self._ranges(stage.rolling, function, False), program)
        for state, operand in zip(stage.rolling.state, states, strict=True):
            function.evaluator.store(operand.name, state.axes, operand.dtype, variables[state.name], program.part[0])
        return function.launch(program), self._merge(states)

    def _inputs(self, chain: Chain, exprs: Iterable[Expr]) -> tuple[str, ...]:
        used: set[str] = set()
        stack = [name for expr in exprs for name in reads(expr)]
        inner = {step.name for step in self.roles.inner}
        while stack:
            name = stack.pop()
            value = chain.values.get(name)
            if name not in used and (isinstance(value, Map) or name in inner):
                assert isinstance(value, Map | Reduce)
                stack += reads(value.expr)
            used.add(name)
        return tuple(v.name for v in chain.inputs if v.name in used)

    def _merge(self, states: tuple[Operand, ...]) -> Launch:
        chain = self.fusion.chain
        (stage,) = (stage for stage in self.roles.stages if stage.axes)
        rolling, split = stage.rolling, stage.split
        assert rolling is not None
        assert split is not None
        rows = [step for stage in self.roles.stages for step in stage.rows]
        exprs = [line.expr for line in (*split.merge, *rolling.finish)] + [step.expr for step in rows]
        layout, schedule = self._merge_tiles(chain)
        read = (*self.operands(chain, self._inputs(chain, exprs)), *states)
        extra = moments(rolling) | {line.name: line.axes for line in (*split.merge, *rolling.finish)}
        function = FunctionBuilder(
            f"{self.name}_merge", chain, layout, schedule, read, self.operands(chain, chain.outputs), extra, (),
            self.actions, self.fusion.source,
        )  # fmt: skip
        program = function.begin()
        evaluator = function.evaluator
        variables = function.start(rolling.state, "a")
        with evaluator.nested(Block()) as body:
            part = function.names.fresh("part")
            for state, operand in zip(rolling.state, states, strict=True):
                body.named[f"{state.name}.a"] = variables[state.name]
                loaded = evaluator.load(operand.name, state.axes, operand.dtype, 1, part)
                body.named[f"{state.name}.b"] = loaded
            function.lines(split.merge, 1)
            carried = function.carry(body, variables)
        function.loop(f"for {part} in range(0, {self.schedule.parts}):", body, carried)
        self._finish(function, rolling, variables)
        self._rows(function, rows)
        for name in chain.outputs:
            self._store(function, name)
        return function.launch(program)

    def _merge_tiles(self, chain: Chain) -> tuple[Layout, TileSchedule]:
        wide = power_of_two(prod(self.sizes[a] for a in self.roles.feature_axes))
        count = prod(self.sizes[a] for a in self.roles.rows)
        block = min(max(1, 1024 // wide), power_of_two(count))
        while block > 1 and -(-count // block) < 256:
            block //= 2
        dims = [dim_of_axes("rows", self.roles.rows, self.sizes, block)] if self.roles.rows else []
        if self.roles.feature_axes:
            dims.append(dim_of_axes("wide", self.roles.feature_axes, self.sizes, min(wide, 1024)))
        known = {axis for dim in dims for axis in dim.axes}
        ones = tuple(a.name for a in chain.axes if a.name not in known)
        layout = Layout(tuple(dims), ones, {**self.sizes, **dict.fromkeys(ones, 1)}, "")
        warps = 4 if block * wide >= 512 else 1
        return layout, replace(self.schedule, num_warps=warps, num_stages=1, backwards=False, group=0)


def _read(rolling: Rolling) -> set[str]:
    exprs = [line.reduce.expr if isinstance(line, Local) else line.expr for line in rolling.body]
    return {name for expr in exprs for name in reads(expr)}
