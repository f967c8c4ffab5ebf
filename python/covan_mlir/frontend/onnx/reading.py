"""ONNX files: read without trusting them.

A file says where its large tensors are: in other files, by path, offset and length. Such a path may not leave the
model's folder, by ``..``, an absolute path or a symbolic link, and what is read is never more than the file's word for
the tensor's size, nor more than the other file holds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from covan_mlir.errors import ExportError
from covan_mlir.frontend.onnx.dtypes import type_name
from covan_mlir.frontend.onnx.registry import OLDEST, canonical
from covan_mlir.frontend.translation.arrays import to_torch

_LARGEST = 2**31
"""Bytes of a file, at most: what protobuf reads. Larger models keep their tensors outside."""
_NESTED = 64
"""Subgraphs inside of each other, at most."""


@dataclass(frozen=True)
class Loaded:
    """A model as it was read.

    Attributes:
        model: without the elements of its tensors, as far as they are in ``weights``.
        weights: its initializers, by name.
        path: of the file, for messages; empty for a model from memory.
    """

    model: onnx.ModelProto
    weights: dict[str, torch.Tensor]
    path: str

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """What a call gives: the graph's inputs without those that the file has values for."""
        return [value for value in self.model.graph.input if value.name not in self.weights]

    @property
    def opset(self) -> int:
        """Of ONNX's own operators."""
        return max((o.version for o in self.model.opset_import if canonical(o.domain) == ""), default=0)


def read(model: str | os.PathLike[str] | onnx.ModelProto) -> Loaded:
    """A model from a file or from memory.

    Raises:
        ExportError: there is no such file, it is no ONNX model or a damaged one, its opset is too old or unknown, or
            a tensor is not where the file says.
    """
    if isinstance(model, onnx.ModelProto):
        proto, path = onnx.ModelProto(), ""
        proto.CopyFrom(model)
        folder = None
    else:
        path = os.fspath(model)
        proto, folder = _parsed(Path(path)), Path(path).parent
    name = path or "the model"
    if not proto.graph.node and not proto.graph.output:
        raise ExportError(f"{name} has no graph: it is no ONNX model, or an empty one")
    _check_opsets(proto, name)
    _check_depth(proto, name)
    weights: dict[str, torch.Tensor] = {}
    for tensor in proto.graph.initializer:
        if tensor.name in weights:
            raise ExportError(f"{name}: there are two tensors called {tensor.name!r}")
        weights[tensor.name] = _tensor(tensor, folder, name)
    if proto.graph.sparse_initializer:
        raise ExportError(f"{name}: {proto.graph.sparse_initializer[0].values.name!r} is sparse: store it dense")
    for held in _held_tensors(proto):
        _inline(held, folder, name)
    del proto.graph.initializer[:]
    return Loaded(proto, weights, path)


def _parsed(path: Path) -> onnx.ModelProto:
    if not path.is_file():
        reason = "is a directory" if path.is_dir() else "no such file"
        raise ExportError(f"{path}: {reason}")
    size = path.stat().st_size
    if size >= _LARGEST:
        raise ExportError(f"{path} has {size} bytes: store its tensors outside (onnx.save_model, external data)")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise ExportError(f"{path} is no ONNX model, or a damaged one: {error}") from error
    except OSError as error:
        raise ExportError(f"{path} cannot be read: {error.strerror}") from error
    return proto


def _check_opsets(proto: onnx.ModelProto, name: str) -> None:
    known = onnx.defs.onnx_opset_version()
    for opset in proto.opset_import:
        if canonical(opset.domain) != "":
            continue
        if opset.version < 1:
            raise ExportError(f"{name} says that it is of opset {opset.version}: it is damaged")
        if opset.version > known:
            raise ExportError(
                f"{name} is of opset {opset.version}; this onnx knows up to {known}: install a newer onnx"
            )
        if opset.version < OLDEST and not _unchanged(proto, opset.version):
            raise ExportError(
                f"{name} is of opset {opset.version}; {OLDEST} is the oldest that is compiled: convert it with "
                f"onnx.version_converter.convert_version(model, {known})"
            )
    if not proto.opset_import:
        raise ExportError(f"{name} does not say of which opset it is")


