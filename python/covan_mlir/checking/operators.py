"""The check of operators, in words: `covan_mlir.checking.bodies` finds, this says where."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from covan_mlir.checking.verdict import Check, Counterexample
from covan_mlir.provenance.bodies import malformed
from covan_mlir.provenance.model import LineageData, Site
from covan_mlir.provenance.program_graph import ProgramGraph

OPERATORS = "operators"
_NO_TORCH = "operators were not evaluated: torch is not installed"
_NO_BODIES = "operators were not evaluated: what the sites compute was not kept"


def check_operators(lineage: LineageData, graph: ProgramGraph, performed: Sequence[Iterable[int]]) -> Check:
    """Whether each site's own code computes what it is said to give.

    Args:
        graph: of the final program.
        performed: parts that each node is said to perform.
    """
    start = time.perf_counter()
    if graph.nodes and not lineage.bodies.nodes:
        return Check(OPERATORS, "incomplete", missing=(_NO_BODIES,))
    if wrong := malformed(lineage.bodies, len(graph.nodes)):
        return Check(OPERATORS, "incomplete", missing=(f"operators were not evaluated: {wrong}",))
    try:
        from covan_mlir.checking.bodies import ERRORS, BodyCheck, told
        from covan_mlir.checking.tensors import deep
    except ImportError:
        return Check(OPERATORS, "incomplete", missing=(_NO_TORCH,))
    try:
        check = BodyCheck(lineage, graph, performed)
        with deep():
            check.run()
    except ERRORS as error:  # parts that contradict each other, which other checks find
        return Check(OPERATORS, "incomplete", missing=(f"operators were not evaluated: {told(error)}",))
    words = _Words(lineage)
    false = [words.false(node, parts) for node, parts in check.false]
    missing = [words.unread(node, why, graph) for node, why in sorted(check.unread.items())]
    findings = {key: state.exactly for key, state in check.states.items() if state.exactly is not None}
    return Check(
        OPERATORS,
        "no" if false else "incomplete" if missing else "yes",
        related=len(check.states),
        counterexamples=tuple(false),
        missing=tuple(missing),
        exact=sum(finding.outcome == "equal" for finding in findings.values()),
        rounded=tuple(
            words.unread(node, finding.why, graph)
            for (node, _), finding in findings.items()
            if finding.outcome == "open"
        ),
        seconds=time.perf_counter() - start,
    )


class _Words:
    def __init__(self, lineage: LineageData) -> None:
        self._lineage = lineage
        self._sites: Mapping[int, Site] = {site.node: site for site in reversed(lineage.sites) if site.node is not None}

    def false(self, node: int, parts: Sequence[int]) -> Counterexample:
        """A node, or result of the program, that is not what it is said to be."""
        said = " or ".join(map(self._part, parts[:3])) or "an argument as it came"
        owners = (owner for part in parts for owner in self._lineage.parts[part].owners)
        actions = dict.fromkeys(self._lineage.actions[owner].name for owner in owners)
        if node < 0:
            why = f"result {-1 - node} of the program does not have the value of {said}"
            return Counterexample(OPERATORS, why, None, tuple(actions))
        site = self._sites.get(node)
        if site is None:  # a value of a branch or loop, or what moves one
            return Counterexample(OPERATORS, f"{said} is not what the program has in its place", None, tuple(actions))
        why = f"its code ({site.kernel}) does not compute {said} of what it is given"
        return Counterexample(OPERATORS, why, site.id, tuple(actions), site.kernel)

    def unread(self, node: int, why: str, graph: ProgramGraph) -> str:
        """A node, or result of the program, of which something is not known."""
        if node < 0:
            return f"result {-1 - node} of the program: {why}"
        site = self._sites.get(node)
        states = sorted(graph.nodes[node].all_states & self._lineage.parts.keys())
        place = f"site {site.id} ({site.kernel})" if site else "between sites"
        return f"{place}, {' and '.join(map(self._part, states[:2]))}: {why}"

    def _part(self, index: int) -> str:
        part = self._lineage.parts[index]
        line = self._lineage.actions[part.action].line
        return f"{part.name} ({part.op}{f', {line}' if line else ''})"
