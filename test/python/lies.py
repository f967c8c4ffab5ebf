"""Lies about compiled programs: the public JSON of a lineage, changed in one place, or in all places that follow.

Each kind is a function of a lineage and a source of randomness that yields lies, data of which something is not as it
was. `symmetry` tells which of them are true all the same.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from symmetry import (
    FOLDS,
    INPUTS,
    KERNEL,
    KIND,
    NODE,
    PART_ARGS,
    PART_TWIN,
    PART_VIEW,
    PARTS,
    PHASE,
    TRACE,
    VIEWS,
    Json,
    computable,
    graphs,
    item,
    meaning,
    places,
    put,
)

from covan_mlir.frontend.identity import Identities
from covan_mlir.lineage import Lineage
from covan_mlir.provenance.fates import action_fates, part_fates
from covan_mlir.provenance.relation import Source

ACTION_INPUTS, ACTION_VIEW, ACTION_LIVE = 5, 6, 7


@dataclass(frozen=True)
class Lie:
    """A changed lineage.

    Attributes:
        kind: what was done.
        what: to which part of it.
        data: the changed JSON.
    """

    kind: str
    what: str
    data: Json


Kind = Callable[[Json, random.Random], Iterator[tuple[str, Json]]]
KINDS: dict[str, Kind] = {}


def kind(function: Kind) -> Kind:
    """Register a kind of lie under its function's name."""
    KINDS[function.__name__] = function
    return function


def lies(data: Json, name: str, seed: int, most: int | None = None) -> Iterator[Lie]:
    """Lies of one kind, in random order; at most so many."""
    count, truth = 0, meaning(data)
    for what, told in KINDS[name](data, random.Random(f"{name}{seed}")):
        changed = json.loads(json.dumps(told))
        if meaning(changed) != truth:
            yield Lie(name, what, changed)
            count += 1
            if count == most:
                return


def _shuffled(choose: random.Random, items: Sequence[Any]) -> list[Any]:
    return choose.sample(items, len(items))


