"""Which guards a loop needs against infinity minus infinity and zero times infinity, found by trying.

Proofs are over the reals; IEEE arithmetic has more values. A maximum that has seen nothing but -inf gives
``exp(-inf - -inf)``, NaN, in a block whose elements weigh nothing once a finite one is seen. Which statistics need a
guard, on what condition, and whether the final value is NaN where the condition still holds, depends on the chain.
So all rows of three blocks over a set of special values are computed both ways, with the fewest guards first, until
the loop gives NaN, infinities and numbers where the chain does. The row that refutes the form without a guard is kept
as the guard's reason.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from covan_mlir.fred.algebra import compare
from covan_mlir.fred.chain import Chain, Input, Map, Reduce
from covan_mlir.fred.expression import Apply, Const, Expr, Index, Read, reads, rebuild, walk
from covan_mlir.fred.forms import Guard
from covan_mlir.fred.interpret import Space, Value, run_step
from covan_mlir.fred.rolling import Loop, divides, write
from covan_mlir.fred.run import Env, run_loop
from covan_mlir.fred.scalars import DTYPES, is_float

SPECIALS = (-np.inf, np.inf, np.nan, 0.0, 1.0, -3.0, 64.0, 128.0, -1024.0, 2.0**100)
BLOCKS = 3
CASES = len(SPECIALS) ** BLOCKS
CASE = "case"


class NoGuardError(ValueError):
    """No choice of guards gives NaN and infinities where the chain has them."""


class Trial:
    """A loop on rows of special values."""

    def __init__(self, chain: Chain, loop: Loop) -> None:
        self.masks = _masks(loop)
        self.loop = loop = _free(loop, self.masks)
        chain = loop.chain
        self.chain = _batched(chain)
        sizes = {axis.name: 1 for axis in chain.axes}
        sizes[loop.axes[-1]] = BLOCKS
        self.space = Space({**sizes, CASE: CASES}, {})
        self.rows: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}
        self.env = self._inputs(chain)
        own = {step.name for step in (*loop.reductions, *loop.elements)} | loop.maps().keys()
        wanted = set().union(*(chain.depends(step.name) for step in loop.reductions)) - own
        before = wanted.union(*(chain.depends(name) for name in wanted))
        for step in self.chain.steps:  # what earlier sweeps have left
            if step.name in before:
                self.env[step.name] = run_step(step, self.env, self.space)
        for name in before & own:  # an element that this loop computes as well: scores that two sweeps read
            self.env.pop(name, None)

    def _inputs(self, chain: Chain) -> Env:
        statistics = {name for repair in self.loop.repairs.values() for name in repair.statistics}
        closure = statistics.union(*(chain.depends(name) for name in statistics))
        first = [r.name for r in self.loop.reductions if self.loop.repairs[r.name].kind == "none" and r.name in closure]
        sources = set().union(*(chain.depends(name) for name in first))
        rng = np.random.default_rng(7)
        env: Env = {}
        special = [
            v for v in chain.inputs if v.name in sources and set(v.axes) & set(self.loop.axes) and is_float(v.dtype)
        ]
        for value in chain.inputs:
            shape = [CASES, *(self.space.sizes[axis] for axis in value.axes)]
            if value in special:
                data = self._special_rows(rng, shape, len(special) == 1)
                self.rows[value.name] = data.reshape(CASES, -1)
            elif is_float(value.dtype):
                data = (
                    np.ones(shape) if not set(value.axes) & set(self.loop.axes) else rng.choice([0.5, 1.0, 3.0], shape)
                )
            else:
                data = rng.integers(0, 2, shape).astype(np.float64)
            with np.errstate(over="ignore"):  # what a half has no number for is infinite, and special, too
                env[value.name] = Value(data.astype(DTYPES[value.dtype]), (CASE, *value.axes))
        return env

    @staticmethod
    def _special_rows(
        rng: np.random.Generator, shape: Sequence[int], alone: bool
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        if alone and np.prod(shape[1:]) == BLOCKS:
            return np.array(list(itertools.product(SPECIALS, repeat=BLOCKS))).reshape(shape)
        return rng.choice(np.array(SPECIALS), shape)

    @cached_property
    def expected(self) -> Env:
        """Values of the loop's reductions as the chain computes them: one after the other, on whole rows."""
        env: Env = {**self.env, "count": Value(np.full(CASES, float(BLOCKS)), (CASE,))}
        maps = self.loop.maps()
        wanted = {step.name for step in (*self.loop.elements, *self.loop.reductions)} | maps.keys()
        for step in self.chain.steps:
            if step.name in maps:
                env[step.name] = run_step(replace(maps[step.name], axes=step.axes), env, self.space)
            elif step.name in wanted:
                env[step.name] = run_step(step, env, self.space)
        return env

    def differs(self, loop: Loop, names: Sequence[str]) -> str:
        """A row on which the loop, or the merge of a state per block, gives another kind of value than the chain.

        Empty if there is none.
        """
        rolling, split = write(_batched_loop(_free(loop, self.masks)))
        # Three parts for each block: two of them are empty, their states neutral.
        for parts in (1, 3 * BLOCKS):
            got = run_loop(rolling, split, self.env, self.space, 1, parts)
            if difference := self._compare(got, names):
                return difference
        return ""

    def _compare(self, got: Env, names: Sequence[str]) -> str:
        for name in names:
            a, b = got[name].data.reshape(CASES, -1), self.expected[name].data.reshape(CASES, -1)
            with np.errstate(all="ignore"):
                same = (np.isnan(a) & np.isnan(b)) | (a == b)
                finite = np.isfinite(a) & np.isfinite(b)
                huge = np.any([np.any(np.abs(values) > 1e20, axis=1) for values in self.rows.values()], axis=0)
                near = finite & ((np.abs(a - b) <= 1e-3 * (1 + np.abs(b))) | np.reshape(huge, (-1, 1)))
            wrong = np.flatnonzero(~(same | near).all(axis=1))
            if wrong.size:
                at = int(wrong[0])
                case = "; ".join(f"{k} = {[float(x) for x in v[at]]}" for k, v in self.rows.items())
                return f"{case}: {name} would be {float(a[at, 0]):g}, the chain has {float(b[at, 0]):g}"
        return ""


