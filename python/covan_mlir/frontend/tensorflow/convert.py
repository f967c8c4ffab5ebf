"""Functions of TensorFlow's and TFLite files as ONNX models, by tf2onnx."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2
from tensorflow.python.grappler import tf_optimizer
from tf2onnx import optimizer
from tf2onnx.tfonnx import process_tf_graph
from tf2onnx.utils import map_onnx_to_numpy_type

from covan_mlir.errors import ExportError
from covan_mlir.frontend.tensorflow import files, names
from covan_mlir.frontend.tensorflow.functions import BATCH, Function
from covan_mlir.frontend.tensorflow.messages import Converted, Failure, Structure

OPSET = 18
"""Of ONNX: the latest that tf2onnx writes."""
_PASSES = ("function", "dependency")
"""Of TensorFlow's optimizer: calls are inlined, and what only hands on is left out. Its folding of constants is not
among them: it makes convolutions out of multiplications behind them, which are other layers."""

_IMPROVEMENTS = {name: kind for name, kind in optimizer._get_optimizers().items() if name != "einsum_optimizer"}
"""What tf2onnx does to the model that it has converted. `Einsum` stays itself: else it is written out as dozens
of nodes that nobody wrote."""

_COMPILED = ("_XlaMustCompile", "_XlaCompile", "_noinline")
"""Attributes of functions that TensorFlow's optimizer does not inline."""


def converted(function: Function, where: str) -> tuple[onnx.ModelProto, Converted]:
    """A function with its variables as they are now.

    Args:
        where: what the model is called in messages.

    Raises:
        ExportError: TensorFlow or tf2onnx fail; a function that reads tables or states, for example.
    """
    lines = names.stacks(function.concrete.graph)
    specs = function.concrete.inputs[: len(function.inputs)]
    inputs = [tensor.name for tensor in specs]
    outputs = [tensor.name for tensor in function.concrete.outputs]
    renamed = dict(zip(inputs, function.inputs, strict=True))
    renamed |= dict(zip(outputs, _result_names(function.results, function.inputs), strict=True))
    with _collected() as failures, tf.device("/cpu:0"):
        try:
            graph_def = _frozen(function.concrete, inputs, outputs)
            with tf.Graph().as_default() as graph:
                tf.import_graph_def(graph_def, name="")
                model, before = _onnx(graph, where, input_names=inputs, output_names=outputs, tensors_to_rename=renamed)
        except Exception as error:
            raise _failed(where, error, failures) from error
    operations = {node.name: node.op for node in graph_def.node}
    named = tuple(Failure(operations.get(name, f.op), name, f.why) for name, f in sorted(failures.items()))
    _name_dimensions(model, BATCH if function.keras else "")
    names.mark(model, before, function.layers, lines)
    return model, Converted(named, function.results)


def converted_tflite(path: str) -> tuple[onnx.ModelProto, Converted]:
    """A TFLite file.

    Raises:
        ExportError: it is damaged, or tf2onnx fails.
    """
    signature = files.input_names(files.interpreter(path))
    with _collected() as failures, tf.device("/cpu:0"):
        try:
            with tf.Graph().as_default():
                model, before = _onnx(None, path, tflite_path=path)
        except Exception as error:
            raise _failed(path, error, failures) from error
    _rename_inputs(model, {value.name: signature.get(value.name, value.name) for value in model.graph.input})
    _name_dimensions(model, "")
    names.mark(model, before)
    count = len(model.graph.output)
    results = Structure("leaf") if count == 1 else Structure("tuple", (Structure("leaf"),) * count)
    return model, Converted(tuple(failure for _, failure in sorted(failures.items())), results)


def _onnx(graph: Any, name: str, **what: Any) -> tuple[onnx.ModelProto, list[names.Before]]:
    """-> (the model; its nodes before what tf2onnx makes better)."""
    converted = process_tf_graph(
        graph, continue_on_error=True, opset=OPSET, custom_op_handlers={"Erfc": (_erfc, [])}, **what
    )
    before = [names.Before(n.name, n.type, tuple(n.input), tuple(n.output)) for n in converted.get_nodes()]
    better = optimizer.optimize_graph(converted, optimizers=_IMPROVEMENTS)
    model: onnx.ModelProto = better.make_model(f"converted from {name}")
    return model, before


def _erfc(graph: Any, node: Any, name: str, args: Any) -> None:
    """What tf2onnx lacks of GELU: 1 - erf(x)."""
    one = graph.make_const(f"{name}__one", np.ones((), map_onnx_to_numpy_type(graph.get_dtype(node.input[0]))))
    erf = graph.make_node("Erf", [node.input[0]], name=f"{name}__erf")
    node.type = "Sub"
    graph.replace_inputs(node, [one.output[0], erf.output[0]])


