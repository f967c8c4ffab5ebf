"""Files of TensorFlow's, read in a process of its own: what crashes there is one line here."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
from google.protobuf.message import DecodeError

from covan_mlir.errors import ExportError
from covan_mlir.frontend.tensorflow.arrays import read_array, write_array
from covan_mlir.frontend.tensorflow.messages import Answer, Converted, Question
from covan_mlir.support.processes import leash
from covan_mlir.support.processes.child import ending, lacking

_CHILD = "covan_mlir.frontend.tensorflow.child"


def converted(path: str, kind: str) -> tuple[onnx.ModelProto, Converted]:
    """A file as an ONNX model.

    Raises:
        ExportError: there is no such file, it is damaged, or is not converted; TensorFlow crashes on it.
    """
    if not os.path.exists(path):
        raise ExportError(f"{path}: no such file")
    with tempfile.TemporaryDirectory(prefix="covan-tensorflow-") as name:
        answer = _asked(Question(os.path.abspath(path), kind), Path(name), path)
        assert answer.converted is not None
        model = onnx.ModelProto()
        try:
            model.ParseFromString((Path(name) / "model.onnx").read_bytes())
        except (DecodeError, OSError) as error:
            raise ExportError(f"{path}: what it was converted to cannot be read: {error}") from error
        return model, answer.converted


def results(path: str, kind: str, values: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """What TensorFlow, or TFLite's interpreter, gives for arguments in the order of the model's inputs.

    Raises:
        ExportError: it gives nothing.
    """
    with tempfile.TemporaryDirectory(prefix="covan-tensorflow-") as name:
        folder = Path(name)
        given = tuple(write_array(folder / f"argument{i}", value) for i, value in enumerate(values))
        answer = _asked(Question(os.path.abspath(path), kind, given), folder, path)
        return [read_array(folder / f"result{i}", array) for i, array in enumerate(answer.results)]


def _asked(question: Question, folder: Path, path: str) -> Answer:
    (folder / "question.json").write_bytes(msgspec.json.encode(question))
    try:
        process: subprocess.CompletedProcess[str] = leash.run(
            [sys.executable, "-m", _CHILD, str(folder)], timeout=None, session=True
        )
    except OSError as error:
        raise ExportError(f"{path}: no process can be started that reads it: {lacking(error)}") from error
    try:
        answer = msgspec.json.decode((folder / "answer.json").read_bytes(), type=Answer)
    except (OSError, msgspec.DecodeError):
        said = next((line.strip() for line in reversed(process.stderr.splitlines()) if line.strip()), "")
        raise ExportError(
            f"{path}: TensorFlow {ending(process.returncode)} while it read the model{f': {said}' if said else ''}"
        ) from None
    if answer.error:
        raise ExportError(answer.error)
    return answer
