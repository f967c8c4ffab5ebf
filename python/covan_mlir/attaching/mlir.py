"""Operators of torch that stand for functions in MLIR until the compiler's process puts their bodies in place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch_mlir import ir

from covan_mlir.attaching.attachment import MlirFunction, plain_name
from covan_mlir.errors import InputError
from covan_mlir.frontend.actions import type_strings
from covan_mlir.lowering.inlined import BARRIER, NAMESPACE, main_function

_library: Any = getattr(torch.library, "Library")(NAMESPACE, "DEF")  # noqa: B009  # it has no types
_made: dict[str, MlirFunction] = {}
"""What the operators that were made stand for, by name; one per function, for the life of the process."""
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


def functions(graph: torch.fx.Graph) -> tuple[tuple[str, str, str], ...]:
    """The functions in MLIR that a graph calls: names of their operators, texts, and names in these."""
    names = (str(node.target).removesuffix(".default") for node in graph.nodes if node.op == "call_function")
    found = {name: _made[name] for name in names if name in _made}
    return tuple((name, it.text, it.name) for name, it in found.items())


def has_own(graph: torch.fx.Graph) -> bool:
    """Whether a graph calls operators that only covan knows."""
    return any(str(node.target).startswith(f"{NAMESPACE}.") for node in graph.nodes if node.op == "call_function")


@lru_cache(1)
def barrier() -> Any:
    """``covan.barrier``: gives back its tensor; what is computed from it is not merged with what is computed from the
    tensor itself."""
    _library.define(f"{BARRIER.rpartition('.')[2]}(Tensor x) -> Tensor")
    _library.impl(BARRIER.rpartition(".")[2], torch.clone, "CompositeExplicitAutograd")
    return torch.ops.covan.barrier.default


def operator(it: MlirFunction, value: torch.Tensor, attachment: str) -> Any:
    """The operator of a function on a tensor.

    Raises:
        InputError: the text is no MLIR, has no such function, or the function does not take this tensor.
    """
    context = ir.Context()
    context.emit_error_diagnostics = True
    with context:
        try:
            module = ir.Module.parse(it.text)
        except ir.MLIRError as error:
            said = error.error_diagnostics[0].message if error.error_diagnostics else str(error)
            raise InputError(f"attach: the text of {attachment!r} is no valid MLIR: {said}") from None
        try:
            function = main_function(module, it.name)
        except ValueError as error:
            raise InputError(f"attach: {attachment!r}: {error}") from None
        kind = function.type
        results = [_type(result, attachment) for result in kind.results]
        if len(kind.inputs) != 1 or not _fits(kind.inputs[0], value):
            takes = ", ".join(map(str, kind.inputs)) or "nothing"
            raise InputError(f"attach: the function of {attachment!r} takes {takes}, not {type_strings(value)[0]}")
        if not results:
            raise InputError(f"attach: the function of {attachment!r} gives nothing")
        for shape, _ in results:
            if any(size is None and axis >= value.dim() for axis, size in enumerate(shape)):
                raise InputError(f"attach: the size of a result of {attachment!r} is open, and no argument has it")
        name = function.name.value
    name = f"{plain_name(name)}_{hashlib.sha256(repr(it).encode()).hexdigest()[:12]}"
    full = f"{NAMESPACE}.{name}"
    if full not in _made:
        _made[full] = it
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
        made = [
            x.new_empty([x.shape[axis] if size is None else size for axis, size in enumerate(shape)], dtype=dtype)
            for shape, dtype in results
        ]
        return made[0] if len(made) == 1 else tuple(made)

    torch.library.register_fake(f"{NAMESPACE}::{name}", shaped, lib=_library)
    _library.impl(name, _alone(name), "CPU")


def _alone(name: str) -> Callable[[torch.Tensor], Any]:
    """The operator in eager PyTorch: the function compiled by itself, on the CPU."""

    @lru_cache(16)
    def compiled(shape: tuple[int, ...], dtype: torch.dtype) -> Any:
        from covan_mlir.compile import compile_module
        from covan_mlir.options import CompileOptions

        def call(x: torch.Tensor) -> Any:
            return getattr(getattr(torch.ops, NAMESPACE), name)(x)

        options = CompileOptions(device="local-sync", fuse_reductions=False)
        return compile_module(call, (torch.zeros(shape, dtype=dtype),), options=options, provenance=False)

    return lambda x: compiled(tuple(x.shape), x.dtype)(x.contiguous())
