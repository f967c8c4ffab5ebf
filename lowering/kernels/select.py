"""Which kernel computes a chain on a target: of all templates that take it, the one that is predicted to be fastest, or
that was measured to be."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from math import inf
from typing import Any

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels import registry
from covan_mlir.lowering.kernels.dense.apart import apart, rows_before, tiles_between, transposed_after
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.layouts import Held, layouts
from covan_mlir.lowering.kernels.overrides import IllegalError, changes
from covan_mlir.lowering.kernels.recorded import Condition, Recorded, code_digest, compact
from covan_mlir.lowering.kernels.reductions.operands import refused, traffic
from covan_mlir.lowering.kernels.reductions.profitability import compiled, does_not_pay
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.lowering.kernels.template import ChainKind, Cost, IllegalScheduleError, Match, Schedule, Template
from covan_mlir.lowering.source_lines import SourceLines

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Selection:
    """The kernel that computes a chain.

    Attributes:
        template: name of the template that wrote it.
        schedule: of that template, as JSON.
        cost: what the template predicts.
        measured: seconds that it took when it was measured to be the best; None: the prediction decided.
        elsewhere: that was on another machine of this kind.
        layouts: of the weights that it reads (`covan_mlir.lowering.kernels.layouts`).
    """

    executable: Executable
    template: str
    schedule: Mapping[str, Any]
    cost: Cost
    measured: float | None = None
    elsewhere: bool = False
    layouts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A template that takes a chain on a target.

    Attributes:
        chain: that it takes.
        first: the schedule that the template likes best.
        seconds: its predicted time.
    """

    template: Template[Any, Any]
    chain: Chain
    match: Match[Any]
    first: Schedule
    seconds: float

    def write(self, schedule: Schedule, name: str, lines: SourceLines = ()) -> Selection | Refusal:
        """The kernel with a schedule, or why there is none."""
        try:
            executable = self.match.emit(schedule, name, lines)
            if isinstance(executable, Refusal):
                return executable
            read = layouts(self.chain, self.match, schedule)
            return Selection(
                executable, self.template.name, schedule.to_json(), self.match.cost(schedule), layouts=read
            )
        except Exception as error:
            return _failed(error)


@dataclass(frozen=True)
class Choices:
    """The templates that take a chain on a target, the one that is predicted to be fastest first."""

    target: KernelTarget
    candidates: tuple[Candidate, ...]

    def schedules(self) -> Iterator[tuple[Candidate, Schedule]]:
        """All legal schedules, template by template; the first one is what `select` tries first."""
        for candidate in self.candidates:
            for schedule in candidate.match.schedules():
                yield candidate, schedule

    def pick(self, number: int = 0, override: Mapping[str, str] | None = None) -> tuple[Candidate, Schedule]:
        """The schedule of this number, changed in the fields that are overridden.

        Raises:
            IllegalError: there are fewer schedules, or the target cannot hold the changed one.
        """
        legal = list(self.schedules())
        if not 0 <= number < len(legal):
            raise IllegalError(f"there are {len(legal)} legal schedules, numbered from 0; {number} is none of them")
        candidate, schedule = legal[number]
        if not override:
            return candidate, schedule
        fields = schedule.to_json()
        try:
            return candidate, candidate.match.read({**fields, **changes(fields, override, "a schedule")})
        except IllegalScheduleError as error:
            changed = ", ".join(f"{key}={value}" for key, value in override.items())
            raise IllegalError(f"{changed} is not legal on {self.target.name} (list=true lists what is)") from error

    def scheduled(self, template: str, fields: Mapping[str, Any]) -> tuple[Candidate, Schedule]:
        """The schedule of a template that `Schedule.to_json` wrote.

        Raises:
            IllegalError: no such template takes the chain, or the target cannot hold the schedule.
        """
        for candidate in self.candidates:
            if candidate.template.name == template:
                return candidate, candidate.match.read(fields)
        raise IllegalError(f"no template {template!r} takes it on {self.target.name}")


def choices(chain: Chain, target: KernelTarget, fusion: Fusion | None = None) -> Choices | Refusal:
    """The templates that take a chain, or why there is none.

    Args:
        fusion: its fused form, if that is known already.
    """
    return _choices(chain, target, _asked(chain, target), fusion)


