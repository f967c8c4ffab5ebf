"""The steps of each kind of compilation: names and order, as `covan_mlir.lowering.sequence` documents them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from covan_mlir.lowering import sequence, stages
from covan_mlir.lowering.iree_phases import PHASES
from covan_mlir.lowering.pipeline import StepError
from covan_mlir.lowering.request import TO_LINALG, Job
from covan_mlir.lowering.sequence import SEQUENCE, Setting, pipeline

CPU = Job("auto", ())
FUSED = replace(CPU, fuse=True)
IREE = [
    "iree:input",
    "iree:abi",
    "iree:preprocessing",
    "iree:global-optimization",
    "iree:filled-memory",
    "iree:concat-slices",
    "iree:scalar-slices",
    "iree:dispatch-creation",
    "iree:flow",
    "iree:uneven-loops",
    "iree:late-readers",
    "iree:stream",
    "iree:executable-sources",
    "iree:executable-configurations",
    "iree:executable-targets",
    "iree:hal",
    "iree:wide-branches",
    "iree:vm",
    "iree:end",
]
TILED = [
    *IREE[:4],
    "iree:data-tiling",
    "iree:strided-reads",
    "iree:sliced-gathers",
    "iree:marked-halves",
    *IREE[4:8],
    "iree:slices",
    *IREE[8:11],
    "iree:kept-arguments",
    "iree:uneven-products",
    "iree:halves",
    "iree:concatenations",
    *IREE[11:15],
    "iree:uncontracted",
    "iree:team",
    *IREE[15:],
]
WITHIN = [*TILED[:21], "iree:kernel-code", *TILED[21:]]
WITH_KERNELS = [*WITHIN[:-6], "iree:machine-code", *WITHIN[-6:]]


def setting(job: Job, frontend: Literal["linalg", "torch"]) -> Setting:
    return Setting(job, frontend, stages.Border(job))


KINDS: dict[str, tuple[Setting, list[str]]] = {
    "linalg": (setting(CPU, "linalg"), ["torch-backend", "torch-to-linalg", "iree:import", *TILED]),
    "torch": (setting(CPU, "torch"), ["iree:import", *TILED]),
    "weights": (
        setting(replace(CPU, weights=("fc.weight",)), "linalg"),
        ["torch-backend", "torch-to-linalg", "iree:import", "iree:externalize", *TILED],
    ),
    "weights through IREE's torch input": (
        setting(replace(CPU, weights=("fc.weight",)), "torch"),
        ["iree:import", *TILED],
    ),
    "attachments": (
        setting(replace(CPU, attached=True), "linalg"),
        ["attach", "torch-backend", "torch-to-linalg", "iree:import", "iree:attach", *TILED],
    ),
    "attachments through IREE's torch input": (
        setting(replace(CPU, attached=True), "torch"),
        ["attach", "iree:import", "iree:attach", *TILED],
    ),
    "fused on a CPU": (
        setting(FUSED, "linalg"),
        ["torch-backend", "torch-to-linalg", "fred-raise", "fred-kernels", "iree:import", "iree:embed", *WITH_KERNELS],
    ),
    "fused on a GPU": (
        setting(replace(FUSED, kind="cuda", target="cuda:sm_80"), "linalg"),
        [
            "torch-backend",
            "torch-to-linalg",
            "fred-raise",
            "fred-kernels",
            "iree:import",
            "iree:embed",
            *IREE[:8],
            "iree:alignment",
            *IREE[8:12],
            "iree:kernel-code",
            *IREE[12:],
        ],
    ),
    "all": (
        setting(replace(FUSED, weights=("fc.weight",), attached=True), "linalg"),
        [
            "attach",
            "torch-backend",
            "torch-to-linalg",
            "fred-raise",
            "fred-kernels",
            "iree:import",
            "iree:attach",
            "iree:externalize",
            "iree:embed",
            *WITH_KERNELS,
        ],
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_pipeline_of_each_kind_of_job(kind: str) -> None:
    setting, names = KINDS[kind]
    assert [step.name for step in pipeline(setting)] == names


def test_the_documentation_lists_the_sequence() -> None:
    """The table in the docstring has each step, in order; IREE's phases in one line."""
    assert sequence.__doc__ is not None
    rows = sequence.__doc__.split("=\n")[2].split("\n====")[0].splitlines()
    first = [line.split("  ")[0] for line in rows if not line.startswith(" ")]
    phases = {f"iree:{name}" for name in PHASES[2:]}
    names = [entry.name for entry in SEQUENCE if entry.name not in phases]
    assert first == [f"{name} ..." if name == "iree:input" else name for name in names]


def test_names_that_others_rely_on() -> None:
    names = [entry.name for entry in SEQUENCE]
    assert len(set(names)) == len(names)
    assert set(TO_LINALG) < set(names)
    assert names.index("iree:executable-sources") == names.index("iree:kernel-code") + 1
    assert names.index("iree:machine-code") == names.index("iree:executable-targets") + 1
    assert names.index("iree:team") == names.index("iree:machine-code") + 2
    assert [name.removeprefix("iree:") for name in names if name.removeprefix("iree:") in PHASES] == list(PHASES[1:])


def test_extra_steps_follow_the_step_that_they_name(tmp_path: Path) -> None:
    file = tmp_path / "steps.py"
    file.write_text("def one(state): pass\ndef two(state): pass\n")
    extra = (("iree:team", f"{file}:two"), ("torch-to-linalg", f"{file}:one"), ("iree:team", f"{file}:one"))
    names = [step.name for step in pipeline(setting(replace(FUSED, extra=extra), "linalg"))]
    assert names[names.index("torch-to-linalg") :][:2] == ["torch-to-linalg", "extra:one"]
    assert names[names.index("iree:team") :][:3] == ["iree:team", "extra:two", "extra:one"]


def test_an_extra_step_needs_a_step_of_its_pipeline(tmp_path: Path) -> None:
    """What is in the sequence, but not part of this job's pipeline, is no place."""
    extra = (("iree:kernel-code", f"{tmp_path}/steps.py:one"),)
    with pytest.raises(StepError, match="this pipeline has no step 'iree:kernel-code'; it has torch-backend, "):
        pipeline(setting(replace(CPU, extra=extra), "linalg"))
