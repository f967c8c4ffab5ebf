"""``prov-check``: is a function what its module's table says, as its traces tell?"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.checking.ledger import Fault, Ledger
from covan_mlir.dialects.prov import has_table, read_table
from covan_mlir.dialects.prov_baseline import read_baseline
from covan_mlir.dialects.prov_graph import TraceGraph, functions
from covan_mlir.dialects.prov_kept import kept_text, parse_kept
from covan_mlir.dialects.prov_locations import TraceReader
from covan_mlir.passes.framework.interface import PassFailure

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProvCheck:
    """Checks every function against the table: weak bisimulation of the two action-reflected graphs, up to the traces.

    The table is the module's ``prov.table``, or what ``prov-drop-table{keep=true}`` left of it. What an operation
    performs is what lies, in the table's graph of parts, between the states of its operands and those of its results;
    traces only say which state a result is. So an operation that lost its trace passes for a piece of those around it.
    Fails with an error at each operation that reads a value which is not there, or whose trace names what does not lie
    between its states.

    Before, where the table says that part 3, abs, reads part 2::

        %e = math.exp %x : f32 loc("prov:1:exp")
        %n = arith.negf %e : f32 loc("prov:2:neg")
        %c = math.cos %n : f32 loc("prov:4:cos")
        %a = math.absf %c : f32 loc("prov:3:abs")

    After: the same, and the error ``'math.absf' op reads the value of neg (part 2) for abs (part 3), which no operation
    gives it``.

    A function that ``prov-baseline`` has seen must give the parts that it gave then; what could not be told then is an
    error only if it is about parts that could.
    """

    name: ClassVar[str] = "prov-check"
    op_name: ClassVar[str | None] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        ledger = _ledger(op)
        wrong = sum(self._check(function, ledger) for function in functions(op))
        if wrong:
            operations = f"{wrong} operation{'s' if wrong > 1 else ''}"
            raise PassFailure(f"{operations} of the module cannot be what the table's parts are")

    def _check(self, function: ir.Operation, ledger: Ledger) -> int:
        """Reports what is wrong with a function; returns how many operations it is about."""
        trace = TraceGraph(TraceReader())
        trace.build(function)
        if any(op.name.startswith("prov.") for op in trace.operations):
            raise PassFailure("the module is reflected: project it first (prov-project)", function.location)
        before = read_baseline(function)
        returned = ledger.returned(before or trace.graph)
        faults = ledger.faults(trace.graph, returned)
        if faults and before is not None:
            faults = _new(faults, ledger.faults(before, returned), ledger)
        for fault in faults:
            place = trace.operations[fault.node] if fault.node >= 0 else function
            place.location.emit_error(f"'{place.name}' op {fault.why}")
        return len(faults)


def _new(faults: tuple[Fault, ...], before: tuple[Fault, ...], ledger: Ledger) -> tuple[Fault, ...]:
    """The faults that are not about what was at fault before."""
    if not before:
        return faults
    old = frozenset[int]().union(*(fault.parts for fault in before))
    names = ", ".join(map(ledger.name, sorted(old))) or before[0].why
    log.info("not checked, for the passes before ours left it unexplained: %s", names)
    return tuple(fault for fault in faults if old and fault.parts and old.isdisjoint(fault.parts))


def _ledger(module: ir.Operation) -> Ledger:
    """The parts of the module's table.

    Raises:
        PassFailure: it has none.
    """
    if has_table(module):
        return Ledger(read_table(module))
    text = kept_text(module)
    if text is None:
        raise PassFailure("the module has no prov.table: there is nothing to check it against")
    return _kept(text)


@lru_cache(maxsize=1)  # several checks of one compilation
def _kept(text: str) -> Ledger:
    return Ledger(parse_kept(text))
