"""Operators attached to models of other frameworks: to operations under the names that these have there."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from onnx_models import model, node

import covan_mlir
from covan_mlir import Attachment, CompileOptions, InputError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 5, 8), np.float32)


def network(*outputs: str) -> onnx.ModelProto:
    """A product, a normalisation (many operations of torch's) and a softmax, all of which become few kernels."""
    weights = {"w": RNG.standard_normal((8, 8), np.float32), "scale": np.ones(8, np.float32)}
    nodes = [
        node("MatMul", ["x", "w"], ["product"], "product"),
        node("LayerNormalization", ["product", "scale"], ["normal"], "normal"),
        node("Softmax", ["normal"], ["soft"], "soft"),
        node("Add", ["soft", "x"], ["sum"], "sum"),
    ]
    return model(nodes, {"x": ("float32", [3, 5, 8])}, list(outputs), weights)


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * 2


@pytest.mark.parametrize("name", ["product", "normal", "soft"])
def test_what_is_read_of_onnx(name: str) -> None:
    built = network("sum")
    exe = covan_mlir.compile_module(built, options=CompileOptions(attach={name: doubled}))
    built.graph.output.append(onnx.ValueInfoProto(name=name))
    total, inner = ReferenceEvaluator(built).run(None, {"x": X})
    results, taps = exe.call_with_attachments(X)
    np.testing.assert_allclose(results, total, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(taps[name], inner * 2, rtol=1e-5, atol=1e-5)
    (attached,) = exe.attachments
    assert attached.target == name
    verdict = exe.verify()
    assert verdict, verdict


def test_what_is_replaced_in_onnx() -> None:
    built = network("sum")
    exe = covan_mlir.compile_module(built, options=CompileOptions(attach={"soft": Attachment(doubled, mode="replace")}))
    built.graph.output.append(onnx.ValueInfoProto(name="soft"))
    _, soft = ReferenceEvaluator(built).run(None, {"x": X})
    np.testing.assert_allclose(exe(X), 2 * soft + X, rtol=1e-5, atol=1e-5)


def test_names_are_those_of_the_model() -> None:
    with pytest.raises(InputError, match="nothing in the model is called 'sofd'; did you mean soft"):
        covan_mlir.compile_module(network("sum"), options=CompileOptions(attach={"sofd": doubled}))


def test_what_is_read_of_jax() -> None:
    def function(x: Any) -> Any:
        with jax.named_scope("inner"):
            inner = jnp.tanh(x) + 1
        return jax.nn.softmax(inner)

    exe = covan_mlir.compile_module(jax.jit(function), (X,), options=CompileOptions(attach={"inner": doubled}))
    results, taps = exe.call_with_attachments(X)
    np.testing.assert_allclose(results, function(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(taps["inner"], 2 * (np.tanh(X) + 1), rtol=1e-5, atol=1e-6)
    assert exe.verify()