def _masks(loop: Loop) -> dict[Expr, Input]:
    """Comparisons of positions along the loop, each with an input in its place.

    Which blocks a mask leaves out depends on sizes that a trial of three positions does not have: it tries them all.
    """
    masks: dict[Expr, Input] = {}
    for node in (node for step in loop.chain.steps for node in walk(step.expr)):
        if not (isinstance(node, Apply) and node.op.startswith("arith.cmpi") and not reads(node)):
            continue
        indices = {inner.axis for inner in walk(node) if isinstance(inner, Index)}
        if indices & set(loop.axes) and node not in masks:
            axes = tuple(axis.name for axis in loop.chain.axes if axis.name in indices)
            masks[node] = Input(f"mask.{len(masks)}", axes, "i1")
    return masks


def _free(loop: Loop, masks: Mapping[Expr, Input]) -> Loop:
    """The loop with inputs in the place of masks."""

    def freed(expr: Expr) -> Expr:
        return rebuild(expr, lambda node: Read(masks[node].name, "i1") if node in masks else node)

    chain = loop.chain
    return replace(
        loop,
        chain=replace(
            chain,
            inputs=(*chain.inputs, *masks.values()),
            steps=tuple(replace(step, expr=freed(step.expr)) for step in chain.steps),
        ),
        reductions=tuple(replace(step, expr=freed(step.expr)) for step in loop.reductions),
        elements=tuple(replace(step, expr=freed(step.expr)) for step in loop.elements),
    )


def _batched(chain: Chain) -> Chain:
    """The chain with one more axis everywhere: one case each."""
    from covan_mlir.fred.chain import Axis

    inputs = tuple(Input(v.name, (CASE, *v.axes), v.dtype) for v in chain.inputs)
    steps = tuple(replace(s, axes=(CASE, *s.axes)) for s in chain.steps)
    return Chain((Axis(CASE, CASES), *chain.axes), inputs, steps, chain.outputs)


def _batched_loop(loop: Loop) -> Loop:
    return replace(
        loop,
        chain=_batched(loop.chain),
        reductions=tuple(replace(r, axes=(CASE, *r.axes)) for r in loop.reductions),
        elements=tuple(replace(e, axes=(CASE, *e.axes)) for e in loop.elements),
    )


def guarded(loop: Loop, before: Loop | None = None) -> Loop:
    """The loop with the guards that it needs.

    Args:
        loop: without guards.
        before: the same loop with fewer reductions, guarded: what it settled is kept.

    Raises:
        NoGuardError: no choice makes its special values those of the chain.
    """
    if all(repair.kind == "none" for repair in loop.repairs.values()):
        return loop
    done = {r.name for r in before.reductions} if before else set()
    chosen = {guard.statistic: guard for guard in before.guards} if before else {}
    poisoned = dict(before.poisoned or {}) if before else {}
    if before:
        loop = replace(loop, guards=before.guards, poisoned=before.poisoned, careful=before.careful)
    trial = Trial(loop.chain, loop)
    for step in loop.reductions:
        done.add(step.name)
        if loop.repairs[step.name].statistics and step.name not in poisoned:
            loop = _search(trial, loop, step.name, done, chosen, poisoned)
            chosen = {guard.statistic: guard for guard in loop.guards}
            poisoned = dict(loop.poisoned or {})
    return loop


