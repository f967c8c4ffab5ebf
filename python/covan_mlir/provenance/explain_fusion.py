"""What became of each chain of reductions, as text and as JSON: found, fused or not and why, proved, scheduled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from covan_mlir.fred.chain import Chain
from covan_mlir.kir.operators import Operator
from covan_mlir.kir.told import line, told
from covan_mlir.provenance.attached import attached_in
from covan_mlir.provenance.explain import short_files, user_frame
from covan_mlir.provenance.fusion import FusionRecord
from covan_mlir.provenance.model import Action, LineageData, Site
from covan_mlir.provenance.operators import PlacedOperator, operator_in, operators

_INDENT = "  "
_WITHOUT = "an operator without a kernel of covan's"


class Timed(Protocol):
    """What is needed of a `covan_mlir.Profile`."""

    @property
    def times(self) -> Mapping[int, Any]:
        """By site, for those that have a time."""

    @property
    def runs(self) -> Mapping[int, int]:
        """By site, how often it runs in a call."""

    def time(self, site: Site | int) -> float:
        """Nanoseconds that a call spends in a site."""


def fusions(lineage: LineageData, actions: Iterable[Action]) -> tuple[FusionRecord, ...]:
    """The records of the chains that perform some of the actions, in the order in which they were looked at."""
    wanted = {action.id for action in actions}
    return tuple(record for record in lineage.fusions if wanted & {a.id for a in actions_of(lineage, record)})


def left_over(lineage: LineageData, actions: Iterable[Action]) -> tuple[PlacedOperator, ...]:
    """The operators without a kernel of covan's that perform some of the actions."""
    wanted = {action.id for action in actions}
    return tuple(one for one in operators(lineage) if not one.kernel and wanted & {a.id for a in one.actions})


def actions_of(lineage: LineageData, record: FusionRecord) -> tuple[Action, ...]:
    """The actions that a chain performs, in source order."""
    ids = {owner for i in record.parts if (part := lineage.parts.get(i)) for owner in part.owners}
    return tuple(lineage.actions[i] for i in sorted(ids))


def sites_of(lineage: LineageData, record: FusionRecord) -> tuple[Site, ...]:
    """The sites that run the kernel of a chain: further ones where its loop runs in parts that are then merged."""
    names = {record.kernel, f"{record.kernel}_merge"} if record.kernel else set()
    return tuple(site for site in lineage.sites if site.kernel in names)


def measured(lineage: LineageData, record: FusionRecord, profile: Timed | None) -> float | None:
    """Seconds that the kernel of a chain took, on average over the sites that run it; None if that was not measured."""
    seconds: dict[str, list[tuple[float, int]]] = {}
    for site in sites_of(lineage, record):
        if profile is not None and site.id in profile.times:
            seconds.setdefault(site.kernel, []).append((profile.time(site) * 1e-9, profile.runs[site.id]))
    if not seconds:
        return None
    return sum(sum(time for time, _ in rows) / sum(runs for _, runs in rows) for rows in seconds.values())


def fusions_json(
    lineage: LineageData,
    records: Iterable[FusionRecord],
    profile: Timed | None = None,
    left: Iterable[PlacedOperator] = (),
) -> list[dict[str, Any]]:
    """The records as JSON, with the actions of each, where they stand in the source, the sites of the kernel, and what
    was measured of it; behind them, operators without a kernel, with what is known of these.

    Args:
        left: as `left_over` gives them.
    """
    rows = []
    for record in records:
        places = _places(actions_of(lineage, record))
        sites = [site.id for site in sites_of(lineage, record)]
        took = measured(lineage, record, profile)
        operator = operator_in(record)
        kind = {} if operator is None else {"operator": _told(operator[1], operator[0], actions_of(lineage, record))}
        rows.append({**record.to_json(), "actions": places, "sites": sites, "measured_seconds": took, **kind})
    for one in left:
        said = {"actions": _places(one.actions), "sites": [one.site.id], "measured_seconds": None}
        rows.append({"what": _WITHOUT, **said, "operator": _told(one.operator, one.chain, one.actions)})
    return rows


def _places(actions: Iterable[Action]) -> list[dict[str, Any]]:
    frames = [(action, user_frame(action)) for action in actions]
    return [
        {"name": a.name, "op": a.op, "file": f.file if f else None, "line": f.line if f else None} for a, f in frames
    ]


