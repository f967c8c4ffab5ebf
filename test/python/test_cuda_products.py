"""Products and convolutions for CUDA without a GPU: numbers by Triton's interpreter, code by Triton's assembler."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dense_chains import Arrays, arrays_of, convolution, f, near, product
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from plain_chains import Writer
from test_cuda_kernels import interpreted

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Affine, Const, Window
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.cuda.compile import available
from covan_mlir.lowering.kernels.cuda.device import DEVICES
from covan_mlir.lowering.kernels.cuda.kernel import CudaKernel
from covan_mlir.lowering.kernels.cuda.match import TileMatch
from covan_mlir.lowering.kernels.cuda.schedule import TileSchedule
from covan_mlir.lowering.kernels.cuda.target import CudaTarget
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.select import choices

pytestmark = pytest.mark.skipif(not available(), reason="Triton is not installed (pip install covan-mlir[cuda])")

Case = tuple[Chain, dict[str, Any]]
TERMS = 3000  # of the longest sum here


def match_of(chain: Chain, architecture: str = "sm_80") -> tuple[TileMatch, TileSchedule]:
    """-> (the match of the template for products, its first schedule)."""
    listed = choices(chain, CudaTarget(DEVICES[architecture]))
    assert not isinstance(listed, Refusal), listed
    (candidate,) = listed.candidates
    assert candidate.template.name == "product"
    assert isinstance(candidate.match, TileMatch)
    assert isinstance(candidate.first, TileSchedule)
    return candidate.match, candidate.first


def kernel(chain: Chain, architecture: str = "sm_80", **changes: Any) -> CudaKernel:
    """The kernel with its first schedule, changed."""
    match, schedule = match_of(chain, architecture)
    return match.write(dataclasses.replace(schedule, **changes), "fred")


def tensors(chain: Chain, arrays: Arrays) -> list[torch.Tensor]:
    kinds = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
    return [torch.from_numpy(arrays[v.name].astype(np.float32)).to(kinds[v.dtype]) for v in chain.inputs]


def check(folder: Path, cases: Sequence[Case]) -> None:
    """The kernels of chains, with changes of their schedules, against float64."""
    arrays = [arrays_of(chain, seed) for seed, (chain, _) in enumerate(cases)]
    ready = [
        (kernel(chain, **changes), tensors(chain, values), len)
        for (chain, changes), values in zip(cases, arrays, strict=True)
    ]
    for (chain, _), values, got in zip(cases, arrays, interpreted(folder, ready), strict=True):
        (output,) = chain.outputs
        exact = interpret(chain, values, "f64")[output]
        near(got.float().numpy(), exact, TERMS, chain.values[output].dtype)


SMALL = {"block_rows": 16, "block_wide": 32, "block_stream": 16, "num_warps": 2}


def test_roles_of_axes(tmp_path: Path) -> None:
    """Batched or not, either operand transposed, axes apart, several contracted axes, a result in another order."""
    b, i, j, k, h = 3, 21, 50, 37, 4
    plain = {"i": i, "j": j, "k": k}
    chains = [
        product("ik", "kj", "ij", "k", **plain),
        product("ik", "jk", "ij", "k", **plain),
        product("ki", "jk", "ij", "k", **plain),
        product("bik", "bjk", "bij", "k", b=b, **plain),
        product("bik", "kj", "bij", "k", b=b, **plain),
        product("ik", "hjk", "hij", "k", h=h, **plain),
        product("hik", "jhk", "ij", "hk", h=h, **plain),
        product("ik", "jk", "ji", "k", **plain),
        product("ibk", "bkj", "ibj", "k", b=b, **plain),
    ]
    check(tmp_path, [(chain, changes) for chain in chains for changes in ({}, SMALL)])


def test_groups_and_parts(tmp_path: Path) -> None:
    chain = product("ik", "jk", "ij", "k", i=100, j=75, k=300)
    batched = product("bik", "bkj", "bij", "k", b=2, i=20, j=70, k=130)
    changes = [{"group": 0}, {"group": 2}, {"group": 3}, {"parts": 3}, {"parts": 4, "group": 4}]
    check(tmp_path, [(one, SMALL | change) for one in (chain, batched) for change in changes])


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_halves(dtype: str, tmp_path: Path) -> None:
    chains = [
        product("ik", "kj", "ij", "k", dtype, i=19, j=40, k=70),
        product("bik", "jk", "bij", "k", dtype, b=2, i=19, j=40, k=70),
        convolution(7, 5, (3, 3), (9, 20), dtype=dtype),
    ]
    check(tmp_path, [(chain, changes) for chain in chains for changes in ({}, SMALL)])


def test_factors_that_are_computed(tmp_path: Path) -> None:
    """A scale of a factor's columns, a function of the other one, and an image that is not 0 outside."""
    w = Writer(i=20, j=33, k=50)
    a, scale, b = w.input("a", "ik"), w.input("scale", "k"), w.input("b", "jk")
    w.reduce("s", "ij", "add", "k", f("arith.mulf", f("arith.mulf", a, scale), f("math.exp", b)))
    w.map("y", "ij", f("math.tanh", w.read("s")))
    v = Writer(c=3, h=9, k=17, r=4, p=10)
    v.input("x", "cp")
    weight = v.input("f", "kcr")
    at = (Affine.of([("c", 1)]), Affine.of([("h", 1), ("r", 1)], -1))
    v.reduce("y", "kh", "add", "cr", f("arith.mulf", Window("x", "f32", at, Const(2.0, "f32")), weight))
    check(tmp_path, [(w.chain("y"), {}), (w.chain("y"), SMALL), (v.chain("y"), {}), (v.chain("y"), SMALL)])


