"""Chains on numpy: the semantics of arith and math, infinities and NaN included."""

from __future__ import annotations

import math

import numpy as np
import plain_chains as chains
import pytest

from covan_mlir.fred.chain import ChainError
from covan_mlir.fred.expression import Const
from covan_mlir.fred.interpret import interpret
from covan_mlir.fred.scalars import UnknownOperationError, compute, fold

NAN, INF = math.nan, math.inf


def one(op: str, *args: float, dtype: str = "f32", result: str | None = None) -> float:
    arrays = tuple(np.asarray([a], {"f32": np.float32, "i64": np.int64, "i32": np.int32}[dtype]) for a in args)
    return float(compute(op, arrays, result or dtype)[0])


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("arith.maximumf", (NAN, 1.0), NAN),
        ("arith.maxnumf", (NAN, 1.0), 1.0),
        ("arith.minimumf", (1.0, NAN), NAN),
        ("arith.minnumf", (1.0, NAN), 1.0),
        ("math.exp", (-INF,), 0.0),
        ("arith.subf", (-INF, -INF), NAN),
        ("arith.divf", (1.0, 0.0), INF),
        ("math.rsqrt", (0.0,), INF),
        ("math.round", (-2.5,), -3.0),
        ("math.roundeven", (2.5,), 2.0),
        ("math.erf", (0.5,), math.erf(0.5)),
    ],
)
def test_floats(op: str, args: tuple[float, ...], expected: float) -> None:
    assert one(op, *args) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [("oeq", 0), ("ueq", 1), ("une", 1), ("one", 0), ("ord", 0), ("uno", 1), ("olt", 0), ("uge", 1)],
)
def test_comparisons_with_nan(predicate: str, expected: int) -> None:
    assert one(f"arith.cmpf:{predicate}", NAN, 1.0, result="i1") == expected


def test_integers() -> None:
    assert one("arith.divsi", -7, 2, dtype="i64") == -3
    assert one("arith.ceildivui", 7, 2, dtype="i64") == 4
    assert one("arith.ceildivui", 6, 2, dtype="i64") == 3
    assert one("arith.ceildivui", -1, 2, dtype="i64") == 2**63 - 2**64  # 2**63, as a signed number
    assert one("arith.remsi", -7, 2, dtype="i64") == -1
    assert one("arith.cmpi:ult", -1, 1, dtype="i64", result="i1") == 0
    assert one("arith.cmpi:slt", -1, 1, dtype="i64", result="i1") == 1
    assert one("arith.fptosi", -1.7, result="i64") == -1


def test_half_precisions_round_once() -> None:
    assert float(compute("arith.truncf", (np.asarray([1.00390625], np.float32),), "bf16")[0]) == 1.0
    ones = np.ones(400, np.float32)
    assert float(fold("add", ones, (0,), 0.0, "bf16")) == 400.0


def test_unknown_operation_is_named() -> None:
    with pytest.raises(UnknownOperationError, match="math\\.mystery"):
        one("math.mystery", 1.0)


def test_softmax_is_softmax() -> None:
    x = np.random.default_rng(0).normal(size=(3, 9))
    expected = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(interpret(chains.softmax(None), {"x": x}, "f64")["y"], expected, rtol=1e-12)


def test_attention_is_attention() -> None:
    rng = np.random.default_rng(1)
    q, k, v = rng.normal(size=(2, 6, 8)), rng.normal(size=(2, 40, 8)), rng.normal(size=(2, 40, 5))
    s = np.einsum("hid,hjd->hij", q, k) * 0.25
    p = np.exp(s) / np.exp(s).sum(-1, keepdims=True)
    got = interpret(chains.attention(), {"q": q, "k": k, "v": v}, "f64")["o"]
    np.testing.assert_allclose(got, p @ v, rtol=1e-10)


def test_a_fully_masked_row_of_a_softmax_is_nan() -> None:
    x = np.asarray([[-INF, -INF], [-INF, 0.0]], np.float32)
    got = interpret(chains.softmax(None), {"x": x})["y"]
    np.testing.assert_array_equal(got, [[NAN, NAN], [0.0, 1.0]])


def test_wrong_inputs_are_refused() -> None:
    with pytest.raises(ChainError, match="missing"):
        interpret(chains.softmax(), {})
    with pytest.raises(ChainError, match="40 positions"):
        interpret(chains.softmax(40), {"x": np.zeros((2, 3))})
    with pytest.raises(ChainError, match="dimensions"):
        interpret(chains.softmax(40), {"x": np.zeros(3)})


def test_constants_keep_their_infinities() -> None:
    w = chains.Writer(i=2)
    w.map("y", "i", Const(-INF, "f32"))
    assert np.isneginf(interpret(w.chain("y"), {})["y"]).all()
