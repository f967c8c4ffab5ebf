"""An ONNX graph, node by node, on tensors of torch: what `torch.export` traces, and what eager PyTorch runs.

Each node's calls carry its place in the file, so that they are known as the node's afterwards. What is known already
(constants, shapes, what is computed of them) is computed during translation, and no call of the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import onnx
import torch
from onnx import numpy_helper
from torch.fx.traceback import annotate
from torch.utils._python_dispatch import _disable_current_modes

from covan_mlir.errors import ExportError
from covan_mlir.frontend.onnx import operators, sizes
from covan_mlir.frontend.onnx.bodies import inlined
from covan_mlir.frontend.onnx.call import Call, NeedsInput
from covan_mlir.frontend.onnx.graphs import free_names, subgraphs
from covan_mlir.frontend.onnx.registry import canonical, lookup
from covan_mlir.frontend.sources import NODE
from covan_mlir.frontend.translation.arrays import to_torch
from covan_mlir.frontend.translation.refused import Refused
from covan_mlir.frontend.translation.value import FIXED, LARGEST, Item, Value, computed, constant

assert operators  # declares them
_GROWING = ("ConstantOfShape", "Expand", "Tile", "Range", "Pad", "OneHot", "Resize", "Upsample", "EyeLike", "Col2Im")
"""Operators whose results are larger than what they are given by numbers that they are given."""
_NEVER = ("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial")
DEPTH = 64
"""Functions and subgraphs inside of each other, at most."""

Scope = dict[str, Item]


@dataclass
class Evaluator:
    """Translates the nodes of one model.

    Attributes:
        model: its functions, and opsets.
        numbers: place of each node of the file, by its identity.
        marks: whether calls are to carry these: while a program is traced.
        known_nodes, size_nodes: places of nodes that translation computes, and of those that tell open sizes.
    """

    model: onnx.ModelProto
    numbers: Mapping[int, int]
    marks: bool = False
    known_nodes: set[int] = field(default_factory=set)
    size_nodes: set[int] = field(default_factory=set)
    _depth: int = 0

    def __post_init__(self) -> None:
        self._opsets = {canonical(opset.domain): opset.version for opset in self.model.opset_import}
        self._functions = {(canonical(f.domain), f.name, f.overload): f for f in self.model.functions}

    def graph(
        self, graph: onnx.GraphProto | onnx.FunctionProto, scope: Scope, opsets: Mapping[str, int] | None = None
    ) -> list[Item]:
        """The outputs of a graph, given what its inputs, and names outside of it, stand for."""
        self._depth += 1
        if self._depth > DEPTH:
            raise ExportError(f"functions and subgraphs are nested more than {DEPTH} deep, or in a circle")
        try:
            last = _last_reads(graph)
            for index, node in enumerate(graph.node):
                outputs = self.node(node, scope, opsets or self._opsets)
                for name, item in zip(node.output, outputs, strict=False):
                    if name:
                        scope[name] = item
                for name in last.get(index, ()):
                    scope.pop(name, None)
            names = graph.output if isinstance(graph, onnx.FunctionProto) else [value.name for value in graph.output]
            if isinstance(graph, onnx.FunctionProto):
                return [scope.get(name) for name in names]  # not all are asked for, or computed
            return [scope[name] for name in names]
        except KeyError as error:
            raise ExportError(f"{error.args[0]!r} is computed by no node of the graph") from None
        finally:
            self._depth -= 1

    def node(self, node: onnx.NodeProto, scope: Scope, opsets: Mapping[str, int]) -> list[Item]:
        """The results of one node."""
        domain = canonical(node.domain)
        place = self.numbers.get(id(node))
        with self._marked(place):
            items = [scope[name] if name else None for name in node.input]
            function = self._functions.get((domain, node.op_type, node.overload))
            if function is not None:
                return self._function(node, function, items)
            if domain not in opsets:
                raise self._refusal(node, f"the file imports no opset of {domain or 'ONNX'}")
            opset = opsets[domain]
            declared = lookup(domain, node.op_type, opset)
            if declared is None:
                body = inlined(node, items, opset, opsets)
                if body is None:
                    raise self._refusal(node, f"there is no translation of it in opset {opset}")
                return self._function(node, body, items)
            call = self._call(node, items, scope, opset, opsets)
            try:
                results: list[Item]
                if (numbers := sizes.evaluated(call)) is not None:
                    results = [numbers]
                elif (folded := self._computed(call, declared.translation)) is not None:
                    results = folded
                else:
                    results = _with_inputs(items, self._items(declared.translation(call)))
                self._note(place, results)
                return results
            except Refused as error:
                raise self._refusal(node, str(error)) from error.__cause__
            except (ExportError, NeedsInput, KeyboardInterrupt):
                raise
            except Exception as error:
                if type(error).__module__.startswith(("torch._dynamo", "torch.fx.experimental")):
                    raise
                why = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
                if "DynamicOutputShape" in type(error).__name__ or "DataDependent" in type(error).__name__:
                    why = "the size of its result depends on values"
                raise self._refusal(node, why) from error

    def _note(self, place: int | None, results: list[Item]) -> None:
        """Which nodes are computed during translation, or only tell sizes."""
        if place is None or not results or not all(isinstance(item, Value) and item.is_known for item in results):
            return
        constants = all(isinstance(item, Value) and item.known is not None for item in results)
        (self.known_nodes if constants else self.size_nodes).add(place)

    def _marked(self, place: int | None) -> AbstractContextManager[Any]:
        return annotate({NODE: place}) if self.marks and place is not None else nullcontext()

    def _refusal(self, node: onnx.NodeProto, why: str) -> Refused:
        name = f"{node.domain}.{node.op_type}" if canonical(node.domain) else node.op_type
        called = f" {node.name!r}" if node.name else ""
        return Refused(f"{name}{called}: {why}")

    def _call(
        self, node: onnx.NodeProto, items: list[Item], scope: Scope, opset: int, opsets: Mapping[str, int]
    ) -> Call:
        def run(graph: onnx.GraphProto, given: Sequence[Item], bound: Mapping[str, Item] | None = None) -> list[Item]:
            inner = dict(scope) | dict(bound or {})
            inner |= {value.name: item for value, item in zip(graph.input, given, strict=False)}
            inner |= {tensor.name: self.initializer(tensor) for tensor in graph.initializer}
            return self.graph(graph, inner, opsets)

        def captured(graph: onnx.GraphProto) -> dict[str, Value]:
            return {
                name: item
                for name in free_names(graph)
                if isinstance(item := scope.get(name), Value) and (item.held or not item.is_known)
            }

        def rebound(bound: Mapping[str, Item]) -> Callable[[onnx.GraphProto, Sequence[Item]], list[Item]]:
            return lambda graph, given: run(graph, given, bound)

        @contextmanager
        def unmarked() -> Iterator[None]:
            marks, self.marks = self.marks, False
            try:
                yield
            finally:
                self.marks = marks

        return Call(node, items, opset, run, captured, rebound, unmarked)

    def initializer(self, tensor: onnx.TensorProto) -> Value:
        """A tensor that a subgraph holds."""
        with _disable_current_modes():
            return constant(to_torch(numpy_helper.to_array(tensor)))

    def _function(self, node: onnx.NodeProto, function: onnx.FunctionProto, items: Sequence[Item]) -> list[Item]:
        given = list(items) + [None] * (len(function.input) - len(items))
        scope: Scope = dict(zip(function.input, given, strict=False))
        opsets = {canonical(opset.domain): opset.version for opset in function.opset_import}
        return self.graph(_with_attributes(function, node), scope, self._opsets | opsets)

    def _computed(self, call: Call, translation: Callable[[Call], Any]) -> list[Item] | None:
        """The results of a node of which all operands are known, if they are small."""
        values = [item for item in call.items if item is not None]
        if call.node.op_type == "CastLike":
            values = values[:1]  # the other tells a type
        if call.node.op_type in _NEVER or any(a.type == onnx.AttributeProto.GRAPH for a in call.node.attribute):
            return None
        if not all(isinstance(value, Value) and value.known is not None and value.size <= LARGEST for value in values):
            return None
        if call.node.op_type == "DequantizeLinear" and call.tensor(0).dim() > 1:
            return None  # a weight, whose steps kernels multiply as they are
        known = [value for value in values if isinstance(value, Value)]
        if call.node.op_type in _GROWING and not _bounded(call.node.op_type, known):
            return None
        if not known and call.node.op_type not in ("Constant",):
            return None
        if call.node.op_type == "Constant":
            with _disable_current_modes():
                return self._items(translation(call))
        real = [_real(item) if isinstance(item, Value) and item.known is not None else item for item in call.items]
        call = replace(call, items=real)
        with _disable_current_modes():
            result = translation(call)
            results = result if isinstance(result, tuple) else (result,)
            tensors = [item.tensor if isinstance(item, Value) else item for item in results]
            if not all(isinstance(t, torch.Tensor) and t.numel() <= LARGEST for t in tensors):
                return None
            return [constant(t.detach().contiguous()) for t in tensors]

    def _items(self, result: Any) -> list[Item]:
        results = result if isinstance(result, tuple) else (result,)
        return [_item(item) for item in results]


def _with_inputs(operands: Sequence[Item], results: list[Item]) -> list[Item]:
    """Results of a node, with which inputs they are computed of, if these can be fixed."""
    values = [item for item in operands if item is not None]
    names: frozenset[str] = frozenset()
    for value in values:
        if not isinstance(value, Value) or not (value.is_known or value.inputs):
            return results
        names |= value.inputs
    for result in results if names else ():
        if isinstance(result, Value) and not result.is_known and math.prod(result.tensor.shape) <= FIXED:
            result.inputs = names
    return results


def _item(result: Any) -> Item:
    if isinstance(result, torch.Tensor):
        return computed(result)
    if isinstance(result, list):
        return [_item(item) for item in result]
    assert result is None or isinstance(result, Value), type(result)
    return result


def _real(item: Value) -> Value:
    known = item.known
    assert known is not None
    return Value(item.dtype, lambda: known, known=known)


def _bounded(kind: str, known: Sequence[Value]) -> bool:
    """Whether what a growing operator gives, for operands that are known, is surely not large."""
    size = max((value.size for value in known), default=1)
    if kind == "Range":
        start, limit, delta = (float(value.objects().reshape(-1)[0]) for value in known)
        return delta != 0 and abs((limit - start) / delta) <= LARGEST
    bound = float(max(size, 1))
    for value in known[0 if kind == "ConstantOfShape" else 1 :]:
        if value.size <= 16:
            bound *= math.prod(
                max(abs(float(number)), 1.0) + (2.0 if kind == "Pad" else 0.0) for number in value.objects().flat
            )
    return bound <= 64 * LARGEST


def _last_reads(graph: onnx.GraphProto | onnx.FunctionProto) -> dict[int, list[str]]:
    """Names that no later node of a graph reads, by the node: what they stand for is given up."""
    names = graph.output if isinstance(graph, onnx.FunctionProto) else [value.name for value in graph.output]
    seen = set(names)
    last: dict[int, list[str]] = {}
    for index in reversed(range(len(graph.node))):
        node = graph.node[index]
        read = {name for name in node.input if name}
        for attribute in node.attribute:
            for inner in subgraphs(attribute):
                read |= free_names(inner)
        last[index] = [name for name in read | set(node.output) if name not in seen]
        seen |= read | set(node.output)
    return last


def _with_attributes(function: onnx.FunctionProto, node: onnx.NodeProto) -> onnx.FunctionProto:
    """A function's body with the attributes of the node that calls it."""
    given = {attribute.name: attribute for attribute in function.attribute_proto}
    given |= {attribute.name: attribute for attribute in node.attribute}
    body = onnx.FunctionProto()
    body.CopyFrom(function)

    def fill(nodes: Any) -> None:
        for inner in nodes:
            kept = []
            for attribute in inner.attribute:
                if attribute.ref_attr_name:
                    if attribute.ref_attr_name not in given:
                        continue
                    filled = onnx.AttributeProto()
                    filled.CopyFrom(given[attribute.ref_attr_name])
                    filled.name = attribute.name
                    kept.append(filled)
                else:
                    for graph in subgraphs(attribute):
                        fill(graph.node)
                    kept.append(attribute)
            copies = [onnx.AttributeProto.FromString(a.SerializeToString()) for a in kept]
            del inner.attribute[:]
            inner.attribute.extend(copies)

    fill(body.node)
    return body
