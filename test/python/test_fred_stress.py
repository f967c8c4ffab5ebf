"""Fused forms in f32 on hard rows: NaN and infinities where the plain form has them, and no less accurate than it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import plain_chains as chains
import pytest
import torch
from fred_chains import attention, plain_attention, row_cases
from limits import part
from test_cpu_kernels import inputs_of, kernel, run, wider

from covan_mlir.fred.algebra import compare
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.fuse import fuse
from covan_mlir.fred.interpret import interpret, sizes_of
from covan_mlir.fred.run import run_fusion
from covan_mlir.fred.scalars import Array, is_float
from covan_mlir.fred.simplify import normalise
from covan_mlir.lowering.kernels.standalone import Standalone

LENGTHS = (1, 15, 16, 17, 1023)
NAMES = (
    "softmax",
    "logsumexp",
    "log_softmax",
    "cross_entropy",
    "entropy",
    "weighted_variance",
    "variance",
    "standard_deviation",
    "layer_norm",
    "norm_of_normalised",
    "largest_normalised",
    "rms_norm",
    "norm_linear",
    "skewness",
    "entropy_plain",
    "cosine",
)


def rows(length: int, seed: int) -> Array:
    """Rows that go wrong where a repair or a guard is wrong."""
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=length)
    vectors = [normal, normal * 30, normal + 1000.0, np.sort(normal) * 50, -np.sort(-normal) * 50, np.full(length, 3.0)]
    vectors += [np.full(length, -math.inf), np.full(length, math.inf), normal * 1e30, normal * 1e-30, normal * 1e-40]
    vectors += [np.full(length, 2.0**100), np.zeros(length), np.full(length, 1e-42)]
    for special in (-math.inf, math.inf, math.nan):
        for where in (slice(0, 1), slice(length - 1, None), slice(0, length // 2), slice(length // 2, None)):
            row = normal.copy()
            row[where] = special
            vectors.append(row)
    mixed = normal.copy()
    mixed[::3], mixed[1::3] = -math.inf, 40.0
    vectors.append(mixed)
    return np.asarray(vectors).astype(np.float32)


def inputs(chain: Chain, length: int, source: str, seed: int = 3) -> dict[str, Array]:
    """Hard rows for one input; the others are tame."""
    rng = np.random.default_rng(seed)
    hard = rows(length, seed)
    arrays: dict[str, Array] = {}
    for value in chain.inputs:
        shape = [{"i": len(hard), "j": length}.get(axis, chain.sizes[axis] or 1) for axis in value.axes]
        if value.name == source:
            arrays[value.name] = hard
        elif is_float(value.dtype):
            arrays[value.name] = rng.normal(0.5, 1.0, shape).astype(np.float32)
        else:
            arrays[value.name] = rng.integers(0, length, shape)
    return arrays


def same_kind(got: Array, plain: Array) -> Array:
    return (
        (np.isnan(got) == np.isnan(plain))
        & (np.isposinf(got) == np.isposinf(plain))
        & (np.isneginf(got) == np.isneginf(plain))
    )


def check(chain: Chain, arrays: dict[str, Array], block: int, parts: int) -> None:
    """Sums in f32 lose a digit more when many blocks are added one by one than numpy's pairwise sums do: errors are
    compared where there are few blocks, kinds of values everywhere."""
    fusion = fuse(chain)
    plain, exact = interpret(chain, arrays), interpret(chain, arrays, "f64")
    got = run_fusion(fusion, arrays, block, parts)
    for name in chain.outputs:
        a, b, c = (np.asarray(v[name], np.float64) for v in (got, plain, exact))
        wrong = np.argwhere(~same_kind(a, b))
        assert not wrong.size, f"{name}: {wrong[:5].tolist()}: {a[tuple(wrong[0])]} for {b[tuple(wrong[0])]}"
        few = block * 64 > max(sizes_of(chain, arrays).values()) * 4
        for row in range(a.shape[0] if few else 0):
            # A row's error is measured against its largest value, as the plain form's is.
            finite = np.isfinite(a[row]) & np.isfinite(b[row]) & np.isfinite(c[row])
            if not finite.any():
                continue
            x, y, z = (np.where(finite, v[row], 0.0) for v in (a, b, c))
            own, size = np.abs(y - z).max(), np.abs(z).max()
            floor = 8 * np.finfo(np.float32).eps * size + 4 * float(np.finfo(np.float32).smallest_subnormal)
            assert np.abs(x - z).max() <= 4 * own + floor, (
                f"{name}, row {row}: {np.abs(x - z).max()} against {own}, size {size}"
            )


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", NAMES)
def test_hard_rows(name: str, length: int) -> None:
    make: Callable[[int | None], Chain] = getattr(chains, name)
    for size in (length, None):
        chain = make(size)
        source = "a" if name == "cosine" else "x"
        arrays = inputs(chain, length, source)
        assert sizes_of(chain, arrays)["j"] == length
        check(chain, arrays, 16, 1)
        check(chain, arrays, 128, 3)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("change", [None, chains.masked, chains.causal, chains.soft_cap])
def test_attention_with_hard_masks(
    length: int, change: Callable[[chains.Writer, chains.Expr], chains.Expr] | None
) -> None:
    hard_mask(chains.attention(change, n=length), length)


@pytest.mark.parametrize("length", LENGTHS)
def test_attention_that_asks_whether_all_is_masked(length: int) -> None:
    chain = chains.safe_attention(length)
    assert len([stage for stage in fuse(chain).stages if stage.axes]) == 1
    hard_mask(chain, length)


@pytest.mark.parametrize(
    ("combine", "predicate", "bound", "rewritten"),
    [
        ("and", "oeq", -math.inf, True),
        ("and", "oeq", math.inf, True),
        ("or", "une", -math.inf, True),
        ("and", "oeq", 3.0, False),
        ("or", "one", math.inf, False),  # false for NaN, as no extremum is
    ],
)
def test_questions_that_an_extremum_answers(
    combine: Literal["and", "or"], predicate: str, bound: float, rewritten: bool
) -> None:
    w = chains.Writer(i=None, j=16)
    asked = w.map("asked", "ij", compare(predicate, w.input("x", "ij"), w.number(bound)))
    w.reduce("answer", "i", combine, "j", asked)
    chain = w.chain("answer")
    normal = normalise(chain).chain
    assert ({step.combine for step in normal.reductions} <= {"max", "min"}) == rewritten
    arrays = {"x": rows(16, 3)}
    assert (interpret(normal, arrays)["answer"] == interpret(chain, arrays)["answer"]).all()


def hard_mask(chain: Chain, length: int) -> None:
    rng = np.random.default_rng(length)
    arrays = {v.name: rng.normal(size=[chain.sizes[a] or 1 for a in v.axes]).astype(np.float32) for v in chain.inputs}
    if "mask" in arrays:
        hard = rows(length, 5)
        arrays["mask"] = hard[rng.permutation(len(hard))[:6]]
        arrays["mask"][0] = -math.inf
        arrays["mask"][1, : length // 2] = -math.inf
    arrays["q"][0, 2] *= 1e4
    check(chain, arrays, 16, 1)
    check(chain, arrays, 16, 3)


def test_a_fully_masked_row_is_nan_and_its_neighbours_are_not() -> None:
    chain = chains.attention(chains.masked)
    rng = np.random.default_rng(0)
    arrays = {v.name: rng.normal(size=[chain.sizes[a] or 1 for a in v.axes]).astype(np.float32) for v in chain.inputs}
    arrays["mask"][:] = 0.0
    arrays["mask"][3] = -math.inf
    arrays["mask"][4, :32] = -math.inf
    got = run_fusion(fuse(chain), arrays, 16, 2)["o"]
    assert np.isnan(got[:, 3]).all()
    assert np.isfinite(np.delete(got, 3, axis=1)).all()


SMALLEST = float(np.finfo(np.float32).smallest_normal)


def flushed(x: torch.Tensor) -> torch.Tensor:
    """The elements as IREE's workers read them: denormals are 0."""
    return torch.where(x.abs() < SMALLEST, torch.zeros_like(x), x)


