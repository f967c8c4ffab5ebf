"""``torch-superoptimise``: the program that is predicted to take least, of those that proved rules make of one."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import ClassVar

from msgspec.structs import replace
from torch_mlir import ir

from covan_mlir.dialects.prov import has_table, read_table, write_table
from covan_mlir.dialects.prov_graph import functions
from covan_mlir.dialects.substituted import ASSUMED, RULES, SUBSTITUTED
from covan_mlir.lowering.kernels.for_target import ForTarget
from covan_mlir.lowering.kernels.predicted import PredictedCost
from covan_mlir.passes.framework import progress
from covan_mlir.passes.framework.interface import PassFailure
from covan_mlir.passes.framework.trace_check import current_journal
from covan_mlir.passes.substitution.ledger import Ledger, ledger_of, renewed
from covan_mlir.passes.substitution.reading import NoTerm, Reading, read
from covan_mlir.passes.substitution.replay import Replay, replay
from covan_mlir.passes.substitution.rewritten import rewrite
from covan_mlir.passes.substitution.writing import WRITABLE, NotWritableError
from covan_mlir.provenance.substitution import (
    AppliedRule,
    Rewrite,
    SourcePart,
    SubstitutedGraph,
    SubstitutedPart,
    Substitution,
)
from covan_mlir.subst.floating import BOUND
from covan_mlir.subst.matching import Direction, directions
from covan_mlir.subst.program import Store
from covan_mlir.subst.rule_file import NamedRule, shipped
from covan_mlir.subst.rule_file import read as read_rules
from covan_mlir.subst.search import Outcome, Step, search
from covan_mlir.subst.terms import Apply, subterms


@dataclass(frozen=True)
class TorchSuperoptimise(ForTarget):
    """Rewrites ``@main`` by rules that are proved for all sizes, where the result is predicted to be faster.

    Kernels are predicted, or were measured, as `fred-kernels` chooses them. Every new operation carries the traces of
    those whose work it does. In a module with a ``prov.table`` the parts of the table are those of the new program
    afterwards; what was replaced by which rule is the module's ``covan.substituted``.

    Before::

        %0 = torch.aten.mm %x, %v : ... loc("q")
        %1 = torch.aten.mm %x, %w : ... loc("k")

    After::

        %both = torch.aten.cat [%v, %w], 1 : ... loc(fused["q", "k"])
        %all = torch.aten.mm %x, %both : ... loc(fused["q", "k"])
        %0 = torch.aten.slice.Tensor %all, 1, 0, 64, 1 : ... loc("q")
        %1 = torch.aten.slice.Tensor %all, 1, 64, 128, 1 : ... loc("k")

    Options:
        seconds: after which the best program so far is taken
        error: rules are left out that may make errors in floating point larger by more than this factor
        target: what the program is for, as ``covan compile --target`` takes it
        fuse: pays: where a chain is predicted to pay, it becomes a kernel; always: wherever there is one
        winograd: how many times as large as that of a direct sum the rounding error of a convolution by Winograd's
            filtering may be; 0: there are none
        demote-f64: kernels compute in float32 what the program has in float64
    """

    name: ClassVar[str] = "torch-superoptimise"
    op_name: ClassVar[str | None] = "builtin.module"

    seconds: int = 60
    error: int = int(BOUND)

    def run(self, op: ir.Operation) -> None:
        chooser = self.chooser(op)
        if chooser is None:
            raise PassFailure(f"kernels are not predicted for {self.target or 'no target'}", op.location)
        mains = [function for function in functions(op) if function.attributes["sym_name"].value == "main"]
        for function in mains:
            began = time.monotonic()
            store = Store()
            try:
                reading = read(function, store)
            except NoTerm:
                continue
            roots = [reading.nodes[value] for value in reading.roots]
            rules = self.rules(op)
            outcome = search(store, roots, rules, PredictedCost(chooser), self.seconds, note=progress.report)
            _apply(op, function, reading, outcome, time.monotonic() - began)

    def rules(self, op: ir.Operation) -> list[Direction]:
        """The rules that are applied: the shipped ones and the user's, as far as operations can be written for them."""
        named = shipped() + _own(op)
        bounded = [rule for rule in named if rule.floats <= self.error or rule.certificate.status == "assumed"]
        return [rule for rule in directions(bounded) if _writable(rule)]


