"""Kernels of products that meet in tiles of an intermediate value, against float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tile_chains import INPUTS, attention_gradients, expected, values_of

from covan_mlir.fred.chain import Axis, Chain, Reduce
from covan_mlir.lowering.kernels import select
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.dense.apart import tiles_between
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.tile_roles import tile_roles
from covan_mlir.lowering.kernels.select import Candidate, Choices, Selection, choices
from covan_mlir.lowering.kernels.standalone import Standalone
from covan_mlir.machine.description import PRESETS, Machine
from covan_mlir.machine.host import host

CASES: dict[str, dict[str, Any]] = {
    "odd": {},
    "one tile": {"rows": 32, "columns": 32, "depth": 16, "features": 16},
    "several blocks": {"rows": 150, "columns": 200, "depth": 48, "features": 40},
    "fewer than a tile": {"batch": 3, "rows": 5, "columns": 3, "depth": 7, "features": 9},
    "causal": {"rows": 140, "columns": 140, "causal": True},
    "causal, fewer rows": {"rows": 70, "columns": 150, "causal": True},
    "a mask in memory": {"masked": True},
    "other layouts": {"layouts": {"q": "bdi", "v": "bej", "o": "ibe"}},
    "values alone": {"outputs": ("dv",)},
    "along rows": {"outputs": ("dq",)},
    "double": {"dtype": "f64"},
}


def candidate(chain: Chain, machine: Machine | None = None) -> Candidate:
    choice = choices(chain, CpuTarget(machine or replace(host(), cores=2)))
    assert isinstance(choice, Choices), choice
    return next(one for one in choice.candidates if one.template.name == "shared_tile")


def close(chain: Chain, case: dict[str, Any], alone: Standalone, name: str) -> None:
    """At most four times torch's own error in the chain's type, or that of a unit in the last place."""
    kind = torch.float64 if case.get("dtype") == "f64" else torch.float32
    wide = values_of(chain)
    known = {key: case.get(key, False) for key in ("causal", "masked")}
    exact = expected(wide, **known)
    torchs = expected({key: x.to(kind) if x.is_floating_point() else x for key, x in wide.items()}, **known)
    buffers = []
    for value in chain.inputs:
        tensor = wide[value.name].to(torch.bool if value.dtype == "i1" else kind)
        own = INPUTS.get(value.name, "bij")
        buffers.append(alone.buffer(tensor.permute([own.index(axis) for axis in value.axes]).contiguous().numpy()))
    results = alone[name](*buffers)
    results = results if isinstance(results, tuple) else (results,)
    for output, result in zip(chain.outputs, results, strict=True):
        want = exact[output].numpy()
        unit = np.abs(want).max() * float(torch.finfo(kind).eps)
        theirs = np.abs(torchs[output].double().numpy() - want).max()
        assert np.abs(np.asarray(result.to_host()).astype(np.float64) - want).max() <= 4 * max(unit, theirs)


def test_kernels_compute_what_the_chain_says() -> None:
    chains = {name: attention_gradients(**case) for name, case in CASES.items()}
    kernels = []
    for n, chain in enumerate(chains.values()):
        one = candidate(chain)
        written = one.write(one.first, f"k{n}")
        assert isinstance(written, Selection), written
        kernels.append(written.executable)
    alone = Standalone(kernels)
    for kernel, (name, chain) in zip(kernels, chains.items(), strict=True):
        close(chain, CASES[name], alone, kernel.name)


@pytest.mark.parametrize("preset", ["avx2", "neon", "avx512"])
def test_every_schedule_fits_its_machine(preset: str) -> None:
    """Tiles of a kernel in a stack frame, accumulators and what is beside them in registers."""
    machine = PRESETS[preset]
    one = candidate(attention_gradients(rows=512, columns=512, depth=64, features=64), machine)
    listed = list(one.match.schedules())
    assert listed
    for schedule in listed:
        fields = schedule.to_json()
        height, vectors, rows, columns = (fields[name] for name in ("height", "vectors", "rows", "columns"))
        assert height * vectors + vectors + 1 <= machine.registers
        assert rows % height == columns % height == columns % fields["lanes"] == 0
        assert 4 * (2 * 64 * columns + 2 * 64 * columns + 2 * rows * columns) <= machine.stack


def test_any_schedule_computes_the_same() -> None:
    case = {"rows": 70, "columns": 100, "causal": True}
    chain = attention_gradients(**case)  # type: ignore[arg-type]  # as keywords
    one = candidate(chain)
    listed = list(one.match.schedules())
    kernels = []
    for n, schedule in enumerate(listed[:: len(listed) // 6]):
        written = one.write(schedule, f"k{n}")
        assert isinstance(written, Selection), written
        kernels.append(written.executable)
    alone = Standalone(kernels)
    for kernel in kernels:
        close(chain, case, alone, kernel.name)


def test_a_mask_leaves_tiles_out() -> None:
    whole, half = (
        candidate(attention_gradients(rows=512, columns=512, causal=causal)).match for causal in (False, True)
    )
    (first, second) = (match.cost(next(iter(match.schedules()))) for match in (whole, half))
    assert second.flops == pytest.approx(first.flops / 2, rel=0.01)


def test_sizes_have_to_be_known() -> None:
    chain = attention_gradients()
    axes = tuple(Axis("i", None) if axis.name == "i" else axis for axis in chain.axes)
    choice = choices(replace(chain, axes=axes), CpuTarget(PRESETS["avx512"]))
    assert not isinstance(choice, Choices)
    assert "the sizes of i are only known at run time" in choice.reason


def test_what_is_no_such_chain() -> None:
    chain = attention_gradients()
    with pytest.raises(UnsupportedError, match="p would be in memory as a whole"):
        tile_roles(replace(chain, outputs=(*chain.outputs, "p")))
    largest = tuple(replace(s, combine="max") if s.name == "dv" and isinstance(s, Reduce) else s for s in chain.steps)
    with pytest.raises(UnsupportedError, match="no sum over one axis"):
        tile_roles(replace(chain, steps=largest))


def test_apart_it_is_products_and_what_lies_between() -> None:
    parts = tiles_between(attention_gradients())
    assert [part.outputs for part in parts] == [("s",), ("t",), ("p", "u"), ("dv",), ("dk",), ("dq",)]
    assert tiles_between(parts[0]) == (parts[0],)


def test_it_is_not_taken_where_the_parts_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    target = CpuTarget(PRESETS["avx512"])
    chain = attention_gradients(batch=8, rows=1024, columns=1024, depth=64, features=64)
    assert isinstance(select.worth(chain, target), Choices)
    short = attention_gradients(batch=1, rows=1024, columns=1024, depth=64, features=64)
    reason = select.worth(short, target)
    assert not isinstance(reason, Choices)  # one workgroup, and several cores
    assert "as one kernel" in reason.reason
