"""``covan info FILE.onnx``: what a model takes and computes, and what of it is not compiled, before anything is."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from covan_mlir.tools.cli_common import CliError, Progress


def show(file: str, as_json: bool) -> int:
    """Print what an ONNX file is; -> exit status: 1 if not all of it is translated."""
    with Progress(f"reading {Path(file).name}"):
        try:
            from covan_mlir.frontend.onnx.info import told
        except ModuleNotFoundError as error:
            if error.name != "onnx":
                raise
            raise CliError("ONNX models need the package onnx", "pip install 'covan-mlir[onnx]'") from error
        facts = told(file)
    print(json.dumps(asdict(facts), indent=1) if as_json else facts)
    return 1 if facts.unsupported else 0
