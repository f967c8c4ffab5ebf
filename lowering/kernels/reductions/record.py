"""What the artifact keeps about a chain: found, derived, proved, scheduled, or why not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from msgspec.structs import replace

from covan_mlir.fred.algebra import text, text_of
from covan_mlir.fred.chain import Chain, Step
from covan_mlir.fred.forms import Local, Rolling, Stage, Update
from covan_mlir.fred.fuse import known
from covan_mlir.lowering.kernels.cuda.generator import Executables
from covan_mlir.lowering.kernels.kernel import Kernel, Refusal
from covan_mlir.lowering.kernels.reductions.sweeps import Sweeps
from covan_mlir.provenance.fusion import FusionRecord, Sweep

_AGAIN = "the rows are in cache: sweeping them again costs less than repairs do"


def record(what: str, ids: Iterable[int], chain: Chain, kernel: Kernel | Executables | Refusal) -> FusionRecord:
    """The record of a chain for which there is a kernel, or a reason why there is none."""
    made = FusionRecord(what, tuple(ids), chain=tuple(map(_line, chain.steps)))
    if isinstance(kernel, Refusal):
        made = replace(made, reason=kernel.reason)
    else:
        made = replace(made, kernel=kernel.name, seconds=kernel.seconds, schedule=asdict(kernel.schedule))
    if made.kernel and chain.single_domain:
        return replace(made, sweeps=_rows(chain))
    fusion = known(chain)
    if fusion is None:
        return made  # refused before anything was derived
    guards = [guard for stage in fusion.stages if stage.rolling for guard in stage.rolling.guards]
    return replace(
        made,
        sweeps=tuple(map(_sweep, fusion.stages)),
        certificates=fusion.certificates,
        refusals=tuple(f"{r.target} cannot follow {', '.join(r.statistics)}: {r.reason}" for r in fusion.refusals),
        guards=tuple(f"{g.statistic} where {text(g.when)}: {g.reason}" for g in guards),
    )


def _sweep(stage: Stage) -> Sweep:
    lines = [] if stage.rolling is None else list(_loop(stage.rolling))
    lines += [_line(step) for step in (*stage.elements, *stage.rows)]
    return Sweep(stage.axes, stage.why, tuple(lines))


def _loop(rolling: Rolling) -> Iterable[str]:
    for step in rolling.elements:
        yield _line(step)
    for line in (*rolling.body, *rolling.finish):
        yield _of(line)


def _of(line: Local | Update) -> str:
    return text_of(line.reduce) if isinstance(line, Local) else f"{line.name} = {text(line.expr)}"


def _line(step: Step) -> str:
    name, _, rest = text_of(step).partition(" = ")
    return f"{name}[{', '.join(step.axes)}] = {rest}"


def _rows(chain: Chain) -> tuple[Sweep, ...]:
    sweeps = Sweeps(chain)
    found: dict[int, list[str]] = {}
    for step in chain.reductions:
        found.setdefault(sweeps.level[step.name], []).append(_line(step))
    axes = tuple(axis.name for axis in chain.axes if axis.name in sweeps.over)
    return tuple(Sweep(axes, _AGAIN if n else "", tuple(lines)) for n, (_, lines) in enumerate(sorted(found.items())))
