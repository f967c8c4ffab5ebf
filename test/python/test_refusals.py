"""What cannot be compiled is refused with the user's line, in words, and with what to do."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracle import assert_same
from torch import Tensor

import covan_mlir
from covan_mlir import CovanError
from covan_mlir.frontend.refusals import plainly

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
NOTATION = re.compile(r"<eval_with_key>|%\d|!torch|\"torch\.|explicitly marked illegal|failed to legalize|token|loc\(")


def branches(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x + 1
    return x - 1


@torch.library.custom_op("refusals::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    # name: (function of a [4, 5] tensor, what is said)
    "no lowering": (lambda x: torch.hash_tensor(x), "hash_tensor .*there is no lowering for it; use other operations"),
    "of the user's own": (lambda x: twice(x) + 1, "twice .*there is no lowering for it; .*@torch.compiler.disable"),
    "in a branch": (
        lambda x: torch.cond(x.sum() > 0, lambda x: torch.hash_tensor(x).float(), lambda x: x.sum(), (x,)),
        "hash_tensor",
    ),
    "a primitive": (lambda x: torch.ops.prims.xor_sum(x.int(), [0]), "xor_sum .*there is no lowering"),
    "random numbers": (lambda x: x + torch.randn(4, 5), "do not follow torch.manual_seed; pass them to"),
    "training": (lambda x: torch.dropout(x, 0.5, True), "do not follow torch.manual_seed"),
    "control flow in Python": (branches, "does not export: .*depends on the value of a tensor .*torch.cond"),
    "wrong in eager mode, too": (lambda x: x @ x, "torch.export fails with .*If the model runs in eager mode"),
    "complex results": (
        lambda x: x.to(torch.complex32),
        "is torch.complex32, which cannot be compiled: use torch.complex64",
    ),
    "effects": (
        lambda x: torch.linalg.ldl_factor(x[:, :4])[0] + 1,
        "_linalg_check_errors.* does something beside giving",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_words(name: str) -> None:
    function, said = REFUSED[name]
    with pytest.raises(CovanError, match=said) as caught:
        covan_mlir.compile_module(lambda x: function(x), (X,))
    message = str(caught.value)
    assert message.startswith(f"{__file__}:"), message
    assert not NOTATION.search(message), message


def _two_rows(x: Tensor) -> Tensor:
    y = x + 1
    return y.view(2, -1)


def _ten(x: Tensor) -> Tensor:
    return x.view(5, 2) * 2


def _alike(x: Tensor, y: Tensor) -> Tensor:
    return x + y


OPEN_SIZES: dict[str, tuple[Callable[..., Any], int, str]] = {
    # name: (function, its line that fixes a size, what is said)
    "a number": (_ten, 1, r"n0 is always 10. Say so in dynamic_shapes: n0 = 10"),
    "equal": (_alike, 1, r"n1 = y.shape\[0\] and n0 = x.shape\[0\] must always be equal. .*: n1 = n0"),
    "even": (_two_rows, 2, r"of all n0 = x.shape\[0\] has to hold \(x.shape\[0\] % 2\) == 0; .*n0 = 2\*_n0"),
}


@pytest.mark.parametrize("name", OPEN_SIZES)
def test_sizes_that_are_not_open(name: str) -> None:
    function, line, said = OPEN_SIZES[name]
    names = list(inspect.signature(function).parameters)
    sizes = {argument: {0: torch.export.Dim(f"n{k}", max=20)} for k, argument in enumerate(names)}
    where = f"{__file__}:{function.__code__.co_firstlineno + line}: "
    with pytest.raises(covan_mlir.ExportError, match=said) as caught:
        covan_mlir.compile_module(function, (torch.randn(10),) * len(names), dynamic_shapes=sizes)
    assert str(caught.value).startswith(where)


def test_strides_reach_no_further_than_the_tensor() -> None:
    """In eager mode they may: into the memory that it is a piece of."""
    with pytest.raises(covan_mlir.ExportError, match=r"test_refusals.py:\d+: as_strided .*outside the base tensor"):
        covan_mlir.compile_module(lambda x: x.as_strided((4, 5), (5, 1)), (torch.randn(6, 5)[:2],))


def test_a_program_may_draw_numbers_of_its_own() -> None:
    options = covan_mlir.CompileOptions(random_numbers=True)
    drawn = covan_mlir.compile_module(lambda x: x + torch.rand(4, 5), (X,), options=options)(X) - X
    assert ((drawn >= -1e-6) & (drawn < 1)).all()
    assert len(drawn.unique()) > 10


def test_what_is_refused_can_be_left_to_pytorch() -> None:
    @torch.compiler.disable
    def apart(x: Tensor) -> Tensor:
        return x.mode(1).values

    with torch.no_grad():
        assert_same(torch.compile(lambda x: apart(x * 2) + 1, backend="covan")(X), (X * 2).mode(1).values + 1)
    torch.compiler.reset()


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (
            "failed to legalize operation 'torch.operator' that was explicitly marked illegal: %2",
            "there is no lowering",
        ),
        ("'math.absf' op operand #0 must be float: %3 = math.absf", "'math.absf' op operand #0 must be float"),
        ("loc(unknown): LLVM Translation failed for operation: x", "the compiler has no machine code for it"),
        ("", "the compiler gives no reason"),
        ("memory ran out", "memory ran out"),
    ],
)
def test_messages_of_compilers(message: str, words: str) -> None:
    assert plainly(message).startswith(words)


SCALARS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "comparison": (lambda t, u: float(t) >= int(u), (torch.tensor(2.5), torch.tensor(2))),
    "quotient": (lambda t, u: int(t) // int(u), (torch.tensor(7), torch.tensor(2))),
    "sum": (lambda t, u: int(t) + float(u), (torch.tensor(2), torch.tensor(2.5))),
    "factor": (lambda x, t: x * int(t) + 1, (X, torch.tensor(3))),
}


@pytest.mark.parametrize("name", SCALARS)
def test_numbers_read_from_tensors(name: str) -> None:
    function, args = SCALARS[name]
    exe = covan_mlir.compile_module(lambda *args: function(*args), args)
    for shift in (0, 1, 4):
        shifted = tuple(arg + shift for arg in args)
        assert_same(exe(*shifted), function(*shifted))
    assert exe.verify().outcome != "no", str(exe.verify())


def test_a_number_read_from_a_tensor_is_an_operand() -> None:
    def function(x: Tensor, t: Tensor) -> Tensor:
        return x * t.item()

    exe = covan_mlir.compile_module(function, (X, torch.tensor(2.5)))
    assert_same(exe(X, torch.tensor(-3.0)), X * -3)
    assert exe.verify(), str(exe.verify())