def _own(op: ir.Operation) -> list[NamedRule]:
    if RULES not in op.attributes:
        return []
    return read_rules(op.attributes[RULES].value, assume=ASSUMED in op.attributes)


def _writable(rule: Direction) -> bool:
    return all(term.op in WRITABLE for term in subterms(rule.target) if isinstance(term, Apply))


def _apply(module: ir.Operation, function: ir.Operation, reading: Reading, outcome: Outcome, seconds: float) -> None:
    """Rewrite the function, and say what was done."""
    table = read_table(module) if has_table(module) else None
    ledger = ledger_of(table, reading) if table is not None else None
    named = _named(reading, ledger) if ledger is not None else {}
    told = Substitution(
        before=outcome.before,
        after=outcome.after,
        states=outcome.states,
        costed=outcome.costed,
        finished=outcome.finished,
        seconds=seconds,
    )
    graph = SubstitutedGraph(told)
    if outcome.steps:
        if ledger is None:
            named = {f"v{place}": number for place, number in enumerate(dict.fromkeys(reading.nodes.values()))}
        replayed = replay(reading, outcome.steps, named)
        names = ", ".join(dict.fromkeys(step.match.rule.name for step in outcome.steps))
        try:
            rewritten = rewrite(function, reading, replayed, f"rewritten by {names}")
        except NotWritableError as error:
            raise PassFailure(str(error), function.location) from error
        graph = SubstitutedGraph(_substitution(told, outcome.steps, replayed, ledger, reading))
        if ledger is not None:
            new = renewed(function, ledger, reading, replayed, rewritten)
            write_table(module, new.table)
            current_journal().renumbered.update(new.ids)
            graph = SubstitutedGraph(
                graph.substitution,
                tuple(SubstitutedPart(p.id, p.owners, p.name, p.op, p.types, p.view, p.args) for p in new.table.parts),
                new.results,
            )
    text = json.dumps(graph.to_json())
    module.attributes[SUBSTITUTED] = ir.StringAttr.get(text, module.context)


def _named(reading: Reading, ledger: Ledger) -> dict[str, int]:
    """Nodes that have a place by themselves: values of parts, arguments and weights."""
    named = {f"p{part}": reading.results[position][0] for position, part in sorted(ledger.part.items())}
    for value, operand in ledger.operands.items():
        for kind, prefix in (("a", "a"), ("w", "w:")):
            if kind in operand:
                named[f"{prefix}{operand[kind]}"] = reading.nodes[value]
    return named


def _substitution(
    told: Substitution, steps: tuple[Step, ...], replayed: Replay, ledger: Ledger | None, reading: Reading
) -> Substitution:
    """What was done; without a ledger, which actions it was done to is not known."""
    rules: dict[str, AppliedRule] = {}
    rewrites = []
    for step, site in zip(steps, replayed.sites, strict=True):
        rule = step.match.rule
        assumed = rule.certificate.status == "assumed"
        rules.setdefault(rule.name, AppliedRule(rule.name, str(rule.named), assumed))
        actions: set[int] = set()
        if ledger is not None:
            parts = {ledger.part[position] for calls in site.calls for position in calls if position in ledger.part}
            actions = {action for part in parts for action in ledger.rows[part].owners}
        sizes = dict(step.match.sizes)
        rewrites.append(Rewrite(rule.name, site.results, site.bindings, sizes, tuple(sorted(actions)), rule.backward))
    done = replace(told, rules=tuple(rules.values()), steps=tuple(rewrites))
    if ledger is None:
        return done
    returned = [ledger.operands[value] for value in reading.returned]
    return replace(
        done,
        parts=tuple(SourcePart(p.id, p.action, p.name, p.op, p.types, p.view, p.args) for p in ledger.table.parts),
        results=tuple(next(iter(operand.items())) for operand in returned),
    )
