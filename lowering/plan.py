"""The steps of a compilation, in order: to be run by `job`, to be printed for people."""

from __future__ import annotations

from covan_mlir.lowering import inlined, iree_phases, parameters, stages
from covan_mlir.lowering.kernels.cpu import team
from covan_mlir.lowering.pipeline import Step
from covan_mlir.lowering.request import Job


def steps(job: Job, frontend: str, border: stages.Border) -> list[Step]:
    """All steps after `stages.prepared`.

    Args:
        frontend: ``linalg``, or ``torch``: IREE takes the torch dialect.
    """
    fused = bool(job.fuse) and frontend == "linalg"
    attach = inlined.steps(job.functions) if job.attached else ()
    plan: list[Step] = [attach[0]] if attach else []
    plan += map(stages.step, stages.stages(job, frontend))
    plan.append(border.cross)
    if attach:
        plan.append(attach[1])
    if job.weights and frontend == "linalg":
        plan.append(parameters.externalize(job.weights))
    if fused:
        plan.append(border.embed)
    for phase in iree_phases.STEPS:
        plan.append(phase)
        if fused and job.kind == "cpu" and phase.name == team.AFTER:
            plan.append(team.STEP)
    return plan


def text(job: Job) -> str:
    """A job's pipeline as covan-opt runs it on the imported module; what comes before and after it as comments."""
    frontend = "torch" if job.frontend == "torch" else "linalg"
    own = [stages.prepared(job), *stages.stages(job, frontend)]
    names = [step.name for step in steps(job, frontend, stages.Border(job))]
    border = names.index("iree:import")
    lines = [f"// {name}" for name in names[:border] if name not in {stage.name for stage in own}]
    lines += [stages.text(own), *(f"// {name}" for name in names[border:])]
    return "\n".join(lines)
