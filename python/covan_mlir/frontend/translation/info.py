"""What a file of another framework is, before anything is compiled."""

from __future__ import annotations

from dataclasses import dataclass


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
        opsets: what it is written in: ``ai.onnx 17``, ``com.microsoft 1``; ``StableHLO``.
        inputs, outputs: names, element types and shapes.
        dimensions: names of symbolic ones: those of ``--dynamic``.
        weights, weight_bytes: how many weights, and how large they are together.
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