def agree(got: Array, torchs: torch.Tensor, exact: torch.Tensor, moved: torch.Tensor) -> None:
    """NaN and infinities where torch has them, and at most four times torch's own error.

    Or four times what half a unit in the last place of each input does (``moved``): torch may be lucky in one row.
    Where torch itself overflows and f64 does not, that depends on the order of its sums: either is right.
    """
    a, b, c, d = (np.asarray(x, np.float64) for x in (got, torchs, exact, moved))
    wrong = np.argwhere(~same_kind(a, b) & ~same_kind(a, c))
    assert not wrong.size, f"{wrong[:5].tolist()}: {a[tuple(wrong[0])]} for {b[tuple(wrong[0])]}"
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c) & np.isfinite(d)
    if finite.any():
        x, y, z, w = (v[finite] for v in (a, b, c, d))
        unit = np.abs(z).max() * float(np.finfo(np.float32).eps)
        own = max(np.abs(y - z).max(), np.abs(w - z).max(), unit, SMALLEST)
        assert np.abs(x - z).max() <= 4 * own, f"{np.abs(x - z).max()} against {own}"


def half_a_unit(x: torch.Tensor) -> torch.Tensor:
    """The elements in f64, every other one half a unit in the last place larger, the others smaller."""
    sign = 1.0 - 2.0 * (torch.arange(x.shape[-1]) % 2)
    return x.double() * (1 + 2.0**-24 * sign)


