"""Where the nodes of a converted model come from: scopes as module paths, lines of the user's Python."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from covan_mlir.frontend.onnx.properties import LINES, MODULE

_COUNTED = re.compile(r"(__\d+)+$")
"""What tf2onnx appends to the name of the node that it makes another one for."""
_INLINED = re.compile(r"^(?:[^/]*_frozen_\d+_|(?:cond|body)_{2,3})")
"""What it puts before names in bodies of loops."""
_CALL = re.compile(r"(Stateful)?PartitionedCall(_\d+)?")
"""How a call of a function is named; what it calls is inlined below that name."""
_OWN = os.path.join(str(Path(__file__).parent), "")
_GENERATED = "__autograph_generated_file"
_STDLIB = os.path.join(sysconfig.get_path("stdlib"), "")
_SITE = os.path.join(sysconfig.get_path("purelib"), "")  # below the standard library's folder


@dataclass(frozen=True)
class Before:
    """A node as it was before tf2onnx moved and merged nodes."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def mark(
    model: onnx.ModelProto,
    before: Sequence[Before],
    layers: Iterable[str] = (),
    lines: Mapping[str, str] | None = None,
) -> None:
    """Name the nodes of a model, and write into them which module they are in and which lines they come from.

    Args:
        before: the nodes as they were converted.
        layers: names of Keras layers; scopes that are these with a number behind are called by them.
        lines: by name of a node of TensorFlow's, as `stacks` gives them.
    """
    known = frozenset(layers)
    last: dict[str, str] = {}
    count: Counter[str] = Counter()
    merged = _Merged(model.graph, before)
    for node in _nodes(model.graph):
        origin = _origin(node) or merged.origin(node)
        if origin != node.name:  # it counts what was named before in this process: here from one
            plain = origin or _plain(node.name)
            count[plain] += 1
            node.name = f"{plain}__{count[plain]}"
        names = origin.split(";")
        paths = [_path(name, known) for name in names]
        # Names that TFLite fused: the first is that of the result, the last that of what is computed first.
        module = paths[-1] or next((last[value] for value in node.input if last.get(value)), "")
        for value in node.output:
            last[value] = paths[0] or module
        stack = next((lines[name] for name in names if name in lines), "") if lines else ""
        for key, value in ((MODULE, module), (LINES, stack)):
            if value:
                node.metadata_props.add(key=key, value=value)


def _plain(name: str) -> str:
    return _INLINED.sub("", _COUNTED.sub("", name))


def _origin(node: onnx.NodeProto) -> str:
    """The name of TensorFlow's node that a node stands for; empty if tf2onnx named it by its operator alone."""
    called = [_plain(text) for text in (node.name, *(value.partition(":")[0] for value in node.output))]
    scoped = next((name for name in called if "/" in name), "")
    return scoped or ("" if called[0] == node.op_type and called[0] != node.name else called[0])


class _Merged:
    """Where nodes come from that stand for several that are no more.

    tf2onnx moves transpositions through a convolution and takes an addition behind it in: the new node has no name. It
    stands for the first node of its operator that went, behind what it reads.
    """

    def __init__(self, graph: onnx.GraphProto, before: Sequence[Before]) -> None:
        left = {node.name for node in graph.node}
        self._writer = {value: node for node in graph.node for value in node.output}
        self._before = {node.name: node for node in before}
        self._readers: dict[str, list[Before]] = {}
        for node in before:
            if node.name not in left:
                for value in node.inputs:
                    self._readers.setdefault(value, []).append(node)

    def origin(self, node: onnx.NodeProto) -> str:
        """The name of TensorFlow's node, or an empty string."""
        value = node.input[0] if node.input else ""
        while (writer := self._writer.get(value)) is not None and writer.name not in self._before:
            value = writer.input[0] if writer.input else ""
        pending = [value] if writer is None else list(self._before[writer.name].outputs)
        visited = set()
        while pending:
            value = pending.pop(0)
            for reader in self._readers.get(value, ()):
                if reader.name in visited:
                    continue
                visited.add(reader.name)
                if reader.op == node.op_type:
                    return _plain(reader.name)
                pending.extend(reader.outputs)
        return ""


def _nodes(graph: onnx.GraphProto) -> Iterable[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _path(name: str, layers: frozenset[str]) -> str:
    parts = [part for part in name.split("/")[:-1] if part and not _CALL.fullmatch(part)]
    return ".".join(_layer(part, layers).replace(".", "_") for part in parts)


def _layer(scope: str, layers: frozenset[str]) -> str:
    """A layer that is called in a graph has a scope with a number behind its name."""
    plain = re.sub(r"_\d+$", "", scope)
    return plain if scope not in layers and plain in layers else scope


def stacks(graph: Any) -> dict[str, str]:
    """Lines of the user's Python behind the operations of a `tf.Graph`, by their names when functions are inlined."""
    internal = _internal()
    lines: dict[str, str] = {}
    pending: list[tuple[Any, str]] = [(graph, "")]
    visited = set()
    while pending:
        graph, prefix = pending.pop()
        if (id(graph), prefix) in visited:
            continue
        visited.add((id(graph), prefix))
        functions = getattr(graph, "_functions", {})
        for operation in graph.get_operations():
            name = prefix + operation.name
            stack = _stack(operation.traceback, internal)
            if stack:
                lines.setdefault(name, stack)
            for attribute in operation.node_def.attr.values():
                inner = getattr(functions.get(attribute.func.name), "graph", None) if attribute.func.name else None
                if inner is not None:  # bodies of branches and loops have whole names
                    called = "PartitionedCall" in operation.type
                    pending.append((inner, f"{name}/" if called else prefix))
    return lines


def _internal() -> tuple[str, ...]:
    """Folders whose code is nobody's model."""
    folders = [_OWN, *(os.path.join(_SITE, name, "") for name in ("absl", "wrapt", "tf_keras"))]
    for name in ("tensorflow", "keras", "tf2onnx"):
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            # Keras is reached from TensorFlow's folder, and lies in its own.
            folders.append(os.path.join(os.path.dirname(os.path.realpath(file)), ""))
            folders.append(os.path.join(os.path.dirname(file), ""))
    return tuple(folders)


def _stack(frames: Any, internal: tuple[str, ...]) -> str:
    """Outermost first. What called the compiler is not of the model: lines begin behind the last of ours."""
    kept: list[str] = []
    for frame in frames or ():
        file = frame.filename
        if file.startswith(_OWN):
            kept.clear()
        elif not _is_users(file, internal):
            continue
        else:
            kept.append(f'File "{file}", line {frame.lineno}, in {frame.name}')
    return "\n".join(kept)


def _is_users(file: str, internal: tuple[str, ...]) -> bool:
    if file.startswith((*internal, "<")) or _GENERATED in file:
        return False
    return file.startswith(_SITE) or not file.startswith(_STDLIB)
