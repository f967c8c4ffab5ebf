"""Whole functions: positions of a program, loops over blocks, states of parts and their merge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from covan_mlir.fred.chain import Chain, Map, Reduce
from covan_mlir.fred.expression import Const, Expr, Read, reads
from covan_mlir.fred.forms import Fusion, Local, Rolling, State, Update
from covan_mlir.lowering.kernels.cuda.expressions import TileEvaluator, origins
from covan_mlir.lowering.kernels.cuda.kernel import Launch
from covan_mlir.lowering.kernels.cuda.layout import Layout, SweepRoles, made_dim, power_of_two
from covan_mlir.lowering.kernels.cuda.operations import HELPERS, NEUTRAL, literal
from covan_mlir.lowering.kernels.cuda.ranges import Span
from covan_mlir.lowering.kernels.cuda.schedule import LEAST, Schedule
from covan_mlir.lowering.kernels.cuda.tiles import Block, FreshNames, Text, Tile, computed
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Operand
from covan_mlir.lowering.kernels.reductions.hoist import Scope

_INDENT = "    "
VARIABLES = {"rows": "rows", "stream": "cols", "wide": "wide"}


def moments(rolling: Rolling) -> dict[str, tuple[str, ...]]:
    """Axes of what a loop and a merge name with a moment."""
    found = {f"{s.name}.{m}": s.axes for s in rolling.state for m in ("old", "new", "a", "b")}
    found |= {line.name: line.axes if isinstance(line, Update) else line.reduce.axes for line in rolling.body}
    return found | {f"count.{m}": () for m in ("old", "local", "new", "a", "b")}


def state_operands(name: str, rolling: Rolling, parts: int, sizes: Mapping[str, int]) -> tuple[Operand, ...]:
    """The states of all parts, as tensors."""
    return tuple(
        Operand(f"{name}.{s.name}", (parts, *(sizes[a] for a in s.axes)), computed(s.dtype)) for s in rolling.state
    )


class FunctionBuilder:
    """A function in the making.

    Args:
        stored: parameters that it writes.
        read: parameters that it reads.
        extra: axes of names that the chain does not define.
        actions: what to call the steps of the chain in comments.
        source: the chain as it was given.
    """

    def __init__(
        self,
        name: str,
        chain: Chain,
        layout: Layout,
        schedule: Schedule,
        read: tuple[Operand, ...],
        stored: tuple[Operand, ...],
        extra: Mapping[str, tuple[str, ...]],
        inner: Iterable[str],
        actions: Mapping[str, str],
        source: Chain,
    ) -> None:
        self.name, self.layout, self.schedule = name, layout, schedule
        self.read, self.stored, self.actions = read, stored, actions
        self.names = FreshNames([])
        self.pointers = {operand.name: self.names.fresh(f"{operand.name}_ptr") for operand in (*read, *stored)}
        dims = {dim.name: self.names.fresh(VARIABLES.get(dim.name, dim.name)) for dim in layout.dims}
        self.grid = {axis: self.names.fresh(f"at_{axis}") for axis in layout.grid}
        self.text = Text(chain, layout, dims, self.grid)
        axes = Scope(chain, extra)
        self.evaluator = TileEvaluator(
            self.text, axes, self.names, self.pointers, frozenset(inner), schedule.fold, schedule.precision
        )
        self.evaluator.origins = origins(source)
        self.tile = ""
        self.part: tuple[str, int] | None = None
        self.programs = 1

    @property
    def outer(self) -> Block:
        """Statements outside of loops."""
        return self.evaluator.blocks[0]

    def begin(self, parts: int = 1) -> None:
        """Where the program is."""
        emit, layout = self.evaluator.emit, self.layout
        emit("pid = tl.program_id(0)")
        for name in ("rows", "wide"):
            dim = layout.dim(name)
            if dim is None:
                continue
            tiles = layout.tiles(name)
            variable = self.names.fresh("tile" if name == "rows" else f"tile_{name}")
            if tiles == 1:
                emit(f"{self.text.dims[name]} = tl.arange(0, {dim.block})")
                continue
            component = self._component(tiles)
            backwards = self.schedule.backwards and name == "rows"
            emit(f"{variable} = {f'{tiles - 1} - {component}' if backwards else component}")
            self.tile = variable if name == "rows" else self.tile
            start = variable if dim.block == 1 else f"{variable} * {dim.block}"
            emit(f"{self.text.dims[name]} = {start} + tl.arange(0, {dim.block})")
        if parts > 1:
            variable = self.names.fresh("part")
            emit(f"{variable} = {self._component(parts)}")
            self.part = variable, parts
        for axis in reversed(layout.grid):
            if layout.sizes[axis] > 1:
                emit(f"{self.grid[axis]} = {self._component(layout.sizes[axis])}")
            else:
                self.grid[axis] = "0"
        for dim in layout.dims:
            if dim.name not in ("rows", "wide", layout.stream):
                emit(f"{self.text.dims[dim.name]} = tl.arange(0, {dim.block})")
            if dim.name != layout.stream and dim.ragged:
                self._limit(dim.name, -1)

    def _component(self, size: int) -> str:
        # The fastest first.
        text = "pid" if self.programs == 1 else f"pid // {self.programs}"
        self.programs *= size
        return f"{text} % {size}"

    def _limit(self, name: str, depth: int) -> None:
        dim = self.layout.dim(name)
        assert dim is not None
        variable = self.text.dims[name]
        ok = self.names.fresh(f"{variable}_ok")
        self.evaluator.emit(f"{ok} = {variable} < {dim.size}", depth=depth)
        self.evaluator.blocks[depth].valid[name] = ok

    def whole_stream(self) -> None:
        """All positions of the stream in one block."""
        dim = self.layout.dim(self.layout.stream)
        assert dim is not None
        self.evaluator.emit(f"{self.text.dims[dim.name]} = tl.arange(0, {dim.block})")
        if dim.ragged:
            self._limit(dim.name, 0)

    # Loops

    def loop(self, header: str, body: Block, carried: Mapping[str, tuple[str, Tile]]) -> None:
        """A loop of a block's statements.

        Args:
            carried: variables -> dimensions of what they become at the end of the body.
        """
        self.outer.lines.append((header, frozenset()))
        self.outer.lines += [(_INDENT + text, steps) for text, steps in body.lines]
        for variable, (value, _) in carried.items():
            self.outer.lines.append((f"{_INDENT}{variable} = {value}", frozenset()))

    def start(self, state: Iterable[State], moment: str) -> dict[str, Tile]:
        """Variables of a loop's state, with their initial values."""
        made = {}
        for value in state:
            dims = self.layout.dims_of(frozenset(value.axes))
            dtype = computed(value.dtype)
            initial = Tile(self._number(value.initial), const=value.initial.value, dtype=dtype)
            text = self.text.full(initial, dims, dtype)
            name = self.names.fresh(f"{value.name}_{moment}")
            self.evaluator.emit(f"{name} = {text}", frozenset({value.name}))
            made[value.name] = Tile(name, dims, dtype)
        return made

    @staticmethod
    def _number(value: Const) -> str:
        return literal(value.value, computed(value.dtype))

    def lines(self, lines: Iterable[Local | Update], depth: int) -> None:
        """The lines of a loop's body, of a merge or of what follows them."""
        evaluator = self.evaluator
        for line in lines:
            if isinstance(line, Local):
                _neutral(line.reduce)
                made = evaluator.reduce(line.reduce, depth)
            else:
                made = evaluator.named(line.name, line.expr, line.dtype, depth, line.name.partition(".")[0])
                if made.const is not None or made.factor != 1.0:
                    made = evaluator.assign(line.name, made, depth)
            evaluator.blocks[depth].named[line.name] = made

    def carry(self, variables: Mapping[str, Tile]) -> dict[str, tuple[str, Tile]]:
        """What becomes of the state at the end of the body."""
        found = {}
        for name, variable in variables.items():
            new = self.evaluator.blocks[-1].named[f"{name}.new"]
            found[variable.text] = (self.text.full(new, variable.dims, variable.dtype), variable)
        return found

    def sweep(self, rolling: Rolling | None, writes: Iterable[str], span: Span) -> dict[str, Tile]:
        """A loop over blocks -> the variables of its state afterwards."""
        evaluator, layout = self.evaluator, self.layout
        dim = layout.dim(layout.stream)
        assert dim is not None
        variables = self.start(rolling.state if rolling else (), "old")
        statements, segments = span.segments(layout, self.grid, self.tile, self.part)
        for text in statements:
            evaluator.emit(text)
        cols = self.text.dims[dim.name]
        for segment in segments:
            body = Block()
            evaluator.blocks.append(body)
            evaluator.true = span.true if segment.full else frozenset()
            start = self.names.fresh("start")
            evaluator.emit(f"{cols} = {start} + tl.arange(0, {dim.block})")
            if not segment.full and dim.ragged:
                self._limit(dim.name, 1)
            if rolling is not None:
                body.named |= {f"{name}.old": tile for name, tile in variables.items()}
                count = f"tl.minimum({dim.size} - {start}, {dim.block})"
                dtype = next((s.dtype for s in rolling.state if s.name == "count"), "f32")
                there = Tile(f"({count})", dtype="i32")
                body.named["count.local"] = self.text.plain(there, computed(dtype))
                self.lines(rolling.body, 1)
            for name in writes:
                value = evaluator.chain.values[name]
                evaluator.store(name, value.axes, value.dtype, evaluator.tile(Read(name, value.dtype)))
            carried = self.carry(variables) if rolling is not None else {}
            evaluator.blocks.pop()
            evaluator.true = frozenset()
            self.loop(f"for {start} in range({segment.low}, {segment.high}, {dim.block}):", body, carried)
        return variables

    # The text

    def launch(self, grid: int | None = None) -> Launch:
        """The module's text."""
        helpers = self.evaluator.helpers
        head = ['"""Generated."""', "", "import triton", "import triton.language as tl"]
        head += ["from triton.language.extra import libdevice"] if "libdevice" in helpers else []
        for helper in sorted(helpers - {"libdevice"}):
            head += ["", "", *HELPERS[helper].rstrip().splitlines()]
        parameters = ", ".join(self.pointers[operand.name] for operand in (*self.read, *self.stored))
        head += ["", "", "@triton.jit", f"def {self.name}({parameters}):"]
        lines: dict[int, tuple[str, ...]] = {}
        for text, steps in self.outer.lines:
            named = tuple(sorted(steps & self.actions.keys()))
            comment = f"  # {', '.join(self.actions[name] for name in named)}" if named else ""
            head.append(f"{_INDENT}{text}{comment}")
            if named:
                lines[len(head)] = named
        return Launch(
            self.name,
            "\n".join(head) + "\n",
            self.read,
            self.stored,
            grid or self.programs,
            self.schedule.num_warps,
            self.schedule.num_stages,
            lines,
        )


