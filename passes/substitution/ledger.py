"""The table of a function that was rewritten: its parts are those of what it is now, and have new numbers, so that each
reads only parts before it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch_mlir import ir

from covan_mlir.dialects.identity import address
from covan_mlir.dialects.prov_locations import TraceReader, key, map_location, parse_key, rewrite_locations
from covan_mlir.dialects.prov_table import PartRow, Table
from covan_mlir.passes.framework.interface import PassFailure
from covan_mlir.passes.substitution.reading import Reading, tensor_type
from covan_mlir.passes.substitution.replay import Replay
from covan_mlir.passes.substitution.rewritten import Rewritten
from covan_mlir.passes.substitution.writing import Written
from covan_mlir.provenance import arguments

Operand = dict[str, Any]
"""A value as arguments have it: ``{"p": 12}``."""


@dataclass
class Ledger:
    """Which parts a function's calls are, before it is rewritten.

    Attributes:
        part: of each call that is one, by position.
        calls: positions by part.
        operands: values of the program as arguments have them.
    """

    table: Table
    part: dict[int, int] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)
    operands: dict[ir.Value, Operand] = field(default_factory=dict)

    @property
    def rows(self) -> Mapping[int, PartRow]:
        """Parts by id."""
        return {row.id: row for row in self.table.parts}


def ledger_of(table: Table, reading: Reading) -> Ledger:
    """Which parts calls are, by their locations, and how their arguments call the values that they read."""
    ledger = Ledger(table)
    reader, rows = TraceReader(), ledger.rows
    for position, call in enumerate(reading.calls):
        ids = reader.ids(call.op.location) & rows.keys()
        if len(ids) == 1:
            (part,) = ids
            if part in ledger.calls:  # of several operations at one part, the last is what it gives
                del ledger.part[ledger.calls[part]]
            ledger.part[position] = part
            ledger.calls[part] = position
    for position, part in ledger.part.items():
        call = reading.calls[position]
        if len(call.op.results) == 1:
            ledger.operands.setdefault(call.op.results[0], {"p": part})
        given = list(_values(json.loads(rows[part].args)))
        if len(given) == len(call.tensors):
            for value, operand in zip(call.tensors, given, strict=True):
                ledger.operands.setdefault(value, operand)
    return ledger


def _values(item: Any) -> Iterator[Operand]:
    """Values of the graph among arguments, in order."""
    if isinstance(item, list):
        for inner in item:
            yield from _values(inner)
    elif isinstance(item, dict) and not item.keys().isdisjoint(("p", "a", "w")):
        yield item


def _mapped(item: Any, change: Callable[[Operand], Operand]) -> Any:
    """Arguments with other values."""
    if isinstance(item, list):
        return [_mapped(inner, change) for inner in item]
    if isinstance(item, dict):
        if not item.keys().isdisjoint(("p", "a", "w")):
            return change(item)
        return {name: _mapped(inner, change) if name == "n" else inner for name, inner in item.items()}
    return item


@dataclass(frozen=True)
class Renewed:
    """A table after a rewrite.

    Attributes:
        ids: what new numbers stand for: numbers of the table before.
        results: what the function returns, as operands.
    """

    table: Table
    ids: Mapping[int, frozenset[int]]
    results: tuple[tuple[str, int | str], ...]


def renewed(
    function: ir.Operation, ledger: Ledger, reading: Reading, replayed: Replay, rewritten: Rewritten
) -> Renewed:
    """The table of the rewritten function, whose locations are changed to name its parts.

    Raises:
        PassFailure: an operand is called nothing.
    """
    rows = ledger.rows
    gone = {ledger.part[position] for position in rewritten.gone if position in ledger.part}
    new = {f"new{index}": written for index, written in enumerate(rewritten.written)}
    names = dict(ledger.operands)
    names |= {written.op.results[0]: {"p": name} for name, written in new.items()}

    def operand(value: ir.Value) -> Operand:
        if value not in names:
            raise PassFailure("an operand of a substituted operation is called nothing", value.owner.location)
        called: Operand = names[value]
        return called

    owners: dict[Any, frozenset[int]] = {}  # by part, of the new ones by name: parts whose work it does
    entries: dict[Any, PartRow] = {}
    changed = {ledger.part[position]: position for position in rewritten.changed if position in ledger.part}
    for row in ledger.table.parts:
        if row.id in gone:
            continue
        args = row.args
        if row.id in changed:
            values = iter(map(operand, _tensors(reading, changed[row.id])))
            args = json.dumps(_mapped(json.loads(args), lambda item, now=values: next(now)))  # type: ignore[misc]  # a default binds the loop's value
        entries[row.id] = replace(row, args=args)
        owners[row.id] = frozenset([row.id])
    for name, written in new.items():
        calls = replayed.owners.get(written.node, frozenset())
        behind = frozenset(ledger.part[position] for position in calls if position in ledger.part)
        if not behind:
            raise PassFailure("a substituted operation stands for none of the model", written.op.location)
        owners[name] = behind
        actions = sorted({action for part in behind for action in rows[part].owners})
        entries[name] = PartRow(
            -1,
            actions[0],
            "",
            written.operator,
            (),
            (_type_text(written),),
            _text(written, operand),
            written.view,
            tuple(actions[1:]),
        )
    order = list(_ordered(entries))
    first = len(ledger.table.actions)
    number = {name: first + place for place, name in enumerate(order)}
    instead = {
        part: given
        for part in gone
        if (given := _value_of(ledger, reading, replayed, rewritten, part, names)) is not None
    }

    def renamed(item: Operand) -> Operand:
        if "p" not in item:
            return item
        name = item["p"]
        while name in instead and name not in number:
            if "p" not in instead[name]:
                return instead[name]
            name = instead[name]["p"]
        if name not in number:
            raise PassFailure(f"part {name} is read, and nothing gives its value any more")
        return {"p": number[name]}

    parts = []
    counts: dict[str, int] = {}
    taken = {row.name for row in ledger.table.parts}
    for name in order:
        row = entries[name]
        args = json.dumps(_mapped(json.loads(row.args), renamed), separators=(",", ":"))
        read = [int(value) for kind, value in arguments.operands(args) if kind == "p"]
        title = row.name or _title(row.op, counts, taken)
        parts.append(replace(row, id=number[name], name=title, args=args, inputs=tuple(sorted(set(read)))))
    returned = list(function.regions[0].blocks[0])[-1].operation.operands
    results = tuple(next(iter(renamed(operand(value)).items())) for value in returned)
    _relocate(function, rewritten, number, {row.id: row.name for row in parts})
    ids = {number[name]: owners[name] for name in order}
    return Renewed(Table(ledger.table.actions, tuple(parts)), ids, results)


def _tensors(reading: Reading, position: int) -> list[ir.Value]:
    """The tensors that a call reads now."""
    tensors: list[ir.Value] = []
    for value in reading.calls[position].op.operands:
        owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
        if (
            owner is not None
            and owner.name == "torch.prim.ListConstruct"
            and str(value.type).startswith("!torch.list<vtensor")
        ):
            tensors += list(owner.operands)
        elif str(value.type).startswith("!torch.vtensor"):
            tensors.append(value)
    return tensors


def _value_of(
    ledger: Ledger,
    reading: Reading,
    replayed: Replay,
    rewritten: Rewritten,
    part: int,
    names: Mapping[ir.Value, Operand],
) -> Operand | None:
    """What has the value of a part that went, where anything does."""
    results = reading.results[ledger.calls[part]]
    value = rewritten.values.get(replayed.after[results[0]])
    return names.get(value) if value is not None else None


def _ordered(entries: Mapping[Any, PartRow]) -> Iterator[Any]:
    """Parts, each behind what it reads; otherwise in their order."""
    done: set[Any] = set()
    stack: list[tuple[Any, bool]] = [(name, False) for name in reversed(entries)]
    while stack:
        name, ready = stack.pop()
        if name in done:
            continue
        if ready:
            done.add(name)
            yield name
            continue
        stack.append((name, True))
        reads = [item["p"] for item in _values(json.loads(entries[name].args)) if "p" in item]
        stack += [(read, False) for read in reversed(reads) if read in entries and read not in done]


def _text(written: Written, operand: Callable[[ir.Value], Operand]) -> str:
    def value(item: Any) -> Any:
        if isinstance(item, ir.Value):
            return operand(item)
        return [value(inner) for inner in item] if isinstance(item, list | tuple) else item

    named = [[name, item] for name, item in written.named]
    return json.dumps([[value(item) for item in written.arguments], named], separators=(",", ":"))


def _type_text(written: Written) -> str:
    element, shape = tensor_type(written.op.results[0])
    return f"{element}[{', '.join(map(str, shape))}]"


def _title(operator: str, counts: dict[str, int], taken: set[str]) -> str:
    stem = operator.split(".")[1]
    while True:
        counts[stem] = counts.get(stem, 0) + 1
        title = f"{stem}_s{counts[stem]}"
        if title not in taken:
            return title


def _relocate(
    function: ir.Operation, rewritten: Rewritten, number: Mapping[Any, int], names: Mapping[int, str]
) -> None:
    """Gives operations the keys of their parts' new numbers."""
    reader = TraceReader()
    placed: set[int] = set()
    for index, written in enumerate(rewritten.written):
        id_ = number[f"new{index}"]
        line = reader.user_line(written.op.location)
        context = written.op.context
        where = ir.Location.unknown(context) if line is None else ir.Location.file(*line, 0, context)
        for op in (*written.helpers, written.op):
            op.location = ir.Location.name(key(id_, names[id_]), where, context=context)
            placed.add(address(op))

    def renamed(inner: ir.Location) -> ir.Location | None:
        if type(inner).__name__ != "NameLoc" or (id_ := parse_key(inner.name_str)) is None or id_ not in number:
            return None
        return ir.Location.name(key(number[id_], names[number[id_]]), inner.child_loc, context=inner.context)

    for view in function.regions[0].blocks[0]:
        if address(view.operation) not in placed:
            rewrite_locations(view.operation, lambda location: map_location(location, renamed))
