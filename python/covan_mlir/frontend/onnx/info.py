"""What an ONNX file is, before anything is compiled."""

from __future__ import annotations

import os
from dataclasses import dataclass

import onnx

from covan_mlir.errors import ExportError
from covan_mlir.frontend.onnx.inputs import declared, symbols
from covan_mlir.frontend.onnx.reading import Loaded, read
from covan_mlir.frontend.onnx.registry import canonical
from covan_mlir.frontend.onnx.unsupported import Unsupported, counts, unsupported


@dataclass(frozen=True)
class OperatorCount:
    """How often an operator comes."""

    op: str
    count: int


@dataclass(frozen=True)
class Missing:
    """Nodes that are not translated, and why; ``op`` is empty for an input."""

    op: str
    why: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Info:
    """A file.

    Attributes:
        producer: what wrote it.
        opsets: ``ai.onnx 17``, ``com.microsoft 1``.
        inputs, outputs: names, element types and shapes.
        dimensions: names of symbolic ones: those of ``--dynamic``.
        weights, weight_bytes: how many initializers, and how large they are together.
        operators: those that come most often first.
    """

    file: str
    producer: str
    opsets: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dimensions: tuple[str, ...]
    weights: int
    weight_bytes: int
    operators: tuple[OperatorCount, ...]
    unsupported: tuple[Missing, ...]

    def __str__(self) -> str:
        nodes = sum(row.count for row in self.operators)
        lines = [
            f"{self.file}: {', '.join(self.opsets)}{f', by {self.producer}' if self.producer else ''}",
            f"{nodes} nodes, {self.weights} weights of {self.weight_bytes} bytes",
            *(f"  takes {text}" for text in self.inputs),
            *(f"  gives {text}" for text in self.outputs),
        ]
        if self.dimensions:
            lines.append(f"  open dimensions: {', '.join(self.dimensions)}")
        lines += [f"  {row.count:6} {row.op}" for row in self.operators]
        for row in self.unsupported:
            lines.append(f"  not compiled: {len(row.nodes)} × {row.op}: {row.why} ({', '.join(row.nodes[:8])})")
        return "\n".join([*lines, "all of it is translated" if not self.unsupported else "not all of it is translated"])


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