def _neutral(step: Reduce) -> None:
    value = float(step.initial.value)
    if step.combine in ("add", "mul") and value != NEUTRAL[step.combine]:
        raise UnsupportedError(f"{step.name} starts from {value}")


class LaunchWriter:
    """Writes the launches of a chain."""

    def __init__(
        self,
        name: str,
        fusion: Fusion,
        found: SweepRoles,
        schedule: Schedule,
        sizes: dict[str, int],
        actions: Mapping[str, str],
    ) -> None:
        self.name, self.fusion, self.found = name, fusion, found
        self.schedule, self.sizes, self.actions = schedule, sizes, actions

    def operands(self, chain: Chain, names: Iterable[str]) -> tuple[Operand, ...]:
        """Tensors of values of the chain."""
        return tuple(
            Operand(v.name, tuple(self.sizes[a] for a in v.axes), v.dtype) for v in (chain.values[n] for n in names)
        )

    def layout(self, chain: Chain) -> Layout:
        """Where the chain's axes are."""
        schedule, found, sizes = self.schedule, self.found, self.sizes
        dims = []
        if schedule.rows:
            dims.append(made_dim("rows", schedule.rows, sizes, schedule.block_rows))
        dims.append(made_dim("stream", found.reduction_axes, sizes, schedule.block_stream))
        if found.feature_axes:
            wide = prod(sizes[a] for a in found.feature_axes)
            dims.append(
                made_dim("wide", found.feature_axes, sizes, min(schedule.block_wide, max(LEAST, power_of_two(wide))))
            )
        for over in dict.fromkeys(step.over for step in found.inner):
            depth = max(LEAST, power_of_two(prod(sizes[a] for a in over)))
            dims.append(made_dim(f"deep{len(dims)}", over, sizes, depth))
        held = {axis for dim in dims for axis in dim.axes}
        grid = tuple(axis for axis in found.rows if axis not in held)
        if lost := {a.name for a in chain.axes if (a.size or 1) > 1} - held - set(grid):
            raise UnsupportedError(f"the axes {sorted(lost)} belong neither to the rows nor to the loop")
        ones = tuple(a.name for a in chain.axes if a.name not in held and a.name not in grid)
        return Layout(tuple(dims), (*grid, *ones), sizes, "stream")

    def launches(self) -> tuple[Launch, ...]:
        """The launches, in order."""
        if self.schedule.shape == "whole":
            return (self._whole(),)
        if self.schedule.parts > 1:
            return self._split()
        return (self._loops(),)

    def _function(self, suffix: str, chain: Chain, layout: Layout, **operands: tuple[Operand, ...]) -> FunctionBuilder:
        extra = {name: axes for loop in self.found.loops for name, axes in moments(loop).items()}
        extra |= {f"{line.name}": line.axes for loop in self.found.loops for line in loop.finish}
        inner = {step.name for step in self.found.inner}
        return FunctionBuilder(
            self.name + suffix, chain, layout, self.schedule, operands["read"], operands["stored"],
            {name: axes for name, axes in extra.items() if name not in chain.values}, inner, self.actions,
            self.fusion.source,
        )  # fmt: skip

    def _whole(self) -> Launch:
        chain = self.fusion.source
        read, stored = self.operands(chain, (v.name for v in chain.inputs)), self.operands(chain, chain.outputs)
        function = self._function("", chain, self.layout(chain), read=read, stored=stored)
        function.evaluator.inner = frozenset(step.name for step in chain.reductions)
        function.begin()
        function.whole_stream()
        for name in chain.outputs:
            self._store(function, name)
        return function.launch()

    def _store(self, function: FunctionBuilder, name: str) -> None:
        value = function.evaluator.chain.values[name]
        function.evaluator.store(name, value.axes, value.dtype, function.evaluator.tile(Read(name, value.dtype)))

    def _span(self, rolling: Rolling | None, function: FunctionBuilder, whole: bool) -> Span:
        counted = rolling is not None and any(name.startswith("count.") for name in _read(rolling))
        loop = rolling or self.found.loops[0]
        return Span(
            self.fusion, self.found, loop, function.evaluator.axes, self.sizes, whole or counted or rolling is None
        )

    def _loops(self) -> Launch:
        chain = self.fusion.chain
        read, stored = self.operands(chain, (v.name for v in chain.inputs)), self.operands(chain, chain.outputs)
        function = self._function("", chain, self.layout(chain), read=read, stored=stored)
        function.begin()
        for stage in self.found.stages:
            if stage.axes:
                variables = function.sweep(
                    stage.rolling, stage.writes, self._span(stage.rolling, function, bool(stage.writes))
                )
                self._finish(function, stage.rolling, variables)
            self._rows(function, stage.rows)
        for name in chain.outputs:
            if not set(self.found.reduction_axes) & set(chain.values[name].axes):
                self._store(function, name)
        return function.launch()

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
        (stage,) = (stage for stage in self.found.stages if stage.axes)
        assert stage.rolling is not None
        assert stage.split is not None
        parts = self.schedule.parts
        states = state_operands(self.name, stage.rolling, parts, self.sizes)
        loop_reads = self._inputs(
            chain, (line.reduce.expr if isinstance(line, Local) else line.expr for line in stage.rolling.body)
        )
        function = self._function(
            "_parts", chain, self.layout(chain), read=self.operands(chain, loop_reads), stored=states
        )
        function.begin(parts)
        assert function.part is not None
        variables = function.sweep(stage.rolling, (), self._span(stage.rolling, function, False))
        for state, operand in zip(stage.rolling.state, states, strict=True):
            function.evaluator.store(operand.name, state.axes, operand.dtype, variables[state.name], function.part[0])
        return function.launch(), self._merge(states)

    def _inputs(self, chain: Chain, exprs: Iterable[Expr]) -> tuple[str, ...]:
        used: set[str] = set()
        stack = [name for expr in exprs for name in reads(expr)]
        inner = {step.name for step in self.found.inner}
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
        (stage,) = (stage for stage in self.found.stages if stage.axes)
        rolling, split = stage.rolling, stage.split
        assert rolling is not None
        assert split is not None
        rows = [step for s in self.found.stages for step in s.rows]
        exprs = [line.expr for line in (*split.merge, *rolling.finish)] + [step.expr for step in rows]
        held = prod(self.sizes[a] for a in self.found.feature_axes)
        wide = power_of_two(held)
        count = prod(self.sizes[a] for a in self.found.rows)
        block = min(max(1, 1024 // wide), power_of_two(count))
        while block > 1 and -(-count // block) < 256:
            block //= 2
        dims = [made_dim("rows", self.found.rows, self.sizes, block)] if self.found.rows else []
        if self.found.feature_axes:
            dims.append(made_dim("wide", self.found.feature_axes, self.sizes, min(wide, 1024)))
        known = {axis for dim in dims for axis in dim.axes}
        ones = tuple(a.name for a in chain.axes if a.name not in known)
        layout = Layout(tuple(dims), ones, {**self.sizes, **dict.fromkeys(ones, 1)}, "")
        read = (*self.operands(chain, self._inputs(chain, exprs)), *states)
        schedule = replace(self.schedule, num_warps=4 if block * wide >= 512 else 1, num_stages=1, backwards=False)
        function = FunctionBuilder(
            f"{self.name}_merge", chain, layout, schedule, read, self.operands(chain, chain.outputs),
            {**moments(rolling), **{line.name: line.axes for line in (*split.merge, *rolling.finish)}}, (),
            self.actions,
            self.fusion.source,
        )  # fmt: skip
        function.begin()
        evaluator = function.evaluator
        variables = function.start(rolling.state, "a")
        body = Block()
        evaluator.blocks.append(body)
        part = function.names.fresh("part")
        for state, operand in zip(rolling.state, states, strict=True):
            body.named[f"{state.name}.a"] = variables[state.name]
            loaded = evaluator.load(operand.name, state.axes, operand.dtype, 1, part)
            body.named[f"{state.name}.b"] = loaded
        function.lines(split.merge, 1)
        carried = function.carry(variables)
        evaluator.blocks.pop()
        function.loop(f"for {part} in range(0, {self.schedule.parts}):", body, carried)
        self._finish(function, rolling, variables)
        self._rows(function, rows)
        for name in chain.outputs:
            self._store(function, name)
        return function.launch()


def _read(rolling: Rolling) -> set[str]:
    exprs = [line.reduce.expr if isinstance(line, Local) else line.expr for line in rolling.body]
    return {name for expr in exprs for name in reads(expr)}
