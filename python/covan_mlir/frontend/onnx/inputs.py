"""Example arguments of an ONNX model, and which of their sizes stay open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch

from covan_mlir.errors import ExportError, InputError
from covan_mlir.frontend.onnx.dtypes import torch_type
from covan_mlir.frontend.onnx.reading import Loaded

LARGEST = 1 << 30
"""Bytes of an example that is made up, at most: a file may say any size."""
Range = int | tuple[int | None, int | None] | None
"""What a symbolic dimension is: one number; at least and at most; or open."""


@dataclass(frozen=True)
class Declared:
    """What the file says of an input.

    Attributes:
        sizes: numbers; names of symbolic dimensions; empty where nothing is said. None: not even how many.
        sequence: whether it is a sequence of such tensors.
    """

    name: str
    dtype: torch.dtype
    sizes: tuple[int | str, ...] | None
    sequence: bool = False
    optional: bool = False

    def __str__(self) -> str:
        shape = "…" if self.sizes is None else ", ".join(str(n) or "?" for n in self.sizes)
        return f"{self.name}: {str(self.dtype).removeprefix('torch.')}[{shape}]"


def declared(value: onnx.ValueInfoProto) -> Declared:
    """What the file says of an input.

    Raises:
        ExportError: it is no tensor, or of a type that programs do not have.
    """
    kind = value.type
    optional = kind.HasField("optional_type")
    kind = kind.optional_type.elem_type if optional else kind
    sequence = kind.HasField("sequence_type")
    kind = kind.sequence_type.elem_type if sequence else kind
    if not kind.HasField("tensor_type"):
        raise ExportError(f"the input {value.name!r} is a {kind.WhichOneof('value') or 'value of no type'}, no tensor")
    tensor = kind.tensor_type
    try:
        dtype = torch_type(tensor.elem_type)
    except ExportError as error:
        raise ExportError(f"the input {value.name!r}: {error}") from None
    sizes = None
    if tensor.HasField("shape"):
        sizes = tuple(map(_declared_size, tensor.shape.dim))
    return Declared(value.name, dtype, sizes, sequence, optional)


def _declared_size(dim: onnx.TensorShapeProto.Dimension) -> int | str:
    """Exporters write -1 or ``?`` where nothing is known: these are no names, which stand for one size each."""
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else ""
    return "" if dim.dim_param in ("?", "-1", "None") else str(dim.dim_param)


def symbols(inputs: Sequence[Declared]) -> list[str]:
    """Names of symbolic dimensions, in order; those without a name are called by input and axis."""
    names: dict[str, None] = {}
    for value in inputs:
        for axis, size in enumerate(value.sizes or ()):
            if isinstance(size, str):
                names.setdefault(size or f"{value.name}:{axis}")
    return list(names)


def bound(loaded: Loaded, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Arguments by position or by name (the file's, or the identifier made of it), in the order of the inputs.

    Raises:
        InputError: too many, unknown, given twice, or missing.
    """
    own = [value.name for value in loaded.inputs]
    if len(args) > len(own):
        raise InputError(f"the model takes {len(own)} inputs ({', '.join(own)}), and {len(args)} are given")
    given: dict[str, Any] = dict(zip(own, args, strict=False))
    by_identifier = dict(zip(names, own, strict=True))
    for key, value in kwargs.items():
        name = key if key in own else by_identifier.get(key)
        if name is None:
            raise InputError(f"the model has no input {key!r}: it takes {', '.join(own)}")
        if name in given:
            raise InputError(f"the input {name!r} is given twice")
        given[name] = value
    if missing := [name for name in own if name not in given]:
        raise InputError(
            f"the model's inputs {', '.join(missing)} are missing: give all, or none to have examples made"
        )
    return [given[name] for name in own]


