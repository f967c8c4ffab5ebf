"""What the artifact keeps about a chain: found, derived, proved, scheduled, or why not."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from covan_mlir.fred import chain_json
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Stage
from covan_mlir.fred.formulas import line, text
from covan_mlir.fred.fuse import known
from covan_mlir.fred.scaled_weights import scaled
from covan_mlir.fred.sweep_formulas import sweep_lines
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.reductions.sweeps import Sweeps
from covan_mlir.lowering.kernels.select import Selection
from covan_mlir.provenance.fusion import FusionRecord, Sweep

_AGAIN = "the rows are in cache: sweeping them again costs less than repairs do"


def record(what: str, ids: Iterable[int], chain: Chain, kernel: Selection | Refusal) -> FusionRecord:
    """The record of a chain for which there is a kernel, or a reason why there is none."""
    parts = scaled(chain)
    formulas, source = tuple(map(line, parts.steps)), chain_json.dump(chain)
    fusion_record, chain = FusionRecord(what, tuple(ids), chain=formulas, source=source), parts.chain
    if isinstance(kernel, Refusal):
        fusion_record = replace(fusion_record, reason=kernel.reason)
    else:
        name, seconds = kernel.executable.name, kernel.cost.seconds
        fusion_record = replace(
            fusion_record,
            kernel=name,
            seconds=seconds,
            schedule=kernel.schedule,
            template=kernel.template,
            measured=kernel.measured or 0.0,
            elsewhere=kernel.elsewhere,
            layouts=kernel.layouts,
        )
    if fusion_record.kernel and chain.single_domain:
        return replace(fusion_record, sweeps=_rows(chain))
    fusion = known(chain)
    if fusion is None:
        return fusion_record  # refused before anything was derived
    guards = [guard for stage in fusion.stages if stage.rolling for guard in stage.rolling.guards]
    return replace(
        fusion_record,
        sweeps=tuple(map(_sweep, fusion.stages)),
        certificates=fusion.certificates,
        refusals=tuple(f"{r.target} cannot follow {', '.join(r.statistics)}: {r.reason}" for r in fusion.refusals),
        guards=tuple(f"{g.statistic} where {text(g.when)}: {g.reason}" for g in guards),
    )


def _sweep(stage: Stage) -> Sweep:
    return Sweep(stage.axes, stage.why, tuple(sweep_lines(stage)))


def _rows(chain: Chain) -> tuple[Sweep, ...]:
    sweeps = Sweeps(chain)
    lines_by_sweep: dict[int, list[str]] = {}
    for step in chain.reductions:
        lines_by_sweep.setdefault(sweeps.level[step.name], []).append(line(step))
    axes = tuple(axis.name for axis in chain.axes if axis.name in sweeps.over)
    return tuple(
        Sweep(axes, _AGAIN if n else "", tuple(lines)) for n, (_, lines) in enumerate(sorted(lines_by_sweep.items()))
    )
