"""Checks the history: which operations carry a part after a step is what the phases' graphs say, and no step is left
out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from covan_mlir.checking.verdict import Counterexample
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.phases import PROGRAM

if TYPE_CHECKING:
    from covan_mlir.checking.source_system import SourceSystem
    from covan_mlir.checking.subject import Subject
    from covan_mlir.provenance.model import LineageData
    from covan_mlir.provenance.program_graph import ProgramGraph

_PHASE = "history"
_UNTOLD = ("torch.prim.",)
_ON_CPUS = ("iree:data-tiling", "iree:strided-reads", "iree:sliced-gathers", "iree:marked-halves")
_ALWAYS = ("iree:filled-memory", "iree:concat-slices", "iree:scalar-slices", "iree:dispatch-creation")
"""Steps behind the last one after which the program is seen, up to the last one of a history."""
_BEFORE = "import"
"""Of a history pass by pass the first entry: what the program held before any."""
_ON_SCALARS = "arith."
"""What computes sizes is counted among these, and is no node of the graphs."""
_CHAINS = frozenset({"fred.chain", "func.call", "flow.dispatch"})
_MOVES = frozenset({"linalg.transpose", "linalg.broadcast", "tensor.extract_slice", "tensor.pad"})
"""What each chain that reads its result does anew."""
Carriers = dict[int, dict[str, int]]
"""By part, the operations that carry it, by count."""


def check_history(subject: Subject) -> tuple[list[Counterexample], list[str]]:
    """What is wrong with the history; what could not be checked."""
    return list(_check(subject)), []


def vanished(lineage: LineageData) -> Mapping[int, str]:
    """The step after which no operation carried a part any more, of the parts that vanished."""
    if not lineage.history:
        return {}
    gone = dict.fromkeys(lineage.parts, lineage.history[0][0])
    for step, changes in lineage.history:
        for part, operations in changes.items():
            if operations is None:
                gone[part] = step
            else:
                gone.pop(part, None)
    return gone


def _check(subject: Subject) -> Iterator[Counterexample]:
    lineage = subject.lineage
    graphs = {phase.step: phase.graph for phase in lineage.phases if phase.step != PROGRAM}
    source = subject.source()
    now: Carriers = {}
    plain: Carriers = {}  # before there were chains
    seen: list[str] = []
    for step, changes in lineage.history:
        for part, operations in changes.items():
            if part not in lineage.parts:
                continue  # of an action as a whole
            if operations == now.get(part):
                yield _wrong(subject, part, f"is said to be changed by {step}, which left it as it was")
            if operations is None:
                now.pop(part, None)
            else:
                now[part] = dict(operations)
        seen.append(step)
        if step in graphs:
            if _CHAINS.isdisjoint(_name(node.op) for node in graphs[step].nodes):
                plain = {part: dict(operations) for part, operations in now.items()}
            yield from _carried(subject, step, graphs[step], now, plain, source)
    # A step's own entry stands behind those of its passes.
    steps = [step for place, step in enumerate(seen) if "/" not in step and (place, step) != (0, _BEFORE)]
    if steps not in ([*graphs, *_ON_CPUS, *_ALWAYS], [*graphs, *_ALWAYS]):
        why = f"the steps were {', '.join(steps)}, but the program was seen after {', '.join(graphs)}"
        yield Counterexample(_PHASE, why)


def _carried(
    subject: Subject, step: str, graph: ProgramGraph, now: Carriers, plain: Carriers, source: SourceSystem
) -> Iterator[Counterexample]:
    """Each operation of the graph carries the parts that it is named after; of those that vary, no other one does."""
    least: dict[int, Counter[str]] = {}
    for node in graph.nodes:
        for part in node.evidence if node.kind != "control" else ():
            least.setdefault(part, Counter())[_name(node.op)] += 1
    for part, operations in least.items():
        if part not in subject.lineage.parts:
            continue
        for name, number in operations.items():
            told = now.get(part, {}).get(name, 0)
            if told < number and not name.startswith(_UNTOLD):
                why = f"is said to be carried by {told} × {name} after {step}, but {number} of them carry it"
                yield _wrong(subject, part, why)
    nodes = Counter(_name(node.op) for node in graph.nodes)
    for part, carriers in now.items():
        for name, told in carriers.items():
            if name.startswith(_ON_SCALARS):
                continue
            # A chain of reductions is named after what it computes: the views in it are on its location only.
            most = nodes[name] if name in _CHAINS and _is_view(subject, part) else least.get(part, Counter())[name]
            if name in nodes and told > most and name in _CHAINS:
                shaped = _of_shared_weights(source, graph, part, name)
                before = plain.get(part, {})
                # No chain holds less than one of those.
                if told <= sum(before.values()) or not _MOVES.isdisjoint(before):
                    shaped |= _of_read_values(subject, source, graph, part, name)
                most += len(shaped)
            if name in nodes and told > most and not source.constant.get(part, True):  # constants may be made at load
                why = f"is said to be carried by {told} × {name} after {step}, but {most} of them carry it"
                yield _wrong(subject, part, why)


def _of_shared_weights(source: SourceSystem, graph: ProgramGraph, part: int, name: str) -> set[int]:
    """Chains that do not compute a part, but one that reads a weight with it: that is shaped once for both."""

    def weights(reader: int) -> set[Operand]:
        operands = source.call(reader).operands if reader in source.parts else ()
        return {(kind, of) for kind, of in operands if kind == "w" or (kind == "p" and source.constant[int(of)])}

    own = weights(part)
    others = _others(source, graph, part, name)
    return {node for node, parts in others.items() if any(not own.isdisjoint(weights(other)) for other in parts)}


def _of_read_values(subject: Subject, source: SourceSystem, graph: ProgramGraph, part: int, name: str) -> set[int]:
    """Chains that do not compute a part, but read its value, or give what it reads, as it is or as a view: what the
    part only moves or shapes for that is theirs."""

    def read(reader: int) -> set[int]:
        values: set[int] = set()
        stack = [reader]
        while stack:
            for kind, of in source.call(stack.pop()).operands:
                if kind == "p" and of in source.parts and source.twin(int(of)) not in values:
                    values.add(source.twin(int(of)))
                    if shapes(int(of)):
                        stack.append(int(of))
        return values

    def shapes(part: int) -> bool:
        return source.parts[part].view or (identities is not None and identities.kept(part) is not None)

    identities = subject.identities
    if part not in source.parts:
        return set()
    own, behind = source.twin(part), read(part)
    return {
        node
        for node, parts in _others(source, graph, part, name).items()
        for other in parts
        if source.twin(other) in behind or own in read(other)
    }


def _others(source: SourceSystem, graph: ProgramGraph, part: int, name: str) -> dict[int, list[int]]:
    """What the chains that do not compute a part compute."""
    return {
        index: [other for other in node.evidence if other in source.parts]
        for index, node in enumerate(graph.nodes)
        if _name(node.op) == name and part not in node.evidence
    }


def _name(op: str) -> str:
    """The name of an operation alone."""
    return op.partition("(")[0]


def _is_view(subject: Subject, part: int) -> bool:
    return part in subject.lineage.parts and subject.lineage.parts[part].view


def _wrong(subject: Subject, part: int, why: str) -> Counterexample:
    return subject.example(_PHASE, f"{subject.words.part(part)} {why}", parts=(part,))
