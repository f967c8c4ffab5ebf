"""Fused forms in f32 on hard rows: NaN and infinities where the plain form has them, and no less accurate than it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import plain_chains as chains
import pytest

from covan_mlir.fred.algebra import compare
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.fuse import fuse
from covan_mlir.fred.interpret import interpret, sizes_of
from covan_mlir.fred.run import run_fusion
from covan_mlir.fred.scalars import Array, is_float
from covan_mlir.fred.simplify import normalise

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
    made = [normal, normal * 30, normal + 1000.0, np.sort(normal) * 50, -np.sort(-normal) * 50, np.full(length, 3.0)]
    made += [np.full(length, -math.inf), np.full(length, math.inf), normal * 1e30, normal * 1e-30, normal * 1e-40]
    made += [np.full(length, 2.0**100), np.zeros(length), np.full(length, 1e-42)]
    for special in (-math.inf, math.inf, math.nan):
        for where in (slice(0, 1), slice(length - 1, None), slice(0, length // 2), slice(length // 2, None)):
            row = normal.copy()
            row[where] = special
            made.append(row)
    mixed = normal.copy()
    mixed[::3], mixed[1::3] = -math.inf, 40.0
    made.append(mixed)
    return np.asarray(made).astype(np.float32)


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
