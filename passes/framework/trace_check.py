"""No covan pass may lose or invent provenance: traces before and after a pass, compared.

A pass may remove an id from the IR only if the rewriter wrote down why; it may not name an id that no op carried; and
in a module with a table no op may be without a trace that was not without one before. One walk before and one
after.
"""

import contextvars
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch_mlir import ir

from covan_mlir.dialects.identity import address
from covan_mlir.dialects.prov import read_table
from covan_mlir.dialects.prov_kept import kept_text, parse_kept
from covan_mlir.dialects.prov_locations import TraceReader
from covan_mlir.dialects.prov_verify import find_table
from covan_mlir.passes.framework.interface import Pass, drops_traces

# Faults beyond these say nothing new, and a pass that forgets one location forgets thousands.
MOST_FAULTS = 5


@dataclass
class Journal:
    """What a pass did to traces on purpose, written by ``rewriter``."""

    eliminated: dict[int, str] = field(default_factory=dict)
    """Ids whose ops went without a successor, and why: ``dead``, ``folded``, ``merged with 3`` ..."""

    untraced: set[tuple[int, str]] = field(default_factory=set)
    """Identities of new ops that replace ops without any trace, and so have none."""

    renumbered: dict[int, frozenset[int]] = field(default_factory=dict)
    """Of a pass that gives the module another table: what its ids stand for, in those of the table before."""


_journal: contextvars.ContextVar[Journal | None] = contextvars.ContextVar("covan_pass_journal", default=None)


def current_journal() -> Journal:
    """The journal of the pass that is running; a new one, which nobody reads, outside of any."""
    return _journal.get() or Journal()


def identity(op: ir.Operation) -> tuple[int, str]:
    """Tells ops apart without keeping them alive: a wrapper of an erased op must not be touched.

    A later op may be given the address of an erased one: hence the name.
    """
    return address(op), op.name


@dataclass(frozen=True)
class Fault:
    """One thing that a pass did to provenance and must not; ``str`` completes "the pass ..."."""

    location: ir.Location
    message: str

    def __str__(self) -> str:
        return self.message