def _search(
    trial: Trial,
    loop: Loop,
    target: str,
    done: set[str],
    chosen: dict[str, Guard],
    poisoned: dict[str, tuple[str, ...]],
) -> Loop:
    """The loop with guards for one more reduction: the fewest statistics first, then the simplest conditions."""
    statistics = loop.repairs[target].statistics
    checked = [r.name for r in loop.reductions if r.name in done]
    reason, last = "", ""

    def attempt(guards: dict[str, Guard], poison: tuple[str, ...], careful: frozenset[str]) -> tuple[Loop, str]:
        full = replace(loop, guards=tuple(guards.values()), poisoned={**poisoned, target: poison}, careful=careful)
        return full, trial.differs(_up_to(full, checked), checked)

    for careful in (False, True) if divides(loop.repairs[target]) else (False,):
        for combination in _choices(loop, statistics, chosen):
            guards = {**chosen, **{name: guard for name, (guard, _) in combination.items() if guard}}
            poison = tuple(name for name, (guard, poisons) in combination.items() if guard and poisons)
            candidate, last = attempt(guards, poison, loop.careful | ({target} if careful else set()))
            if not last:
                explained = (g if g.statistic in chosen else replace(g, reason=reason) for g in candidate.guards)
                return replace(candidate, guards=tuple(explained))
            reason = reason or last
    raise NoGuardError(f"no guard gives {target} the special values of the chain: {last}")


def _up_to(loop: Loop, names: Sequence[str]) -> Loop:
    """The loop with only some of its reductions, and those that they read."""
    needed = {name for r in names for name in loop.repairs[r].helpers} | set(names)
    return replace(loop, reductions=tuple(r for r in loop.reductions if r.name in needed))


def _choices(
    loop: Loop, statistics: Sequence[str], chosen: Mapping[str, Guard]
) -> Iterator[dict[str, tuple[Guard | None, bool]]]:
    """Per statistic how it is guarded, and whether the result is NaN where the guard holds to the end."""
    options: list[list[tuple[Guard | None, bool]]] = []
    for name in statistics:
        guards: list[Guard | None] = [chosen[name]] if name in chosen else [None, *_guards(loop, name)]
        options.append([(guard, poisons) for guard in guards for poisons in ((False, True) if guard else (False,))])
    every = sorted(itertools.product(*options), key=lambda choice: sum(guard is not None for guard, _ in choice))
    for choice in every:
        yield dict(zip(statistics, choice, strict=True))


def _guards(loop: Loop, name: str) -> list[Guard]:
    """Guards on each sign that a statistic says nothing yet, and on any of them."""
    conditions = _conditions(loop, name)
    if len(conditions) > 1:
        conditions.append(functools.reduce(lambda a, b: Apply("arith.ori", (a, b), "i1"), conditions))
    instead = Const(1.0 if _divides(loop, name) else 0.0, loop.chain.values[name].dtype)
    return [Guard(name, when, instead, "") for when in conditions]


def _conditions(loop: Loop, name: str) -> list[Expr]:
    """Signs that a statistic says nothing yet: an extremum of nothing, a sum of no weights, 0 / 0."""
    value = loop.chain.values[name]
    dtype = value.dtype
    now, zero = Read(f"{name}.new", dtype), Const(0.0, dtype)
    conditions: list[Expr] = []
    sources = [value] if isinstance(value, Reduce) else _reductions_of(loop, name)
    for source in sources:
        if source.combine in _EXTREMA:
            conditions.append(compare("oeq", Read(f"{source.name}.new", dtype), source.initial))
    if isinstance(value, Map):
        conditions.append(compare("uno", now, now))
    if _divides(loop, name):
        conditions.append(compare("oeq", now, zero))
    for source in sources:
        if source.combine == "add" and source.name != name and _is_divisor(loop.maps()[name].expr, source.name):
            conditions.append(compare("oeq", Read(f"{source.name}.new", dtype), zero))
    return conditions or [compare("uno", now, now)]


_EXTREMA = ("max", "min", "maxnum", "minnum")


def _reductions_of(loop: Loop, name: str) -> list[Reduce]:
    """The reductions that a map of the loop reads, directly or through maps."""
    maps = loop.maps()
    stack, reductions = sorted(reads(maps[name].expr)), []
    while stack:
        source = stack.pop(0)
        if source in maps:
            stack += sorted(reads(maps[source].expr))
        reductions += [r for r in loop.reductions if r.name == source]
    return reductions


def _is_divisor(expr: Expr, name: str) -> bool:
    """Whether an expression divides by a value, or takes its logarithm."""
    return any(
        isinstance(node, Apply)
        and node.op in ("arith.divf", "math.log", "math.rsqrt")
        and any(isinstance(n, Read) and n.name == name for n in walk(node.args[-1]))
        for node in walk(expr)
    )


def _divides(loop: Loop, name: str) -> bool:
    """Whether some reduction divides by a statistic, or takes its logarithm."""
    return any(_is_divisor(step.expr, name) for step in loop.reductions)
