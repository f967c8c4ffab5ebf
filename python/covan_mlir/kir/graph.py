"""The graph of a model's operators, or of the kernels that they became: who reads whose results.

What stands between two operators, views, copies and what other compilers make of the rest, is an edge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec


class OperatorNode(msgspec.Struct, frozen=True):
    """One operator.

    Attributes:
        label: what can be told of it.
        inputs: numbers of the operators that it reads, in order, each once.
    """

    label: str
    inputs: tuple[int, ...] = ()


Graph = tuple[OperatorNode, ...]
"""Operators, each behind those that it reads."""


def difference(before: Graph, after: Graph) -> str:
    """What tells two graphs apart, in words; empty where nothing does.

    They are told apart by how many operators there are of each label, and by labels of all that these read, directly or
    not, and are read by.
    """
    counts = Counter(node.label for node in before), Counter(node.label for node in after)
    for label in dict.fromkeys(node.label for node in (*before, *after)):
        if counts[0][label] != counts[1][label]:
            return f"there are {counts[1][label]} of {label}, and there were {counts[0][label]}"
    numbers: dict[object, int] = {}
    ways = [Counter(_told(graph, numbers)) for graph in (before, after)]
    if ways[0] == ways[1]:
        return ""
    strange = next(iter(ways[1] - ways[0]))
    number = next(n for n, told in enumerate(_told(after, numbers)) if told == strange)
    read = ", ".join(after[n].label for n in after[number].inputs) or "nothing"
    return f"{after[number].label} reads {read}, or is read by others than before"


def _told(graph: Graph, numbers: dict[object, int]) -> list[tuple[int, int]]:
    """Of each operator, the number of what can be told of it and what it reads, and of that and who reads it."""
    behind = _numbered(graph, [node.inputs for node in graph], range(len(graph)), numbers)
    readers: list[list[int]] = [[] for _ in graph]
    for number, node in enumerate(graph):
        for source in node.inputs:
            readers[source].append(number)
    ahead = _numbered(graph, readers, range(len(graph) - 1, -1, -1), numbers)
    return list(zip(behind, ahead, strict=True))


def _numbered(
    graph: Graph, near: Sequence[Sequence[int]], order: Sequence[int], numbers: dict[object, int]
) -> list[int]:
    told = [-1] * len(graph)
    for number in order:
        key = (graph[number].label, tuple(sorted(told[other] for other in near[number])))
        told[number] = numbers.setdefault(key, len(numbers))
    return told
