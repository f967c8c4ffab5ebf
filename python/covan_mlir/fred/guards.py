"""Which guards a loop needs against infinity minus infinity and zero times infinity, found by trying.

Proofs are over the reals; IEEE arithmetic has more values. A maximum that has seen nothing but -inf gives
``exp(-inf - -inf)``, NaN, in a block whose elements weigh nothing once a finite one is seen. Which statistics need a
guard, on what condition, and whether the final value is NaN where the condition still holds, depends on the chain.
So all rows of three blocks over a set of special values are computed both ways, with the fewest guards first, until
the loop gives NaN, infinities and numbers where the chain does. The row that refutes the form without a guard is kept
as the guard's reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from covan_mlir.fred.algebra import compare
from covan_mlir.fred.chain import Chain, Input, Map, Reduce
from covan_mlir.fred.expression import Apply, Const, Expr, Read, reads, walk
from covan_mlir.fred.forms import Guard
from covan_mlir.fred.interpret import Space, Value, run_step
from covan_mlir.fred.rolling import Loop, write
from covan_mlir.fred.run import Env, run_loop
from covan_mlir.fred.scalars import DTYPES, is_float

SPECIALS = (-np.inf, np.inf, np.nan, 0.0, 1.0, -3.0, -1024.0, 2.0**100)
BLOCKS = 3
CASES = 512
CASE = "case"


class NoGuardError(ValueError):
    """No choice of guards gives NaN and infinities where the chain has them."""


@dataclass(frozen=True)
class _Option:
    """A guard to try; ``poisons``: the final value is NaN where it still holds."""

    guard: Guard | None
    poisons: bool = False


class Trial:
    """A loop on rows of special values."""

    def __init__(self, chain: Chain, loop: Loop) -> None:
        self.loop = loop
        self.chain = _batched(chain)
        sizes = {axis.name: 1 for axis in chain.axes}
        sizes[loop.axes[-1]] = BLOCKS
        self.space = Space({**sizes, CASE: CASES}, {})
        self.rows: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = {}
        self.env = self._inputs(chain)

    def _inputs(self, chain: Chain) -> Env:
        first = [r for r in self.loop.reductions if self.loop.repairs[r.name].kind == "none"]
        sources = set().union(*(chain.depends(r.name) for r in first))
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
        """A row on which the loop's form gives another kind of value than the chain; empty if there is none."""
        rolling, split = write(_batched_loop(loop))
        got = run_loop(self.chain, rolling, split, self.env, self.space, 1, 1)
        for name in names:
            a, b = got[name].data.reshape(CASES, -1), self.expected[name].data.reshape(CASES, -1)
            with np.errstate(all="ignore"):
                same = (np.isnan(a) & np.isnan(b)) | (a == b)
                finite = np.isfinite(a) & np.isfinite(b)
                huge = np.any([np.any(np.abs(row) > 1e20, axis=1) for row in self.rows.values()], axis=0)
                near = finite & ((np.abs(a - b) <= 1e-3 * (1 + np.abs(b))) | np.reshape(huge, (-1, 1)))
            wrong = np.flatnonzero(~(same | near).all(axis=1))
            if wrong.size:
                at = int(wrong[0])
                row = "; ".join(f"{k} = {[float(x) for x in v[at]]}" for k, v in self.rows.items())
                return f"{row}: {name} would be {float(a[at, 0]):g}, the chain has {float(b[at, 0]):g}"
        return ""


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


