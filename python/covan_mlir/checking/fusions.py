"""Checks what is told about chains of reductions: which parts and kernels they are, their loops, and their proofs.

The proofs are found again, from the chain that was given to code generation: a certificate that is kept is compared
with the one that the provers give now.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from covan_mlir.checking.verdict import Counterexample
from covan_mlir.fred import chain_json
from covan_mlir.fred.chain import Chain, ChainError
from covan_mlir.fred.formulas import line, text
from covan_mlir.fred.scaled_weights import scaled
from covan_mlir.fred.sweep_formulas import sweep_lines

if TYPE_CHECKING:
    from covan_mlir.checking.subject import Subject
    from covan_mlir.fred.certificate import Certificate
    from covan_mlir.provenance.fusion import FusionRecord

_PHASE = "fusions"
_KERNELS = "fred-kernels"


def check_fusions(subject: Subject) -> tuple[list[Counterexample], list[str]]:
    """What is wrong with the records of chains; what could not be checked."""
    fusions = _Fusions(subject)
    return list(fusions.check()), fusions.missing


class _Fusions:
    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.missing: list[str] = []

    def check(self) -> Iterator[Counterexample]:
        yield from self._calls()
        for record in self.subject.lineage.fusions:
            for why in self._record(record):
                told = f"{record.what} of {self.subject.words.parts(record.parts)}: {why}"
                yield self.subject.example(_PHASE, told, parts=record.parts)

    def _calls(self) -> Iterator[Counterexample]:
        """The chains that have a kernel are the calls of kernels that the compiler was seen to put in their place."""
        words = self.subject.words
        records = Counter((f"@{r.kernel}", r.parts) for r in self.subject.lineage.fusions if r.kernel)
        calls: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for phase in self.subject.lineage.phases:
            if phase.step == _KERNELS:
                named = [node for node in phase.graph.nodes if node.op.startswith("func.call(")]
                calls.update((node.op[len("func.call(") : -1], node.evidence) for node in named)
        for kernel, parts in records - calls:
            why = f"the kernel {kernel[1:]} is said to compute {words.parts(parts)}, but no call of it does"
            yield self.subject.example(_PHASE, why, parts=parts)
        for kernel, parts in calls - records:
            why = f"the kernel {kernel[1:]} computes {words.parts(parts)}, and nothing is told of why it may"
            yield self.subject.example(_PHASE, why, parts=parts)

    def _record(self, record: FusionRecord) -> Iterator[str]:
        if bool(record.kernel) == bool(record.reason):
            yield "it is said to have a kernel, and why it has none" if record.kernel else "no reason is told"
        if not record.source:
            if record.chain or record.kernel or record.sweeps or record.certificates:
                yield "formulas are told, but not the chain that they are of"
            return
        try:
            chain = chain_json.load(record.source)
        except ChainError as error:
            yield str(error)
            return
        parts = scaled(chain)
        chain = parts.chain
        if record.chain != tuple(map(line, parts.steps)):
            yield "its formulas are not those of the chain"
        yield from self._rows(record, chain) if record.kernel and chain.single_domain else self._derived(record, chain)

    def _rows(self, record: FusionRecord, chain: Chain) -> Iterator[str]:
        """Rows that are swept again rest on no proof: each reduction is computed once, as the chain has it."""
        lines = Counter(told for sweep in record.sweeps for told in sweep.lines)
        if lines != Counter(map(line, chain.reductions)):
            yield "its loops do not compute each of its reductions once"
        if record.certificates or record.guards or record.refusals:
            yield "proofs are told, but its loops rest on none"

    def _derived(self, record: FusionRecord, chain: Chain) -> Iterator[str]:
        needs = bool(record.kernel) and len(chain.reductions) > 1 and not chain.windowed
        if not record.sweeps and not needs:
            if record.certificates or record.guards or record.refusals:
                yield "proofs are told, but no loops that rest on them"
            return
        try:
            from covan_mlir.fred.fuse import fuse
        except ImportError as error:
            self.missing.append(f"proofs of {record.what} were not found again: {error.name} is not installed")
            return
        try:
            fusion = fuse(chain)
        except ValueError as error:  # no proof, or no fused form
            yield f"what is told cannot be derived from it: {error}"
            return
        sweeps = [(stage.axes, stage.why, tuple(sweep_lines(stage))) for stage in fusion.stages]
        if [(sweep.axes, sweep.why, sweep.lines) for sweep in record.sweeps] != sweeps:
            yield "its loops are not those that can be derived from the chain"
        if sorted(map(_proved, record.certificates)) != sorted(map(_proved, fusion.certificates)):
            yield "its certificates are not those that the provers give for the chain"
        guards = [guard for stage in fusion.stages if stage.rolling for guard in stage.rolling.guards]
        if record.guards != tuple(f"{guard.statistic} where {text(guard.when)}: {guard.reason}" for guard in guards):
            yield "its guards are not those that can be derived from the chain"
        told = (f"{r.target} cannot follow {', '.join(r.statistics)}: {r.reason}" for r in fusion.refusals)
        if record.refusals != tuple(told):
            yield "what is refused is not what cannot be derived from the chain"


def _proved(certificate: Certificate) -> str:
    """What a certificate says, but for who said it and in what time."""
    proofs = [(p.title, p.obligation, p.given, p.axioms, p.result, p.counterexample) for p in certificate.proofs]
    return repr((certificate.claim, proofs))
