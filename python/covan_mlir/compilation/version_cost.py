"""Whether a version of a program is predicted to be faster than the general one, at its own sizes.

Compared are the chains that became kernels in either, as their templates predict them, or as they were measured; a
chain without a kernel takes what the compiler's own code is predicted to take. All else counts as the same in both,
but for the dispatches that one has more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from covan_mlir.fred import chain_json
from covan_mlir.fred.chain import NOMINAL, Chain, ChainError
from covan_mlir.fred.scaled_weights import scaled
from covan_mlir.lowering.kernels import targets as kernel_targets
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.reductions.profitability import compiled
from covan_mlir.lowering.kernels.select import choices
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.lowering.targets import Target
from covan_mlir.provenance.fusion import FusionRecord
from covan_mlir.provenance.model import LineageData

_SPLIT = ("group", "parallel", "span")
"""Fields of schedules that say how work is shared out, and not what is done in registers and caches."""


@dataclass(frozen=True)
class Prediction:
    """Seconds of what two programs do differently, and the least that it saves to run the one instead of the other."""

    general: float
    version: float

    @property
    def saved(self) -> float:
        """Part of the general program's time; negative if the version takes longer."""
        return 1.0 - self.version / self.general if self.general else 0.0


def predict(general: LineageData, version: LineageData, goal: Target, winograd: int) -> Prediction | None:
    """What both take at the version's sizes; None: no times are predicted for the target."""
    target = kernel_targets.of(goal.name, goal.devices)
    if target is None or not version.actions:
        return None
    target = target.allowing(winograd)
    totals = [0.0, 0.0]
    for theirs, own in _together(general, version):
        pair = _seconds(theirs, own, target)
        if pair is not None:
            totals = [total + seconds for total, seconds in zip(totals, pair, strict=True)]
    dispatches = [_dispatches(lineage) for lineage in (general, version)]
    rate = target.rates(_ANY).dispatch
    return Prediction(*(total + count * rate for total, count in zip(totals, dispatches, strict=True)))


_ANY = Chain((), (), (), ())


def _dispatches(lineage: LineageData) -> int:
    return sum(site.phase == "call" for site in lineage.sites)


def _together(
    general: LineageData, version: LineageData
) -> Iterator[tuple[Sequence[FusionRecord], Sequence[FusionRecord]]]:
    """Chains of both programs that perform the same actions, as small groups as there are."""
    groups: list[_Group] = []
    for side, lineage in enumerate((general, version)):
        for record in lineage.fusions:
            if not record.source:
                continue
            names = set(_actions(lineage, record))
            union = _Group(names, ([], []))
            for group in [group for group in groups if names & group.actions]:
                groups.remove(group)
                union.actions.update(group.actions)
                for mine, other in zip(union.records, group.records, strict=True):
                    mine.extend(other)
            union.records[side].append(record)
            groups.append(union)
    for group in groups:
        yield group.records


@dataclass(frozen=True, eq=False)
class _Group:
    """Chains of the general program, and of the version, with actions in common."""

    actions: set[str]
    records: tuple[list[FusionRecord], list[FusionRecord]]


def _actions(lineage: LineageData, record: FusionRecord) -> Iterable[str]:
    parts = lineage.parts
    return (lineage.actions[owner].name for part in record.parts if part in parts for owner in parts[part].owners)


def _seconds(
    theirs: Sequence[FusionRecord], own: Sequence[FusionRecord], target: KernelTarget
) -> tuple[float, float] | None:
    """Of one group, of the general program and of the version; None where the sizes cannot be told."""
    settled = [_final(records) for records in (theirs, own)]
    if not all(settled):
        return None
    pairs = list(zip(*settled, strict=False))
    if len(settled[0]) != len(settled[1]):
        return None
    totals = [0.0, 0.0]
    for general, version in pairs:
        try:
            chains = [scaled(chain_json.load(record.source)).chain for record in (general, version)]
        except ChainError:
            return None
        at = _sized(chains[0], chains[1])
        if at is None:
            return None
        totals[0] += _at(general, chains[0], at, target)
        totals[1] += _own(version, chains[1], target)
    return totals[0], totals[1]


def _final(records: Sequence[FusionRecord]) -> list[FusionRecord]:
    """Kernels, where there are some: what was tried before has a reason."""
    kernels = [record for record in records if record.kernel]
    return kernels or list(records[-1:])


def _sized(open_chain: Chain, version: Chain) -> Chain | None:
    """The general program's chain with the sizes that it has where the version runs; None: they cannot be told."""
    if not open_chain.extents:
        return open_chain
    sizes = dict(open_chain.sizes)
    known = version.nominal.known_sizes
    if sizes.keys() == known.keys():
        sizes = dict(known)
    elif len(open_chain.extents) == 1:
        others = prod(size for size in sizes.values() if size is not None)
        sizes[open_chain.extents[0]] = max(prod(known.values()) // max(others, 1), 1)
    else:
        return None
    return replace(open_chain, axes=tuple(replace(axis, size=sizes[axis.name]) for axis in open_chain.axes))


def _own(record: FusionRecord, chain: Chain, target: KernelTarget) -> float:
    """What a chain takes in the program that it was chosen for."""
    if not record.kernel:
        return compiled(chain.nominal, target.rates(chain))
    return record.measured or record.seconds


def _at(record: FusionRecord, chain: Chain, sized: Chain, target: KernelTarget) -> float:
    """What a chain with open sizes takes at some sizes, with the schedule that was chosen for the nominal ones."""
    if not record.kernel:
        return compiled(sized.nominal, target.rates(sized))
    listed = choices(sized.untraced, target)
    if not isinstance(listed, Refusal):
        for candidate in listed.candidates:
            if candidate.template.name != record.template:
                continue
            for schedule in candidate.match.schedules():
                fields = schedule.to_json()
                if all(record.schedule.get(name) == value for name, value in fields.items() if name not in _SPLIT):
                    return candidate.match.predict(schedule)
    # The template takes no such sizes when it knows them: the kernel does what it does to so many, each as fast.
    share = prod(sized.known_sizes[axis] / NOMINAL for axis in chain.extents)
    return record.seconds * share
