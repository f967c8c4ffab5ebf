"""A Triton function in the making: where its program is, its loops over blocks, its text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from covan_mlir.fred.chain import Chain, Reduce
from covan_mlir.fred.expression import Read
from covan_mlir.fred.forms import Local, Rolling, State, Update
from covan_mlir.lowering.kernels.cuda.expressions import TileEvaluator
from covan_mlir.lowering.kernels.cuda.kernel import Launch
from covan_mlir.lowering.kernels.cuda.layout import Layout
from covan_mlir.lowering.kernels.cuda.operations import HELPERS, NEUTRAL, literal
from covan_mlir.lowering.kernels.cuda.origins import origins
from covan_mlir.lowering.kernels.cuda.ranges import BlockRanges, TileProgram
from covan_mlir.lowering.kernels.cuda.schedule import TileSchedule
from covan_mlir.lowering.kernels.cuda.tiles import I32, Block, FreshNames, Text, Tile, computed, summed
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Operand
from covan_mlir.lowering.kernels.reductions.hoist import Scope

_INDENT = "    "
_VARIABLES = {"rows": "rows", "stream": "cols", "wide": "wide"}


@dataclass(frozen=True)
class Carried:
    """A variable of a loop, and what it becomes at the end of the body, as text."""

    variable: str
    value: str


class FunctionBuilder:
    """Writes a function.

    Args:
        read: parameters that it reads.
        stored: parameters that it writes.
        extra: axes of names that the chain does not define.
        inner: reductions that are computed where they are read.
        actions: what to call the steps of the chain in comments.
        source: the chain as it was given.
    """

    def __init__(
        self,
        name: str,
        chain: Chain,
        layout: Layout,
        schedule: TileSchedule,
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
        pointers = {operand.name: self.names.fresh(f"{operand.name}_ptr") for operand in (*read, *stored)}
        dims = {dim.name: self.names.fresh(_VARIABLES.get(dim.name, dim.name)) for dim in layout.dims}
        variables = {axis: self.names.fresh(f"at_{axis}") for axis in layout.grid}
        self.grid = {axis: variable if layout.sizes[axis] > 1 else "0" for axis, variable in variables.items()}
        self.text = Text(chain, layout, dims, self.grid)
        scope, fold, precision = Scope(chain, extra), schedule.fold, schedule.precision
        self.evaluator = TileEvaluator(
            self.text, scope, self.names, pointers, frozenset(inner), origins(source), fold, precision
        )

    @property
    def outer(self) -> Block:
        """Statements outside of loops."""
        return self.evaluator.blocks[0]

    def begin(self, parts: int = 1) -> TileProgram:
        """Statements that compute where the program is.

        Args:
            parts: into how many the loop is split, each run by programs of its own.
        """
        emit, layout = self.evaluator.emit, self.layout
        emit("pid = tl.program_id(0)")
        programs, tile = 1, ""
        part: tuple[str, int] | None = None

        def component(size: int) -> str:
            nonlocal programs  # the fastest first
            text = "pid" if programs == 1 else f"pid // {programs}"
            programs *= size
            return f"{text} % {size}"

        grouped = self._grouped(component)
        for name in ("rows", "wide"):
            dim = layout.dim(name)
            if dim is None:
                continue
            tiles = layout.tiles(name)
            variable = self.names.fresh("tile" if name == "rows" else f"tile_{name}")
            if tiles == 1:
                emit(f"{self.text.dims[name]} = tl.arange(0, {dim.block})")
                continue
            number = grouped[name] if grouped else component(tiles)
            backwards = self.schedule.backwards and name == "rows"
            emit(f"{variable} = {f'{tiles - 1} - ({number})' if backwards else number}")
            tile = variable if name == "rows" else tile
            start = variable if dim.block == 1 else f"{variable} * {dim.block}"
            emit(f"{self.text.dims[name]} = {start} + tl.arange(0, {dim.block})")
        if parts > 1:
            variable = self.names.fresh("part")
            emit(f"{variable} = {component(parts)}")
            part = variable, parts
        for axis in reversed(layout.grid):
            if layout.sizes[axis] > 1:
                emit(f"{self.grid[axis]} = {component(layout.sizes[axis])}")
        for dim in layout.dims:
            if dim.name not in ("rows", "wide", layout.stream):
                emit(f"{self.text.dims[dim.name]} = tl.arange(0, {dim.block})")
            if dim.name != layout.stream and dim.ragged:
                self._limit(dim.name, -1)
        return TileProgram(programs, self.grid, tile, part)

    def _grouped(self, component: Callable[[int], str]) -> dict[str, str]:
        """Which tile of rows and of features a program has, if they are run in groups of rows."""
        rows, wide, group = self.layout.tiles("rows"), self.layout.tiles("wide"), self.schedule.group
        if not 0 < group < rows or wide == 1:
            return {}
        turn, first, within = (self.names.fresh(name) for name in ("turn", "first", "within"))
        self.evaluator.emit(f"{turn} = {component(rows * wide)}")
        self.evaluator.emit(f"{first} = {turn} // {group * wide} * {group}")
        self.evaluator.emit(f"{within} = {turn} % {group * wide}")
        tall = str(group)
        if rows % group:
            tall = self.names.fresh("tall")
            self.evaluator.emit(f"{tall} = tl.minimum({rows} - {first}, {group})")
        return {"rows": f"{first} + {within} % {tall}", "wide": f"{within} // {tall}"}

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

    def loop(self, header: str, body: Block, carried: Iterable[Carried]) -> None:
        """A loop of a block's statements."""
        self.outer.lines.append((header, frozenset()))
        self.outer.lines += [(_INDENT + text, steps) for text, steps in body.lines]
        for end in carried:
            self.outer.lines.append((f"{_INDENT}{end.variable} = {end.value}", frozenset()))

    def start(self, states: Iterable[State], moment: str) -> dict[str, Tile]:
        """Variables of a loop's states, with their initial values."""
        variables = {}
        for state in states:
            dims = self.layout.dims_of(frozenset(state.axes))
            dtype = summed(state.dtype)
            initial = Tile(literal(state.initial.value, dtype), const=state.initial.value, dtype=dtype)
            text = self.text.full(initial, dims, dtype)
            name = self.names.fresh(f"{state.name}_{moment}")
            self.evaluator.emit(f"{name} = {text}", frozenset({state.name}))
            variables[state.name] = Tile(name, dims, dtype, limits=I32 if dtype == "i32" else None)
        return variables

    def lines(self, lines: Iterable[Local | Update], depth: int) -> None:
        """The lines of a loop's body, of a merge or of what follows them."""
        evaluator = self.evaluator
        for line in lines:
            if isinstance(line, Local):
                _neutral(line.reduce)
                tile = evaluator.reduce(line.reduce, depth)
            else:
                tile = evaluator.named(line.name, line.expr, line.dtype, depth, line.name.partition(".")[0])
                if tile.const is not None or tile.factor != 1.0:
                    tile = evaluator.assign(line.name, tile, depth)
            evaluator.blocks[depth].named[line.name] = tile

    def carry(self, body: Block, variables: Mapping[str, Tile]) -> list[Carried]:
        """What becomes of the states at the end of the body."""
        return [
            Carried(variable.text, self.text.full(body.named[f"{name}.new"], variable.dims, variable.dtype))
            for name, variable in variables.items()
        ]

    def sweep(
        self, rolling: Rolling | None, writes: Iterable[str], ranges: BlockRanges, program: TileProgram
    ) -> dict[str, Tile]:
        """A loop over blocks -> the variables of its states afterwards."""
        evaluator, layout = self.evaluator, self.layout
        dim = layout.dim(layout.stream)
        assert dim is not None
        variables = self.start(rolling.state if rolling else (), "old")
        statements, segments = ranges.segments(layout, program)
        for text in statements:
            evaluator.emit(text)
        cols = self.text.dims[dim.name]
        for segment in segments:
            start = self.names.fresh("start")
            with evaluator.nested(Block(true=ranges.true if segment.full else frozenset())) as body:
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
                carried = self.carry(body, variables)
            self.loop(f"for {start} in range({segment.low}, {segment.high}, {dim.block}):", body, carried)
        return variables

    # The text

    def launch(self, program: TileProgram) -> Launch:
        """The module's text."""
        helpers = self.evaluator.helpers
        head = ['"""Generated."""', "", "import triton", "import triton.language as tl"]
        head += ["from triton.language.extra import libdevice"] if "libdevice" in helpers else []
        for helper in sorted(helpers - {"libdevice"}):
            head += ["", "", *HELPERS[helper].rstrip().splitlines()]
        pointers = self.evaluator.pointers
        parameters = ", ".join(pointers[operand.name] for operand in (*self.read, *self.stored))
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
            program.count,
            self.schedule.num_warps,
            self.schedule.num_stages,
            not self.evaluator.exact.arithmetic,
            lines,
        )


def _neutral(step: Reduce) -> None:
    value = float(step.initial.value)
    if step.combine in ("add", "mul") and value != NEUTRAL[step.combine]:
        raise UnsupportedError(f"{step.name} starts from {value}")
