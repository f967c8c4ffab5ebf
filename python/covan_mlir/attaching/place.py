"""Where an attached operator gets its tensor from, by estimate: see docs/attaching.md.

Estimates are of `covan_mlir.profiling.costs`, at the speeds of the machine that the program is compiled for. What
decides is their ratio, some five FLOPs per byte on CPUs. Of the probabilities of attention (12 heads, 64 features, 256
or 512 rows, two cores) storing them was faster in three cases of four.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from covan_mlir.artifacts.attachment import Access, Way
from covan_mlir.frontend.actions import action_of
from covan_mlir.frontend.rebuild import mutates, observable, varying
from covan_mlir.machine.description import COMPILER_SHARE, TYPICAL, Machine
from covan_mlir.profiling.costs import Costs
from covan_mlir.provenance import arguments
from covan_mlir.provenance.model import LineageData, Part


def seconds(flops: float, moved: float, machine: Machine) -> float:
    """Of one site on all cores, with what it costs to start it."""
    return machine.ceilings().seconds(flops / COMPILER_SHARE, moved) + machine.dispatch


def sizes(graph: torch.fx.Graph) -> dict[str, int]:
    """The sizes that open dimensions had in the example."""
    sizes_of_example: dict[str, int] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        shape: Any = value.shape if isinstance(value, torch.Tensor) else ()
        for size in shape:
            if not isinstance(size, int) and size.node.expr.is_Symbol and size.node.hint is not None:
                sizes_of_example[str(size.node.expr)] = int(size.node.hint)
    return sizes_of_example


@dataclass(frozen=True)
class ChosenAccess:
    """The cheapest place, and all that were considered.

    Attributes:
        again: names of the nodes to be computed anew.
    """

    way: Way
    places: tuple[Access, ...]
    again: frozenset[str] = frozenset()


class AccessPlanner:
    """The cheapest ways to have tensors of one program.

    Args:
        lineage: of the program without attachments.
        machine: that it is compiled for.
    """

    def __init__(
        self, program: ExportedProgram, lineage: LineageData, symbols: Mapping[str, int], machine: Machine = TYPICAL
    ) -> None:
        graph = self._graph = program.graph
        self._machine = machine
        self._varying = varying(program)
        self._lineage = lineage
        self._costs = Costs(lineage, symbols)
        owner = {node: number for node, number in action_of(graph).items() if node.graph is graph}
        self._nodes = {node.name: node for node in owner}
        self._actions = {node.name: lineage.actions[number] for node, number in owner.items()}
        self._last = {number: node for node, number in owner.items()}

    def choose(self, wanted: Sequence[tuple[str, bool]]) -> tuple[ChosenAccess, ...]:
        """The cheapest way to have the result of each action.

        A tensor for which a site is cut is in memory for all others.

        Args:
            wanted: names of nodes, and whether it is for a tap: what is replaced gives way to its replacement, and
                nothing that is computed from it can be computed again beside it.
        """
        replaced = {name for name, tap in wanted if not tap}
        stored: frozenset[str] = frozenset()
        while True:
            choices = tuple(self._choose(name, tap, replaced, stored) for name, tap in wanted)
            cut = {name for (name, _), choice in zip(wanted, choices, strict=True) if choice.way == "split"}
            if cut <= stored:
                return choices
            stored |= cut

    def _choose(self, name: str, tap: bool, replaced: set[str], stored: frozenset[str]) -> ChosenAccess:
        part = self._result(name)
        if part is None or self._in_memory(part):
            return ChosenAccess("at hand", (Access("at hand", 0.0, 0.0, 0.0),))
        if not tap:
            return ChosenAccess("in place", (Access("in place", 0.0, 0.0, 0.0),))
        split = self._split(part)
        again = self._again(name, stored - {name})
        if again is None or any(replaced & {n, *(r.name for r in self._nodes[n].all_input_nodes)} for n in again):
            return ChosenAccess("split", (split,))
        new = self._recompute(again)
        places = tuple(sorted((split, new), key=lambda access: access.seconds))
        return ChosenAccess(places[0].way, places, again if places[0] is new else frozenset())

    def _result(self, name: str) -> Part | None:
        """The part that computes an action's result, behind views."""
        parts = [part for part in self._actions[name].parts if not part.sizes]
        part = parts[-1] if parts else None
        while part is not None and part.view:
            source = [i for kind, i in arguments.operands(part.args) if kind == "p"]
            part = self._lineage.parts[int(source[0])] if source else None
        return part

    def _in_memory(self, part: Part) -> bool:
        fate = self._lineage.part_fates.get(part.id)
        if fate is None or fate.kind != "dispatched":
            return True  # a constant, or another's value, which is asked about by its own name
        # A kernel and what pads or clears memory for it perform it together.
        return self._costs.leaves(part, {i for site in fate.sites for i in self._lineage.sites[site].parts})

    def _split(self, part: Part) -> Access:
        """Cut the site: what is on the way to the tensor, and the rest; values between go through memory."""
        site = self._lineage.sites[self._lineage.part_fates[part.id].sites[-1]]
        before = self._before(part, set(site.parts))
        crossing = {part.id} | {
            i
            for number in set(site.parts) - before
            for kind, i in arguments.operands(self._lineage.parts[number].args)
            if kind == "p" and i in before
        }
        moved = self._bytes(crossing) + self._inner(before - crossing)
        return Access("split", moved, 0.0, seconds(0.0, moved, self._machine))

    def _bytes(self, parts: Iterable[Any]) -> float:
        """Of values, written and read."""
        return 2 * sum(self._costs.bytes(self._lineage.parts[int(i)]) for i in parts)

    def _inner(self, parts: Iterable[int]) -> float:
        """Outside of a fused kernel what a contraction gives goes through memory."""
        return self._bytes(i for i in parts if self._costs.contracts(self._lineage.parts[i]))

    def _before(self, part: Part, inside: set[int]) -> set[int]:
        before = {part.id}
        stack = [part.id]
        while stack:
            for i in self._lineage.parts[stack.pop()].inputs:
                if i not in before and (i in inside or self._lineage.parts[i].view):
                    before.add(i)
                    stack.append(i)
        return before

    def _again(self, name: str, stored: frozenset[str]) -> frozenset[str] | None:
        """What has to be computed anew, from what is in memory; None where that gives other values.

        Args:
            stored: what is in memory beside what the program has there by itself.
        """
        if mutates(self._graph):
            return None
        repeated: set[str] = set()
        stack = [self._nodes[name]]
        while stack:
            node = stack.pop()
            if node.name in repeated:
                continue
            if not _repeatable(node):
                return None
            repeated.add(node.name)
            stack += [
                read
                for read in node.all_input_nodes
                if read.op == "call_function"
                and read.name in self._varying  # a constant is read as it is
                and read.name not in stored
                and not (observable(read) and self._at_hand(read))
            ]
        return frozenset(repeated)

    def _at_hand(self, node: Node) -> bool:
        action = self._actions[node.name]
        if self._last[action.id] is not node:
            return False  # inside of an operation that was translated: nobody knows where
        if self._lineage.fates[action.id].kind == "view":
            return False  # viewed again at no cost
        part = self._result(node.name)
        return part is not None and self._in_memory(part)

    def _recompute(self, names: frozenset[str]) -> Access:
        parts = [part for name in names for part in self._actions[name].parts]
        inside = {part.id for part in parts}
        flops = sum(self._costs.flops(part) for part in parts)
        read: dict[arguments.Operand, float] = {}
        for part in parts:
            types = arguments.operand_types(part.args)
            for operand in arguments.operands(part.args):
                if operand[0] == "p" and operand[1] in inside:
                    continue
                read[operand] = self._costs.operand_bytes(operand, types)
        moved = sum(read.values()) + self._inner(inside)
        return Access("recompute", moved, flops, seconds(flops, moved, self._machine))


def _repeatable(node: Node) -> bool:
    """Whether a call gives the same when it is made again."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return not isinstance(node.target, torch._ops.HigherOrderOperator)
    return torch.Tag.nondeterministic_seeded not in node.target.tags and not node.target._schema.is_mutable


def totals(lineage: LineageData, symbols: Mapping[str, int], machine: Machine = TYPICAL) -> tuple[float, float, float]:
    """Bytes, FLOPs and seconds of one call, by estimate."""
    costs = Costs(lineage, symbols)
    moved = flops = time = 0.0
    for site in lineage.sites:
        if site.phase != "call":
            continue
        own = sum(costs.traffic(site).values())
        work = sum(costs.flops(lineage.parts[i]) for i in site.parts)
        moved, flops, time = moved + own, flops + work, time + seconds(work, own, machine)
    return moved, flops, time
