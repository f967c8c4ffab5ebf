"""Operators that ONNX defines by functions of others: their bodies, for operators without a translation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import defs

from covan_mlir.frontend.onnx.dtypes import NUMBERS
from covan_mlir.frontend.translation.value import Item, Value


def has_body(domain: str, name: str, opset: int) -> bool:
    """Whether ONNX defines an operator by others."""
    try:
        schema: Any = defs.get_schema(name, opset, domain)  # onnx's stubs lack what is asked here
    except defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def inlined(
    node: onnx.NodeProto, items: Sequence[Item], opset: int, opsets: Mapping[str, int]
) -> onnx.FunctionProto | None:
    """The body of a node's operator in an opset; None: it has none."""
    try:
        schema: Any = defs.get_schema(node.op_type, opset, node.domain if node.domain != "ai.onnx" else "")
    except defs.SchemaError:
        return None
    if schema.has_function:
        versions = [version for version in schema.function_opset_versions if version <= opsets.get("", opset)]
        version = max(versions) if versions else min(schema.function_opset_versions)
        whole = onnx.FunctionProto()
        whole.ParseFromString(schema.get_function_with_opset_version(version))
        return whole
    if not schema.has_context_dependent_function:
        return None
    types = [_type(item) for item in items]
    required = sum(parameter.option == defs.OpSchema.FormalParameterOption.Single for parameter in schema.inputs)
    if len(types) < required or any(kind is None for kind in types[:required]):
        return None  # onnx looks at the types of operands without asking whether there are any
    opset_versions = schema.context_dependent_function_opset_versions
    version = max((v for v in opset_versions if v <= opsets.get("", opset)), default=min(opset_versions))
    text = schema.get_context_dependent_function_with_opset_version(
        version, node.SerializeToString(), [(kind or onnx.TypeProto()).SerializeToString() for kind in types]
    )
    function = onnx.FunctionProto.FromString(text) if text else None
    if function is not None and not function.opset_import:
        function.opset_import.add(version=opsets.get("", opset))
    return function


def _type(item: Item) -> onnx.TypeProto | None:
    """ONNX's type of what a name stands for; None: it stands for nothing."""
    if isinstance(item, Value):
        shape = [size if isinstance(size, int) else None for size in item.tensor.shape]
        return onnx.helper.make_tensor_type_proto(NUMBERS[item.dtype], shape)
    if isinstance(item, list):
        inner = next((kind for kind in map(_type, item) if kind is not None), None)
        return None if inner is None else onnx.helper.make_sequence_type_proto(inner)
    return None
