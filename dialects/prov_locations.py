"""Reading and building the provenance in locations.

The same code serves ``torch_mlir.ir`` and ``iree.compiler.ir``: a location is
recognised by the name of its class and new ones are made through that class,
so neither of the bindings is imported here.

A trace is written in one of two forms. In the torch_mlir context it is the
metadata of a fused location, ``fused<#prov.trace<[3, 4]>>[...]``. The form that
every context understands is a name, ``"prov:3:mm"("model.py":7:0)``.
"""

import re
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# Locations, attributes and operations of either binding: two unrelated class
# hierarchies with the same shape and without published types.
Location = Any
Operation = Any

TRACE = "prov.trace"
# In bodies of linalg.generic: merged freely, or nothing that is computed.
UNTOLD = frozenset({"arith.constant", "linalg.index", "linalg.yield"})
_KEY = re.compile(r"prov:([0-9]+):")


def key(id_: int, name: str) -> str:
    """The name ``prov:<id>:<name>`` that a NameLoc carries for a row of the table.

    Raises:
        ValueError: ``id_`` is negative.
    """
    if id_ < 0:
        raise ValueError(f"a provenance id cannot be negative: {id_}")
    return f"prov:{id_}:{name}"


def parse_key(text: str) -> int | None:
    """The id in a name made by ``key``, or None for any other name."""
    match = _KEY.match(text)
    return int(match[1]) if match else None


class Fused(NamedTuple):
    """What an operation that stands for several computes, by ids.

    Attributes:
        results: of each result.
        performed: what it computes in all, where its trace holds views as well.
        begun: of each dispatch of its but the last, what is begun there.
        read: what it does again on the way, of which no result is the value.
    """

    results: Sequence[Iterable[int]]
    performed: Iterable[int]
    begun: Sequence[Iterable[int]] = ()
    read: Iterable[int] = ()


def fused_key(fused: Fused) -> str:
    """The name ``fused:3,4;7|1,2,3,4,7|1,2|1`` of a location: results, what is performed, begun, read."""

    def text(ids: Iterable[int]) -> str:
        return ",".join(map(str, sorted(ids)))

    fields = (fused.results, [fused.performed], fused.begun, [fused.read])
    return f"fused:{'|'.join(';'.join(map(text, groups)) for groups in fields)}"


def fused_of(location: Location) -> Fused | None:
    """What `fused_key` says, at any depth; None where nothing does."""
    match type(location).__name__:
        case "NameLoc":
            if location.name_str.startswith("fused:"):
                results, (performed,), begun, (read,) = (
                    [[int(id_) for id_ in group.split(",") if id_] for group in part.split(";")]
                    for part in location.name_str.removeprefix("fused:").split("|")
                )
                return Fused(results, performed, begun, read)
            return fused_of(location.child_loc)
        case "FusedLoc":
            return next((ids for member in location.locations if (ids := fused_of(member)) is not None), None)
        case "CallSiteLoc":
            return fused_of(location.callee)
    return None


PREPARED = "covan:prepared"
"""Name of the location of what gives weights another form: its result is, to lineages, what it is given."""


def is_prepared(location: Location) -> bool:
    """Whether a location, at any depth, is that of what gives weights another form."""
    match type(location).__name__:
        case "NameLoc":
            return location.name_str == PREPARED or is_prepared(location.child_loc)
        case "FusedLoc":
            return any(is_prepared(member) for member in location.locations)
        case "CallSiteLoc":
            return is_prepared(location.callee)
    return False


def trace_of(location: Location) -> tuple[int, ...] | None:
    """The ids of the ``#prov.trace`` metadata of a FusedLoc as written, or None if it carries none.

    Raises:
        ValueError: the attribute holds something else than integers.
    """
    metadata = location.metadata
    if metadata is None:
        return None
    # The explicit cast takes 0.1 us; maybe_downcast() goes through the Python class and takes 14.
    dynamic = sys.modules[type(location).__module__].DynamicAttr
    try:
        attribute = dynamic(metadata)
    except ValueError:
        return None
    if attribute.attr_name != TRACE:
        return None
    (ids_attribute,) = attribute.params
    numbers: list[Any] = [getattr(element, "value", None) for element in ids_attribute.maybe_downcast()]
    if not all(type(number) is int for number in numbers):
        raise ValueError(f"{metadata} holds something that is not an integer")
    return tuple(numbers)


