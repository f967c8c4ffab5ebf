"""What the lineage of an artifact must look like (docs/artifact.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

from covan_mlir.artifacts import json_checks as want
from covan_mlir.provenance.words import is_group, is_tag


def _number(value: Any, where: str) -> None:
    want.exactly(int, float)(value, where)
    if value < 0:
        want.fail(where, f"is {value}, not a number ≥ 0")


_TEXTS = want.items(want.text)
_PROOF = want.mapping(
    {
        "title": want.text,
        "obligation": want.text,
        "given": _TEXTS,
        "axioms": _TEXTS,
        "provers": _TEXTS,
        "result": want.one_of("proved", "refuted", "unknown"),
        "counterexample": want.text,
        "seconds": _number,
    }
)
_FUSION = want.mapping(
    {
        "what": want.text,
        "parts": want.items(want.natural),
        "kernel": want.text,
        "reason": want.text,
        "chain": _TEXTS,
        "sweeps": want.items(want.mapping({"axes": _TEXTS, "why": want.text, "lines": _TEXTS})),
        "certificates": want.items(want.mapping({"claim": want.text, "proofs": want.items(_PROOF)})),
        "refusals": _TEXTS,
        "guards": _TEXTS,
        "schedule": want.map_of(want.anything),
        "seconds": _number,
    }
)


def check_lineage(row: Any, form: int) -> None:
    """Raises `SchemaError` unless ``row`` is a lineage of format ``form`` whose indices all point at something."""
    want.mapping(
        {
            "format": want.integer,
            "pool": want.items(want.anything),
            "actions": want.items(want.anything),
            "parts": want.items(want.anything),
            "sites": want.items(want.anything),
            "commands": want.items(want.anything),
            "fates": want.items(want.anything),
            "part_fates": want.items(want.anything),
            "history": want.items(want.anything),
            "results": want.items(want.row(want.one_of("p", "a", "w"), want.exactly(int, str))),
            "phases": want.items(want.row(want.anything, want.anything)),
            "groups": want.items(want.anything),
            "tags": want.items(want.anything),
            "fusions": want.items(_FUSION),
        }
    )(row, "lineage.json")
    want.form(row, form, "lineage.json")
    texts = frozenset(_indices(row["pool"], lambda item: type(item) is str))
    frames = frozenset(_indices(row["pool"], _is_frame))
    text, frame = want.among(texts, "a text"), want.among(frames, "a source frame")
    action = want.below(len(row["actions"]))
    flag = want.below(2)
    call = want.row(want.text, text, text, want.items(frame), want.items(text), want.items(action), flag, flag)
    want.items(call)(row["actions"], "lineage.json.actions")
    want.items(want.row(want.natural, action, want.text, text, want.items(text), flag, want.integer, want.text))(
        row["parts"], "lineage.json.parts"
    )
    known: set[int] = set()
    for id_, *_, twin, called in sorted(row["parts"], key=lambda part: part[0]):  # a part reads earlier ones
        where = f"lineage.json.parts ({id_})"
        _arguments(called, known, where)
        known.add(id_)
        if twin != -1:
            want.among(known, "a part before")(twin, where)
    ids = frozenset(known)
    if len(ids) != len(row["parts"]):
        want.fail("lineage.json.parts", "gives two parts the same id")
    site, part = want.below(len(row["sites"])), want.among(ids, "a part")
    phase, kind = want.one_of("call", "init"), want.one_of("dispatch", "transfer")
    relation = (want.items(action), want.items(part), want.items(site), want.items(part), want.items(part))
    want.items(want.row(text, phase, kind, *relation, want.optional(want.natural)))(row["sites"], "lineage.json.sites")
    want.items(want.items(want.optional(site)))(row["commands"], "lineage.json.commands")
    became = want.one_of("dispatched", "folded", "merged", "view", "dead")
    want.items(want.row(became, want.items(site), text, want.optional(action)))(row["fates"], "lineage.json.fates")
    if len(row["fates"]) not in (0, len(row["actions"])):
        want.fail("lineage.json.fates", f"has {len(row['fates'])} fates for {len(row['actions'])} actions")
    want.items(want.row(part, became, want.items(site), text, want.optional(part)))(
        row["part_fates"], "lineage.json.part_fates"
    )
    changed = want.row(want.natural, want.optional(want.items(want.row(text, want.natural))))
    want.items(want.row(text, want.items(changed)))(row["history"], "lineage.json.history")
    want.items(want.row(_call, want.one_of("block", "function"), want.items(action)))(
        row["groups"], "lineage.json.groups"
    )
    want.items(want.row(_tag, want.items(action)))(row["tags"], "lineage.json.tags")
    for kind, name in row["results"]:
        _operand({kind: name}, ids, "lineage.json.results")
    for record in row["fusions"]:
        want.items(part)(record["parts"], "lineage.json.fusions")
    _phases(row, text)
    for key in ("groups", "tags"):
        if len({name for name, *_ in row[key]}) != len(row[key]):
            want.fail(f"lineage.json.{key}", "gives one name twice")


def _arguments(text: str, parts: Set[int], where: str) -> None:
    """Arguments of a part (`covan_mlir.provenance.arguments`)."""
    value = want.loads(text.encode())
    if type(value) is not list or [type(item) for item in value] != [list, list]:
        want.fail(where, f"is called with {want.short(value)}, not with lists of arguments and of named ones")
    want.items(want.row(want.text, want.anything))(value[1], where)
    stack = [*value[0], *(item for _, item in value[1])]
    while stack:
        item = stack.pop()
        if type(item) is list:
            stack += item
        elif type(item) is dict:
            _operand(item, parts, where)


def _operand(item: dict[str, Any], parts: Set[int], where: str) -> None:
    kind = next(iter(item), "")
    if kind not in _OPERANDS or item.keys() - {kind, "of"} or type(item.get("of", "")) is not str:
        want.fail(where, f"has the argument {want.short(item)}")
    _OPERANDS[kind](item[kind], where)
    if kind == "p":
        want.among(parts, "a part")(item[kind], where)


_OPERANDS: Mapping[str, want.Check] = {
    "p": want.natural,
    "a": want.natural,
    "w": want.text,
    "t": want.text,
    "f": want.one_of("inf", "-inf", "nan"),
    "d": want.text,
    "s": want.row(*[want.optional(want.integer)] * 3),
    "r": want.text,
}


def _phases(row: Mapping[str, Any], text: want.Check) -> None:
    """The graphs of `covan_mlir.provenance.phases`: a node reads what nodes before or after it give."""
    started, last = False, 0
    for step, graph in row["phases"]:
        text(step, "lineage.json.phases")
        if graph is None:
            if not started:
                want.fail("lineage.json.phases", "starts without a graph")
            continue
        want.row(want.items(want.anything), want.items(want.anything))(graph, "lineage.json.phases")
        started = True
        results = [len(node[3]) if type(node) is list and len(node) == 5 else 0 for node in graph[0]]

        def value(item: Any, where: str, results: list[int] = results) -> None:
            if type(item) is list and len(item) == 2:
                want.below(len(results))(item[0], where)
                want.below(results[item[0]])(item[1], where)
            elif type(item) is int and item >= 0:
                want.below(len(results))(item, where)
                want.below(results[item])(0, where)
            elif item is not None and item != [] and type(item) is not int:
                want.fail(where, f"is {want.short(item)}, not a value")

        chain = want.items(_link)
        want.items(want.row(text, want.below(4), want.items(value), want.items(chain), want.items(want.natural)))(
            graph[0], "lineage.json.phases"
        )
        want.items(value)(graph[1], "lineage.json.phases")
        last = len(graph[0])
    for site in row["sites"]:
        if site[-1] is not None and (not row["phases"] or site[-1] >= last):
            want.fail("lineage.json.sites", f"names node {site[-1]}, which the program does not have")


def _link(value: Any, where: str) -> None:
    want.items(want.natural)(value, where)
    if not value or value[0] > 3:
        want.fail(where, f"is {want.short(value)}, not a kind of link and parts")


def _call(value: Any, where: str) -> None:
    name, _, number = value.rpartition("@") if type(value) is str else ("", "", "")
    if not is_group(name) or not (number.isascii() and number.isdigit()):
        want.fail(where, f"has a call named {want.short(value)}, not such as 'attention@0'")


def _tag(value: Any, where: str) -> None:
    if not is_tag(value):
        want.fail(where, f"has the tag {want.short(value)}, which is not printable")


def _indices(pool: Iterable[Any], wanted: Callable[[Any], bool]) -> Iterable[int]:
    return (index for index, item in enumerate(pool) if wanted(item))


def _is_frame(item: Any) -> bool:
    return type(item) in (list, tuple) and [type(part) for part in item] == [str, int, str, bool]
