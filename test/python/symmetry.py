"""Which changes of a lineage are no lies: parts that unfold to the same term may be taken for each other, and operands
of an operator that gives the same for both orders; what gives back its operand may be work or none. Values of a loop
are told apart by what they are at first and after an iteration, not by their number. Nodes without a name that nobody
reads are silent, and commands of copies may be moved out of the program (docs/provenance.md, what is trusted)."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Any

import torch

from covan_mlir.frontend.dtypes import DTYPES
from covan_mlir.frontend.identity import Identities
from covan_mlir.lineage import Lineage
from covan_mlir.provenance import arguments

Json = dict[str, Any]

KERNEL, PHASE, KIND, TRACE, PARTS, INPUTS, VIEWS, FOLDS, NODE = range(9)  # columns of a site
PART_VIEW, PART_TWIN, PART_ARGS = 5, 6, 7


def graphs(data: Json) -> list[tuple[int, list[Any]]]:
    """The graphs of the phases that are not as the one before, by the phase's number."""
    return [(number, phase[1]) for number, phase in enumerate(data["phases"]) if phase[1] is not None]


def meaning(data: Json) -> Json:
    """The data, parts that unfold to the same term called the same, and operands in an order of no consequence."""
    terms, order = _terms(data["parts"])
    actions: list[list[str]] = [[] for _ in data["actions"]]
    for part in data["parts"]:
        actions[part[1]].append(terms[part[0]])
    kept = deepcopy(data)
    dispatches = {number for number, site in enumerate(data["sites"]) if site[KIND] == "dispatch"}
    kept["commands"] = [_waiting(commands, dispatches) for commands in data["commands"]]
    for before, phase in pairwise(kept["phases"]):
        phase[1] = deepcopy(before[1]) if phase[1] is None else phase[1]

    def named(parts: Sequence[int]) -> list[str]:
        return sorted(terms[part] for part in parts)

    for site in kept["sites"]:
        site[TRACE] = sorted(json.dumps(sorted(actions[action])) for action in site[TRACE])
        for column in (PARTS, VIEWS, FOLDS):
            site[column] = named(site[column])
    for part in kept["parts"]:
        part[PART_TWIN] = terms.get(part[PART_TWIN], "")
        part[PART_ARGS] = order[part[0]]
    for fate in kept["part_fates"]:
        fate[4] = None if fate[4] is None else terms[fate[4]]
    kept["results"] = [[how, terms[name] if how == "p" else name] for how, name in kept["results"]]
    for _, graph in graphs(kept):
        _drop_silent(graph)
        for node in graph[0]:
            node[3] = [sorted({name for link in links for name in named(link[1:])}) for links in node[3]]
            node[4] = named(node[4])
            if len(node[4]) == 1:  # a share of one part has no other name, whether its result has that or none
                node[3] = [names or node[4] for names in node[3]]
            node[2] = sorted(map(json.dumps, node[2]))
    return kept


def _waiting(commands: Sequence[int | None], dispatches: Container[int]) -> list[int | None]:
    """The dispatches among commands, and between which of them one is that waits."""
    kept: list[int | None] = []
    for site in commands:
        if site in dispatches or (site is None and kept and kept[-1] is not None):
            kept.append(site)
    return kept[:-1] if kept and kept[-1] is None else kept


def _drop_silent(graph: list[Any]) -> None:
    """Leave out the nodes that have no name and are read by nobody, or by such nodes only."""
    nodes, results = graph
    while True:
        values = [*(value for node in nodes for value in node[2]), *results]
        read = {value if isinstance(value, int) else value[0] for value in values if value or value == 0}
        silent = [k for k, node in enumerate(nodes) if k not in read and not node[4]]
        silent = [k for k in silent if all(not link[1:] for links in nodes[k][3] for link in links)]
        if not silent:
            return
        (last,) = silent[-1:]
        del nodes[last]
        for values in (*(node[2] for node in nodes), results):
            for place, value in enumerate(values):
                if isinstance(value, int) and value > last:
                    values[place] = value - 1
                elif isinstance(value, list) and value and value[0] > last:
                    values[place] = [value[0] - 1, *value[1:]]


