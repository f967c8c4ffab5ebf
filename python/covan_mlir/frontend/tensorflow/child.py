"""A process that reads a file of TensorFlow's: ``python -m covan_mlir.frontend.tensorflow.child FOLDER``.

The folder has a `Question`, and gets an `Answer`; models and tensors are files beside them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Before TensorFlow is imported: it says little, leaves GPUs to others, and Keras runs on it.
os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1", "KERAS_BACKEND": "tensorflow"}

import msgspec

from covan_mlir.errors import CovanError
from covan_mlir.frontend.tensorflow.arrays import read_array, write_array
from covan_mlir.frontend.tensorflow.kinds import TFLITE
from covan_mlir.frontend.tensorflow.messages import Answer, Question


def main(folder: Path) -> None:
    """Answer the question in a folder."""
    question = msgspec.json.decode((folder / "question.json").read_bytes(), type=Question)
    try:
        answer = _results(question, folder) if question.arguments is not None else _converted(question, folder)
    except CovanError as error:
        answer = Answer(error=" ".join(str(error).split()))
    (folder / "answer.json").write_bytes(msgspec.json.encode(answer))


def _converted(question: Question, folder: Path) -> Answer:
    from covan_mlir.frontend.tensorflow import convert, files

    if question.kind == TFLITE:
        model, converted = convert.converted_tflite(question.path)
    else:
        model, converted = convert.converted(files.function(question.path, question.kind), question.path)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    return Answer(converted=converted)


def _results(question: Question, folder: Path) -> Answer:
    from covan_mlir.frontend.tensorflow import files

    given = [read_array(folder / f"argument{i}", array) for i, array in enumerate(question.arguments or ())]
    if question.kind == TFLITE:
        results = files.tflite_results(files.interpreter(question.path), given)
    else:
        results = [value for value in files.function(question.path, question.kind)(given) if value is not None]
    return Answer(results=tuple(write_array(folder / f"result{i}", value) for i, value in enumerate(results)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