def _choices(
    chain: Chain,
    target: KernelTarget,
    asked: tuple[Template[Any, Any], ...],
    fusion: Fusion | None = None,
    *,
    fastest: bool = False,
) -> Choices | Refusal:
    """As `choices`.

    Args:
        asked: the templates for such chains.
        fastest: only the first candidate counts: a template that cannot be it is not asked.
    """
    if (reason := refused(chain)) is not None:
        return Refusal(reason)
    candidates: dict[int, Candidate] = {}
    refusals: dict[str, Refusal] = {}
    # Of equals, the template that was registered last is taken: it is the more special one.
    floors = {n: template.floor(chain, target) if fastest else 0.0 for n, template in enumerate(reversed(asked))}
    best = inf
    for n in sorted(floors, key=lambda n: floors[n]):
        if floors[n] >= best:
            continue
        template = asked[-1 - n]
        candidate = _candidate(template, chain, target, fusion)
        if isinstance(candidate, Refusal):
            refusals[template.name] = candidate
        else:
            candidates[n] = candidate
            best = min(best, candidate.seconds)
    if candidates:
        ordered = [candidates[n] for n in sorted(candidates)]
        return Choices(target, tuple(sorted(ordered, key=lambda candidate: candidate.seconds)))
    if refusals:
        return _united(refusals)
    if chain.windowed:
        return Refusal(f"it reads {chain.windowed[0]} through a window, which no template for {target.kind} takes")
    return Refusal(f"there is no template for {target.kind}")


def _asked(chain: Chain, target: KernelTarget) -> tuple[Template[Any, Any], ...]:
    return registry.templates(target.kind, _kind(chain))


def _kind(chain: Chain) -> ChainKind:
    if chain.windowed:
        return "windows"
    if chain.product:
        return "products"
    return "rows" if chain.single_domain else "contractions"


def _candidate(
    template: Template[Any, Any], chain: Chain, target: KernelTarget, fusion: Fusion | None
) -> Candidate | Refusal:
    try:
        match = template.match(chain, target, fusion)
        if isinstance(match, Refusal):
            return match
        if target.layouts and any(value.weight for value in chain.inputs):
            match = Held(chain, match, target.layouts)
        first = next(iter(match.schedules()), None)
        if first is None:
            return Refusal("it reads weights in other layouts than the program's other versions do")
        return Candidate(template, chain, match, first, match.predict(first))
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> Refusal:
    """Why a template gave nothing. A program can do without its kernel, and must not fail for it."""
    if isinstance(error, UnsupportedError):
        return Refusal(str(error))
    log.warning("code generation failed", exc_info=error)
    return Refusal(f"code generation failed: {error!r}")


def _united(refusals: Mapping[str, Refusal]) -> Refusal:
    """One refusal for those of all templates; what they say of chains that they are not for tells nothing."""
    told = {name: r.reason for name, r in refusals.items() if r.suits} or {n: r.reason for n, r in refusals.items()}
    if len(set(told.values())) == 1:
        return Refusal(next(iter(told.values())))
    return Refusal("; ".join(f"{name}: {reason}" for name, reason in sorted(told.items())))


def select(
    chain: Chain,
    name: str,
    target: KernelTarget,
    *,
    always: bool = False,
    lines: SourceLines = (),
    recorded: Recorded | None = None,
) -> Selection | Refusal:
    """The kernel of a chain under a name, or why there is none. What was selected is remembered.

    Args:
        always: also where it is not predicted to pay.
        lines: of the user's source, by step of the chain, for the line tables of targets that have them.
        recorded: the schedule that was measured to be the best. Whether there is a kernel at all does not depend on it.
    """
    if (reason := target.unable()) is not None:
        return Refusal(reason)
    return _selected(chain, name, target, always, lines, recorded, _asked(chain, target))


def worth(chain: Chain, target: KernelTarget, *, always: bool = False) -> Choices | Refusal:
    """The templates that take a chain, or why there is none, or the compiler's own code is faster."""
    if (reason := target.unable()) is not None:
        return Refusal(reason)
    return _worth(chain, target, always, _asked(chain, target))


@lru_cache(256)
def _worth(
    chain: Chain, target: KernelTarget, always: bool, asked: tuple[Template[Any, Any], ...]
) -> Choices | Refusal:
    choice = _choices(chain, target, asked, fastest=True)
    if isinstance(choice, Refusal) or always:
        return choice
    seconds = choice.candidates[0].seconds
    reason = does_not_pay(chain, target.rates(chain), seconds) or _faster_apart(chain, target, seconds)
    return Refusal(reason) if reason else choice


