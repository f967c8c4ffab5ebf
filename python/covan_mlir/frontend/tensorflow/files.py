"""Files of TensorFlow's, and what it computes of them. Reading them may crash: it is done in a process of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from covan_mlir.errors import CovanError, ExportError
from covan_mlir.frontend.tensorflow.functions import Function, of_keras, of_signatures
from covan_mlir.frontend.tensorflow.kinds import KERAS


def function(path: str, kind: str) -> Function:
    """The function of a SavedModel or a Keras file.

    Raises:
        ExportError: it is damaged, has no signature, or several.
    """
    try:
        # In Keras's safe mode: a file's own Python is not run.
        model = keras.saving.load_model(path, compile=False) if kind == KERAS else tf.saved_model.load(path)
    except CovanError:
        raise
    except Exception as error:  # each reader of theirs raises what it likes
        raise ExportError(f"{path} is no {kind} model that TensorFlow can read: {one_line(error)}") from error
    return of_keras(model) if kind == KERAS else of_signatures(model, path)


def interpreter(path: str) -> Any:
    """TFLite's interpreter with a model.

    Raises:
        ExportError: the file is damaged.
    """
    try:
        return tf.lite.Interpreter(model_path=path)
    except Exception as error:  # ValueError or RuntimeError, by what is wrong
        raise ExportError(f"{path} is no TFLite model that TensorFlow can read: {one_line(error)}") from error


def input_names(interpreter: Any) -> dict[str, str]:
    """Names of a TFLite model's input tensors, as its only signature has them, by what the file calls the tensors."""
    signatures = interpreter.get_signature_list()
    if len(signatures) != 1:
        return {}
    details = interpreter.get_signature_runner(next(iter(signatures))).get_input_details()
    return {value["name"]: name for name, value in details.items()}


def tflite_results(interpreter: Any, values: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """What TFLite gives for arguments in the order of the model's inputs."""
    details = interpreter.get_input_details()
    for detail, value in zip(details, values, strict=True):
        interpreter.resize_tensor_input(detail["index"], value.shape)
    interpreter.allocate_tensors()
    for detail, value in zip(details, values, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def one_line(error: BaseException) -> str:
    """What an exception says, in one line that is not too long."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 400 else f"{text[:400]} ..."
