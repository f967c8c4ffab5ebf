"""Values that several parts have: who of them is at which node.

Twins, parts that compute the same from the same, are one state, and a node that computes it is related to the one that
its location names. Whose value it is tells who reads it: a node that gives ``x != x`` to nobody but the results of
``isnan`` does no work of ``maximum``, which compares ``x`` with itself at another node. So each node performs those of
the twins that its readers read, or that it goes on with itself, and all of these.

Compilers merge what lies within parts, too: ``sign(x)`` and ``x < 0`` share a comparison, which keeps the name of one.
Where that one is done elsewhere, and nobody reads of the node what it would be needed for, it is not done here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.control import following
from covan_mlir.provenance.data_nodes import data_nodes, stored
from covan_mlir.provenance.program_graph import NodeResult, ProgramGraph, Unknown
from covan_mlir.provenance.relation import Region, Source


def apportion(source: Source, graph: ProgramGraph, results: Sequence[Operand], regions: Sequence[Region]) -> None:
    """Gives each region the twins that are read of its node, in place of those that are not.

    Args:
        results: what the program returns, in order.
        regions: one per node of the graph; changed in place.
    """
    twins: dict[int, set[int]] = {}
    for part in source.parts:
        twins.setdefault(source.twin(part), set()).add(part)
    data = data_nodes(graph)
    vague = _vaguely_read(graph, regions)
    before = [(set(region.performed), set(region.viewed)) for region in regions]
    folding: dict[int, set[int]] = {}
    """By twin, the nodes that read its constant."""
    for index, region in enumerate(regions):
        for part in region.folded:
            folding.setdefault(source.twin(part), set()).add(index)
    wanted: list[set[int]] = [set() for _ in graph.nodes]
    """By node, the parts that are read of it by others."""
    for (kind, name), value in zip(results, graph.results, strict=False):
        returned = stored(graph, value)
        if kind == "p" and isinstance(returned, NodeResult):
            wanted[returned.node].add(int(name))
    for giver_of_turn, part in _carried(source, graph, regions):
        wanted[giver_of_turn].add(part)
    for index in reversed(range(len(graph.nodes))):
        node, region = graph.nodes[index], regions[index]
        if index in data:  # its location is whose it is; also those are here whose value it is read as
            mine = region.performed | region.viewed
            mine -= _read_as_twins(source, twins, mine) - wanted[index]
            _settle(source, twins, region, mine | wanted[index], lambda part: False)
            region.folded -= region.performed - mine
        else:
            alone = [part for part in region.performed | region.viewed if len(twins[source.twin(part)]) == 1]
            read_of_it = wanted[index]
            mine = read_of_it.union(alone) if index in vague or not read_of_it else read_of_it
            before_this = set(region.performed)
            _settle(source, twins, region, mine, partial(_read_elsewhere, folding, index))
            _forget(source, region, before_this - region.performed)
        read = _read(source, graph, index, region)
        read |= region.performed | region.viewed  # begun by the giver, and finished here
        for given in node.inputs:
            given = stored(graph, given)
            if isinstance(given, NodeResult):
                states = set(map(source.twin, graph.nodes[given.node].states(given.result)))
                handed_on = wanted[index] if any(map(node.hands_on, range(len(node.outputs)))) else set()
                giver = graph.nodes[given.node]
                passing = giver.hands_on(given.result)
                wanted[given.node] |= {part for part in read | handed_on if passing or source.twin(part) in states}
    _restore(regions, before)


def _carried(source: Source, graph: ProgramGraph, regions: Sequence[Region]) -> Iterator[tuple[int, int]]:
    """Nodes that the next turn of a loop reads, which come behind those that read them, and the parts that it reads."""
    for index, region in enumerate(regions):
        givers = [value for value in graph.nodes[index].inputs if isinstance(value, NodeResult) and value.node > index]
        for part in region.performed if givers else ():
            operand = following(source.parts[part])
            if operand is None or operand[0] != "p":
                continue
            carried = int(operand[1])
            for value in givers:
                if source.twin(carried) in set(map(source.twin, graph.nodes[value.node].states(value.result))):
                    yield value.node, carried


def _read(source: Source, graph: ProgramGraph, index: int, region: Region) -> set[int]:
    """What a node's parts read, and what constants among that are computed from, if the node is not given those."""
    givers = (stored(graph, value) for value in graph.nodes[index].inputs)
    given = {
        source.twin(part)
        for value in givers
        if isinstance(value, NodeResult)
        for part in graph.nodes[value.node].states(value.result)
    }
    read: set[int] = set()
    stack = list(region.performed | region.viewed | region.folded)
    while stack:
        for part in set(source.parts[stack.pop()].inputs) - read:
            read.add(part)
            if source.constant[part] and source.twin(part) not in given:
                stack.append(part)
    return read