def _frozen(concrete: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
    """The graph of a function, its variables as constants, without calls: bodies of branches and loops are left."""
    frozen = convert_variables_to_constants_v2(concrete, lower_control_flow=False, aggressive_inlining=True)
    config = config_pb2.ConfigProto()
    config.graph_options.infer_shapes = True
    config.graph_options.rewrite_options.optimizers[:] = _PASSES
    with tf.Graph().as_default():
        meta_graph = tf.compat.v1.train.export_meta_graph(graph_def=frozen.graph.as_graph_def(add_shapes=True))
    _allow_inlining(meta_graph.graph_def)
    kept = meta_graph_pb2.CollectionDef()
    kept.node_list.value.extend((*inputs, *outputs))
    meta_graph.collection_def["train_op"].CopyFrom(kept)
    return tf_optimizer.OptimizeGraph(config, meta_graph)


def _allow_inlining(graph: Any) -> None:
    """Make ordinary calls of those of functions that XLA is to compile (Keras' convolutions in groups): these are left
    as calls, as if nothing else could be in their place."""
    functions = graph.library.function
    for holder in (*graph.node, *functions, *(node for function in functions for node in function.node_def)):
        for name in _COMPILED:
            if name in holder.attr:
                del holder.attr[name]


class _Collector(logging.Handler):
    """Nodes that tf2onnx does not convert: it tells of them in its log alone."""

    def __init__(self, failures: dict[str, Failure]) -> None:
        super().__init__(logging.ERROR)
        self._failures = failures

    def emit(self, record: logging.LogRecord) -> None:
        if not isinstance(record.args, tuple):
            return
        if str(record.msg).startswith("Tensorflow op ["):
            name, op = map(str, record.args)
            self._failures.setdefault(name, Failure(op, name, "tf2onnx does not convert it"))
        elif str(record.msg).startswith("Failed to convert node"):
            name, error = str(record.args[0]), record.exc_info[1] if record.exc_info else None
            said = files.one_line(error) if error is not None else "it fails"
            self._failures.setdefault(name, Failure("a node", name, f"tf2onnx does not convert it: {said}"))


@contextmanager
def _collected() -> Iterator[dict[str, Failure]]:
    """While active, what tf2onnx says is heard, and not printed."""
    failures: dict[str, Failure] = {}
    handler = _Collector(failures)
    log, told = logging.getLogger("tf2onnx"), logging.getLogger("tf2onnx.tfonnx")
    propagate = log.propagate
    told.addHandler(handler)
    log.propagate = False
    try:
        yield failures
    finally:
        log.propagate = propagate
        told.removeHandler(handler)


def _failed(where: str, error: Exception, failures: Mapping[str, Failure]) -> ExportError:
    if failures:
        told = "; ".join(f"{f.op} {f.name}: {f.why}" for f in failures.values())
        return ExportError(f"{where}: {len(failures)} nodes are not converted: {told}")
    return ExportError(f"{where} is not converted: {type(error).__name__}: {files.one_line(error)}")


def _result_names(results: Structure, taken: Sequence[str]) -> list[str]:
    """Names of results: keys and places on the way to them."""

    def of(structure: Structure, path: str) -> Iterator[str]:
        if structure.kind == "leaf":
            yield path or "output"
        keys = structure.keys or tuple(f"output_{place}" if not path else str(place) for place in range(1 << 20))
        for key, item in zip(keys, structure.items, strict=False):
            yield from of(item, f"{path}_{key}" if path else key)

    used = set(taken)
    named = []
    for name in of(results, ""):
        candidate, count = name, 0
        while candidate in used:
            count += 1
            candidate = f"{name}_{count}"
        used.add(candidate)
        named.append(candidate)
    return named


def _rename_inputs(model: onnx.ModelProto, wanted: Mapping[str, str]) -> None:
    """Give the inputs of a graph the names of the signature, where no other tensor has them."""
    taken = {value for node in model.graph.node for value in node.output}
    taken |= {value.name for value in model.graph.initializer}
    renamed = {old: new for old, new in wanted.items() if old != new and new not in taken and new not in wanted}
    if not renamed:
        return
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        for value in (*graph.input, *graph.output):
            value.name = renamed.get(value.name, value.name)
        for node in graph.node:
            node.input[:] = [renamed.get(name, name) for name in node.input]
            for attribute in node.attribute:
                pending += [inner for inner in (attribute.g, *attribute.graphs) if inner.node]


def _name_dimensions(model: onnx.ModelProto, first: str) -> None:
    """Open dimensions of inputs: ``first`` is called so if it is the first of one, others by their input and axis.

    tf2onnx counts them, which is a different name in each process.
    """
    for value in (*model.graph.input, *model.graph.output):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.HasField("dim_param"):
                dim.dim_param = first if axis == 0 else ""