class TraceReader:
    """Reads traces and source lines, remembering every location it has seen.

    Locations are uniqued in their context but the bindings hash the wrapper
    objects by identity; their attributes hash by content and are the cache's keys.
    """

    def __init__(self) -> None:
        self._ids: dict[Any, frozenset[int]] = {}
        self._lines: dict[Any, tuple[str, int] | None] = {}

    def ids(self, location: Location) -> frozenset[int]:
        """All ids that ``location`` names in either form, at any depth.

        Raises:
            ValueError: a ``#prov.trace`` in it holds something else than integers.
        """
        attribute = location.attr
        ids = self._ids.get(attribute)
        if ids is None:
            ids = self._ids[attribute] = self._read(location)
        return ids

    def work(self, op: Operation) -> frozenset[int]:
        """The ids of what ``op`` does: of its location, and with a ``linalg.generic`` that has some, of its body's
        operations. A compiler that moves work on what is read into one leaves its location as it was.
        """
        own = self.ids(op.location)
        if op.name != "linalg.generic" or not own:
            return own
        inner = (view.operation for view in op.regions[0].blocks[0])
        return own.union(*(self.ids(each.location) for each in inner if each.name not in UNTOLD))

    def _read(self, location: Location) -> frozenset[int]:
        match type(location).__name__:
            case "NameLoc":
                below = self.ids(location.child_loc)
                named = parse_key(location.name_str)
                return below if named is None else below | {named}
            case "FusedLoc":
                own = trace_of(location) or ()
                return frozenset(own).union(*[self.ids(member) for member in location.locations])
            case "CallSiteLoc":
                return self.ids(location.callee) | self.ids(location.caller)
        return frozenset()

    def user_line(self, location: Location) -> tuple[str, int] | None:
        """File and line of the innermost file location in ``location``, or None.

        Innermost means the callee before its caller and the first member of a fusion that has a line.
        """
        attribute = location.attr
        if attribute not in self._lines:
            file = find_file(location)
            self._lines[attribute] = None if file is None else (file.filename, file.start_line)
        return self._lines[attribute]


def ids(location: Location) -> frozenset[int]:
    """All ids that ``location`` names in either form, at any depth (for many locations: ``TraceReader``)."""
    return TraceReader().ids(location)


def user_line(location: Location) -> tuple[str, int] | None:
    """File and line of the innermost file location in ``location``, or None."""
    return TraceReader().user_line(location)


def find_file(location: Location) -> Location | None:
    """The innermost FileLineColLoc in ``location``: the callee's, or the first of a fusion."""
    match type(location).__name__:
        case "FileLineColLoc":
            return location
        case "NameLoc":
            return find_file(location.child_loc)
        case "FusedLoc":
            return next((file for member in location.locations if (file := find_file(member))), None)
        case "CallSiteLoc":
            return find_file(location.callee) or find_file(location.caller)
    return None


def _leaves(location: Location, into: dict[Any, Location]) -> None:
    """Collects the members of nested fusions, each once, in order, without the unknown ones.

    The members that name the same id are one leaf: otherwise fusing ops again
    and again, as a long pipeline does, would grow locations without adding to the trace.
    """
    match type(location).__name__:
        # A fusion with metadata of somebody else's, debug info say, is kept whole, not to lose it.
        case "FusedLoc" if location.metadata is None or trace_of(location) is not None:
            for member in location.locations:
                _leaves(member, into)
        case "NameLoc":
            named = parse_key(location.name_str)
            into.setdefault(location.attr if named is None else named, location)
        case "UnknownLoc":
            pass
        case _:
            into.setdefault(location.attr, location)


def fuse(locations: Iterable[Location], context: Any, reader: TraceReader | None = None) -> Location:
    """One location for an op made of several: ``fused<#prov.trace<[sorted union]>>[their leaves]``.

    The result is never nested, and fusing it again with the same locations
    gives it back. Locations without any trace are fused without metadata.
    ``context`` is a torch_mlir context with the prov dialect loaded.
    """
    from torch_mlir import ir

    reader = reader or TraceReader()
    leaves: dict[Any, Location] = {}
    trace: set[int] = set()
    for location in locations:
        trace |= reader.ids(location)
        _leaves(location, leaves)
    members = list(leaves.values())
    if not trace:
        return ir.Location.fused(members, None, context) if members else ir.Location.unknown(context)
    i64 = ir.IntegerType.get_signless(64, context)
    numbers = ir.ArrayAttr.get([ir.IntegerAttr.get(i64, id_) for id_ in sorted(trace)], context)
    return ir.Location.fused(members, ir.DynamicAttr.get(TRACE, [numbers], context), context)


