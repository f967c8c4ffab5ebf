"""Constants become parameters, named by what they hold: programs that read the same ones share them."""

from __future__ import annotations

import hashlib
from math import prod
from typing import Any

from covan_mlir.artifacts.signature import PARAMETER_SCOPE
from covan_mlir.lowering.kernels import resources
from covan_mlir.lowering.pipeline import PipelineState
from covan_mlir.lowering.result import SharedConstant

LEAST = 4096
"""Bytes of a constant that is worth a parameter of its own."""
ALIGNMENT = 64
_DTYPES = {
    "f64": ("float64", 8),
    "f32": ("float32", 4),
    "f16": ("float16", 2),
    "bf16": ("bfloat16", 2),
    "i64": ("int64", 8),
    "i32": ("int32", 4),
    "i16": ("int16", 2),
    "i8": ("int8", 1),
}
"""Elements that take whole bytes; those of the others are not stored as they lie in memory."""


def share(state: PipelineState) -> None:
    """Makes a parameter of each large constant.

    Before::

        util.global private @__constant_tensor_43x512x48xf32 = dense_resource<prepared_e3b6.0> : tensor<43x512x48xf32>

    After::

        util.global private @__constant_tensor_43x512x48xf32
            = #flow.parameter.named<"covan"::"constant.5b1c..."> : tensor<43x512x48xf32>
    """
    import iree.compiler.ir as ir

    with state.module.context:
        for view in state.module.body.operations:
            op = view.operation
            if op.name != "util.global" or "initial_value" not in op.attributes:
                continue
            value = op.attributes["initial_value"]
            held = _held(value)
            if held is None:
                continue
            dtype, data = held
            digest = hashlib.sha256(f"{value.type} ".encode() + data).hexdigest()[:32]
            name = f"constant.{digest}"
            state.constants[name] = (dtype, tuple(ir.RankedTensorType(value.type).shape), data)
            op.attributes["initial_value"] = ir.Attribute.parse(
                f'#flow.parameter.named<"{PARAMETER_SCOPE}"::"{name}"> : {value.type}'
            )


def _held(value: Any) -> tuple[str, bytes] | None:
    """dtype and bytes of a constant that is to be shared."""
    import iree.compiler.ir as ir

    kind = getattr(value, "type", None)
    if kind is None or not str(kind).startswith("tensor<"):
        return None
    kind = ir.RankedTensorType(kind)
    dtype, size = _DTYPES.get(str(kind.element_type), ("", 0))
    if not kind.has_static_shape or prod(kind.shape) * size < LEAST:
        return None
    try:  # the bindings do not say by its class that an attribute is a resource
        return dtype, resources.data(ir.DenseResourceElementsAttr(value), prod(kind.shape) * size)
    except ValueError:
        return None


def appended(state: PipelineState) -> tuple[bytes, tuple[SharedConstant, ...]]:
    """The program with the bytes of its shared constants behind it, and where they are."""
    if not state.constants:
        return state.output, ()
    out, listed = bytearray(state.output), []
    for name, (dtype, shape, data) in sorted(state.constants.items()):
        out += bytes(-len(out) % ALIGNMENT)
        listed.append(SharedConstant(name, dtype, shape, len(out), len(data)))
        out += data
    return bytes(out), tuple(listed)
