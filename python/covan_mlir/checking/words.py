"""What verification calls things: parts by operator and source line, sites by kernel, operations by their parts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from covan_mlir.provenance.arguments import Operand

if TYPE_CHECKING:
    from covan_mlir.provenance.model import Action, LineageData
    from covan_mlir.provenance.program_graph import ProgramGraph

_MOST = 3


class Words:
    """Names for the parts, actions and sites of a lineage."""

    def __init__(self, lineage: LineageData) -> None:
        self._lineage = lineage

    def part(self, part: int) -> str:
        """``relu (aten.relu.default, model.py:12, blocks.0)``."""
        known = self._lineage.parts.get(part)
        if known is None:
            return f"part {part}, which the model does not have,"
        action = self._lineage.actions[known.action]
        return _described(known.name, known.op, action)

    def parts(self, parts: Collection[int]) -> str:
        """The first of them, and how many more there are."""
        told = [self.part(part) for part in list(parts)[:_MOST]]
        more = f" and {len(parts) - _MOST} more" if len(parts) > _MOST else ""
        return f"{', '.join(told)}{more}"

    def action(self, action: int) -> str:
        """``softmax (aten.softmax.int, model.py:12, blocks.0)``."""
        known = self._lineage.actions[action]
        return _described(known.name, known.op, known)

    def operand(self, operand: Operand) -> str:
        """A part, ``argument 0`` or ``weight fc.weight``."""
        kind, name = operand
        return self.part(int(name)) if kind == "p" else f"{'argument' if kind == 'a' else 'weight'} {name}"

    def site(self, site: int) -> str:
        """``site 3 (main_dispatch_3_matmul_8x8)``."""
        return f"site {site} ({self._lineage.sites[site].kernel})"

    def sites(self, sites: Sequence[int]) -> str:
        """``no site``, or those that there are."""
        return ", ".join(map(self.site, sites)) if sites else "no site"

    def node(self, graph: ProgramGraph, node: int) -> str:
        """``linalg.generic of relu (aten.relu.default, model.py:12)``."""
        held = graph.nodes[node]
        named = sorted(held.all_states or held.evidence)
        return f"{held.op or 'a dispatch'} of {self.parts(named)}" if named else f"{held.op or 'a dispatch'} of no part"

    def actions(self, parts: Collection[int]) -> tuple[str, ...]:
        """Names of the actions of parts, each once."""
        known = self._lineage.parts
        owners = (owner for part in parts if part in known for owner in known[part].owners)
        return tuple(dict.fromkeys(self._lineage.actions[owner].name for owner in owners))


def _described(name: str, op: str, action: Action) -> str:
    return f"{name} ({', '.join(filter(None, (op, action.line, action.module)))})"