def map_location(location: Location, change: Callable[[Location], Location | None]) -> Location:
    """Rebuilds ``location`` from the leaves up: ``change`` sees a location with its children rebuilt.

    ``change`` returns the replacement, or None to keep the location. Fusions keep their metadata.
    """
    context = location.context
    match type(location).__name__:
        case "NameLoc":
            rebuilt = location.name(location.name_str, map_location(location.child_loc, change), context)
        case "FusedLoc":
            members = [map_location(member, change) for member in location.locations]
            rebuilt = location.fused(members, location.metadata, context)
        case "CallSiteLoc":
            caller = map_location(location.caller, change)
            rebuilt = location.callsite(map_location(location.callee, change), [caller], context)
        case _:
            rebuilt = location
    replacement = change(rebuilt)
    return rebuilt if replacement is None else replacement


def lower(location: Location, names: Mapping[int, str]) -> Location:
    """``location`` with every ``#prov.trace`` replaced by names ``prov:<id>:<name>``.

    A member of the fusion that already names an id keeps its place; one whose
    plain name is that of an id in the trace becomes its key; other ids are
    appended. ``names`` maps ids to names; ids it lacks get an empty name.
    """

    def change(fused: Location) -> Location | None:
        trace = trace_of(fused) if type(fused).__name__ == "FusedLoc" else None
        if trace is None:
            return None
        context = fused.context
        missing = set(trace) - frozenset().union(*[ids(member) for member in fused.locations])
        by_name = {names[id_]: id_ for id_ in sorted(missing, reverse=True) if id_ in names}
        members = []
        for member in fused.locations:
            named = by_name.pop(member.name_str, None) if type(member).__name__ == "NameLoc" else None
            if named is not None:
                missing.discard(named)
                member = member.name(key(named, member.name_str), member.child_loc, context)
            if type(member).__name__ != "UnknownLoc":
                members.append(member)
        members += [fused.name(key(id_, names.get(id_, "")), None, context) for id_ in sorted(missing)]
        return fused.fused(members, None, context)

    return map_location(location, change)


def without(location: Location, dropped: Container[int]) -> Location:
    """``location`` without the names ``prov:<id>:...`` of some ids: they give way to what they wrap."""

    def change(rebuilt: Location) -> Location | None:
        named = parse_key(rebuilt.name_str) if type(rebuilt).__name__ == "NameLoc" else None
        return rebuilt.child_loc if named is not None and named in dropped else None

    return map_location(location, change)


def strip(location: Location) -> Location:
    """``location`` without any trace: a name ``prov:...`` gives way to what it wraps."""

    def change(rebuilt: Location) -> Location | None:
        kind = type(rebuilt).__name__
        if kind == "NameLoc" and parse_key(rebuilt.name_str) is not None:
            return rebuilt.child_loc
        if kind == "FusedLoc":
            leaves: dict[Any, Location] = {}
            for member in rebuilt.locations:
                _leaves(member, leaves)
            metadata = None if trace_of(rebuilt) is not None else rebuilt.metadata
            return rebuilt.fused(list(leaves.values()), metadata, rebuilt.context)
        return None

    return map_location(location, change)


def rewrite_locations(op: Operation, change: Callable[[Location], Location]) -> None:
    """Gives ``op``, the ops nested in it and their block arguments what ``change`` makes of their locations.

    ``change`` is called once for each distinct location.
    """
    known: dict[Any, Location] = {}

    def new(location: Location) -> Location:
        attribute = location.attr
        rewritten = known.get(attribute)
        if rewritten is None:
            rewritten = known[attribute] = change(location)
        return rewritten

    advance = sys.modules[type(op.location).__module__].WalkResult.ADVANCE

    def visit(nested: Operation) -> Any:
        nested.location = new(nested.location)
        for region in nested.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    argument.set_location(new(argument.location))
        return advance

    op.operation.walk(visit)