def _pairs(choose: random.Random, items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    for first in _shuffled(choose, items):
        for second in _shuffled(choose, items):
            if first != second:
                yield first, second


def _told(data: Json) -> Iterator[Json]:
    """The lie as it is, and with the fates that a maker gives who believes it."""
    owners = {part[0]: part[1] for part in data["parts"]}
    for site in data["sites"]:
        site[TRACE] = sorted({owners[part] for part in site[PARTS]})
    yield data
    lineage = Lineage.from_json(data)
    source = Source(lineage.parts)
    returned = [int(name) for kind, name in lineage.results if kind == "p"]
    fates = part_fates(source, lineage.sites, returned, lineage.history, Identities(lineage.parts))
    believed = Lineage.from_json(data)
    believed.fates, believed.part_fates = tuple(action_fates(lineage.actions, fates)), fates
    yield believed.to_json()


# Sites


@kind
def move(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """A part is performed by another site."""
    for first, second in _pairs(choose, range(len(data["sites"]))):
        for part in _shuffled(choose, data["sites"][first][PARTS]):
            lie = deepcopy(data)
            sites = lie["sites"]
            sites[first][PARTS].remove(part)
            sites[second][PARTS] = sorted({*sites[second][PARTS], part})
            for told in _told(lie):
                yield f"part {part} from site {first} to site {second}", told


@kind
def drop(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """A part is not said to be performed, viewed or folded."""
    for site in _shuffled(choose, range(len(data["sites"]))):
        for column in (PARTS, VIEWS, FOLDS):
            for part in _shuffled(choose, data["sites"][site][column]):
                lie = deepcopy(data)
                lie["sites"][site][column].remove(part)
                for told in _told(lie):
                    yield f"part {part} of column {column} of site {site}", told


@kind
def add(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """A site is said to perform, view or fold another part."""
    for site in _shuffled(choose, range(len(data["sites"]))):
        there = {part for column in (PARTS, VIEWS, FOLDS) for part in data["sites"][site][column]}
        for part in _shuffled(choose, [part[0] for part in data["parts"] if part[0] not in there]):
            for column in (PARTS, VIEWS, FOLDS):
                lie = deepcopy(data)
                lie["sites"][site][column] = sorted([*lie["sites"][site][column], part])
                for told in _told(lie):
                    yield f"part {part} to column {column} of site {site}", told


@kind
def exchange(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """Two sites perform a part of each other."""
    for first, second in _pairs(choose, range(len(data["sites"]))):
        left, right = data["sites"][first][PARTS], data["sites"][second][PARTS]
        for part in _shuffled(choose, sorted({*left} - {*right})):
            for other in _shuffled(choose, sorted({*right} - {*left})):
                lie = deepcopy(data)
                lie["sites"][first][PARTS] = sorted({*left, other} - {part})
                lie["sites"][second][PARTS] = sorted({*right, part} - {other})
                for told in _told(lie):
                    yield f"part {part} of site {first} and part {other} of site {second}", told


@kind
def relabel(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """Two sites are each other: all that they are said to be, or where they stand in the program."""
    for first, second in _pairs(choose, range(len(data["sites"]))):
        lie = deepcopy(data)
        sites = lie["sites"]
        for column in (TRACE, PARTS, VIEWS, FOLDS):
            sites[first][column], sites[second][column] = sites[second][column], sites[first][column]
        for told in _told(lie):
            yield f"what sites {first} and {second} do", told
        lie = deepcopy(data)
        sites = lie["sites"]
        sites[first][NODE], sites[second][NODE] = sites[second][NODE], sites[first][NODE]
        yield f"where sites {first} and {second} stand", lie


@kind
def view_for_work(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """Work is said to be a view, or a view to be work; with the flag of the part, and without."""
    rows = {part[0]: number for number, part in enumerate(data["parts"])}
    for site in _shuffled(choose, range(len(data["sites"]))):
        for before, after in ((PARTS, VIEWS), (VIEWS, PARTS), (PARTS, FOLDS)):
            for part in _shuffled(choose, data["sites"][site][before]):
                lie = deepcopy(data)
                lie["sites"][site][before].remove(part)
                lie["sites"][site][after] = sorted({*lie["sites"][site][after], part})
                for told in _told(deepcopy(lie)):
                    yield f"part {part} of site {site}", told
                lie["parts"][rows[part]][PART_VIEW] = int(after == VIEWS)
                for told in _told(lie):
                    yield f"part {part} of site {site} and its flag", told


@kind
def other_kernel(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """A site runs the kernel of another one, or one that there is not."""
    invented = {"pool": [*data["pool"], "no_such_kernel"]}
    for site in _shuffled(choose, range(len(data["sites"]))):
        lie = deepcopy(data) | deepcopy(invented)
        lie["sites"][site][KERNEL] = len(data["pool"])
        yield f"invented, of site {site}", lie
    for first, second in _pairs(choose, range(len(data["sites"]))):
        lie = deepcopy(data)
        lie["sites"][first][KERNEL] = data["sites"][second][KERNEL]
        yield f"of site {second}, at site {first}", lie
        lie = deepcopy(lie)
        lie["sites"][second][KERNEL] = data["sites"][first][KERNEL]
        yield f"of sites {first} and {second}", lie


@kind
def misplaced_site(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """When a site runs, what kind of command it is, what it reads, which node it is."""
    nodes = len(graphs(data)[-1][1][0])
    for site in _shuffled(choose, range(len(data["sites"]))):
        columns: list[tuple[int, Any]] = [
            (PHASE, {"call": "init", "init": "call"}[data["sites"][site][PHASE]]),
            (KIND, {"dispatch": "transfer", "transfer": "dispatch"}[data["sites"][site][KIND]]),
            (NODE, None),
        ]
        inputs = data["sites"][site][INPUTS]
        columns += [(INPUTS, [other for other in inputs if other != dropped]) for dropped in inputs]
        columns += [(INPUTS, sorted([*inputs, other])) for other in range(len(data["sites"])) if other not in inputs]
        columns += [(NODE, node) for node in range(nodes)]
        for column, value in _shuffled(choose, columns):
            lie = deepcopy(data)
            lie["sites"][site][column] = value
            yield f"column {column} of site {site}", lie


@kind
def forged_commands(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """A command is dropped, repeated or another's; two are exchanged."""
    for number, commands in enumerate(data["commands"]):
        for position in _shuffled(choose, [p for p, site in enumerate(commands) if site is not None]):
            changes: list[list[int | None]] = [
                [*commands[:position], *commands[position + 1 :]],
                [*commands[:position], None, *commands[position + 1 :]],
                [*commands[: position + 1], *commands[position:]],
                *([*commands[:position], s, *commands[position + 1 :]] for s in range(len(data["sites"]))),
            ]
            for other in range(position):
                swapped = list(commands)
                swapped[position], swapped[other] = swapped[other], swapped[position]
                changes.append(swapped)
            for changed in _shuffled(choose, changes):
                lie = deepcopy(data)
                lie["commands"][number] = changed
                yield f"command {position} of buffer {number}", lie


# The source


@kind
def exchanged_operands(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """Two operands of a part are each other, where the operator does not take them so or gives another type."""
    for number in _shuffled(choose, range(len(data["parts"]))):
        part = data["parts"][number]
        operands = list(places(json.loads(part[PART_ARGS])))
        for first, second in _pairs(choose, operands):
            args = json.loads(part[PART_ARGS])
            put(args, first, item(json.loads(part[PART_ARGS]), second))
            put(args, second, item(json.loads(part[PART_ARGS]), first))
            lie = deepcopy(data)
            lie["parts"][number][PART_ARGS] = json.dumps(args, separators=(",", ":"))
            if first < second and not computable(data, part, args):
                yield f"{first} and {second} of part {part[0]}", lie


@kind
def redirected_operand(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """An operand of a part is another part before it, where the operator does not take that or gives another type."""
    for number in _shuffled(choose, range(len(data["parts"]))):
        part = data["parts"][number]
        before = [other[0] for other in data["parts"] if other[0] < part[0]]
        for place in _shuffled(choose, list(places(json.loads(part[PART_ARGS])))):
            for other in _shuffled(choose, before)[:4]:
                args = json.loads(part[PART_ARGS])
                put(args, place, {"p": other})
                if computable(data, part, args):
                    continue
                lie = deepcopy(data)
                lie["parts"][number][PART_ARGS] = json.dumps(args, separators=(",", ":"))
                yield f"{place} of part {part[0]} is part {other}", lie


@kind
def other_number(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """A part that the results need is called with another number: along another axis, from another place, with another
    factor."""
    for number in _shuffled(choose, _worked(data)):
        part = data["parts"][number]
        for place in _shuffled(choose, [*_numbers(json.loads(part[PART_ARGS])[0])]):
            args = json.loads(part[PART_ARGS])
            told = item(args[0], place)
            put(args[0], place, told + 1 if told <= 0 else told - 1)
            lie = deepcopy(data)
            lie["parts"][number][PART_ARGS] = json.dumps(args, separators=(",", ":"))
            yield f"{place} of part {part[0]}", lie


def _worked(data: Json) -> list[int]:
    """The parts that sites perform or index by; constants that were computed ahead of time are believed."""
    there = {fate[0] for fate in data["part_fates"] if fate[1] in ("dispatched", "view")}
    return [number for number, part in enumerate(data["parts"]) if part[0] in there]


def _numbers(args: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Where among arguments numbers are."""
    if isinstance(args, list):
        for index, inner in enumerate(args):
            yield from _numbers(inner, (*path, index))
    elif type(args) in (int, float):
        yield path


@kind
def other_operand(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """A part that the results need reads another value of the same type: a view of it, a piece, another weight, or what
    was computed before."""
    same = {fate[0]: fate[4] for fate in data["part_fates"] if fate[1] == "merged"}

    def value(operand: Json) -> Any:
        return same.get(operand["p"], operand["p"]) if "p" in operand else operand

    values: dict[str, list[Any]] = {}
    for part in data["parts"]:
        for place in places(json.loads(part[PART_ARGS])):
            operand = item(json.loads(part[PART_ARGS]), place)
            if "of" in operand and operand not in values.setdefault(operand["of"], []):
                values[operand["of"]].append(operand)
    types = {part[0]: data["pool"][part[4][0]] for part in data["parts"] if len(part[4]) == 1}
    for number in _shuffled(choose, _worked(data)):
        part = data["parts"][number]
        for place in _shuffled(choose, list(places(json.loads(part[PART_ARGS])))):
            operand = item(json.loads(part[PART_ARGS]), place)
            type_ = operand.get("of") or types.get(operand["p"], "")
            others = [{"p": other} for other, kind in types.items() if kind == type_ and other < part[0]]
            for other in _shuffled(choose, [*others, *values.get(type_, [])])[:4]:
                if value(other) != value(operand):
                    lie = deepcopy(data)
                    args = json.loads(part[PART_ARGS])
                    put(args, place, other)
                    lie["parts"][number][PART_ARGS] = json.dumps(args, separators=(",", ":"))
                    yield f"{place} of part {part[0]} is {other}", lie


@kind
def false_flag(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """What the ledger says of parts and actions that follows from their operators and operands."""
    for number in _shuffled(choose, range(len(data["parts"]))):
        lie = deepcopy(data)
        lie["parts"][number][PART_VIEW] ^= 1
        yield f"view of part {data['parts'][number][0]}", lie
    for number in _shuffled(choose, range(len(data["actions"]))):
        action = data["actions"][number]
        for column in (ACTION_VIEW, ACTION_LIVE):
            lie = deepcopy(data)
            lie["actions"][number][column] ^= 1
            yield f"column {column} of action {number}", lie
        others = [[i for i in action[ACTION_INPUTS] if i != other] for other in action[ACTION_INPUTS]]
        others += [sorted([*action[ACTION_INPUTS], i]) for i in range(number) if i not in action[ACTION_INPUTS]]
        for inputs in _shuffled(choose, others):
            lie = deepcopy(data)
            lie["actions"][number][ACTION_INPUTS] = inputs
            yield f"inputs of action {number}", lie


@kind
def false_twin(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """A part is said to be equal to another one, or to be none's equal."""
    for number in _shuffled(choose, range(len(data["parts"]))):
        part = data["parts"][number]
        twins = [other[0] for other in data["parts"] if other[0] <= part[0] and other[0] != part[PART_TWIN]]
        for twin in _shuffled(choose, twins):
            lie = deepcopy(data)
            lie["parts"][number][PART_TWIN] = twin
            for told in _told(lie):
                yield f"{twin} of part {part[0]}", told


@kind
def exchanged_results(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """The program returns something else than it does."""
    results = data["results"]
    changes = [[*results[:i], *results[i + 1 :]] for i in range(len(results))]
    changes += [[*results, result] for result in results]
    for first, second in _pairs(choose, range(len(results))):
        swapped = list(results)
        swapped[first], swapped[second] = swapped[second], swapped[first]
        changes.append(swapped)
    for part in _shuffled(choose, [part[0] for part in data["parts"]]):
        changes.append([["p", part], *results[1:]])
    for changed in _shuffled(choose, changes):
        yield "results", deepcopy(data) | {"results": changed}


# Fates and history


@kind
def false_fate(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """Another fate, other sites, another twin, another step that decided; of a part, and of an action."""
    steps = [data["history"][i][0] for i in range(len(data["history"]))]
    kinds = ("dispatched", "view", "folded", "merged", "dead")
    for section, first in (("part_fates", 1), ("fates", 0)):
        ids = [fate[0] for fate in data[section]] if first else list(range(len(data[section])))
        for number in _shuffled(choose, range(len(data[section]))):
            fate = data[section][number]
            sites = fate[first + 1]
            changes: list[tuple[int, Any]] = [(first, kind) for kind in kinds]
            changes += [(first + 1, [s for s in sites if s != dropped]) for dropped in sites]
            changes += [(first + 1, sorted({*sites, s})) for s in range(len(data["sites"]))]
            changes += [(first + 2, step) for step in steps]
            changes += [(first + 3, twin) for twin in (None, *ids)]
            for column, value in _shuffled(choose, changes):
                lie = deepcopy(data)
                lie[section][number][column] = value
                yield f"column {column} of {section} {number}", lie


@kind
def forged_history(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """Steps are dropped and exchanged; work is said to be carried by other operations than nodes of a phase, or by more
    or fewer, or by none."""
    history = data["history"]
    views = {part[0] for part in data["parts"] if part[PART_VIEW]}
    names: dict[int, set[str]] = {}
    graph: Any = None
    for step, held in data["phases"]:
        graph = held or graph
        names[step] = {data["pool"][node[0]].partition("(")[0] for node in graph[0]}
    for number in _shuffled(choose, range(len(history))):
        step, changes = history[number]
        lie = deepcopy(data)
        del lie["history"][number]
        yield f"step {number} dropped", lie
        if number:
            lie = deepcopy(data)
            lie["history"][number][0], lie["history"][number - 1][0] = history[number - 1][0], step
            yield f"steps {number - 1} and {number} exchanged", lie
        for position, (part, operations) in enumerate(changes):
            seen = [at for at, (name, _) in enumerate(operations or ()) if data["pool"][name] in names.get(step, ())]
            if part in views or not seen:
                continue
            lie = deepcopy(data)
            del lie["history"][number][1][position]
            yield f"step {number}, part {part} dropped", lie
            lie = deepcopy(data)
            lie["history"][number][1][position][1] = None
            yield f"step {number}, part {part} vanished", lie
            for at in seen:
                for more in (1, -1):
                    lie = deepcopy(data)
                    lie["history"][number][1][position][1][at][1] += more
                    yield f"step {number}, part {part} counted {more} more", lie


# Phases


@kind
def redirected_edge(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """A node of a phase reads another value than it does, or one less; the program returns another."""
    for number, graph in _shuffled(choose, graphs(data)):
        nodes, results = graph
        for position in _shuffled(choose, range(len(nodes))):
            inputs = nodes[position][2]
            for at in range(len(inputs)):
                lie = deepcopy(data)
                del lie["phases"][number][1][0][position][2][at]
                yield f"input {at} of node {position} of phase {number} dropped", lie
                for value in _shuffled(choose, [*range(position), -1, -2]):
                    if value not in inputs:
                        lie = deepcopy(data)
                        lie["phases"][number][1][0][position][2][at] = value
                        yield f"input {at} of node {position} of phase {number} is {value}", lie
        for at in range(len(results)):
            for value in _shuffled(choose, range(len(nodes))):
                lie = deepcopy(data)
                lie["phases"][number][1][1][at] = value
                yield f"result {at} of phase {number} is {value}", lie


@kind
def relabelled_node(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """Two nodes of a phase have each other's names, or one has the names of another part."""
    for number, graph in _shuffled(choose, graphs(data)):
        nodes = graph[0]
        for first, second in _pairs(choose, range(len(nodes))):
            if (
                first < second
                and nodes[first][3:] != nodes[second][3:]
                and len(nodes[first][3]) == len(nodes[second][3])
            ):
                lie = deepcopy(data)
                changed = lie["phases"][number][1][0]
                for column in (3, 4):
                    changed[first][column], changed[second][column] = nodes[second][column], nodes[first][column]
                yield f"nodes {first} and {second} of phase {number}", lie


@kind
def forged_phase(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """A phase is dropped, has another's name, or is as the one before."""
    for number in _shuffled(choose, range(len(data["phases"]))):
        if number:
            lie = deepcopy(data)
            del lie["phases"][number]
            if data["phases"][number][1] is None or data["phases"][min(number + 1, len(data["phases"]) - 1)][1]:
                yield f"phase {number} dropped", lie
            lie = deepcopy(data)
            lie["phases"][number][1] = None
            yield f"phase {number} is as the one before", lie
            lie = deepcopy(data)
            lie["phases"][number][0], lie["phases"][number - 1][0] = (
                data["phases"][number - 1][0],
                data["phases"][number][0],
            )
            yield f"phases {number - 1} and {number} exchanged", lie


# Fusions


@kind
def forged_fusion(data: Json, choose: random.Random) -> Iterator[tuple[str, Json]]:
    """What was decided about a chain of reductions: certificates, formulas, parts, kernels."""
    for number, fusion in enumerate(data["fusions"]):
        changes: list[tuple[str, Any]] = []
        for section in ("certificates", "chain", "sweeps", "refusals", "guards", "parts"):
            held = fusion[section]
            if held:
                changes += [(section, []), *((section, [*held[:i], *held[i + 1 :]]) for i in range(len(held)))]
        for position, certificate in enumerate(fusion["certificates"]):
            for at in range(len(certificate["proofs"])):
                for key, value in (("result", "unknown"), ("obligation", "0 == 0"), ("given", ["0 == 0"])):
                    forged = deepcopy(fusion["certificates"])
                    forged[position]["proofs"][at][key] = value
                    changes.append(("certificates", forged))
            forged = deepcopy(fusion["certificates"])
            forged[position]["proofs"] = []
            changes.append(("certificates", forged))
        named = [part[0] for part in data["parts"]]
        changes += [("parts", sorted({*fusion["parts"], part})) for part in named]
        changes.append(("kernel", "" if fusion["kernel"] else "no_such_kernel"))
        changes += [("kernel", data["pool"][site[KERNEL]]) for site in data["sites"]]
        changes.append(("reason", "" if fusion["reason"] else "no reason"))
        for key, value in _shuffled(choose, changes):
            lie = deepcopy(data)
            lie["fusions"][number][key] = value
            yield f"{key} of fusion {number}", lie
        lie = deepcopy(data)
        del lie["fusions"][number]
        yield f"fusion {number} dropped", lie
