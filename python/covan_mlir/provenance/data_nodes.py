"""Nodes of a program that no argument lies behind: data, whatever their locations say.

A compiler computes indices, fills memory and lays out weights at the location of whoever needed that first, and merges
what is equal. Such a value is no state of an operation that reads arguments. It is a constant of the source, or it
belongs to the work of those who read it: a padded convolution is a fill, a copy and a product.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from covan_mlir.provenance.model import Part
from covan_mlir.provenance.program_graph import Argument, Definition, Global, NodeResult, ProgramGraph, Unknown, Value


def data_nodes(graph: ProgramGraph) -> frozenset[int]:
    """Positions of the nodes that no argument lies behind."""
    data: set[int] = set()
    for index, node in enumerate(graph.nodes):
        if node.kind == "control":  # what it is is decided when the program runs
            continue
        for value in node.inputs:
            value = stored(graph, value)
            if isinstance(value, Argument | Unknown) or (isinstance(value, NodeResult) and value.node not in data):
                break
        else:
            data.add(index)
    return frozenset(data)


def stored(graph: ProgramGraph, value: Value) -> Value:
    """What a global holds; any other value as it is."""
    seen: set[str] = set()
    while isinstance(value, Global) and value.name in graph.globals and value.name not in seen:
        seen.add(value.name)
        value = graph.globals[value.name]
    return value


def readers(graph: ProgramGraph, data: frozenset[int]) -> Mapping[int, frozenset[int]]:
    """Of each node of ``data``, the nodes that read its values, through data and moves of pieces."""
    direct: dict[int, set[int]] = {}
    for index, node in enumerate(graph.nodes):
        for value in node.inputs:
            value = stored(graph, value)
            if isinstance(value, NodeResult):
                direct.setdefault(value.node, set()).add(index)
    through: dict[int, frozenset[int]] = {}
    for index in reversed(range(len(graph.nodes))):
        if index in data or graph.nodes[index].hands_on_pieces:
            read = direct.get(index, set())
            through[index] = frozenset(read).union(*(through.get(reader, frozenset()) for reader in read))
    return through


def renamed(graph: ProgramGraph, independent: Mapping[int, bool]) -> ProgramGraph:
    """The graph in which data is no state of parts that read arguments, and no evidence of them among other work.

    Args:
        independent: of each part, whether no element of an argument lies behind it.
    """
    nodes = list(graph.nodes)
    data = data_nodes(graph)
    for index, node in enumerate(graph.nodes):
        if node.data:
            foreign = {part for part in node.data if not independent.get(part, True)}
            evidence = tuple(part for part in node.evidence if part not in foreign)
            nodes[index] = replace(node, evidence=evidence, data=())
        if index not in data:
            continue
        outputs = tuple(
            tuple(
                Definition(link.how, tuple(part for part in link.ids if independent.get(part, True)))
                for link in definitions
            )
            for definitions in node.outputs
        )
        if outputs != node.outputs:
            nodes[index] = replace(nodes[index], outputs=outputs)
    return replace(graph, nodes=tuple(nodes))


def constants_behind(parts: Mapping[int, Part], independent: Mapping[int, bool], read_by: Iterable[int]) -> set[int]:
    """The parts without arguments that others read, directly or through such parts, and those others as far as they are
    such parts themselves."""
    behind: set[int] = set()
    stack = list(read_by)
    while stack:
        part = stack.pop()
        if independent[part]:
            if part in behind:
                continue
            behind.add(part)
        stack += [i for i in parts[part].inputs if independent[i]]
    return behind