def worst(got: Array, torchs: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    """The largest errors in a whole tensor, ours and torch's, each in units of the largest value of its row."""
    a, b, c = (np.asarray(x, np.float64).reshape(len(got), -1) for x in (got, torchs, exact))
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    a, b, c = (np.where(finite, x, 0.0) for x in (a, b, c))
    size = np.maximum(np.abs(c).max(1), SMALLEST)[:, None]
    return float((np.abs(a - c) / size).max()), float((np.abs(b - c) / size).max())


LUCKY = {("cross_entropy", 15): 4.2}
"""Where torch's largest error in the whole tensor is under half a unit in the last place, and ours two: the loss of one
row is small, and a rounding of the sum before its logarithm is large beside it. All else is within four times."""


@pytest.mark.parametrize("length", part(LENGTHS, (1, 17, 1023)))
def test_hard_rows_in_generated_kernels(length: int) -> None:
    """Beside the rows one by one, the whole tensor: at most four times torch's own largest error in it."""
    hard = torch.from_numpy(rows(length, 3))
    cases = row_cases(len(hard), length)
    alone = Standalone([kernel(chain, name) for name, (chain, _) in cases.items()])
    for name, (chain, reference) in cases.items():
        rest = inputs_of(chain)[1:]
        read = flushed(hard)
        got, torchs = run(alone, name, [hard, *rest]), reference(read, *rest)
        exact, moved = (reference(x, *wider(rest)) for x in (read.double(), half_a_unit(read)))
        for row in range(len(hard)):
            agree(got[row], torchs[row], exact[row], moved[row])
        ours, theirs = worst(got, torchs, exact)
        assert ours <= LUCKY.get((name, length), 4.0) * theirs, (name, ours, theirs)


@pytest.mark.parametrize("length", LENGTHS)
def test_hard_masks_in_generated_kernels(length: int) -> None:
    chain = attention(2, 27, length, 16, "bias")
    q, k, v, bias = inputs_of(chain)
    bias[:] = torch.from_numpy(rows(length, 5))[: bias.shape[1]]
    got, torchs = run(Standalone([kernel(chain)]), "k", [q, k, v, bias]), plain_attention("bias", q, k, v, bias)
    exact, moved = (plain_attention("bias", *wider([q, k, v]), x) for x in (bias.double(), half_a_unit(bias)))
    for head in range(2):
        for row in range(bias.shape[1]):
            agree(got[head, row], torchs[head, row], exact[head, row], moved[head, row])
    ours, theirs = worst(got, torchs, exact)
    assert ours <= 4 * theirs, (ours, theirs)