@lru_cache(256)
def _selected(
    chain: Chain,
    name: str,
    target: KernelTarget,
    always: bool,
    lines: SourceLines,
    recorded: Recorded | None,
    asked: tuple[Template[Any, Any], ...],
) -> Selection | Refusal:
    choice = _worth(chain, target, always, asked)
    if isinstance(choice, Refusal):
        return choice
    if recorded is not None:
        choice = _all(chain, target, asked)
        selection = as_recorded(choice, recorded, name, lines)
        if isinstance(selection, Selection):
            return selection
        level = logging.WARNING if recorded.condition is None else logging.INFO
        log.log(level, "the schedule that was measured for %s is not used: %s", name, selection.reason)
    written = _written(choice, name, lines)
    if isinstance(written, Refusal):  # the fastest cannot be written after all
        written = _written(_all(chain, target, asked), name, lines)
    return written


def _all(chain: Chain, target: KernelTarget, asked: tuple[Template[Any, Any], ...]) -> Choices:
    """Of a chain that some template takes, all that do."""
    everything = _choices(chain, target, asked)
    assert isinstance(everything, Choices)
    return everything


def _written(choice: Choices, name: str, lines: SourceLines) -> Selection | Refusal:
    """The first kernel that can be written."""
    refusals: dict[str, Refusal] = {}
    for candidate in choice.candidates:
        for schedule in islice(candidate.match.schedules(), candidate.template.tries):
            selection = candidate.write(schedule, name, lines)
            if isinstance(selection, Selection):
                return selection
            refusals.setdefault(candidate.template.name, selection)
    return _united(refusals)


def as_recorded(choice: Choices, recorded: Recorded, name: str, lines: SourceLines = ()) -> Selection | Refusal:
    """The kernel with the schedule that was measured, or why there is none."""
    try:
        candidate, schedule = choice.scheduled(recorded.template, json.loads(recorded.schedule))
    except ValueError as error:  # no JSON, or no schedule that is legal
        return Refusal(str(error))
    if recorded.condition is not None:
        if (reason := _lacking(choice, recorded.condition)) is not None:
            return Refusal(reason)
        plain = candidate.write(schedule, "kernel")
        if isinstance(plain, Refusal) or code_digest(plain.executable) != recorded.condition.code:
            return Refusal("another version, or for another machine, wrote the kernel that was measured")
    selection = candidate.write(schedule, name, lines)
    if isinstance(selection, Refusal):
        return selection
    return replace(selection, measured=recorded.seconds, elsewhere=recorded.condition is not None)


def _lacking(choice: Choices, condition: Condition) -> str | None:
    """Why a schedule that was measured elsewhere may not be faster here; None: it was compared with what is the best
    by prediction here, too."""
    first = choice.candidates[0]
    if f"{first.template.name} {compact(first.first.to_json())}" != condition.against:
        return "it was compared with another one than is predicted to be the best"
    plain = first.write(first.first, "kernel")
    if isinstance(plain, Refusal) or code_digest(plain.executable) != condition.against_code:
        return "it was compared with a kernel of another version, or for another machine"
    return None


def _faster_apart(chain: Chain, target: KernelTarget, seconds: float) -> str | None:
    """Why the products of a chain, what is done to their factors before, and what transposes their results are better
    off apart, or None: attention, whose factor is a product itself, is one kernel.

    Args:
        seconds: that one kernel of all of them takes, besides what its dispatch takes.
    """
    parts = transposed_after(chain)
    if len(parts) < 2:
        parts = apart(chain) if chain.product else rows_before(chain)
    if len(parts) < 2:
        parts = tiles_between(chain)
    if len(parts) < 2:
        return None
    rates = target.rates(chain)
    together, total = rates.dispatch + seconds, 0.0
    for part in parts:
        listed = choices(part, target)
        if not isinstance(listed, Refusal):
            total += rates.dispatch + listed.candidates[0].seconds
        elif part.reductions:
            total += compiled(part.nominal, rates)
        else:
            total += rates.dispatch + traffic(part) / rates.bandwidth
    if together <= total:
        return None
    return f"predicted to take {together * 1e6:.2f} us as one kernel, {total * 1e6:.2f} us as {len(parts)}"
