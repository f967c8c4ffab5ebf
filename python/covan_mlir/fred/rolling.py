"""Writing the loop: blocks of positions, local results, repaired accumulators, and the merge of two states."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from covan_mlir.fred.algebra import are_moments, compare, f, rename, select
from covan_mlir.fred.chain import Chain, Map, Reduce, Step
from covan_mlir.fred.expression import Apply, Const, Expr, Read, reads, rebuild, walk
from covan_mlir.fred.forms import Guard, Local, Repair, Rolling, SplitK, State, Update
from covan_mlir.fred.repair import in_loop_maps


def combine(step: Reduce, a: Expr, b: Expr) -> Expr:
    """Two partial results of a reduction together."""
    return Apply(step.operation, (a, b), step.dtype)


@dataclass(frozen=True)
class Loop:
    """What a loop is written from.

    Attributes:
        reductions: in order, helpers among them.
        repairs: by the reduction's name.
        poisoned: for each reduction, the statistics whose guard makes its final value NaN.
        careful: reductions in whose repair a quotient of equals is one, be they infinite or zero.
    """

    chain: Chain
    reductions: tuple[Reduce, ...]
    repairs: Mapping[str, Repair]
    elements: tuple[Step, ...]
    guards: tuple[Guard, ...] = ()
    poisoned: Mapping[str, tuple[str, ...]] | None = None
    careful: frozenset[str] = frozenset()

    @property
    def axes(self) -> tuple[str, ...]:
        """What is swept."""
        return self.reductions[0].over

    def maps(self) -> dict[str, Map]:
        """Maps per row that repairs or reductions of the loop read, directly or not, in order."""
        exprs = in_loop_maps(self.chain, self.reductions)
        maps = {}
        for name, expr in exprs.items():
            value = self.chain.values[name]
            assert isinstance(value, Map)
            maps[name] = replace(value, expr=expr)
        return _needed(maps, set().union(*(reads(step.expr) for step in self.reductions)))


def write(loop: Loop) -> tuple[Rolling, SplitK]:
    """The loop over blocks, and the states that it makes with their merge."""
    maps = loop.maps()
    names = {step.name for step in loop.reductions} | maps.keys()
    guarded = {guard.statistic: guard for guard in loop.guards}
    counts = any("count" in reads(value.expr) for value in maps.values())
    counts |= any("count.old" in reads(repair.update) for repair in loop.repairs.values())
    dtype = next((step.dtype for step in loop.reductions if step.dtype.startswith(("f", "bf"))), "f32")
    body = _lines(loop, maps, names, guarded, counts, dtype, merge=False)
    merge = _lines(loop, maps, names, guarded, counts, dtype, merge=True)
    state = [State(step.name, step.axes, step.dtype, step.initial) for step in loop.reductions]
    if counts:
        state.append(State("count", (), dtype, Const(0.0, dtype)))
    repairs = tuple(loop.repairs[step.name] for step in loop.reductions)
    rolling = Rolling(
        loop.axes, tuple(state), loop.elements, tuple(body), tuple(_finish(loop, maps, guarded)), repairs, loop.guards
    )
    certificates = tuple(repair.certificate for repair in repairs if repair.kind != "none")
    return rolling, SplitK(rolling, tuple(line for line in merge if isinstance(line, Update)), certificates)


def _finish(loop: Loop, maps: Mapping[str, Map], guarded: Mapping[str, Guard]) -> list[Update]:
    poisoned = loop.poisoned or {}
    tested = set().union(*(reads(guarded[s].when) for statistics in poisoned.values() for s in statistics))
    names = {step.name for step in loop.reductions} | maps.keys()
    lines = []
    for name, value in _needed(maps, {name.removesuffix(".new") for name in tested}).items():
        expr = rename(value.expr, {n: f"{n}.new" for n in (*names, "count")})
        lines.append(Update(f"{name}.new", value.axes, expr, value.dtype))
    for step in loop.reductions:
        result: Expr = Read(f"{step.name}.new", step.dtype)
        for name in poisoned.get(step.name, ()):
            result = select(guarded[name].when, Const(float("nan"), step.dtype), result)
        lines.append(Update(step.name, step.axes, result, step.dtype, step.trace))
    return lines


def _needed(maps: Mapping[str, Map], wanted: set[str]) -> dict[str, Map]:
    """The maps among ``wanted`` and those that they read, in order."""
    used = set(wanted)
    for name in reversed(list(maps)):
        if name in used:
            used |= reads(maps[name].expr)
    return {name: value for name, value in maps.items() if name in used}


def _lines(
    loop: Loop,
    maps: Mapping[str, Map],
    names: set[str],
    guarded: Mapping[str, Guard],
    counts: bool,
    dtype: str,
    merge: bool,
) -> list[Local | Update]:
    """The body of the loop, or the merge of states ``.a`` and ``.b``."""
    sides = ("a", "b") if merge else ("old",)
    used = _read_of_old(loop, names)
    lines: list[Local | Update] = []
    if counts:
        left, right = (f"count.{s}" for s in (sides if merge else ("old", "local")))
        lines.append(Update("count.new", (), f("addf", Read(left, dtype), Read(right, dtype)), dtype))
    for step in _in_order(loop, maps):
        if isinstance(step, Map):
            for side in sides:
                if step.name in used:
                    expr = rename(step.expr, {n: f"{n}.{side}" for n in (*names, "count")})
                    lines.append(Update(f"{step.name}.{side}", step.axes, expr, step.dtype))
            expr = rename(step.expr, {n: f"{n}.new" for n in (*names, "count")})
            lines.append(Update(f"{step.name}.new", step.axes, expr, step.dtype, step.trace))
        else:
            statistics = {n: f"{n}.{'safe' if n in guarded else 'new'}" for n in names}
            parts = [_repaired(loop, step, guarded, side) for side in sides]
            if not merge:
                local = f"{step.name}.local"
                lines.append(Local(local, replace(step, name=local, expr=rename(step.expr, statistics))))
                parts.append(Read(local, step.dtype))
            lines.append(
                Update(f"{step.name}.new", step.axes, combine(step, parts[0], parts[1]), step.dtype, step.trace)
            )
        if step.name in guarded:
            lines += _guard_lines(guarded[step.name], step, sides, step.name in used)
    return lines


def _guard_lines(guard: Guard, step: Step, sides: Sequence[str], used: bool) -> list[Update]:
    """``m.safe``, and ``m.from_old``, which repairs read as the value before: the one after, where there was none."""
    now = Read(f"{step.name}.new", step.dtype)
    safe = Update(f"{step.name}.safe", step.axes, select(guard.when, guard.instead, now), step.dtype)
    lines = [safe]
    for side in sides if used else ():
        when = rename(guard.when, {name: f"{name.removesuffix('.new')}.{side}" for name in reads(guard.when)})
        before = select(when, Read(safe.name, step.dtype), Read(f"{step.name}.{side}", step.dtype))
        lines.append(Update(f"{step.name}.from_{side}", step.axes, before, step.dtype))
    return lines


def _repaired(loop: Loop, step: Reduce, guarded: Mapping[str, Guard], side: str) -> Expr:
    repair = loop.repairs[step.name]
    before = {n: f"{n}.from_{side}" if n in guarded else f"{n}.{side}" for n in repair.statistics}
    after = {n: f"{n}.safe" if n in guarded else f"{n}.new" for n in repair.statistics}
    names: dict[str, str] = {}
    for name in reads(repair.update):
        plain, _, moment = name.partition(".")
        if moment == "old":
            names[name] = before.get(plain, f"{plain}.{side}")
        elif moment == "new":
            names[name] = after[plain]
    careful = step.name in loop.careful
    update = rename(rebuild(repair.update, _quotient_of_equals) if careful else repair.update, names)
    if not divides(repair) or not (guarded.keys() & before.keys() or careful):
        return update
    # A statistic that stays, stays: no infinity is taken from or divided by itself.
    tests = [compare("oeq", Read(before[n], step.dtype), Read(after[n], step.dtype)) for n in before]
    same = functools.reduce(lambda a, b: Apply("arith.andi", (a, b), "i1"), tests)
    return select(same, Read(f"{step.name}.{side}", step.dtype), update)


def _quotient_of_equals(node: Expr) -> Expr:
    if isinstance(node, Apply) and node.op == "arith.divf" and are_moments(*node.args):
        return select(compare("oeq", *node.args), Const(1.0, node.dtype), node)
    return node


def divides(repair: Repair) -> bool:
    """Whether a repair divides: then infinite statistics make NaN of a factor that is one."""
    return any(isinstance(node, Apply) and node.op == "arith.divf" for node in walk(repair.update))


def _read_of_old(loop: Loop, names: set[str]) -> set[str]:
    """Names whose value before the block repairs read, and maps that those are computed from."""
    used = {
        name.partition(".")[0]
        for repair in loop.repairs.values()
        for name in reads(repair.update)
        if name.endswith(".old")
    }
    used |= {name for repair in loop.repairs.values() for name in repair.statistics}
    maps = loop.maps()
    for name in reversed(list(maps)):
        if name in used:
            used |= reads(maps[name].expr)
    return used & names


def _in_order(loop: Loop, maps: Mapping[str, Map]) -> list[Step]:
    """Reductions and maps, each after what it reads."""
    wanted: list[Step] = []
    pending: list[Step] = [*loop.reductions, *maps.values()]
    names = {step.name for step in pending}
    done: set[str] = set()
    while pending:
        step = next(s for s in pending if not (reads(s.expr) & names) - done)
        pending.remove(step)
        done.add(step.name)
        wanted.append(step)
    return wanted