def _read_as_twins(source: Source, twins: Mapping[int, set[int]], mine: set[int]) -> set[int]:
    """Of the parts that a node performs, those that it goes on with under another name alone: it computes the value for
    that one, at the location of the first."""
    read = {i for part in mine for i in source.parts[part].inputs}
    return {part for part in mine - read if twins[source.twin(part)] & read & mine}


def _vaguely_read(graph: ProgramGraph, regions: Sequence[Region]) -> set[int]:
    """Nodes of which not all that is read is known, or for what."""
    if any(isinstance(value, Unknown) for node in graph.nodes for value in node.inputs):
        return set(range(len(graph.nodes)))
    vague: set[int] = set()
    for node, region in zip(graph.nodes, regions, strict=True):
        if region.gaps or any(map(node.hands_on, range(len(node.outputs)))):
            givers = (stored(graph, value) for value in node.inputs)
            vague |= {value.node for value in givers if isinstance(value, NodeResult)}
    return vague


def _settle(
    source: Source,
    twins: dict[int, set[int]],
    region: Region,
    wanted: Iterable[int],
    elsewhere: Callable[[int], bool],
) -> None:
    """One region, with those twins that are wanted of it or that it reads itself; ``elsewhere``: whether others read
    the constant of one."""
    performed = set(map(source.twin, region.performed))
    viewed = set(map(source.twin, region.viewed)) - performed
    folded = set(map(source.twin, region.folded))
    kept: set[int] = set()
    constants: set[int] = set()
    stack = [part for part in wanted if source.twin(part) in performed | viewed]
    unwanted = sorted(part for part in region.performed | region.viewed if len(twins[source.twin(part)]) > 1)
    unread = sorted(region.folded)
    while stack or unread or unwanted:
        if not stack and unread:  # data is read by what it is part of; no twin of it is read here
            part = unread.pop()
            if constants.isdisjoint(twins[source.twin(part)]):
                stack.append(part)
            continue
        if not stack:  # nobody asks for any of the twins: it stays what its location names
            part = unwanted.pop()
            if kept.isdisjoint(twins[source.twin(part)]) and not elsewhere(source.twin(part)):
                stack.append(part)
            continue
        part = stack.pop()
        if part in kept or part in constants:
            continue
        if _meant(source, part) in performed | viewed:
            kept.add(part)
        if source.twin(part) in folded:
            constants.add(part)
        inputs = source.parts[part].inputs
        stack += [i for i in inputs if _meant(source, i) in performed | viewed or source.twin(i) in folded]
    region.folded = constants
    region.performed = {part for part in kept if source.twin(part) in performed}
    region.viewed = {
        part
        for part in kept.union(region.viewed)
        if source.twin(part) in viewed and (part in kept or len(twins[source.twin(part)]) == 1)
    } | {part for part in kept if source.parts[part].alias and source.twin(part) not in performed}


def _forget(source: Source, region: Region, gone: set[int]) -> None:
    """Drops the views and constants that only parts read which are not performed here after all: what a kernel gives
    besides, and nobody reads."""
    while gone:
        kept = region.performed | region.viewed | region.folded
        read = {i for part in kept for i in source.parts[part].inputs}
        asked = {i for part in gone for i in source.parts[part].inputs}
        gone = (region.viewed | region.folded) & asked - read
        region.viewed -= gone
        region.folded -= gone


def _read_elsewhere(folding: Mapping[int, set[int]], node: int, twin: int) -> bool:
    """Whether other nodes read the constant that a part is."""
    return bool(folding.get(twin, set()) - {node})


def _meant(source: Source, part: int) -> int:
    """The twin of a part, or of what that is another name of."""
    while source.parts[part].alias and source.parts[part].inputs:
        (part,) = source.parts[part].inputs
    return source.twin(part)


def _restore(regions: Sequence[Region], before: Sequence[tuple[set[int], set[int]]]) -> None:
    """A part that nobody is known to want stays where its location is. What is read as a constant is wanted there."""
    seen = set[int]().union(*(region.performed | region.viewed | region.folded for region in regions))
    for region, (performed, viewed) in zip(regions, before, strict=True):
        region.performed |= performed - seen
        region.viewed |= viewed - seen
        region.folded -= region.performed