def checked(value: Declared, given: Any, sizes: dict[str, int]) -> Any:
    """An argument as torch's tensor.

    Args:
        sizes: of symbolic dimensions, as far as they are known; grows.

    Raises:
        InputError: its type or shape contradict the file.
    """
    if value.optional and given is None:
        return None
    if value.sequence:
        if not isinstance(given, list | tuple):
            raise InputError(f"the input {value.name!r} is a sequence, and a {type(given).__name__} is given")
        inner = Declared(value.name, value.dtype, None)
        return [checked(inner, item, sizes) for item in given]
    tensor = _tensor(given)
    if tensor is None:
        raise InputError(f"the input {value.name!r} is a tensor, and a {type(given).__name__} is given")
    if tensor.dtype is not value.dtype:
        raise InputError(f"the input {value} is given as {str(tensor.dtype).removeprefix('torch.')}")
    if value.sizes is None:
        return tensor
    shape = tuple(tensor.shape)
    if len(shape) != len(value.sizes):
        raise InputError(f"the input {value} is given with {len(shape)} dimensions")
    for axis, (size, own) in enumerate(zip(value.sizes, shape, strict=True)):
        name = size or f"{value.name}:{axis}"
        expected = size if isinstance(size, int) else sizes.setdefault(str(name), own)
        if own != expected:
            what = f"{name} = {expected}" if isinstance(size, str) else str(expected)
            raise InputError(f"the input {value} is given with {own} for {what}")
    return tensor


def _tensor(given: Any) -> torch.Tensor | None:
    if isinstance(given, torch.Tensor):
        return given.detach()
    if isinstance(given, np.ndarray | np.generic):
        array = np.ascontiguousarray(given).reshape(np.shape(given))
        if array.dtype.name == "bfloat16":
            return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).reshape(array.shape)
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    return None


def examples(inputs: Sequence[Declared], ranges: Mapping[str, Range]) -> tuple[list[Any], dict[str, int]]:
    """Arguments made up, all of zeros; -> (these, sizes of symbolic dimensions).

    Sizes of dimensions with different names differ, so that none is taken for another.

    Raises:
        InputError: how many dimensions an input has is not told, or it is too large to be made up.
    """
    sizes: dict[str, int] = {}
    for count, name in enumerate(symbols(inputs)):
        wanted = ranges.get(name)
        if isinstance(wanted, int):
            sizes[name] = wanted
            continue
        low, high = wanted or (None, None)
        size = max(low or 0, 2 + count)
        sizes[name] = min(size, high) if high is not None else size
    zeros = []
    for value in inputs:
        if value.sizes is None or value.sequence:
            raise InputError(f"the shape of the input {value.name!r} is not told: give example arguments")
        shape = [
            size if isinstance(size, int) else sizes[size or f"{value.name}:{axis}"]
            for axis, size in enumerate(value.sizes)
        ]
        if math.prod(shape) * value.dtype.itemsize > LARGEST:
            raise InputError(f"the input {value} has more than {LARGEST >> 20} MiB: give example arguments")
        zeros.append(torch.zeros(shape, dtype=value.dtype))
    return zeros, sizes


def dynamic(
    inputs: Sequence[Declared], ranges: Mapping[str, Range], sizes: Mapping[str, int], fixed: frozenset[str]
) -> list[Any]:
    """For each input, as `torch.export.export` takes it: which dimensions stay open.

    Raises:
        InputError: a range is for no symbolic dimension of the model, or empty, or of one number that is not given.
    """
    known = symbols(inputs)
    if unknown := [name for name in ranges if name not in known]:
        listing = f"its symbolic dimensions are {', '.join(known)}" if known else "it has no symbolic dimensions"
        raise InputError(f"the model has no dimension {unknown[0]!r}: {listing}")
    dims: dict[str, Any] = {}
    for count, name in enumerate(known):
        wanted = ranges.get(name)
        if isinstance(wanted, int):
            if sizes.get(name, wanted) != wanted:
                raise InputError(f"the dimension {name} is fixed to {wanted}, and {sizes[name]} in the arguments")
        elif wanted is not None:
            low, high = wanted
            if low is not None and high is not None and low > high:
                raise InputError(f"the dimension {name} has no size: {low} to {high}")
            own = name if name.isidentifier() else f"dim{count}"
            dims[name] = torch.export.Dim(own, min=low, max=high)
        elif sizes.get(name, 2) > 1:  # torch takes sizes of 0 and 1 for what they are
            dims[name] = torch.export.Dim.AUTO
    shapes: list[Any] = []
    for value in inputs:
        if value.sizes is None or value.sequence or value.name in fixed:
            shapes.append(None)
            continue
        named = {
            axis: dims.get(str(n or f"{value.name}:{axis}")) for axis, n in enumerate(value.sizes) if isinstance(n, str)
        }
        shapes.append({axis: dim for axis, dim in named.items() if dim is not None} or None)
    return shapes
