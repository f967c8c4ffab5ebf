"""A model in float and in fewer bits, side by side: how far apart their tensors are, and by which layer's doing.

Unlike `covan_mlir.comparing`, which judges a compiled program by what rounding explains, this measures two functions
that differ on purpose: by the power of the difference over many calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

from covan_mlir.comparing.measure import FILL
from covan_mlir.frontend.rebuild import mutates
from covan_mlir.quantizing.data import Call
from covan_mlir.quantizing.products import Layer

Switch: TypeAlias = Callable[[tuple[Any, ...], Mapping[str, Any]], Any]
"""What a node gives in fewer bits, for its arguments."""


@dataclass(frozen=True)
class Simulated:
    """A graph some of whose nodes can be switched to fewer bits.

    Attributes:
        switches: by the name of a node.
        layers: each with the names of its nodes that can be switched.
        observers: names of nodes that give back what they are given unless they are switched.
    """

    module: GraphModule
    switches: Mapping[str, Switch]
    layers: Sequence[tuple[Layer, frozenset[str]]]
    observers: frozenset[str] = frozenset()


@dataclass
class Noise:
    """The power of numbers, and of how far they are off; sums over all elements."""

    signal: float = 0.0
    noise: float = 0.0

    def add(self, exact: Tensor, given: Tensor) -> None:
        """Elements that are no numbers, or fill masks, count for nothing."""
        exact, given = exact.detach().double(), given.detach().double()
        plain = exact.isfinite() & given.isfinite() & (exact.abs() < FILL)
        self.signal += float(torch.where(plain, exact, 0.0).square().sum())
        self.noise += float(torch.where(plain, exact - given, 0.0).square().sum())

    @property
    def relative(self) -> float:
        """Of the signal's power; infinite where there is noise alone."""
        return 0.0 if self.noise == 0 else self.noise / self.signal if self.signal else math.inf

    @property
    def db(self) -> float:
        """Signal-to-noise ratio."""
        return decibels(self.relative)


def decibels(relative: float) -> float:
    """Of a power of noise, relative to the signal's: infinite without noise."""
    return math.inf if relative == 0 else -10.0 * math.log10(relative) if math.isfinite(relative) else -math.inf


@dataclass
class Measured:
    """What was measured.

    Attributes:
        tensors: by the names of nodes, in order: everything in fewer bits.
        results: the same of the model's results, relative powers, their mean.
        alone: by layer's node, the relative power in the results where it alone has fewer bits.
    """

    tensors: dict[str, Noise] = field(default_factory=dict)
    results: float = 0.0
    alone: dict[str, float] = field(default_factory=dict)


@torch.no_grad()
def measured(simulated: Simulated, calls: Sequence[Call], tell: Callable[[str], None]) -> Measured:
    """Measure all tensors in some calls, and each layer alone in the first of them."""
    measurement = Measured()
    results: list[Noise] = []
    everything = frozenset(simulated.switches)
    for index, call in enumerate(calls):
        tell(f"measuring {index + 1}/{len(calls)}")
        given = _values(simulated, call, everything)
        for (node, exact), (_, value) in zip(_values(simulated, call, frozenset()), given, strict=True):
            if node.op == "output":
                _add(results, exact, value)
            elif node.op == "call_function" and isinstance(exact, Tensor) and exact.is_floating_point():
                measurement.tensors.setdefault(node.name, Noise()).add(exact, value)
    measurement.results = _mean(results)
    exact_results = _results(simulated, calls[0], frozenset())
    for index, (layer, switches) in enumerate(simulated.layers):
        tell(f"measuring layer {index + 1}/{len(simulated.layers)}")
        alone: list[Noise] = []
        _add(alone, exact_results, _results(simulated, calls[0], switches))
        measurement.alone[layer.node.name] = _mean(alone)
    return measurement


def _results(simulated: Simulated, call: Call, on: Set[str]) -> Any:
    *_, (_, results) = _values(simulated, call, on)
    return results


def _add(noises: list[Noise], exact: Any, given: Any) -> None:
    """To the noise of each result of floats."""
    pairs = [
        (one, other)
        for one, other in zip(pytree.tree_leaves(exact), pytree.tree_leaves(given), strict=True)
        if isinstance(one, Tensor) and one.is_floating_point()
    ]
    noises += [Noise() for _ in pairs[len(noises) :]]
    for noise, (one, other) in zip(noises, pairs, strict=True):
        noise.add(one, other)


def _mean(noises: Sequence[Noise]) -> float:
    return sum(noise.relative for noise in noises) / len(noises) if noises else 0.0


def _values(simulated: Simulated, call: Call, on: Set[str]) -> Iterator[tuple[Node, Any]]:
    """Nodes and their values, one by one, of a call with some nodes switched; last the results.

    Two of these run side by side: each writes to buffers of its own, and none sets what is torch's own for all, such
    as whether gradients are kept.
    """
    run = Interpreter(simulated.module, garbage_collect_values=False)
    last: dict[Node, Node] = {read: node for node in simulated.module.graph.nodes for read in node.all_input_nodes}
    arguments = iter(pytree.tree_leaves((call.args, dict(call.kwargs))))
    writes = mutates(simulated.module.graph)
    own: dict[str, Any] = {}
    for node in simulated.module.graph.nodes:
        value = next(arguments) if node.op == "placeholder" else _value(run, node, simulated, on)
        if writes and node.op == "get_attr" and isinstance(value, Tensor):
            value = own.setdefault(str(node.target), value.clone())
        run.env[node] = value
        yield node, value
        for read in node.all_input_nodes:
            if last[read] is node:
                run.env.pop(read, None)


def _value(run: Interpreter, node: Node, simulated: Simulated, on: Set[str]) -> Any:
    args, kwargs = run.fetch_args_kwargs_from_env(node)
    if node.name in on:
        return simulated.switches[node.name](args, kwargs)
    if node.name in simulated.observers:
        return args[0]
    return getattr(run, node.op)(node.target, args, kwargs)


@contextmanager
def unwritten(module: GraphModule) -> Iterator[None]:
    """What a call writes to buffers is undone."""
    held = (
        {str(node.target) for node in module.graph.find_nodes(op="get_attr")} if mutates(module.graph) else set[str]()
    )
    values = [value for name in sorted(held) if isinstance(value := attrgetter(name)(module), Tensor)]
    before = [value.clone() for value in values]
    try:
        yield
    finally:
        with torch.no_grad():
            for value, copied in zip(values, before, strict=True):
                value.copy_(copied)