def _terms(parts: Sequence[Sequence[Any]]) -> tuple[dict[int, str], dict[int, str]]:
    """By part, a name that those of the same term share, and its arguments in the order of no consequence."""
    names: dict[str, str] = {}
    terms: dict[int, str] = {}
    order: dict[int, str] = {}
    ops: dict[int, str] = {}
    for part in sorted(parts, key=lambda part: part[0]):
        args = json.loads(part[PART_ARGS])
        for place in list(places(args)):
            operand = item(args, place)
            if "p" in operand:
                put(args, place, {"p": terms[operand["p"]]})
        if args[0] and isinstance(args[0][0], str):  # the name of a loop or branch, and a position
            args[0][1] = 0
        text = json.dumps(args)
        order[part[0]] = text
        terms[part[0]] = names.setdefault(f"{part[3]}{text}", f"term{len(names)}")
        ops[part[0]] = str(part[3])
    return terms, order


def places(args: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Where among arguments values of the graph are."""
    if isinstance(args, list):
        for index, item in enumerate(args):
            yield from places(item, (*path, index))
    elif isinstance(args, dict) and not args.keys().isdisjoint(("p", "a", "w")):
        yield path


def item(args: Any, path: Sequence[int]) -> Any:
    for index in path:
        args = args[index]
    return args


def put(args: Any, path: Sequence[int], value: Any) -> None:
    item(args, path[:-1])[path[-1]] = value


def is_true(data: Json, lie: Json) -> bool:
    """Whether a change is no lie, by a symmetry that is proved here."""
    return meaning(lie) == meaning(data) or commutes(data, lie) or _idle(data, lie) or _same_function(data, lie)


def _idle(data: Json, lie: Json) -> bool:
    """Whether all that differs is whether sites perform or index by parts that give back their operand, as running them
    tells."""
    identities = Identities(Lineage.from_json(data).parts)
    kept: list[Json] = []
    for held in (data, lie):
        plain = deepcopy({key: held[key] for key in ("sites", "parts", "phases", "history", "commands", "results")})
        for site in plain["sites"]:
            site[VIEWS] = sorted(
                part for part in {*site[PARTS], *site[VIEWS]} if identities(part) or part in site[VIEWS]
            )
            site[PARTS] = [part for part in site[PARTS] if not identities(part)]
            site[TRACE] = []
        for part in plain["parts"]:
            part[PART_VIEW] = 0 if identities(part[0]) else part[PART_VIEW]
        kept.append(plain)
    return kept[0] == kept[1]


def commutes(data: Mapping[str, Any], lie: Mapping[str, Any]) -> bool:
    """Whether the only part whose arguments differ gives the same for both, on random numbers."""
    differing = [
        (before, after)
        for before, after in zip(data["parts"], lie["parts"], strict=True)
        if before[PART_ARGS] != after[PART_ARGS]
    ]
    if len(differing) != 1:
        return False
    ((before, after),) = differing
    operator = _operator(data, before)
    generator = torch.Generator().manual_seed(0)
    drawn: dict[str, torch.Tensor] = {}
    types = {part[0]: data["pool"][part[4][0]] for part in data["parts"] if len(part[4]) == 1}

    def call(text: str) -> Any:
        args = json.loads(text)
        for place in list(places(args)):
            key = json.dumps(item(args, place))
            if key not in drawn:
                operand = item(args, place)
                like = _tensor(types.get(operand["p"], "") if "p" in operand else operand["of"])
                shape = (3, 3) if like is None or not like.is_floating_point() else like.shape
                drawn[key] = torch.randn(shape, generator=generator, dtype=torch.float64)
            put(args, place, drawn[key])
        return operator(*args[0], **dict(args[1]))

    try:
        return torch.equal(call(before[PART_ARGS]), call(after[PART_ARGS]))
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False


def _same_function(data: Json, lie: Json) -> bool:
    """Whether parts of which some are called with other numbers give the program's results, and what control goes by
    and carries, the same elements all the same: eager PyTorch on random arguments says so."""
    if {key: data[key] for key in data if key != "parts"} != {key: lie[key] for key in lie if key != "parts"}:
        return False
    control = [part for part in data["parts"] if data["pool"][part[3]].startswith("control.")]
    needed = {name for how, name in data["results"] if how == "p"}
    for part in control:
        args = json.loads(part[PART_ARGS])
        needed |= {operand["p"] for place in places(args) if "p" in (operand := item(args, place))}
        needed |= {inner["n"]["p"] for inner in args[0] if isinstance(inner, dict) and "p" in inner.get("n", {})}
    needed -= {part[0] for part in control}
    for seed in range(8):
        first, second = _evaluated(data, seed), _evaluated(lie, seed)
        if not all(name in first and name in second and torch.equal(first[name], second[name]) for name in needed):
            return False
    return True


def _evaluated(data: Json, seed: int) -> dict[int, torch.Tensor]:
    """The values of parts, as far as eager PyTorch computes them; those of control are drawn."""
    generator = torch.Generator().manual_seed(seed)
    drawn: dict[str, torch.Tensor] = {}
    known: dict[int, torch.Tensor] = {}

    def draw(kind: str) -> torch.Tensor:
        like = _tensor(kind)
        if like is None or not like.is_floating_point():
            raise ValueError(kind)
        return torch.randn(like.shape, generator=generator, dtype=torch.float64).mul_(8).to(like.dtype)

    for part in sorted(data["parts"], key=lambda part: part[0]):
        try:
            if data["pool"][part[3]].startswith("control."):
                known[part[0]] = draw(data["pool"][part[4][0]])
                continue
            values = {}
            for operand in arguments.operands(part[PART_ARGS]):
                if operand[0] == "p":
                    values[operand] = known[int(operand[1])]
                else:
                    key = repr(operand)
                    if key not in drawn:
                        drawn[key] = draw(arguments.operand_types(part[PART_ARGS])[operand])
                    values[operand] = drawn[key]
            args, kwargs = arguments.decode(part[PART_ARGS], values, draw)
            operator = _operator(data, part)
            result = operator(*args, **kwargs)
            if isinstance(result, torch.Tensor):
                known[part[0]] = result
        except (KeyError, AttributeError, TypeError, ValueError, RuntimeError, IndexError):
            continue
    return known


def computable(data: Json, part: Sequence[Any], args: Any) -> bool:
    """Whether an operator takes other arguments than a part has, and gives a value of the part's type; yes where that
    cannot be told."""
    operator = _operator(data, part)
    types = {other[0]: [data["pool"][text] for text in other[4]] for other in data["parts"]}
    call = deepcopy(args)
    for place in list(places(call)):
        operand = item(call, place)
        kinds = types[operand["p"]] if "p" in operand else [operand["of"]]
        tensor = _tensor(kinds[0]) if len(kinds) == 1 else None
        if tensor is None:
            return True
        put(call, place, tensor)
    try:
        result = operator(*call[0], **dict(call[1]))
    except (TypeError, NotImplementedError, AttributeError):
        return True
    except (RuntimeError, IndexError):
        return False
    expected = [_tensor(kind) for kind in types[part[0]]]
    if len(expected) != 1 or expected[0] is None or not isinstance(result, torch.Tensor):
        return True
    return result.shape == expected[0].shape and result.dtype == expected[0].dtype


def _operator(data: Mapping[str, Any], part: Sequence[Any]) -> Any:
    """That of a part; None if torch has none of that name."""
    operator: Any = torch.ops
    for word in data["pool"][part[3]].split("."):
        operator = getattr(operator, word, None)
    return operator


def _tensor(kind: str) -> torch.Tensor | None:
    """A tensor of a type such as ``f32[2, 3]``, without elements; None of another one."""
    name, _, shape = kind.removesuffix("]").partition("[")
    sizes = [size for size in shape.split(", ") if size]
    if name not in DTYPES or not all(map(str.isdigit, sizes)):
        return None
    return torch.empty([int(size) for size in sizes], dtype=DTYPES[name], device="meta")