def _unchanged(proto: onnx.ModelProto, version: int) -> bool:
    """Whether all operators of an old model are what they are in the oldest opset that is translated."""
    try:
        return all(
            onnx.defs.get_schema(node.op_type, version).since_version
            == onnx.defs.get_schema(node.op_type, OLDEST).since_version
            for node in proto.graph.node
            if canonical(node.domain) == ""
        )
    except onnx.defs.SchemaError:
        return False


def _check_depth(proto: onnx.ModelProto, name: str) -> None:
    pending = [(proto.graph, 0)]
    while pending:
        graph, depth = pending.pop()
        if depth > _NESTED:
            raise ExportError(f"{name}: subgraphs are nested more than {_NESTED} deep")
        for node in graph.node:
            for attribute in node.attribute:
                pending += [(inner, depth + 1) for inner in (attribute.g, *attribute.graphs) if inner.node]


def _held_tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Tensors in attributes, and in subgraphs."""
    pending = [*proto.graph.node, *(node for function in proto.functions for node in function.node)]
    while pending:
        node = pending.pop()
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
            yield from attribute.tensors
            for graph in (attribute.g, *attribute.graphs):
                yield from graph.initializer
                pending += graph.node


def _inline(tensor: onnx.TensorProto, folder: Path | None, name: str) -> None:
    """Take a tensor of an attribute into the model, wherever it is, and have its size checked."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        tensor.raw_data = bytes(_external(tensor, folder, name))
        del tensor.external_data[:]
        tensor.data_location = onnx.TensorProto.DEFAULT
    elif tensor.raw_data:
        _check_size(tensor, len(tensor.raw_data), name)


def _tensor(tensor: onnx.TensorProto, folder: Path | None, name: str) -> torch.Tensor:
    try:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            data = _external(tensor, folder, name)
            copy = onnx.TensorProto(dims=tensor.dims, data_type=tensor.data_type, raw_data=bytes(data))
            return to_torch(numpy_helper.to_array(copy))
        if tensor.raw_data:
            _check_size(tensor, len(tensor.raw_data), name)
        return to_torch(numpy_helper.to_array(tensor))
    except ExportError as error:
        raise ExportError(f"{name}: {tensor.name!r}: {error}") from error
    except Exception as error:  # numpy and onnx raise all kinds for contents that contradict
        raise ExportError(f"{name}: the tensor {tensor.name!r} is damaged: {error}") from error


def _bytes_of(tensor: onnx.TensorProto) -> int:
    if any(size < 0 for size in tensor.dims):
        raise ExportError("it has a negative size")
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except KeyError:
        raise ExportError(f"its elements are of an unknown type, {type_name(tensor.data_type)}") from None
    bits = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}.get(dtype.name, 8 * dtype.itemsize)
    return int(-(-math.prod(tensor.dims) * bits // 8))


def _check_size(tensor: onnx.TensorProto, size: int, name: str) -> None:
    if size != (wanted := _bytes_of(tensor)):
        raise ExportError(f"{name}: {tensor.name!r} has {size} bytes where its shape and type take {wanted}")


def _external(tensor: onnx.TensorProto, folder: Path | None, name: str) -> memoryview:
    """The bytes of a tensor that is in a file of its own."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise ExportError(f"{location!r} is beside a file, and the model was given in memory: pass the file's path")
    if not location or os.path.isabs(location) or "\x00" in location or ".." in Path(location).parts:
        raise ExportError(f"its data are said to be in {location!r}, which is no path below the model's folder")
    path = folder / location
    root = folder.resolve()
    if not path.resolve().is_relative_to(root):
        raise ExportError(f"its data are said to be in {location!r}, which leads out of the model's folder")
    if not path.is_file():
        raise ExportError(f"its data are in {path}, and there is no such file")
    wanted = _bytes_of(tensor)
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries.get("length") or wanted)
    except ValueError:
        raise ExportError("where its data are is no number") from None
    size = path.stat().st_size
    if offset < 0 or length != wanted or offset + length > size:
        raise ExportError(f"its {wanted} bytes are said to be {length} from {offset} of {path}, which has {size}")
    with path.open("rb") as file:
        file.seek(offset)
        return memoryview(file.read(length))