def _told(operator: Operator, chain: Chain, actions: Iterable[Action]) -> dict[str, Any]:
    attached = attached_in(action.module for action in actions)
    return {"kind": operator.kind, **told(operator, chain), **({"attached": list(attached)} if attached else {})}


def fusions_text(
    lineage: LineageData,
    records: Iterable[FusionRecord],
    profile: Timed | None = None,
    left: Iterable[PlacedOperator] = (),
) -> str:
    """The records for people, and operators without a kernel: one paragraph each."""
    given = tuple(records)
    short = short_files(f.file for action in lineage.actions for f in action.frames if not f.internal)
    fused = sum(bool(record.kernel) for record in given)
    lines = [f"{_count(len(given), 'chain')} of reductions found; {fused} in a kernel of its own"]
    for record in given:
        lines += ["", record.what, *(_INDENT + line for line in _paragraph(lineage, record, short, profile))]
    for one in left:
        said = [*_of_actions(one.actions, short), f"site {one.site.id}", *_of_operator(one.operator, one.actions)]
        lines += ["", _WITHOUT, *(_INDENT + line for line in said)]
    return "\n".join(lines) + "\n"


def _paragraph(
    lineage: LineageData, record: FusionRecord, short: dict[str, str], profile: Timed | None
) -> Iterator[str]:
    yield from _of_actions(actions_of(lineage, record), short)
    if record.kernel:
        sites = [str(site.id) for site in sites_of(lineage, record)]
        yield f"kernel {record.kernel}, site {', '.join(sites) or 'none'}"
    else:
        yield f"no kernel: {record.reason}"
    if (operator := operator_in(record)) is not None:
        yield from _of_operator(operator[1], actions_of(lineage, record))
    if record.chain:
        yield "chain"
        yield from (_INDENT + line for line in record.chain)
    for number, sweep in enumerate(record.sweeps):
        over = f"sweep {number} over {', '.join(sweep.axes)}" if sweep.axes else f"computation {number} per row"
        yield over + (f", because {sweep.why}" if sweep.why else "")
        yield from (_INDENT + line for line in sweep.lines)
    yield from _proofs(record)
    if record.schedule:
        if record.template:
            yield f"template {record.template}, {_decided(record)}"
        yield "schedule " + " ".join(f"{key}={_value(value)}" for key, value in record.schedule.items())
        took = measured(lineage, record, profile)
        told = "not measured" if took is None else f"measured {_seconds(took)}"
        yield f"predicted {_seconds(record.seconds)}; {told}"


def _of_actions(actions: Iterable[Action], short: dict[str, str]) -> Iterator[str]:
    for action in actions:
        frame = user_frame(action)
        place = f"  {short[frame.file]}:{frame.line}" if frame else ""
        yield f"action {action.name} ({action.op.removesuffix('.default')}){place}"


def _of_operator(operator: Operator, actions: Iterable[Action]) -> Iterator[str]:
    yield f"operator {line(operator)}"
    if attached := attached_in(action.module for action in actions):
        yield f"attached {', '.join(attached)}"


def _decided(record: FusionRecord) -> str:
    """Why its kernel has its schedule."""
    if not record.measured:
        return "predicted to be the best"
    where = " on another machine of this kind" if record.elsewhere else ""
    return f"measured to be the best{where} ({_seconds(record.measured)})"


def _proofs(record: FusionRecord) -> Iterator[str]:
    repairs = [certificate for certificate in record.certificates if certificate.claim.startswith("repair of ")]
    if record.sweeps:
        yield f"{_count(len(repairs), 'repair')} found" if repairs else "no repair is needed"
    for refusal in record.refusals:
        yield f"no repair: {refusal}"
    for guard in record.guards:
        yield f"guard on {guard}"
    for certificate in record.certificates:
        lines = str(certificate).split("\n")
        yield f"certificate: {lines[0]} in {_seconds(certificate.seconds)}"
        yield from lines[1:]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _value(value: Any) -> str:
    return ",".join(map(_value, value)) or "-" if isinstance(value, list | tuple) else str(value)


def _seconds(seconds: float) -> str:
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 1e-9:.3g} ns"