def guarded(loop: Loop) -> Loop:
    """The loop with the guards that it needs.

    Raises:
        NoGuardError: no choice makes its special values those of the chain.
    """
    if all(repair.kind == "none" for repair in loop.repairs.values()):
        return loop
    chosen: dict[str, _Option] = {}
    poisoned: dict[str, tuple[str, ...]] = {}
    checked: list[str] = []
    trial = Trial(loop.chain, loop)
    for step in loop.reductions:
        statistics = loop.repairs[step.name].statistics
        checked.append(step.name)
        if not statistics:
            continue
        reason = ""
        for choice in _choices(loop, statistics, chosen):
            now = {**chosen, **choice}
            poison = {**poisoned, step.name: tuple(s for s, o in choice.items() if o.guard and o.poisons)}
            attempt = _with(loop, now, poison, checked)
            difference = trial.differs(attempt, checked)
            if not difference:
                chosen, poisoned = _explained(now, reason), poison
                break
            reason = reason or difference
        else:
            raise NoGuardError(f"no guard gives {step.name} the special values of the chain: {reason}")
    return _with(loop, chosen, poisoned, [r.name for r in loop.reductions])


def _with(
    loop: Loop, chosen: Mapping[str, _Option], poisoned: Mapping[str, tuple[str, ...]], names: Sequence[str]
) -> Loop:
    guards = tuple(option.guard for option in chosen.values() if option.guard)
    reductions = tuple(r for r in loop.reductions if r.name in names)
    needed = {name for r in reductions for name in loop.repairs[r.name].helpers}
    reductions = tuple(r for r in loop.reductions if r in reductions or r.name in needed)
    return replace(loop, guards=guards, poisoned=dict(poisoned), reductions=reductions)


def _explained(chosen: Mapping[str, _Option], reason: str) -> dict[str, _Option]:
    return {
        name: replace(o, guard=replace(o.guard, reason=o.guard.reason or reason)) if o.guard else o
        for name, o in chosen.items()
    }


def _choices(loop: Loop, statistics: Sequence[str], chosen: Mapping[str, _Option]) -> Iterator[dict[str, _Option]]:
    """Choices of a guard per statistic, fewest first; a guard once needed stays."""
    options = []
    for name in statistics:
        settled = chosen.get(name)
        if settled is not None and settled.guard is not None:
            options.append([_Option(settled.guard, False), _Option(settled.guard, True)])
            continue
        found = [_Option(None)]
        for guard in _candidates(loop, name):
            found += [_Option(guard, False), _Option(guard, True)]
        options.append(found)
    every = list(itertools.product(*options))
    every.sort(key=lambda combination: sum(o.guard is not None for o in combination))
    for combination in every:
        yield dict(zip(statistics, combination, strict=True))


def _candidates(loop: Loop, name: str) -> list[Guard]:
    """Conditions under which a statistic may say nothing yet, and what is read then."""
    value = loop.chain.values[name]
    dtype = value.dtype
    now = Read(f"{name}.new", dtype)
    zero, one = Const(0.0, dtype), Const(1.0, dtype)
    instead = one if _divides(loop, name) else zero
    found: list[Guard] = []
    if isinstance(value, Reduce) and value.combine in ("max", "min", "maxnum", "minnum"):
        return [Guard(name, compare("oeq", now, value.initial), instead, "")]
    if isinstance(value, Map):
        for source in reads(loop.maps()[name].expr):
            reduction = loop.chain.values.get(source)
            if isinstance(reduction, Reduce) and reduction.combine in ("max", "min", "maxnum", "minnum"):
                found.append(Guard(name, compare("oeq", Read(f"{source}.new", dtype), reduction.initial), instead, ""))
    found.append(Guard(name, compare("uno", now, now), instead, ""))
    if instead == one:
        found.append(Guard(name, compare("oeq", now, zero), instead, ""))
        either = Apply("arith.ori", (compare("uno", now, now), compare("oeq", now, zero)), "i1")
        found.append(Guard(name, either, instead, ""))
    return found


def _divides(loop: Loop, name: str) -> bool:
    """Whether something is divided by a statistic, or its logarithm is taken."""

    def inside(expr: Expr) -> bool:
        return any(isinstance(n, Read) and n.name == name for n in walk(expr))

    for step in loop.reductions:
        for node in walk(step.expr):
            if isinstance(node, Apply) and node.op in ("arith.divf", "math.log") and inside(node.args[-1]):
                return True
    return False
