"""What an ONNX file is, before anything is compiled."""

from __future__ import annotations

import os

import onnx

from covan_mlir.errors import ExportError
from covan_mlir.frontend.onnx.inputs import declared, symbols
from covan_mlir.frontend.onnx.reading import Loaded, read
from covan_mlir.frontend.onnx.registry import canonical
from covan_mlir.frontend.onnx.unsupported import Unsupported, counts, unsupported
from covan_mlir.frontend.translation.info import Info, Missing, OperatorCount


def told(file: str | os.PathLike[str]) -> Info:
    """Read a file and tell what it is.

    Raises:
        ExportError: there is no such file, or it is damaged.
    """
    loaded = read(file)
    return facts(loaded, unsupported(loaded))


def facts(loaded: Loaded, rows: list[Unsupported]) -> Info:
    """What a model is that was read.

    Args:
        rows: of its nodes those without a translation.
    """
    missing = [Missing(row.op, row.why, row.nodes) for row in rows]
    inputs, named = [], []
    for value in loaded.inputs:
        try:
            known = declared(value)
        except ExportError as error:
            missing.append(Missing("", str(error), (value.name,)))
            inputs.append(value.name)
        else:
            inputs.append(str(known))
            named.append(known)
    model = loaded.model
    return Info(
        file=loaded.path,
        producer=" ".join(filter(None, (model.producer_name, model.producer_version))),
        opsets=tuple(f"{canonical(o.domain) or 'ai.onnx'} {o.version}" for o in model.opset_import),
        inputs=tuple(inputs),
        outputs=tuple(_output(value) for value in model.graph.output),
        dimensions=tuple(symbols(named)),
        weights=len(loaded.weights),
        weight_bytes=sum(t.numel() * t.element_size() for t in loaded.weights.values()),
        operators=tuple(OperatorCount(op, count) for op, count in counts(loaded).most_common()),
        unsupported=tuple(missing),
    )


def _output(value: onnx.ValueInfoProto) -> str:
    try:
        return str(declared(value))
    except ExportError:
        return value.name