class TraceError(Exception):
    """A pass dropped or invented provenance; ``faults`` say where and which."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(map(str, faults)))
        self.faults = faults


class _Snapshot:
    """Who carries which ids in an op and all that is in it."""

    def __init__(self, root: ir.Operation, reader: TraceReader, skip: ir.Operation | None = None) -> None:
        self.carriers: dict[int, tuple[str, ir.Location]] = {}
        self.untraced: dict[tuple[int, str], ir.Location] = {}
        self.has_table = False
        seen: dict[ir.Attribute, frozenset[int]] = {}

        def visit(op: ir.Operation) -> ir.WalkResult:
            if skip is not None and op == skip:
                return ir.WalkResult.SKIP
            location = op.location
            attribute = location.attr
            ids = seen.get(attribute)
            if ids is None:
                try:
                    ids = reader.ids(location)
                except ValueError:  # malformed, as the table's verifier will say
                    ids = frozenset()
                seen[attribute] = ids
                for id_ in ids:
                    self.carriers.setdefault(id_, (op.name, location))
            if not ids:
                if op.name == "prov.table":
                    self.has_table = True
                    return ir.WalkResult.SKIP
                self.untraced[identity(op)] = location
            return ir.WalkResult.ADVANCE

        root.walk(visit, ir.WalkOrder.PRE_ORDER)


def run_checked(pass_: Pass, op: ir.Operation) -> Journal:
    """Runs a covan pass on ``op`` and checks what it did to traces. Every driver of passes goes through here.

    A pass whose class says ``drops_traces: ClassVar[bool] = True`` may drop and
    leave out, and may still not invent.

    Raises:
        TraceError: see ``Fault.message``.
        Exception: what the pass raised.
    """
    reader = TraceReader()
    place = op.parent
    parent = place.operation if place is not None else None
    number = address(op)
    before = _Snapshot(op, reader)
    with _recording() as journal:
        pass_.run(op)
    # A pass on functions may erase the one it is given.
    left = op if parent is None else _child(parent, number)
    after = None if left is None else _Snapshot(left, reader)
    faults = list(_faults(drops_traces(type(pass_)), left, parent, before, after, journal, reader))
    if len(faults) > MOST_FAULTS:
        last = faults[MOST_FAULTS - 1]
        more = f"{last.message} (and {len(faults) - MOST_FAULTS} more like these)"
        faults = [*faults[: MOST_FAULTS - 1], Fault(last.location, more)]
    if faults:
        raise TraceError(faults)
    return journal


@contextmanager
def _recording() -> Iterator[Journal]:
    journal = Journal()
    token = _journal.set(journal)
    try:
        yield journal
    finally:
        _journal.reset(token)


def _child(parent: ir.Operation, number: int) -> ir.Operation | None:
    """The op directly in ``parent`` at the address ``number``, if it is still there."""
    matches: list[ir.Operation] = []

    def visit(nested: ir.Operation) -> ir.WalkResult:
        if address(nested) == number:
            matches.append(nested)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE if nested == parent else ir.WalkResult.SKIP

    parent.walk(visit, ir.WalkOrder.PRE_ORDER)
    return matches[0] if matches else None


def _faults(
    may_drop: bool,
    op: ir.Operation | None,
    parent: ir.Operation | None,
    before: _Snapshot,
    after: _Snapshot | None,
    journal: Journal,
    reader: TraceReader,
) -> Iterator[Fault]:
    carried = after.carriers if after is not None else {}
    if journal.renumbered and after is not None:
        carried = {
            old: carrier for id_, carrier in carried.items() for old in journal.renumbered.get(id_, frozenset([id_]))
        }
    dropped = set() if may_drop else before.carriers.keys() - carried.keys() - journal.eliminated.keys()
    invented = carried.keys() - before.carriers.keys()
    if parent is not None and (dropped or invented):
        # The op is a part of the module only, and what it lacks, or has now, another part may carry.
        elsewhere = _Snapshot(_root(parent), reader, skip=op)
        dropped -= elsewhere.carriers.keys()
        invented -= elsewhere.carriers.keys()
    # Names of rows are for the diagnostics alone, and reading a table takes longer than both walks.
    names = _names(parent if op is None else op) if dropped or invented else {}
    for (name, location), ids in _by_carrier(dropped, before.carriers):
        what = _list(ids, names)
        yield Fault(location, f"drops {what}: '{name}' carried it before, no op does now, and no reason is recorded")
    for (name, location), ids in _by_carrier(invented, carried):
        where = "no op carried before"
        if names and any(id_ not in names for id_ in ids):
            where += " and the module's prov.table does not have"
        yield Fault(location, f"invents {_list(ids, names)}: '{name}' names what {where}")
    if may_drop or after is None or not (before.has_table or _table_above(op)):
        return
    for key in after.untraced.keys() - before.untraced.keys() - journal.untraced:
        _, name = key
        yield Fault(after.untraced[key], f"leaves '{name}' without a trace, in a module that has a prov.table")


def _by_carrier(
    ids: Iterable[int], carriers: dict[int, tuple[str, ir.Location]]
) -> list[tuple[tuple[str, ir.Location], list[int]]]:
    groups: dict[ir.Attribute, tuple[tuple[str, ir.Location], list[int]]] = {}
    for id_ in sorted(ids):
        carrier = carriers[id_]
        groups.setdefault(carrier[1].attr, (carrier, []))[1].append(id_)
    return list(groups.values())


def _list(ids: list[int], names: dict[int, str]) -> str:
    shown = ", ".join(f"{id_} ({names[id_]})" if id_ in names else str(id_) for id_ in ids)
    return f"{'id' if len(ids) == 1 else 'ids'} {shown}"


def _root(op: ir.Operation) -> ir.Operation:
    while (above := op.parent) is not None:
        op = above.operation
    return op


def _table_above(op: ir.Operation | None) -> bool:
    while op is not None:
        if op.name == "builtin.module" and (find_table(op) is not None or kept_text(op) is not None):
            return True
        above = op.parent
        op = above.operation if above is not None else None
    return False


def _names(op: ir.Operation | None) -> dict[int, str]:
    while op is not None:
        if op.name == "builtin.module" and find_table(op) is not None:
            return {id_: row.name for id_, row in read_table(op).rows.items()}
        if op.name == "builtin.module" and (text := kept_text(op)) is not None:
            return {id_: row.name for id_, row in parse_kept(text).rows.items()}
        above = op.parent
        op = above.operation if above is not None else None
    return {}
