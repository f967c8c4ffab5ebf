"""Which frontend takes a model: of all of them the middle is given one thing, a `Capture`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from covan_mlir.errors import ExportError
from covan_mlir.frontend import capture as torch_models
from covan_mlir.frontend.capture import Capture
from covan_mlir.frontend.stablehlo.reading import needed
from covan_mlir.frontend.stablehlo.suffixes import JAX, STABLEHLO
from covan_mlir.frontend.tensorflow import kinds as tensorflow

if TYPE_CHECKING:
    import onnx

Model: TypeAlias = "torch_models.Model | onnx.ModelProto"


def capture(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
) -> Capture:
    """A model of any framework as an exported program.

    Raises:
        ExportError: it cannot be read, translated or exported.
        InputError: the arguments do not fit it.
    """
    if is_onnx(model):
        try:
            from covan_mlir.frontend.onnx import export
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("onnx", "google"):
                raise
            raise ExportError("ONNX models need the package onnx: pip install 'covan-mlir[onnx]'") from error
        return export.capture(model, args, kwargs, dynamic_shapes)
    if is_stablehlo(model):
        from covan_mlir.frontend.stablehlo import files

        return files.capture(Path(model), args, kwargs, dynamic_shapes)
    if tensorflow.is_tensorflow(model):
        if not tensorflow.installed():
            raise ExportError(tensorflow.NEEDED)
        from covan_mlir.frontend.tensorflow import export as tensorflow_models

        return tensorflow_models.capture(model, args, kwargs, dynamic_shapes)
    if is_jax(model, args, kwargs):
        needed("jax")
        from covan_mlir.frontend.jax import functions

        return functions.capture(model, args, kwargs, dynamic_shapes)
    return torch_models.capture(model, args, kwargs, dynamic_shapes)


def is_stablehlo(model: Any) -> bool:
    """Whether a model is a file with a StableHLO module, by its name."""
    return isinstance(model, str | os.PathLike) and Path(model).suffix in STABLEHLO


def is_jax(model: Any, args: Any, kwargs: Mapping[str, Any] | None) -> bool:
    """Whether a model is a jitted function of JAX's, what JAX exported, or a function given JAX's arrays."""
    if isinstance(model, str | os.PathLike):
        return Path(model).suffix == JAX
    if _of_jax(type(model)):
        return True
    jax = sys.modules.get("jax")
    if jax is None or isinstance(model, torch.nn.Module) or not callable(model):
        return False
    return any(_of_jax(type(leaf)) for leaf in jax.tree_util.tree_leaves((args, dict(kwargs or {}))))


def _of_jax(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("jax", "jaxlib")


def is_onnx(model: Any) -> bool:
    """Whether a model is an ONNX file, by its name, or one in memory."""
    if isinstance(model, str | os.PathLike):
        return Path(model).suffix == ".onnx"
    return type(model).__name__ == "ModelProto" and type(model).__module__.startswith("onnx")
