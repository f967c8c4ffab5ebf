"""Products of bfloat16 in pairs: which are, where, and that they are the products."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
from dense_chains import MACHINE, arrays_of, near, product
from limits import part

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels import targets
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.select import Selection, choices
from covan_mlir.lowering.kernels.standalone import Standalone
from covan_mlir.machine.description import PRESETS, Machine
from covan_mlir.machine.reading import processor

PAIRING = dataclasses.replace(PRESETS["avx512"], bf16_pairs=True)
runs = pytest.mark.skipif(
    "avx512_bf16" not in processor().get("flags", "").split(), reason="this processor has no AVX512_BF16"
)


def paired(chain: Chain, name: str, machine: Machine = PAIRING, *, weight: bool = False) -> list[Executable]:
    """Some kernels of a product that multiply pairs; of a weight, those that read it packed."""
    inputs = tuple(dataclasses.replace(value, weight=weight and value.name == "b") for value in chain.inputs)
    listed = choices(dataclasses.replace(chain, inputs=inputs), CpuTarget(machine))
    assert not isinstance(listed, Refusal), listed
    fit = [
        (candidate, schedule)
        for candidate, schedule in listed.schedules()
        if (fields := schedule.to_json()).get("words") and fields["packed"] == weight
    ]
    written = [
        candidate.write(schedule, f"{name}_{n}")
        for n, (candidate, schedule) in enumerate(random.Random(0).sample(fit, min(3, len(fit))))
    ]
    return [selection.executable for selection in written if isinstance(selection, Selection)]


ROLES = {
    "transposed": (product("ik", "jk", "ij", "k", "bf16", i=21, j=94, k=38), 38),
    "plain": (product("ik", "kj", "ij", "k", "bf16", i=21, j=94, k=38), 38),
    "batched": (product("bik", "bjk", "bij", "k", "bf16", b=3, i=21, j=94, k=38), 38),
    "heads": (product("ik", "hjk", "hij", "k", "bf16", h=4, i=21, j=94, k=38), 38),
    "joined": (product("hik", "jhk", "ij", "hk", "bf16", h=4, i=21, j=94, k=38), 152),
    "blocks": (product("ik", "jk", "ij", "k", "bf16", i=3, j=48, k=2500), 2500),
    "plain blocks": (product("ik", "kj", "ij", "k", "bf16", i=9, j=94, k=1300), 1300),
    "row": (product("ik", "jk", "ij", "k", "bf16", i=1, j=96, k=130), 130),
    "pair": (product("ik", "jk", "ij", "k", "bf16", i=8, j=96, k=2), 2),
    "rows unknown": (product("ik", "jk", "ij", "k", "bf16", unknown="i", i=1, j=94, k=66), 66),
}
PRODUCTS = [(role, weight) for role in ROLES for weight in (False, True)]


def agree(role: str, machine: Machine, *, weight: bool) -> None:
    """Some kernels of a product against float64."""
    chain, terms = ROLES[role]
    kernels = paired(chain, "p", machine, weight=weight)
    arrays = arrays_of(chain, 4, **({"i": 37} if "unknown" in role else {}))
    assert kernels
    alone = Standalone(kernels)
    want = interpret(chain, arrays, "f64")["y"]
    for executable in kernels:
        got = np.asarray(alone[executable.name](*(alone.buffer(a) for a in arrays.values())).to_host())
        near(got, want, terms, "bf16")


@runs
@pytest.mark.parametrize(("role", "weight"), part(PRODUCTS, kept=PRODUCTS[::3]))
def test_products(role: str, weight: bool) -> None:
    agree(role, dataclasses.replace(MACHINE, bf16_pairs=True), weight=weight)


@runs
@pytest.mark.parametrize("role", ["transposed", "plain"])
def test_narrower_vectors(role: str) -> None:
    agree(role, dataclasses.replace(MACHINE, vector_bits=256, bf16_pairs=True), weight=False)


@runs
def test_infinities_and_nan_stay_where_they_are() -> None:
    chain = product("ik", "jk", "ij", "k", "bf16", i=8, j=96, k=64)
    arrays = arrays_of(chain, 5)
    arrays["a"][1, 3], arrays["a"][5, 62] = np.inf, np.nan
    (executable, *_) = paired(chain, "p", dataclasses.replace(MACHINE, bf16_pairs=True))
    alone = Standalone([executable])
    got = np.asarray(alone[executable.name](*(alone.buffer(a) for a in arrays.values())).to_host())
    want = interpret(chain, arrays, "f64")["y"].astype(ml_dtypes.bfloat16)
    assert (np.isfinite(got) == np.isfinite(want)).all()
    assert (np.isnan(got) == np.isnan(want)).all()


def names(chains: Sequence[Chain], machine: Machine) -> list[bool]:
    """Whether pairs of each are multiplied."""
    return [bool(paired(chain, "p", machine)) for chain in chains]


def test_what_is_multiplied_in_pairs() -> None:
    """An even number of terms, that lie beside each other in what is read as scalars, on a machine that can."""
    sizes = {"i": 8, "j": 96, "k": 64}
    pairs = product("ik", "jk", "ij", "k", "bf16", **sizes)
    others = [
        product("ik", "jk", "ij", "k", "bf16", i=8, j=96, k=63),
        product("ki", "jk", "ij", "k", "bf16", **sizes),
        product("ik", "jk", "ij", "k", "bf16", unknown="k", **sizes),
        product("ik", "jk", "ij", "k", "f16", **sizes),
        product("ik", "jk", "ij", "k", "f32", **sizes),
    ]
    assert names([pairs, *others], PAIRING) == [True, *[False] * len(others)]
    assert names([pairs], PRESETS["avx512"]) == [False]
    assert names([pairs], dataclasses.replace(PRESETS["neon"], bf16_pairs=True)) == [False]


@pytest.mark.parametrize(("name", "can"), [("znver4", True), ("skylake-avx512", False), ("aarch64-linux-gnu", False)])
def test_who_can(name: str, can: bool) -> None:
    """By LLVM's list of a processor's instructions."""
    target = targets.of(f"cpu:{name}")
    assert isinstance(target, CpuTarget)
    assert target.machine.bf16_pairs == can
