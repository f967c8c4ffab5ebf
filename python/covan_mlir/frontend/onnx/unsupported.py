"""What of a model is not translated: all of it at once, before anything is compiled."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from covan_mlir.errors import ExportError
from covan_mlir.frontend.onnx import operators as _declared
from covan_mlir.frontend.onnx.bodies import has_body
from covan_mlir.frontend.onnx.nodes import numbered
from covan_mlir.frontend.onnx.reading import Loaded
from covan_mlir.frontend.onnx.registry import canonical, lookup, operators

assert _declared  # importing declares what is translated
_SHOWN = 8
_TRAINING = ("ai.onnx.training", "ai.onnx.preview.training")


@dataclass(frozen=True)
class Unsupported:
    """Nodes of one operator that has no translation.

    Attributes:
        nodes: their names, or what they give.
    """

    op: str
    why: str
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        more = f" and {len(self.nodes) - _SHOWN} more" if len(self.nodes) > _SHOWN else ""
        times = f"{len(self.nodes)} × " if len(self.nodes) > 1 else ""
        return f"{times}{self.op}: {self.why} ({', '.join(self.nodes[:_SHOWN])}{more})"


def unsupported(loaded: Loaded) -> list[Unsupported]:
    """By operator, those that come most often first."""
    opsets = {canonical(opset.domain): opset.version for opset in loaded.model.opset_import}
    functions = {(canonical(f.domain), f.name) for f in loaded.model.functions}
    named: dict[tuple[str, str], list[str]] = {}
    for node in numbered(loaded.model)[1]:
        domain = canonical(node.domain)
        if (domain, node.op_type) in functions:
            continue
        why = _why(domain, node.op_type, opsets)
        if why:
            op = f"{domain}.{node.op_type}" if domain else node.op_type
            name = node.name or next((output for output in node.output if output), "?")
            named.setdefault((op, why), []).append(name)
    rows = [Unsupported(op, why, tuple(names)) for (op, why), names in named.items()]
    return sorted(rows, key=lambda row: (-len(row.nodes), row.op))


def _why(domain: str, name: str, opsets: dict[str, int]) -> str:
    """Why an operator is not translated; empty: it is."""
    if domain in _TRAINING:
        return "it is for training"
    if domain not in opsets:
        return f"the file imports no opset of {domain or 'ONNX'}"
    opset = opsets[domain]
    if lookup(domain, name, opset) is not None or has_body(domain, name, opset):
        return ""
    others = [known.opsets for known in operators() if (known.domain, known.name) == (domain, name)]
    if others:
        return f"opset {opset} has it otherwise than opsets {', '.join(others)}, which are translated"
    return _REASONS.get(name, "there is no translation of it")


_DRAWS = "it draws random numbers"
_STRINGS = "programs have no strings"
_REASONS = {
    **dict.fromkeys(("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial"), _DRAWS),
    **dict.fromkeys(("StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch"), _STRINGS),
    "ImageDecoder": "it reads files of images",
}


def check_supported(loaded: Loaded, rows: list[Unsupported] | None = None) -> None:
    """Raises ExportError for nodes without a translation: one line that names all. ``rows``: these, if known."""
    rows = unsupported(loaded) if rows is None else rows
    if rows:
        count = sum(len(row.nodes) for row in rows)
        nodes = "node has" if count == 1 else "nodes have"
        raise ExportError(f"{loaded.path or 'the model'}: {count} {nodes} no translation: {'; '.join(map(str, rows))}")


def counts(loaded: Loaded) -> Counter[str]:
    """How often each operator comes."""
    return Counter(
        f"{canonical(node.domain)}.{node.op_type}" if canonical(node.domain) else node.op_type
        for node in numbered(loaded.model)[1]
    )
