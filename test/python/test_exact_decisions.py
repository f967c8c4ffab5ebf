"""What decides something is computed as the program says: compiled programs give what eager gives, to the last bit.

In these programs IEEE arithmetic leaves no choice: no sums of floats, no functions that libraries round on their own.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import covan_mlir
from covan_mlir.fred.algebra import compare, f
from covan_mlir.fred.chain import Axis, Chain, Input, Map, Reduce
from covan_mlir.fred.exactness import exactness, reproducible
from covan_mlir.fred.expression import Apply, Const, Expr, Read

_DRAWN = torch.Generator().manual_seed(5)
GRID = torch.randint(-50, 51, (64, 333), generator=_DRAWN) * 0.5
SPREAD = torch.randn(64, 333, generator=_DRAWN) * 20
OTHER = torch.randn(64, 333, generator=_DRAWN)


def quotients(x: Tensor) -> tuple[Tensor, ...]:
    most = x.abs().amax(-1, keepdim=True)
    scaled = x / most
    return (
        torch.floor(scaled * 10),
        scaled * most == x,
        (x / (most / 127)).to(torch.int32),
        torch.round(x / (x.amax(-1, keepdim=True) / 255)),
        (scaled * 0.7).amax(-1) >= 0.7,
        torch.round(x.double() / most.double() * 25.5).float(),
    )


def leaving(x: Tensor) -> tuple[Tensor, Tensor]:
    """Quotients that another kernel decides on."""
    scaled = x / x.abs().amax(-1, keepdim=True)
    return torch.bucketize(scaled, torch.linspace(-1, 1, 17)), scaled


def counts(x: Tensor) -> tuple[Tensor, Tensor]:
    """Sums that are exact in any order."""
    positive = (x > 0).float()
    share = positive / positive.sum(-1, keepdim=True)
    return share * positive.sum(-1, keepdim=True) == positive, share


def contracted(x: Tensor) -> tuple[Tensor, ...]:
    other = x.flip(0)
    product = x * other
    rest = x * 1.37 * product - product * product * 0.31
    return product - x * other == 0, torch.round(rest), ((x * other + 0.25).floor()).amax(-1)


def halves(x: Tensor) -> tuple[Tensor, ...]:
    x = x.bfloat16()
    most = x.abs().amax(-1, keepdim=True)
    return (
        torch.round(x / (most / 127)),
        torch.floor(x * 1.3),
        torch.round(x * x.flip(0) + x),
        (x * 1.3 + 0.25).round().amax(-1),
        x / most > 0.3,
    )


PROGRAMS: list[Callable[[Tensor], tuple[Tensor, ...]]] = [quotients, leaving, counts, contracted, halves]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_bits(program: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
    exe = covan_mlir.compile_module(program, (GRID,))
    for x in (GRID, SPREAD, OTHER):
        for given, expected in zip(exe(x), program(x), strict=True):
            assert torch.equal(given.nan_to_num(), expected.nan_to_num())
    assert exe.verify().outcome == "yes"


def test_halves_of_less_range() -> None:
    def f16(x: Tensor) -> tuple[Tensor, ...]:
        x = x.half()
        return (x / x.abs().amax(-1, keepdim=True) * 12.7).to(torch.int8), torch.floor(x * 0.3 + x * x.flip(0))

    exe = covan_mlir.compile_module(f16, (SPREAD,))
    for given, expected in zip(exe(SPREAD), f16(SPREAD), strict=True):
        assert torch.equal(given, expected)


def test_a_product_that_leaves_an_element_wise_kernel_is_rounded() -> None:
    def rest(x: Tensor, y: Tensor, product: Tensor) -> Tensor:
        return x * y - product

    exe = covan_mlir.compile_module(rest, (SPREAD, OTHER, SPREAD))
    assert torch.equal(exe(SPREAD, OTHER, SPREAD * OTHER), torch.zeros_like(SPREAD))


def test_what_the_program_has_in_double_stays_that() -> None:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q.double() @ k.double().mT
        return (torch.softmax(scores, -1) @ v.double()).float()

    q, k, v = SPREAD[:, :256].reshape(4, 64, 64).split(1)[0], *OTHER[:, :256].reshape(2, 2, 64, 64)[0].split(1)
    given, expected = covan_mlir.compile_module(attention, (q, k, v))(q, k, v), attention(q, k, v)
    torch.testing.assert_close(given, expected, rtol=3e-7, atol=1e-9)


X, M, S = Read("x", "f32"), Read("m", "f32"), Read("s", "f32")
INFINITE = Const(-float("inf"), "f32")


def chain(expr: Expr, dtype: str = "f32") -> Chain:
    """``y = expr`` of the elements x, and of their maximum m and sum s in a row."""
    largest = Reduce("m", ("i",), ("j",), "max", X, INFINITE, "f32")
    total = Reduce("s", ("i",), ("j",), "add", X, Const(0.0, "f32"), "f32")
    steps = (largest, total, Map("y", ("i", "j"), expr, dtype))
    return Chain((Axis("i", 4), Axis("j", 8)), (Input("x", ("i", "j"), "f32"),), steps, ("y",))


def test_what_reaches_a_decision() -> None:
    quotient = f("divf", X, S)
    assert exactness(chain(f("floor", quotient))).quotients
    assert exactness(chain(f("floor", f("exp", quotient)))).quotients
    assert exactness(chain(compare("ogt", quotient, M), "i1")).quotients
    assert exactness(chain(Apply("arith.fptosi", (quotient,), "i32"), "i32")).quotients
    assert not exactness(chain(quotient)).quotients
    assert not exactness(chain(compare("ogt", quotient, Const(0.0, "f32")), "i1")).quotients
    assert not exactness(chain(compare("oeq", quotient, INFINITE), "i1")).quotients


def test_what_leaves() -> None:
    assert exactness(chain(f("divf", X, M))).leaving
    assert not exactness(chain(f("divf", X, S))).leaving, "sums are rounded in another order"
    assert not exactness(chain(f("exp", f("divf", X, M)))).leaving
    assert not reproducible(f("exp", X), chain(X))
    assert reproducible(f("sqrt", f("divf", X, M)), chain(X))
