"""``covan info`` of a model: what it takes and computes, and what of it is not compiled, before anything is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from covan_mlir.frontend.stablehlo.suffixes import JAX, STABLEHLO
from covan_mlir.frontend.tensorflow import kinds
from covan_mlir.tools.cli_common import CliError, Progress

if TYPE_CHECKING:
    from covan_mlir.frontend.translation.info import Info


def show(file: str, as_json: bool) -> int:
    """Print what a file of ONNX, TensorFlow or StableHLO is; -> exit status: 1 if not all of it is translated."""
    with Progress(f"reading {Path(file).name}"):
        facts = _reader(file)(file)
    print(json.dumps(asdict(facts), indent=1) if as_json else facts)
    return 1 if facts.unsupported else 0


def is_model(file: str) -> bool:
    """Whether a file is a model, and no artifact."""
    return file.endswith((".onnx", JAX, *STABLEHLO)) or kinds.of_file(file) is not None


def _reader(file: str) -> Callable[[str], Info]:
    if kinds.of_file(file) is not None:
        return _of_tensorflow
    return _of_onnx if file.endswith(".onnx") else _of_stablehlo


def _of_stablehlo(file: str) -> Info:
    from covan_mlir.frontend.stablehlo import info
    from covan_mlir.frontend.stablehlo.files import contents

    path = Path(file)
    if path.suffix != JAX:
        return info.told(file, contents(path))
    from covan_mlir.frontend.stablehlo.reading import needed

    needed("jax")
    from covan_mlir.frontend.jax.functions import deserialised

    exported = deserialised(path)
    return info.told(file, bytes(exported.mlir_module_serialized), f"jax.export of {exported.fun_name}")


def _of_onnx(file: str) -> Info:
    try:
        from covan_mlir.frontend.onnx.info import told
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise CliError("ONNX models need the package onnx", "pip install 'covan-mlir[onnx]'") from error
    return told(file)


def _of_tensorflow(file: str) -> Info:
    if not kinds.installed():
        what, _, hint = kinds.NEEDED.partition(": ")
        raise CliError(what, hint)
    from covan_mlir.frontend.tensorflow.export import told

    return told(file)
