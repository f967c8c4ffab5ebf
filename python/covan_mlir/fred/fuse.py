"""A chain as the smallest sequence of sweeps: what runs in which loop, and why not in an earlier one."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from covan_mlir.fred.certificate import Certificate
from covan_mlir.fred.chain import Chain, ChainError, Map, Reduce, Step
from covan_mlir.fred.expression import Expr, numbered, reads
from covan_mlir.fred.forms import Fusion, Repair, Stage, UnfusedReduction
from covan_mlir.fred.guards import NoGuardError, guarded
from covan_mlir.fred.repair import NoRepairError, derive
from covan_mlir.fred.rolling import Loop, write
from covan_mlir.fred.simplify import normalise, with_steps

MAX_HELPERS = 4


@dataclass
class _Sweep:
    """A stage in the making."""

    axes: tuple[str, ...]
    reductions: list[Reduce] = field(default_factory=list)
    repairs: dict[str, Repair] = field(default_factory=dict)
    elements: list[Step] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    rows: list[Step] = field(default_factory=list)
    loop: Loop | None = None
    why: str = ""


_lock = threading.Lock()
_fused: dict[tuple[object, ...], Fusion] = {}


def fuse(chain: Chain, repairs: bool = True, narrow: bool = True) -> Fusion:
    """Normalise a chain and fuse its reductions into as few sweeps as the algebra allows; answers are kept.

    Args:
        chain: any chain.
        repairs: fuse reductions under the loop of one that they depend on; if not, each waits for its statistics in a
            sweep of its own, which may be cheaper where a row fits into cache.
        narrow: as for `covan_mlir.fred.simplify.normalise`.

    Raises:
        ChainError: the chain reads an input through a window, for which no sweep is known.
        NoCertificateError: a rewrite was derived that no prover accepts, which is a bug.
    """
    if chain.windowed:
        raise ChainError(f"the chain reads {chain.windowed[0]} through a window: it has no fused form")
    key = (*structure(chain), repairs, narrow)
    with _lock:
        if key not in _fused:
            _fused[key] = _Planner(chain, repairs, narrow).run()
        return _fused[key]


def known(chain: Chain) -> Fusion | None:
    """What `fuse` has found out about a chain, if it was asked."""
    return _fused.get((*structure(chain), True, True))


def structure(chain: Chain) -> tuple[object, ...]:
    """A key that equal chains share, in time linear in the size of their expressions."""
    parts: list[object] = [chain.axes, chain.inputs, chain.outputs]
    numbers: dict[object, int] = {}
    for step in chain.steps:
        rest = (step.over, step.combine, repr(step.initial)) if isinstance(step, Reduce) else ()
        parts += [step.name, step.axes, step.dtype, step.trace, rest, numbered(step.expr, numbers)]
    return (*parts, tuple(numbers))


class _Planner:
    """Assigns the steps of a normalised chain to sweeps, in order."""

    def __init__(self, source: Chain, repairs: bool, narrow: bool) -> None:
        self.source = source
        self.repairs = repairs
        normal = normalise(source, narrow)
        self.chain = normal.chain
        self.rewrites = normal.rewrites
        self.sweeps: list[_Sweep] = []
        self.place: dict[str, int] = {}
        self.refusals: list[UnfusedReduction] = []

    def run(self) -> Fusion:
        for step in list(self.chain.steps):
            if isinstance(step, Reduce) and not self._is_inner(step):
                self._add_reduction(step)
        for step in self.chain.steps:
            if not (isinstance(step, Reduce) and step.name in self.place):
                self._add_element(step)
        stages = tuple(map(self._stage, self.sweeps))
        certificates: dict[str, Certificate] = {}
        for rewrite in self.rewrites:
            certificates[rewrite.certificate.claim] = rewrite.certificate
        for stage in stages:
            if stage.split is not None:
                certificates |= {c.claim: c for c in stage.split.certificates}
        return Fusion(
            self.source, self.chain, stages, self.rewrites, tuple(self.refusals), tuple(certificates.values())
        )

    # Reductions

    def _is_inner(self, step: Reduce) -> bool:
        """Whether a reduction gives elements that another one sweeps: the scores of attention.

        Not so where it belongs to a chain over its own axis: then it is a statistic of that.
        """
        axes, over = set(step.axes), set(step.over)
        read = any(axes & set(r.over) and not over & set(r.axes) for r in self._readers(step.name))
        alike = [r for r in self.chain.reductions if set(r.over) == over and r.name != step.name]
        before = [r for r in alike if r.name in self.chain.depends(step.name)]
        after = [r for r in alike if step.name in self.chain.depends(r.name)]
        return read and not after and all(axes > set(r.axes) for r in before)

    def _readers(self, name: str) -> list[Reduce]:
        """The reductions that depend on a value."""
        return [r for r in self.chain.reductions if name in self.chain.depends(r.name)]

    def _sources(self, step: Step) -> set[str]:
        """The placed reductions that a step is computed from, directly or through maps and inner reductions."""
        reductions: set[str] = set()
        stack = list(reads(step.expr))
        while stack:
            source = stack.pop()
            value = self.chain.values[source]
            if source in self.place:
                reductions.add(source)
            elif isinstance(value, Map | Reduce):
                stack += reads(value.expr)
        return reductions

    def _add_reduction(self, step: Reduce) -> None:
        sources = self._sources(step)
        at, why = 0, ""
        for name in (before.name for before in self.chain.steps if before.name in sources):  # what is told is in order
            source = self.chain.values[name]
            assert isinstance(source, Reduce)
            fits = set(source.over) == set(step.over)
            place = self.place[name] + (not fits)
            if place > at and not fits:
                why = f"{step.name} needs {name}, a reduction over {', '.join(source.over)}"
            at = max(at, place)
        for number in range(at, len(self.sweeps)):
            sweep = self.sweeps[number]
            if not self._may_join(sweep, step):
                continue
            try:
                self._join(number, step)
            except (NoRepairError, NoGuardError) as error:
                statistics = tuple(sorted(self._statistics(sweep, step)))
                self.refusals.append(UnfusedReduction(step.name, statistics, str(error)))
                why = f"{step.name} cannot follow {', '.join(statistics)}: {error}"
                continue
            return
        self.sweeps.append(_Sweep(step.over, why=why if self.sweeps else ""))
        self._join(len(self.sweeps) - 1, step)

    @staticmethod
    def _may_join(sweep: _Sweep, step: Reduce) -> bool:
        """Whether a reduction is over the sweep's axes, for rows nested in those of the others."""
        if set(sweep.axes) != set(step.over):
            return False
        rows = set(step.axes)
        return all(rows <= set(r.axes) or rows >= set(r.axes) for r in sweep.reductions)

    def _statistics(self, sweep: _Sweep, step: Reduce) -> frozenset[str]:
        """Names that a reduction reads whose values the sweep is still computing."""
        members = {r.name for r in sweep.reductions}
        statistics = set()
        for name in reads(step.expr):
            value = self.chain.values[name]
            if name in members or (isinstance(value, Map) and self._sources(value) & members):
                statistics.add(name)
        return frozenset(statistics)

    def _join(self, number: int, step: Reduce) -> None:
        """Put a reduction into a sweep, with what it needs to be repaired.

        Raises:
            NoRepairError: it cannot be repaired.
            NoGuardError: its special values cannot be those of the chain.
        """
        sweep = self.sweeps[number]
        members = {r.name for r in sweep.reductions}
        elements = self._elements(step.expr, step.over)
        if any(self._sources(e) & members for e in elements):
            raise NoRepairError("an inner reduction reads a statistic of the loop")
        statistics = self._statistics(sweep, step)
        if statistics and not self.repairs:
            raise NoRepairError("repairs are turned off")
        chain, added, repairs = self.chain, [step], dict(sweep.repairs)
        pending = [step]
        while pending:
            target = pending.pop()
            own = frozenset(reads(target.expr) & statistics) if target is not step else statistics
            derived = derive(chain, target, [*sweep.reductions, *added[1:]], own)
            repairs[target.name] = derived.repair
            if len(added) + len(derived.helpers) > MAX_HELPERS + 1:
                raise NoRepairError(f"more than {MAX_HELPERS} further accumulators")
            for helper in derived.helpers:
                at = chain.steps.index(step)
                chain = with_steps(chain, (*chain.steps[:at], helper, *chain.steps[at:]))
                added.append(helper)
                pending.append(helper)
        reductions = [*sweep.reductions, *reversed(added)]
        loop = Loop(chain, tuple(reductions), repairs, tuple(self._union(chain, reductions, sweep.axes)))
        sweep.loop = guarded(loop, sweep.loop)
        self.chain, sweep.reductions, sweep.repairs = chain, reductions, repairs
        for reduction in added:
            self.place[reduction.name] = number

    def _union(self, chain: Chain, reductions: Iterable[Reduce], axes: tuple[str, ...]) -> list[Step]:
        wanted = {e.name for r in reductions for e in self._elements(r.expr, axes)}
        return [s for s in chain.steps if s.name in wanted]

    def _elements(self, expr: Expr, axes: tuple[str, ...]) -> list[Step]:
        """Steps with a position on ``axes`` that an expression reads, directly or through each other, in order."""
        names: set[str] = set()
        stack = list(reads(expr))
        while stack:
            name = stack.pop()
            value = self.chain.values[name]
            if isinstance(value, Map | Reduce) and name not in self.place and (set(value.axes) & set(axes)):
                names.add(name)
                stack += reads(value.expr)
        return [s for s in self.chain.steps if s.name in names]

    # Maps

    def _add_element(self, step: Step) -> None:
        """Put a map, or an inner reduction that leaves the chain, where its statistics are final."""
        if isinstance(step, Reduce) and step.name not in self.source.outputs:
            return
        sources = self._sources(step)
        ready = max((self.place[name] for name in sources), default=-1)
        swept = {axis for read in self.chain.reductions if read.name in sources for axis in read.over} & set(step.axes)
        if not sources:
            for sweep in self.sweeps:
                if set(sweep.axes) <= set(step.axes):
                    self._write(sweep, step)
                    return
        if not swept:
            if not self.sweeps:
                self.sweeps.append(_Sweep(()))
            self.sweeps[max(ready, 0)].rows.append(step)
            return
        for sweep in self.sweeps[ready + 1 :]:
            if set(sweep.axes) <= swept:
                self._write(sweep, step)
                return
        axes = tuple(axis for axis in step.axes if axis in swept)
        why = f"{step.name} has a value at every position and needs {', '.join(sorted(sources))}"
        self.sweeps.append(_Sweep(axes, why=why))
        self._write(self.sweeps[-1], step)

    def _write(self, sweep: _Sweep, step: Step) -> None:
        known = {e.name for e in sweep.elements}
        sweep.elements += [e for e in (*self._elements(step.expr, sweep.axes), step) if e.name not in known]
        if step.name in self.source.outputs:
            sweep.writes.append(step.name)

    def _stage(self, sweep: _Sweep) -> Stage:
        names = tuple(r.name for r in sweep.reductions)
        if not sweep.reductions:
            return Stage(
                sweep.axes, (), None, None, tuple(sweep.elements), tuple(sweep.writes), tuple(sweep.rows), sweep.why
            )
        assert sweep.loop is not None
        rolling, split = write(replace(sweep.loop, chain=self.chain))
        return Stage(
            sweep.axes, names, rolling, split, tuple(sweep.elements), tuple(sweep.writes), tuple(sweep.rows), sweep.why
        )
