"""Operators as data: what they say of shapes, of elements and of numbers is what PyTorch computes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from index_sums import tensor_of

from covan_mlir.subst.evaluate import PRIME, Numbers, evaluate, known
from covan_mlir.subst.guards import Facts
from covan_mlir.subst.inference import infer, result
from covan_mlir.subst.normal import Normalizer, canonical
from covan_mlir.subst.operators import FUNCTIONS, OPERATORS, in_torch
from covan_mlir.subst.sizes import poly
from covan_mlir.subst.terms import Apply, Rule, Term, parse_term, subterms

SHAPES = {"a": (3, 4), "b": (3, 4), "c": (4, 5), "s": (), "x": (1, 2, 4, 3), "v": (4, 1, 3, 2), "k": (2, 1, 1, 2)}

WINDOW = "window=(3, 2), stride=(2, 1), pad=(1, 1)"
CALLS = [
    "add(a, b)",
    "sub(a, b)",
    "mul(a, b)",
    "div(a, b)",
    "neg(a)",
    "relu(a)",
    "scale(a, s)",
    "transpose(x, axes=(3, 0, 2, 1))",
    "concat(a, b, axis=0)",
    "concat(a, b, axis=1)",
    "head(a, axis=1, size=3)",
    "tail(a, axis=1, size=3)",
    "merge(x, axis=1)",
    "divide(a, axis=1, size=2)",
    "broadcast(a, axis=1, size=2)",
    "sum(a, axis=0)",
    "max(a, axis=1)",
    "softmax(a, axis=1)",
    "matmul(a, c)",
    "matmul(transpose(x, axes=(0, 1, 3, 2)), x)",
    "conv(x, v, stride=(2, 1), pad=(1, 1), dilation=(1, 2), groups=2)",
    "conv(x, conv_identity(size=(2, 1, 1)), stride=(1, 1), pad=(1, 1), dilation=(1, 1), groups=1)",
    "conv(x, pool_constant(size=(2, 2, 3)), stride=(1, 1), pad=(0, 0), dilation=(1, 1), groups=2)",
    "enlarge(k, border=(2, 1))",
    f"avg_pool(x, {WINDOW})",
    f"max_pool(x, {WINDOW})",
    "matmul(a, eye(size=4))",
    "add(a, ones(size=(3, 4)))",
    "add(a, zeros(size=(3, 4)))",
]
# Of these, numbers modulo a prime say only that they are functions.
NOT_NUMBERS = [*FUNCTIONS, "softmax"]


def tensors_for(text: str) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(len(text))
    return {
        name: torch.randint(1, 6, shape, generator=generator).double()
        * (-1) ** torch.randint(0, 2, shape, generator=generator)
        for name, shape in SHAPES.items()
    }


@pytest.fixture(autouse=True)
def constants_are_exact() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def typed_call(text: str) -> tuple[Term, dict[Term, tuple[int, ...]]]:
    term = parse_term(text)
    names = [node.name for node in subterms((term,)) if not isinstance(node, Apply)]
    rule = Rule((term,), (term,), tuple((name, tuple(map(poly, SHAPES[name]))) for name in names))
    typed = infer(rule)
    return typed.rule.source[0], {node: tuple(s.value({}) for s in shape) for node, shape in typed.shapes.items()}


def test_all_operators_are_called() -> None:
    called = {node.op for text in CALLS for node in subterms((parse_term(text),)) if isinstance(node, Apply)}
    assert called | set(FUNCTIONS) == set(OPERATORS)


@pytest.mark.parametrize("text", CALLS + [f"{name}(mul(a, a))" for name in FUNCTIONS if name not in ("gelu", "silu")])
def test_elements_are_those_of_torch(text: str) -> None:
    term, shapes = typed_call(text)
    tensors = tensors_for(text)
    expected = eval(in_torch(term, {}), {"torch": torch}, tensors).numpy()
    assert shapes[term] == expected.shape
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    symbolic = {node: tuple(map(poly, shape)) for node, shape in shapes.items()}

    def simplified(names: list[str]) -> object:
        value, ranges = result(term, symbolic, names)
        return canonical(Normalizer(Facts()).simplify(value, ranges))

    plain = tensor_of(lambda names: result(term, symbolic, names)[0], expected.shape, arrays, {})
    np.testing.assert_allclose(plain, expected, atol=1e-9)
    normal = tensor_of(simplified, expected.shape, arrays, {})  # type: ignore[arg-type]  # a list is as good
    np.testing.assert_allclose(normal, expected, atol=1e-9)


@pytest.mark.parametrize("text", [text for text in CALLS if not text.startswith(tuple(NOT_NUMBERS))])
def test_numbers_are_those_of_torch(text: str) -> None:
    term, shapes = typed_call(text)
    tensors = tensors_for(text)
    expected = eval(in_torch(term, {}), {"torch": torch}, tensors).numpy()
    ranks = {node: len(shape) for node, shape in shapes.items()}
    given = {name: known(tensor.numpy()) for name, tensor in tensors.items()}
    several = {name: value.map(lambda a: np.stack([a, a * 0 + 1, a])) for name, value in given.items()}
    (one,), (three,) = (evaluate((term,), ranks, values, {}) for values in (given, several))
    np.testing.assert_allclose(one.real, expected, atol=1e-9)
    for values in (one, Numbers(three.field[2], three.real[2])):
        # A quotient in the field is one of whole numbers that are small.
        factor = 60 if term.op in ("div", "avg_pool", "conv") else 1  # type: ignore[union-attr]  # no variable
        whole = np.rint(expected * factor).astype(np.int64)
        np.testing.assert_array_equal(values.field * factor % PRIME, whole % PRIME)
