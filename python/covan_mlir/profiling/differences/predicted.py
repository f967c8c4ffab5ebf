"""A profile of predictions: what each site takes by the models that kernels are chosen by, for programs not run."""

from __future__ import annotations

from covan_mlir.artifacts.signature import Signature
from covan_mlir.artifacts.variant import Variant
from covan_mlir.machine.description import Machine
from covan_mlir.profiling.costs import Costs
from covan_mlir.profiling.model import ProfileData
from covan_mlir.profiling.store import checksum

DRIVER = "predicted"


def predicted(variant: Variant, signature: Signature, machine: Machine) -> ProfileData | None:
    """Predicted times of a program for CPUs; None for other targets, of which the machine's speeds say nothing.

    A kernel of covan's takes what its template predicted when it was chosen, or what was measured; any other the least
    time in which the machine computes its FLOPs and moves its bytes. Open sizes count as their least, loops as one
    turn.
    """
    if str(variant.requires.get("driver", "local")) != "local":
        return None
    lineage = variant.lineage
    symbols = {name: max(low or 1, 1) for name, (low, _) in signature.symbols.items()}
    costs = Costs(lineage, symbols)
    ceilings = machine.ceilings()
    chosen = {record.kernel: record.measured or record.seconds for record in lineage.fusions if record.kernel}
    times: dict[int, tuple[float, ...]] = {}
    for site in lineage.sites:
        if site.phase != "call" or site.kind != "dispatch":
            continue
        seconds = chosen.get(site.kernel, 0.0)
        if not seconds:
            flops = sum(costs.flops(lineage.parts[part]) for part in site.parts)
            seconds = ceilings.seconds(flops, sum(costs.traffic(site).values()))
        times[site.id] = (seconds * 1e9,)
    return ProfileData(
        lineage=lineage,
        program=checksum(variant.program),
        target=variant.target,
        driver=DRIVER,
        totals=(sum(time for (time,) in times.values()),),
        times=times,
        runs=dict.fromkeys(times, 1),
        symbols=symbols,
        machine=ceilings,
    )
