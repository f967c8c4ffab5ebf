"""Which actions belong to one call of a composite function: what `covan_mlir.group` marked, and what frames tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch.fx import Node

from covan_mlir.frontend import frames
from covan_mlir.frontend.actions import action_of
from covan_mlir.provenance.groups import PREFIX
from covan_mlir.provenance.model import Frame, Group

ATTACHED = "covan.attached"
"""Key in the metadata of nodes of attached operators: the attachment's name."""
_Call = tuple[str, tuple[tuple[str, int], ...], str, str]
"""Of a function: the module call that it runs in, the lines that lead to it, its file, its name."""


def groups(exported: torch.fx.Graph) -> tuple[tuple[Group, ...], Mapping[int, frozenset[str]]]:
    """-> (groups in order of their first action, tags that `covan_mlir.group` gave to actions).

    A function that is a group of its own by `covan_mlir.group` is left out of those that frames tell: the mark knows
    more, as it tells calls from the same line apart.
    """
    ids = action_of(exported)
    nodes = list(ids)
    marked, tags = _marked(ids)
    known = {name for name, _ in marked}
    # Attached operators stand between the model's own, and do not end the calls of its functions.
    owners = dict.fromkeys(node.meta.get(ATTACHED, "") for node in nodes)
    seen = [span for owner in owners for span in _functions(ids, owner) if span[0] not in known]
    counts: dict[str, int] = {}
    numbered = []
    for (name, actions), kind in sorted(
        [*((span, "block") for span in marked), *((span, "function") for span in seen)],
        key=lambda item: (item[0][1][0], -len(item[0][1])),
    ):
        number = counts[name] = counts.get(name, -1) + 1
        numbered.append(
            Group(f"{name}@{number}", "block" if kind == "block" else "function", tuple(dict.fromkeys(actions)))
        )
    return tuple(numbered), tags


def _marked(ids: Mapping[Node, int]) -> tuple[list[tuple[str, list[int]]], dict[int, frozenset[str]]]:
    marked: dict[str, tuple[str, list[int]]] = {}
    tags: dict[int, frozenset[str]] = {}
    for node, index in ids.items():
        for key, words in (node.meta.get("custom") or {}).items():
            if isinstance(key, str) and key.startswith(PREFIX):
                marked.setdefault(key, (words[0], []))[1].append(index)
                if words[1:]:
                    tags[index] = tags.get(index, frozenset()) | set(words[1:])
    return list(marked.values()), tags


def _functions(ids: Mapping[Node, int], owner: str) -> list[tuple[str, list[int]]]:
    """Calls of plain functions of one attachment, or of the model itself, by frames.

    Actions of one call follow each other in the graph, as export runs the model once from top to bottom. Two calls
    from the same line of the same call, with no other action between them, look like one.
    """
    spans: list[tuple[str, list[int]]] = []
    running: dict[_Call, list[int]] = {}
    for node, index in ids.items():
        if node.meta.get(ATTACHED, "") != owner:
            continue
        keys = list(_calls(node))
        if not keys and not node.meta.get("stack_trace"):
            continue  # torch made it, of a constant for example: it ends no call
        left, running = running, {}
        for key in keys:
            if key in running:
                continue  # recursion from one line
            if key not in left:
                left[key] = []
                spans.append((key[3], left[key]))
            left[key].append(index)
            running[key] = left[key]
    return spans


def _calls(node: Node) -> Iterator[_Call]:
    """The calls of plain functions that a node was made in, outermost first."""
    stack = frames.in_order(node.meta.get("stack_trace"))
    modules = [str(key) for key in node.meta.get("nn_module_stack") or {}]
    for depth, frame in enumerate(stack):
        if _is_function(frame):
            # Every forward is one module's: counted from the inside, as the outermost need not be called so.
            inside = sum(inner.function == "forward" for inner in stack[depth + 1 :])
            owner = modules[len(modules) - 1 - inside] if inside < len(modules) else ""
            yield owner, tuple((f.file, f.line) for f in stack[:depth]), frame.file, frame.function


def _is_function(frame: Frame) -> bool:
    """Not ``forward``: that is a module's; and not what has no name, such as ``<lambda>``."""
    return frames.is_users(frame.file) and frame.function != "forward" and frame.function.isidentifier()
