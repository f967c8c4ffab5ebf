"""The one rewriter: whoever replaces ops through it cannot lose where they came from.

New ops get the trace of the ops they replace: all that lies between the replaced results and the inputs. So an
expansion gives its op's trace to every piece, a fusion unites the traces, and a copy takes its trace along::

    rewriter = Rewriter(function)
    with rewriter.replacing(mul, total) as new:  # builds before the last op, with the trace of both
        rows = linalg.generic(...)
        new.results(rows)  # takes the place of total's results; mul and total are erased

``patterns`` runs small patterns over such a rewriter until nothing changes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeAlias

from torch_mlir import ir

from covan_mlir.dialects.identity import address
from covan_mlir.dialects.prov_locations import TraceReader, fuse
from covan_mlir.passes.framework.trace_check import current_journal, identity

Op: TypeAlias = ir.Operation | ir.OpView
Built: TypeAlias = "ir.Value | Op | None"


class RewriteError(Exception):
    """A rewrite that would leave wrong IR or wrong provenance: a bug of its pass, reported at ``location``."""

    def __init__(self, message: str, location: ir.Location | None = None) -> None:
        super().__init__(message)
        self.location = location


class Listener(Protocol):
    """Hears of changes while they happen; ``patterns`` keeps its work list with it."""

    def created(self, op: ir.Operation) -> None:
        """``op`` is new, reads other values than before, or has fewer readers."""

    def erasing(self, op: ir.Operation) -> None:
        """``op`` is about to go; nested ops are told of one by one."""


class Replacement:
    """What the body of ``Rewriter.replacing`` says about the new ops."""

    def __init__(
        self,
        rewriter: "Rewriter",
        replaced: tuple[ir.Operation, ...],
        copied: tuple[ir.Operation, ...],
        trace: ir.Location,
    ) -> None:
        self._rewriter = rewriter
        self._replaced = replaced
        self._sources = replaced + copied
        self.location = trace
        """Where ops are built: the trace of all that is replaced. It is the current location in the block."""
        self.values: list[tuple[ir.Value, ir.Value]] = []
        self.roots: list[ir.Operation] = []

    def results(self, *values: Built, of: Op | None = None, retyped: bool = False) -> None:
        """``values`` take the place of the results of ``of``, by default the last of the replaced ops.

        An op stands for its results; None for a result that nobody reads.

        Args:
            retyped: they may be of other types: all who read them are about to be replaced, too.

        Raises:
            RewriteError: their number or their types differ from those of the results.
        """
        op = self._replaced[-1] if of is None else of.operation
        if op not in self._replaced:
            raise RewriteError(f"results of '{op.name}' are given, which is not being replaced", op.location)
        flat: list[ir.Value | None] = []
        for value in values:
            flat.extend([value] if value is None or isinstance(value, ir.Value) else value.operation.results)
        old = list(op.results)
        if len(flat) != len(old):
            raise RewriteError(f"'{op.name}' has {len(old)} results and is given {len(flat)} values", op.location)
        for i, (before, after) in enumerate(zip(old, flat, strict=True)):
            if after is None:
                continue
            if before.type != after.type and not retyped:
                message = f"result {i} of '{op.name}' is a {before.type} and cannot become a {after.type}"
                raise RewriteError(message, op.location)
            self.values.append((before, after))

    def effects(self, *ops: Op) -> None:
        """New ops that nobody reads: stores, calls, functions. Those behind results are found by themselves."""
        self.roots.extend(op.operation for op in ops)

    @contextmanager
    def only(self, *ops: Op) -> Iterator[ir.Location]:
        """Ops built in the block get the trace of these of the replaced ops, and not of all."""
        for op in ops:
            if op.operation not in self._sources:
                raise RewriteError(f"'{op.operation.name}' is not among what is replaced", op.operation.location)
        location = self._rewriter.location_of(*ops)
        with location:
            yield location


class Rewriter:
    """Changes the IR in ``root``; make one for each run of a pass, before anything is built.

    Ops must be erased through it: a wrapper of an op that is gone cannot be told from one of a living op.
    """

    def __init__(self, root: Op, listener: Listener | None = None) -> None:
        self.root = root.operation
        self.context = self.root.context
        self.reader = TraceReader()
        self.changes = 0
        """Number of rewrites so far."""
        self._listener = listener
        self._journal = current_journal()
        # Which ops are new cannot be seen from an op; addresses, not wrappers, so that nothing is kept alive.
        self._known: set[int] = set()
        # The locations handed out: an op that has one was built here, even if nobody has told.
        self._given: set[ir.Attribute] = set()
        self._fused: dict[tuple[ir.Attribute, ...], ir.Location] = {}
        self._remember(_isolated(self.root))

    def location_of(self, *ops: Op) -> ir.Location:
        """The canonical location with the traces of ``ops`` and of all ops in them."""
        locations = [location for op in ops for location in self._locations(op.operation)]
        key = tuple([location.attr for location in locations])
        fused = self._fused.get(key)
        if fused is None:
            fused = self._fused[key] = fuse(locations, self.context, self.reader)
            self._given.add(fused.attr)
        return fused

    def trace(self, op: Op) -> frozenset[int]:
        """The ids that ``op`` and the ops in it carry."""
        return frozenset().union(*map(self.reader.ids, self._locations(op.operation)))

    def _locations(self, op: ir.Operation) -> list[ir.Location]:
        """The op's location and, of those of nested ops, the ones that say more."""
        locations = [op.location]
        if len(op.regions):
            known = set(self.reader.ids(locations[0]))

            def visit(nested: ir.Operation) -> ir.WalkResult:
                location = nested.location
                more = self.reader.ids(location)
                if not more <= known:
                    known.update(more)
                    locations.append(location)
                return ir.WalkResult.ADVANCE

            op.walk(visit)
        return locations

    @contextmanager
    def replacing(
        self, *ops: Op, copies: Sequence[Op] = (), at: ir.InsertionPoint | None = None, reason: str | None = None
    ) -> Iterator[Replacement]:
        """Ops built in the block take the place of ``ops``, which are erased after it, and get their traces.

        Args:
            ops: one or several, the one whose results are replaced last.
            copies: ops whose work the new ones do as well but which stay, because others read them.
            at: where to build; by default before the last of ``ops`` in its block, or before the first reader of an
                earlier one.
            reason: why ids that only ``ops`` carry end here, if the new ops do not carry all of them.

        Raises:
            RewriteError: a result that is read has no successor; a new op carries ids of none of the replaced ops;
                ids are lost without a reason; the ops cannot be brought together at one place.
        """
        replaced = tuple(op.operation for op in ops)
        if not replaced:
            raise RewriteError("nothing is being replaced", self.root.location)
        for i, op in enumerate(replaced if len(replaced) > 1 else ()):
            around = op.parent
            if op in replaced[:i] or (around is not None and _within(around, replaced) is not None):
                raise RewriteError(f"'{op.name}' is replaced twice, or with an op that it stands in", op.location)
        copied = tuple(op.operation for op in copies)
        location = self.location_of(*replaced, *copied)
        new = Replacement(self, replaced, copied, location)
        place = at or ir.InsertionPoint(self._place(replaced, copied))
        with location, place:
            yield new
        self._finish(new, replaced, copied, reason)

    def _place(self, replaced: tuple[ir.Operation, ...], copied: tuple[ir.Operation, ...]) -> ir.Operation:
        """The op before which ``replaced`` can be brought together: after all they read, before all that read them."""
        last = replaced[0]
        if len(replaced) == 1:
            return last
        block = last.block
        for op in replaced:
            if op.block != block:
                raise RewriteError("ops of different blocks are replaced: say where, with at=", op.location)
            last = op if last.is_before_in_block(op) else last
        place = last
        for op in replaced:
            for result in op.results:
                for use in result.uses:
                    user = _in_block(use.owner, block)
                    if user is not None and user not in replaced and user.is_before_in_block(place):
                        place = user
        if place != last:
            for op in (*replaced, *copied):
                for value in op.operands:
                    source = _definition(value)
                    if source is None or source in replaced or source.block != block:
                        continue
                    if not source.is_before_in_block(place):
                        names = (
                            f"'{place.name}' reads an earlier one before '{source.name}' gives a later one its input"
                        )
                        raise RewriteError(f"ops cannot be replaced by one: {names}", op.location)
        return place

    def _finish(
        self,
        new: Replacement,
        replaced: tuple[ir.Operation, ...],
        copied: tuple[ir.Operation, ...],
        reason: str | None,
    ) -> None:
        whole = self.reader.ids(new.location)
        new_ops = self._between(new, replaced)
        carried: set[int] = set()
        for op in new_ops:
            carried |= self._settle(op, new.location, whole)
        lost = whole - carried
        for op in copied:
            lost -= self.trace(op)
        if lost and reason is None:
            op = replaced[-1]
            message = (
                f"replacing '{op.name}' loses ids {_numbers(lost)}: no new op carries them, and no reason is given"
            )
            raise RewriteError(message, op.location)
        for before, after in new.values:
            before.replace_all_uses_with(after)
        for op in replaced:
            for result in op.results:
                for use in result.uses:
                    if _within(use.owner, replaced) is None:
                        message = f"a result of '{op.name}' is replaced by nothing, and '{use.owner.name}' reads it"
                        raise RewriteError(message, op.location)
        for id_ in lost:
            self._journal.eliminated[id_] = reason or ""
        if self._listener is not None:
            for _, after in new.values:
                for use in after.uses:
                    self._listener.created(use.owner.operation)
        self.changes += 1
        self._erase_all(replaced)

    def _between(self, new: Replacement, replaced: tuple[ir.Operation, ...]) -> list[ir.Operation]:
        """The new ops, from the replaced results backwards up to, not including, the inputs."""
        waiting = [source for _, value in new.values if (source := _definition(value)) is not None]
        waiting += new.roots
        gone = {address(op) for op in replaced}
        seen: set[int] = set()
        new_ops: list[ir.Operation] = []

        def visit(op: ir.Operation) -> ir.WalkResult:
            for value in op.operands:
                source = _definition(value)
                if source is not None and address(source) not in seen:
                    waiting.append(source)
            return ir.WalkResult.ADVANCE

        while waiting:
            op = waiting.pop()
            number = address(op)
            if number in seen:
                continue
            seen.add(number)
            if number in gone:
                raise RewriteError(f"a new op reads '{op.name}', which it is to replace", op.location)
            # An input, or another old value that the new ops read as well.
            if number in self._known:
                continue
            # Built here for an earlier replacement, without a way to its results.
            if op.location.attr in self._given and not self.reader.ids(op.location) <= self.reader.ids(new.location):
                continue
            new_ops.append(op)
            op.walk(visit)
        return new_ops

    def _settle(self, new: ir.Operation, trace: ir.Location, whole: frozenset[int]) -> set[int]:
        """Gives ``trace`` to the new op and those in it that have none; returns the ids they carry then."""
        carried: set[int] = set()
        foreign: list[tuple[ir.Operation, frozenset[int]]] = []

        def visit(op: ir.Operation) -> ir.WalkResult:
            ids = self.reader.ids(op.location)
            if not ids and address(op) not in self._known:
                op.location = trace
                ids = whole
                if not ids:
                    self._journal.untraced.add(identity(op))
            if not ids <= whole:
                foreign.append((op, ids - whole))
            carried.update(ids)
            self._known.add(address(op))
            if self._listener is not None:
                self._listener.created(op)
            return ir.WalkResult.ADVANCE

        new.walk(visit)
        for op, ids in foreign:
            message = f"the new '{op.name}' carries ids {_numbers(ids)}, which none of the replaced ops does"
            raise RewriteError(message, op.location)
        return carried

    def replace_by(self, op: Op, *values: Built, reason: str) -> None:
        """Old values take the place of ``op``'s results: a fold, or a twin. Its ids end here, for this reason."""
        with self.replacing(op, reason=reason) as new:
            new.results(*values)

    def erase(self, op: Op, reason: str = "dead") -> None:
        """Erases an op that nobody reads. The ids that it alone carries end here, for this reason.

        Raises:
            RewriteError: somebody reads it.
        """
        gone = op.operation
        for result in gone.results:
            for use in result.uses:
                raise RewriteError(f"'{gone.name}' is read by '{use.owner.name}' and cannot be erased", gone.location)
        for id_ in self.trace(gone):
            self._journal.eliminated.setdefault(id_, reason)
        self.changes += 1
        self._erase_all((gone,))

    def _remember(self, root: ir.Operation) -> None:
        add = self._known.add

        def visit(op: ir.Operation) -> ir.WalkResult:
            add(address(op))
            return ir.WalkResult.ADVANCE

        root.walk(visit)

    def _erase_all(self, ops: tuple[ir.Operation, ...]) -> None:
        waiting = list(ops)
        while waiting:  # readers before what they read, in whatever order the ops were named
            free = [op for op in waiting if not any(True for result in op.results for _ in result.uses)]
            if not free:
                raise RewriteError(f"the replaced ops read each other in a circle: '{waiting[0].name}'")
            waiting = [op for op in waiting if op not in free]
            for op in free:
                self._forget(op)
                op.erase()

    def _forget(self, op: ir.Operation) -> None:
        gone: list[ir.Operation] = []

        def visit(nested: ir.Operation) -> ir.WalkResult:
            gone.append(nested)
            return ir.WalkResult.ADVANCE

        op.walk(visit)
        self._known.difference_update(map(address, gone))
        if self._listener is not None:
            # First of those with fewer readers, for these may go as well.
            for nested in gone:
                for value in nested.operands:
                    source = _definition(value)
                    if source is not None:
                        self._listener.created(source)
            for nested in gone:
                self._listener.erasing(nested)


def _definition(value: ir.Value) -> ir.Operation | None:
    """The op that gives ``value``; None for a block argument."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def _isolated(op: ir.Operation) -> ir.Operation:
    """The op around ``op``, or ``op``, from whose outside nothing in it can be read."""
    while not op.has_trait(ir.IsIsolatedFromAboveTrait) and (above := op.parent) is not None:
        op = above.operation
    return op


def _in_block(op: Op, block: ir.Block) -> ir.Operation | None:
    """The op of ``block`` that is ``op``, or that ``op`` is nested in."""
    inner: ir.Operation | None = op.operation
    while inner is not None and inner.block != block:
        above = inner.parent
        inner = above.operation if above is not None and above.operation.name != "builtin.module" else None
    return inner


def _within(op: Op, ops: tuple[ir.Operation, ...]) -> ir.Operation | None:
    """The one of ``ops`` that is ``op``, or that ``op`` is nested in."""
    inner: ir.Operation | None = op.operation
    while inner is not None and inner not in ops:
        above = inner.parent
        inner = above.operation if above is not None else None
    return inner


def _numbers(ids: frozenset[int] | set[int]) -> str:
    return ", ".join(map(str, sorted(ids)))
