"""All programs that the loop nest can write for a chain, beside those that are listed: which are legal, uniform samples
of them, changes of one number, and of one stage.

Numbers are tiles of any size, also such as divide nothing, blocks that divide what is contracted, register tiles of any
two axes, unrolling, which reads go through scratch, and how far ahead the others are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from covan_mlir.lowering.kernels.cpu.accesses import LoopNest
from covan_mlir.lowering.kernels.cpu.loop_nest import Layout, LoopNestSchedule
from covan_mlir.lowering.kernels.structure import Structure

MOST_UNROLLED = 16
"""Positions of the last contracted axis that are written out."""
AHEAD = (0, 2, 8, 32)
"""Steps by which what is read is asked for before."""
ROWS = 14
COLUMNS = 12
TRIES = 60
"""Samples of numbers, of which one has to be legal."""


@dataclass(frozen=True)
class NestSpace:
    """The programs of a chain.

    Attributes:
        lanes: elements of a register.
        registers: that there are.
        scratch: elements that fit into a stack frame.
        lane_axes: axes that lanes may run along.
        needed: reads that have to go through scratch where lanes run along an axis.
    """

    nest: LoopNest
    lanes: int
    registers: int
    scratch: int
    lane_axes: tuple[str, ...]
    needed: Callable[[str], tuple[str, ...]]

    def illegal(self, of: LoopNestSchedule) -> str:
        """Why a schedule is none that can be written; empty if it can."""
        nest, sizes, tiles = self.nest, self.nest.sizes, dict(of.tiles)
        kept = of.lane in nest.kept
        aliases = {access.alias for access in nest.accesses}
        if of.lanes != self.lanes or of.lane not in self.lane_axes:
            return f"lanes do not run along {of.lane}, {of.lanes} at a time"
        if any(axis and axis not in nest.kept for axis in (of.row, of.column)) or (of.row and of.row == of.column):
            return "rows and columns of a register tile are two axes of the results"
        if of.row == of.lane or min(of.rows, of.columns, of.unroll) < 1:
            return "rows run along another axis than lanes, and there is at least one of everything"
        if (of.rows > 1 and not of.row) or (of.columns > 1 and not of.column):
            return "a register tile has more than one row or column along no axis"
        if (of.rows + 1) * of.columns + 1 > self.registers:
            return f"{of.rows} x {of.columns} accumulators do not fit into {self.registers} registers"
        if len(tiles) != len(of.tiles) or any(
            axis not in nest.kept or not 1 <= count <= sizes[axis] for axis, count in of.tiles
        ):
            return "a workgroup's tile has another axis than the results, or more positions"
        if kept and tiles.get(of.lane, 1) < min(self.lanes, sizes[of.lane]):
            return f"a workgroup has no vector along {of.lane}"
        for axis, count in ((of.row, of.rows), (of.column, of.columns)):
            whole = count * (self.lanes if axis == of.lane else 1)
            if axis and count > 1 and whole >= tiles.get(axis, 1) + (self.lanes if axis == of.lane else 1):
                return f"registers hold more than a workgroup has along {axis}"
        if of.depth < 1 or sizes[nest.contracted[0]] % of.depth:
            return f"blocks of {of.depth} do not divide {nest.contracted[0]}"
        if of.unroll > MOST_UNROLLED:
            return f"{of.unroll} positions are written out, of {MOST_UNROLLED} at most"
        if not {*self.needed(of.lane)} <= {*of.staged} <= aliases or len({*of.staged}) != len(of.staged):
            return f"with lanes along {of.lane}, {', '.join(self.needed(of.lane))} has to go through scratch"
        if of.ahead not in AHEAD or (of.ahead and not self._foreseen(of)):
            return f"nothing is asked for {of.ahead} steps ahead"
        if (elements := Layout(nest, of).elements) > self.scratch:
            return f"{elements} elements of scratch are more than {self.scratch}"
        return ""

    def _foreseen(self, of: LoopNestSchedule) -> bool:
        """Whether something that it reads can be asked for ahead of time."""
        layout = Layout(self.nest, of)
        return any(layout.between(access) for access in self.nest.accesses)

    # Samples

    def sampled(self, structure: Structure, random: Random) -> LoopNestSchedule | None:
        """A program of a structure, each of its numbers taken uniformly; None if no legal one comes up."""
        if structure.loops != "tiles" or structure.algorithm != "direct" or structure.packed:
            return None
        if structure.factored == "parts":
            return None
        lanes = [axis for axis in self.lane_axes if (axis in self.nest.kept) == (not structure.factored)]
        cached = {*structure.cached}
        lanes = [axis for axis in lanes if self._inputs(self.needed(axis)) <= cached]
        for _ in range(TRIES if lanes else 0):
            schedule = self._any(structure, random.choice(lanes), random)
            if not self.illegal(schedule):
                return schedule
        return None

    def _any(self, structure: Structure, lane: str, random: Random) -> LoopNestSchedule:
        nest, sizes = self.nest, self.nest.sizes
        others = [axis for axis in nest.kept if axis != lane and sizes[axis] > 1]
        row = random.choice([*others, ""])
        columns = [axis for axis in others if axis != row] + ([lane] if lane in nest.kept else [""])
        column = random.choice(columns)
        rows, count = random.randint(1, ROWS if row else 1), random.randint(1, COLUMNS if column else 1)
        tiles = {axis: self._tile(axis, random) for axis in others if random.random() < 0.5 or axis in (row, column)}
        if lane in nest.kept:
            tiles[lane] = self._tile(lane, random)
        total = sizes[nest.contracted[0]]
        depths = [n for n in range(1, total + 1) if total % n == 0 and (n < total) == structure.held]
        allowed = [access.alias for access in nest.accesses if access.value.name in structure.cached]
        needed = self.needed(lane)
        free = [alias for alias in allowed if alias not in needed]
        chosen = {*needed, *(alias for alias in free if random.random() < 0.5)}
        if not chosen and free:
            chosen = {random.choice(free)}
        schedule = LoopNestSchedule(
            self.lanes,
            lane,
            row,
            column,
            rows,
            count,
            self._ordered(tiles),
            random.choice(depths) if depths else 0,
            random.randint(1, MOST_UNROLLED),
            tuple(access.alias for access in nest.accesses if access.alias in chosen),
        )
        return replace(schedule, ahead=random.choice(AHEAD)) if self._foreseen(schedule) else schedule

    def _tile(self, axis: str, random: Random) -> int:
        """As many tiles along an axis, or as many positions of one, all equally likely."""
        size = self.nest.sizes[axis]
        return random.choice([-(-size // random.randint(1, size)), random.randint(1, size)])

    def _ordered(self, tiles: dict[str, int]) -> tuple[tuple[str, int], ...]:
        return tuple((axis, tiles[axis]) for axis in self.nest.kept if tiles.get(axis, 1) > 1)

    def _inputs(self, aliases: Sequence[str]) -> set[str]:
        return {access.value.name for access in self.nest.accesses if access.alias in aliases}

    # Changes

    def mutated(self, of: LoopNestSchedule, random: Random) -> LoopNestSchedule | None:
        """A program that differs in one number, of the same structure; None if no legal one comes up."""
        blocks = of.depth < self.nest.sizes[self.nest.contracted[0]]
        for _ in range(TRIES):
            new = self._changed(of, random)
            same = (new.depth < self.nest.sizes[self.nest.contracted[0]]) == blocks
            if new != of and same and not self.illegal(new):
                return new
        return None

    def _changed(self, of: LoopNestSchedule, random: Random) -> LoopNestSchedule:
        number = random.choice(("rows", "columns", "tile", "depth", "unroll", "ahead"))
        if number == "rows":
            return replace(of, rows=max(1, of.rows + random.choice((-2, -1, 1, 2))))
        if number == "columns":
            return replace(of, columns=max(1, of.columns + random.choice((-1, 1))))
        if number == "unroll":
            return replace(of, unroll=random.choice((max(1, of.unroll // 2), of.unroll * 2)))
        if number == "ahead":
            return replace(of, ahead=random.choice(AHEAD))
        if number == "depth":
            total = self.nest.sizes[self.nest.contracted[0]]
            return replace(of, depth=random.choice([n for n in range(1, total + 1) if total % n == 0]))
        axis = random.choice(self.nest.kept)
        tiles = {**dict(of.tiles), axis: self._tile(axis, random)}
        return replace(of, tiles=self._ordered(tiles))

    def crossed(self, one: LoopNestSchedule, other: LoopNestSchedule, random: Random) -> LoopNestSchedule | None:
        """A program whose stages are each of one of two: registers with what goes through scratch, the workgroup's
        tile, and the blocks with what is written out of them and asked for ahead of them; None if none of them is legal
        and new."""
        for _ in range(4):
            registers, tiles, blocks = (random.choice((one, other)) for _ in range(3))
            new = replace(registers, tiles=tiles.tiles, depth=blocks.depth, unroll=blocks.unroll, ahead=blocks.ahead)
            if new not in (one, other) and not self.illegal(new):
                return new
        return None
