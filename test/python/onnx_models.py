"""ONNX models for tests, made node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

_TYPES = {
    "float32": TensorProto.FLOAT,
    "int64": TensorProto.INT64,
    "int32": TensorProto.INT32,
    "bool": TensorProto.BOOL,
}
_TYPES |= {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", **attributes: Any) -> onnx.NodeProto:
    """One node."""
    return helper.make_node(op, list(inputs), list(outputs), name=name, **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[str, Sequence[int | str]]],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray[Any, Any]] | None = None,
    opset: int = 20,
    **opsets: int,
) -> onnx.ModelProto:
    """A model.

    Args:
        inputs: element type and shape by name.
        weights: initializers by name.
        opsets: of other domains, with ``_`` for dots.
    """
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, _TYPES[kind], shape) for name, (kind, shape) in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain.replace("_", "."), version) for domain, version in opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def encoder() -> onnx.ModelProto:
    """A layer with an open batch: a product, a bias, an activation, a reshape by a computed shape, a softmax."""
    rng = np.random.default_rng(0)
    weights = {"W": rng.standard_normal((16, 24), np.float32), "B": rng.standard_normal(24, np.float32)}
    weights |= {"scale": np.array(0.5, np.float32), "rows": np.array([0]), "minus": np.array([-1])}
    nodes = [
        node("MatMul", ["x", "W"], ["m"], name="/layers.0/MatMul"),
        node("Add", ["m", "B"], ["a"], name="/layers.0/Add"),
        node("Relu", ["a"], ["r"]),
        node("Mul", ["r", "scale"], ["s"]),
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "rows"], ["batch"]),
        node("Concat", ["batch", "minus"], ["sizes"], axis=0),
        node("Reshape", ["s", "sizes"], ["flat"]),
        node("Identity", ["flat"], ["same"]),
        node("Softmax", ["same"], ["y"], name="probabilities"),
    ]
    return model(nodes, {"x": ("float32", ["batch", 16])}, ["y"], weights)


def reference(built: onnx.ModelProto, **inputs: np.ndarray[Any, Any]) -> list[Any]:
    """What onnx's own evaluator gives."""
    results: list[Any] = ReferenceEvaluator(built).run(None, inputs)
    return results


def victims(folder: Path) -> list[bytes]:
    """Small models of many kinds, as files hold them: `encoder`; a weight in a file of its own, which is written; a
    branch, a convolution, a shape that is computed."""
    weight = np.arange(256, dtype=np.float32).reshape(16, 16)
    outside = model([node("MatMul", ["x", "W"], ["y"])], {"x": ("float32", [2, 16])}, ["y"], {"W": weight})
    (folder / "weights.bin").write_bytes(weight.tobytes())
    tensor = outside.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", "1024")):
        tensor.external_data.add(key=key, value=value)
    branches = [
        helper.make_graph([node(op, ["x"], [f"{op}y"])], op, [], [onnx.ValueInfoProto(name=f"{op}y")])
        for op in ("Neg", "Abs")
    ]
    nodes = [
        node("Conv", ["x", "K"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("ReduceMax", ["c"], ["most"], keepdims=0),
        node("Greater", ["most", "zero"], ["holds"]),
        node("If", ["holds"], ["y"], then_branch=branches[0], else_branch=branches[1]),
        node("Shape", ["y"], ["shape"]),
        node("Gather", ["shape", "first"], ["n"], axis=0),
        node("Concat", ["n", "minus"], ["flat"], axis=0),
        node("Reshape", ["y", "flat"], ["z"]),
        node("Pad", ["z", "pads"], ["p"]),
    ]
    weights = {"K": np.ones((2, 3, 3, 3), np.float32), "zero": np.array(0, np.float32), "first": np.array([0])}
    weights |= {"minus": np.array([-1]), "pads": np.array([0, 1, 0, 2])}
    mixed = model(nodes, {"x": ("float32", ["batch", 3, 8, 8])}, ["p"], weights)
    return [built.SerializeToString() for built in (encoder(), outside, mixed)]