def test_convolutions(tmp_path: Path) -> None:
    chains = [
        convolution(20, 33, (3, 3), (13, 19)),
        convolution(6, 40, (3, 3), (17, 33), stride=2),
        convolution(70, 24, (1, 1), (15, 15), stride=2, pad=0),
        convolution(3, 16, (7, 7), (20, 21), stride=2, pad=3),
        convolution(9, 10, (3, 3), (20, 20), dilation=3, pad=3),
        convolution(12, 20, (3, 3), (14, 14), groups=4),
        convolution(4, 6, (3, 3), (9, 9), batch=3),
        convolution(300, 9, (3, 3), (7, 7)),
        convolution(10, 12, (5,), (100,), pad=2, stride=2),
        convolution(5, 6, (3, 3, 3), (6, 7, 10)),
        convolution(4, 4, (5, 5), (5, 5), pad=0),
    ]
    split = convolution(64, 20, (3, 3), (7, 7), batch=2)
    check(tmp_path, [*((chain, {}) for chain in chains), (chains[1], SMALL), (split, SMALL | {"parts": 3, "group": 2})])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A product or convolution of odd sizes, and a schedule of its list, or one of small tiles in groups and parts."""
    small = st.integers(1, 40)
    if draw(st.booleans()):
        left, right = draw(st.sampled_from(["bik", "bki"])), draw(st.sampled_from(["bkj", "bjk", "kj", "jk"]))
        sizes = {"b": draw(st.integers(1, 3)), "i": draw(small), "j": draw(small), "k": draw(st.integers(1, 90))}
        chain = product(left, right, draw(st.sampled_from(["bij", "bji"])), "k", **sizes)
    else:
        r, s, stride, dilation = (draw(st.integers(1, n)) for n in (3, 3, 3, 2))
        pad, groups = draw(st.integers(0, 2)), draw(st.integers(1, 2))
        image = tuple(dilation * (n - 1) + 1 + draw(st.integers(0, 9)) for n in (r, s))
        channels, filters = groups * draw(st.integers(1, 9)), groups * draw(st.integers(2, 20))
        options = {
            "stride": stride,
            "pad": pad,
            "dilation": dilation,
            "groups": groups,
            "batch": draw(st.integers(0, 2)),
        }
        chain = convolution(channels, filters, (r, s), image, **options)
    match, _ = match_of(chain)
    listed = list(match.schedules())
    chosen = draw(st.sampled_from(listed))
    tall, wide, deep = (draw(st.sampled_from([16, 32])) for _ in range(3))
    odd = {"block_rows": tall, "block_wide": wide, "block_stream": deep, "num_warps": 2}
    odd |= {"group": draw(st.integers(0, 3)), "parts": draw(st.integers(1, 3))}
    return chain, dataclasses.asdict(chosen) if draw(st.booleans()) else odd


@settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=[Phase.generate],
)
@given(st.lists(cases(), min_size=12, max_size=12))
def test_any_sizes_and_schedules(tmp_path: Path, drawn: list[Case]) -> None:
    check(tmp_path, drawn)


def test_infinities_and_nan_stay_where_they_are(tmp_path: Path) -> None:
    chain = product("ik", "jk", "ij", "k", i=19, j=20, k=40)
    arrays = arrays_of(chain, 9)
    arrays["a"][3, 5], arrays["a"][4, 6] = np.inf, np.nan
    (got,) = interpreted(tmp_path, [(kernel(chain, **SMALL), tensors(chain, arrays), len)])
    want = interpret(chain, arrays, "f64")["y"]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
