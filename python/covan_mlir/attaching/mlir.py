"""Operators of torch that stand for functions in MLIR until the compiler's process puts their bodies in place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch_mlir import ir

from covan_mlir.artifacts.attachment import MlirFunction, plain_name
from covan_mlir.compilation.captured import EXPORT_LOCK, compile_captured
from covan_mlir.compilation.mlir_functions import stands_for
from covan_mlir.compilation.options import CompileOptions
from covan_mlir.errors import InputError
from covan_mlir.frontend.actions import type_strings
from covan_mlir.frontend.capture import capture
from covan_mlir.lowering import targets
from covan_mlir.lowering.inlined import BARRIER, NAMESPACE, main_function
from covan_mlir.runtime.compiled import CompiledModel
from covan_mlir.support.collector import uncollected

_torch_library: Any = torch.library  # it has no types
_library = _torch_library.Library(NAMESPACE, "DEF")
_DTYPES: Mapping[str, torch.dtype] = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "i1": torch.bool,
}


@lru_cache(1)
def barrier() -> Any:
    """``covan.barrier``: gives back its tensor; what is computed from it is not merged with what is computed from the
    tensor itself."""
    _library.define(f"{BARRIER.rpartition('.')[2]}(Tensor x) -> Tensor")
    _library.impl(BARRIER.rpartition(".")[2], torch.clone, "CompositeExplicitAutograd")
    return torch.ops.covan.barrier.default


def operator(function: MlirFunction, value: torch.Tensor, attachment: str) -> Any:
    """The operator of a function on a tensor.

    Raises:
        InputError: the text is no MLIR, has no such function, or the function does not take this tensor.
    """
    context = ir.Context()
    context.emit_error_diagnostics = True
    with context:
        try:
            module = ir.Module.parse(function.text)
        except ir.MLIRError as error:
            said = error.error_diagnostics[0].message if error.error_diagnostics else str(error)
            raise InputError(f"attach: the text of {attachment!r} is no valid MLIR: {said}") from None
        try:
            body = main_function(module, function.name)
        except ValueError as error:
            raise InputError(f"attach: {attachment!r}: {error}") from None
        kind = body.type
        results = [_type(result, attachment) for result in kind.results]
        if len(kind.inputs) != 1 or not _fits(kind.inputs[0], value):
            takes = ", ".join(map(str, kind.inputs)) or "nothing"
            raise InputError(f"attach: the function of {attachment!r} takes {takes}, not {type_strings(value)[0]}")
        if not results:
            raise InputError(f"attach: the function of {attachment!r} gives nothing")
        for shape, _ in results:
            if any(size is None and axis >= value.dim() for axis, size in enumerate(shape)):
                raise InputError(f"attach: the size of a result of {attachment!r} is open, and no argument has it")
        name = body.name.value
    name = f"{plain_name(name)}_{hashlib.sha256(repr(function).encode()).hexdigest()[:12]}"
    full = f"{NAMESPACE}.{name}"
    if stands_for(full, function):
        _define(name, results)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def _type(kind: Any, attachment: str) -> tuple[list[int | None], torch.dtype]:
    if not isinstance(kind, ir.RankedTensorType) or str(kind.element_type) not in _DTYPES:
        raise InputError(f"attach: the function of {attachment!r} gives {kind}: a result is a tensor of a known rank")
    tensor = kind
    sizes = [None if tensor.is_dynamic_dim(i) else tensor.get_dim_size(i) for i in range(tensor.rank)]
    return sizes, _DTYPES[str(tensor.element_type)]


def _fits(kind: Any, value: torch.Tensor) -> bool:
    if not isinstance(kind, ir.RankedTensorType):
        return False
    tensor = kind
    if tensor.rank != value.dim() or _DTYPES.get(str(tensor.element_type)) is not value.dtype:
        return False
    return all(
        tensor.is_dynamic_dim(axis) or (isinstance(size, int) and tensor.get_dim_size(axis) == size)
        for axis, size in enumerate(value.shape)
    )


def _define(name: str, results: list[tuple[list[int | None], torch.dtype]]) -> None:
    gives = "Tensor" if len(results) == 1 else f"({', '.join(['Tensor'] * len(results))})"
    _library.define(f"{name}(Tensor x) -> {gives}")

    def shaped(x: torch.Tensor) -> Any:
        given = [
            x.new_empty([x.shape[axis] if size is None else size for axis, size in enumerate(shape)], dtype=dtype)
            for shape, dtype in results
        ]
        return given[0] if len(given) == 1 else tuple(given)

    torch.library.register_fake(f"{NAMESPACE}::{name}", shaped, lib=_library)
    _library.impl(name, _standalone(name), "CPU")


def _standalone(name: str) -> Callable[[torch.Tensor], Any]:
    """The operator in eager PyTorch: the function compiled by itself, on the CPU."""

    @lru_cache(16)
    def compiled(shape: tuple[int, ...], dtype: torch.dtype) -> CompiledModel:
        def call(x: torch.Tensor) -> Any:
            return getattr(getattr(torch.ops, NAMESPACE), name)(x)

        options = CompileOptions(device="local-sync", fuse_reductions=False)
        goals = targets.parse_all("cpu")
        with EXPORT_LOCK, uncollected():
            captured = capture(call, (torch.zeros(shape, dtype=dtype),), None, None)
        return CompiledModel(compile_captured(captured, goals, options, provenance=False))

    return lambda x: compiled(tuple(x.shape), x.dtype)(x.contiguous())
