"""Which models are TensorFlow's: told by names alone, for importing TensorFlow takes ten seconds."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

SAVED_MODEL = "SavedModel"
KERAS = "Keras"
TFLITE = "TFLite"

NEEDED = "models of TensorFlow need the packages tensorflow, tf2onnx and onnx: pip install 'covan-mlir[tensorflow]'"


def of_file(path: str | os.PathLike[str]) -> str | None:
    """`SAVED_MODEL`, `KERAS` or `TFLITE`: what a path stands for; None: none of them.

    Suffixes tell, whether there is such a file or not; a folder is a SavedModel if it holds one.
    """
    path = Path(path)
    if path.suffix == ".tflite":
        return TFLITE
    if path.suffix in (".keras", ".h5"):
        return KERAS
    return SAVED_MODEL if any(os.path.exists(path / name) for name in ("saved_model.pb", "saved_model.pbtxt")) else None


def is_tensorflow(model: Any) -> bool:
    """Whether a model is a file of TensorFlow's, or an object of TensorFlow's or of Keras.

    A Keras model that runs on PyTorch is a module of torch, and no model of TensorFlow's.
    """
    if isinstance(model, str | os.PathLike):
        return of_file(model) is not None
    roots = {kind.__module__.partition(".")[0] for kind in type(model).__mro__}
    return bool(roots & {"tensorflow", "keras"}) and "torch" not in roots


def installed() -> bool:
    """Whether what converts these models is there."""
    return all(name in sys.modules or importlib.util.find_spec(name) for name in ("onnx", "tensorflow", "tf2onnx"))
