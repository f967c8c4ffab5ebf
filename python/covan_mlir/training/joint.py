"""Forward, backward and optimizer of a model as one graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._functorch._aot_autograd.descriptors import (
    InputMutationAOTOutput,
    PlainAOTInput,
    PlainAOTOutput,
    SavedForBackwardsAOTOutput,
    TangentAOTInput,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from covan_mlir.errors import InputError
from covan_mlir.frontend.sources import ROLE
from covan_mlir.training.aot import gradients, partitioned
from covan_mlir.training.graphs import described, results_of
from covan_mlir.training.optimizers import Kept, Rule

aten = torch.ops.aten


@dataclass(frozen=True)
class Learned:
    """A parameter that is learned.

    Attributes:
        rule: how it changes.
        group: number of its group, whose numbers the rule takes.
        index: its position among all parameters of the optimizer.
        optimizer: what the rule is called.
    """

    rule: Rule
    group: int
    index: int
    optimizer: str


@dataclass(frozen=True)
class Joint:
    """A step of training as one graph.

    Attributes:
        module: takes the arguments of the model's graph, in their order, then what optimizers keep, then numbers.
        kept: names of what optimizers keep: of the parameter, and of what is kept of it.
        numbers: group, name and type of each number.
        updates: by position among the results, what they are new values of; the first result is the loss.
    """

    module: GraphModule
    kept: tuple[tuple[str, str], ...]
    numbers: tuple[tuple[int, str, torch.dtype], ...]
    updates: Mapping[int, str]


def state_name(parameter: str, kept: str) -> str:
    """The name of what an optimizer keeps of a parameter, among all that a step of training holds."""
    return f"optimizer.{parameter}.{kept}"


def joint_graph(
    model: GraphModule,
    arguments: Sequence[Tensor],
    names: Sequence[str],
    learned: Mapping[str, Learned],
    clip: float | None = None,
) -> Joint:
    """The graph of a step of training.

    Args:
        model: of functions of tensors; its first result is the loss.
        arguments: those that are learned require gradients.
        names: of the arguments.
        learned: by name, parameters among these.
        clip: the largest norm that all gradients together may have (Pascanu et al., On the difficulty of training
            recurrent neural networks, 2013); larger ones are scaled.

    Raises:
        InputError: the loss is no number, or nothing is learned by it.
    """
    graphs: list[GraphModule] = []

    def take(module: GraphModule) -> Callable[..., Any]:
        graphs.append(module)
        return module

    partitioned(model, arguments, names, take, take)
    if len(graphs) != 2:
        raise InputError("the loss depends on no parameter that the optimizer changes")
    forward, backward = graphs
    return _Builder(forward, backward, names, learned, clip).joint()


@dataclass
class _Builder:
    forward: GraphModule
    backward: GraphModule
    names: Sequence[str]
    learned: Mapping[str, Learned]
    clip: float | None
    graph: Graph = field(default_factory=Graph)
    traced: dict[Any, GraphModule] = field(default_factory=dict)

    def joint(self) -> Joint:
        """The whole graph."""
        inside, arguments = self._forward()
        loss, updates, saved = self._results(inside)
        value = loss.meta["val"]
        if value.numel() != 1 or not value.is_floating_point():
            raise InputError(f"the loss is a tensor {list(value.shape)} of {value.dtype}; it has to be one number")
        slopes = self._backward(saved, value)
        if self.clip is not None:
            slopes = self._clipped(slopes, self.clip)
        kept = [(name, keeps) for name in slopes for keeps in self.learned[name].rule.keeps]
        states = {}
        for name, keeps in kept:
            states[name, keeps] = self._placeholder(state_name(name, keeps), arguments[name].meta["val"])
        numbers: dict[tuple[int, str, torch.dtype], Node] = {}
        for name, gradient in slopes.items():
            updates |= self._update(name, arguments[name], gradient, states, numbers)
        self.graph.output((loss, *updates.values()))
        module = GraphModule(torch.nn.Module(), self.graph)
        module.graph.eliminate_dead_code()
        return Joint(module, tuple(kept), tuple(numbers), dict(enumerate(updates, 1)))

    def _forward(self) -> tuple[dict[Node, Node], dict[str, Node]]:
        """-> what the nodes of the forward graph are now, and the arguments by name."""
        inside: dict[Node, Node] = {}
        placeholders = {node.meta["desc"].idx: node for node in self.forward.graph.find_nodes(op="placeholder")}
        arguments: dict[str, Node] = {}
        for position, name in enumerate(self.names):
            if position in placeholders:
                node = placeholders[position]
                arguments[name] = inside[node] = self._placeholder(name, node.meta["val"])
            else:
                self.graph.placeholder(f"unread_{position}").meta["val"] = None
        self._copy(self.forward, inside)
        return inside, arguments

    def _placeholder(self, name: str, value: Any) -> Node:
        """A new argument, before all calls."""
        last = next((node for node in reversed(self.graph.nodes) if node.op == "placeholder"), None)
        with self.graph.inserting_after(last) if last is not None else self.graph.inserting_before():
            node = self.graph.placeholder(f"of_{name}".replace(".", "_"))  # a name may begin with a digit
        node.meta["val"] = value
        return node

    def _copy(self, module: GraphModule, inside: dict[Node, Node]) -> None:
        for node in module.graph.nodes:
            if node.op == "get_attr":
                raise InputError(f"the model's graph holds a tensor of its own, {node.target}: make it a buffer")
            if node.op == "call_function":
                inside[node] = self.graph.node_copy(node, lambda used: inside[used])
                inside[node].meta = dict(node.meta)

    def _results(self, inside: Mapping[Node, Node]) -> tuple[Node, dict[str, Node], dict[str, Node]]:
        """Of the forward graph: the loss, new values of what the model changes, what is saved by its name."""
        loss: Node | None = None
        updates: dict[str, Node] = {}
        saved: dict[str, Node] = {}
        for told, node in zip(described(self.forward.graph), results_of(self.forward.graph), strict=True):
            match told:
                case PlainAOTOutput(idx=0):
                    loss = node
                case InputMutationAOTOutput(mutated_input=PlainAOTInput(idx=position)):
                    updates[self.names[position]] = inside[node]
                case SavedForBackwardsAOTOutput():
                    saved[node.name] = inside[node]
        if loss is None:
            raise InputError("the loss is no tensor")
        return inside[loss], updates, saved

    def _backward(self, saved: Mapping[str, Node], loss: Tensor) -> dict[str, Node]:
        """The gradient of each parameter."""
        inside: dict[Node, Node] = {}
        for node in self.backward.graph.find_nodes(op="placeholder"):
            if isinstance(node.meta.get("desc"), TangentAOTInput):
                inside[node] = self.graph.call_function(
                    aten.full.default, (list(loss.shape), 1.0), {"dtype": loss.dtype, "device": loss.device}
                )
                inside[node].meta = {"val": node.meta["val"], ROLE: "gradient of the loss with respect to itself"}
            else:
                inside[node] = saved[node.name]
        self._copy(self.backward, inside)
        return {
            self.names[position]: inside[node]
            for position, node in gradients(self.backward.graph).items()
            if self.names[position] in self.learned
        }

    def _clipped(self, slopes: Mapping[str, Node], most: float) -> dict[str, Node]:
        def scaled(*each: Tensor) -> list[Tensor]:
            squares = [torch.linalg.vector_norm(gradient).float() for gradient in each]
            norm = torch.linalg.vector_norm(torch.stack(squares))
            factor = torch.clamp(most / (norm + 1e-6), max=1.0)  # as torch.nn.utils.clip_grad_norm_ has it
            return [gradient * factor.to(gradient.dtype) for gradient in each]

        nodes = self._inlined(scaled, list(slopes.values()), "clipping of gradients", "", None)
        return dict(zip(slopes, nodes, strict=True))

    def _update(
        self,
        name: str,
        parameter: Node,
        gradient: Node,
        states: Mapping[tuple[str, str], Node],
        numbers: dict[tuple[int, str, torch.dtype], Node],
    ) -> dict[str, Node]:
        """The next values of a parameter and of what is kept of it."""
        learned = self.learned[name]
        rule, value = learned.rule, parameter.meta["val"]
        dtype = torch.float64 if value.dtype == torch.float64 else torch.float32
        own = []
        for number in rule.numbers:
            key = learned.group, number, dtype
            if key not in numbers:
                numbers[key] = self._placeholder(f"{number}_{learned.group}", value.new_empty((), dtype=dtype))
            own.append(numbers[key])

        def update(before: Tensor, slope: Tensor, *rest: Tensor) -> list[Tensor]:
            kept: Kept = dict(zip(rule.keeps, rest, strict=False))
            given = dict(zip(rule.numbers, rest[len(rule.keeps) :], strict=True))
            after, then = rule.update(before, slope, kept, given)
            return [after, *(then[key] for key in rule.keeps)]

        nodes = [parameter, gradient, *(states[name, key] for key in rule.keeps), *own]
        module, _, _ = name.rpartition(".")
        role = f"update of {name} by {learned.optimizer}"
        results = self._inlined(
            update, nodes, role, module, (id(rule), tuple(value.shape), value.dtype, value.stride())
        )
        return dict(zip([name, *(state_name(name, keeps) for keeps in rule.keeps)], results, strict=True))

    def _inlined(
        self, function: Callable[..., list[Tensor]], nodes: Sequence[Node], role: str, module: str, key: Any
    ) -> list[Node]:
        """The operations of a function on nodes, at the end of the graph.

        Args:
            key: of functions with the same key, and nodes of the same types, one is traced; None: each is.
        """
        traced = self.traced.get(key)
        if traced is None:
            values = [node.meta["val"] for node in nodes]
            with values[0].fake_mode:  # tracing knows tensors by their identity, which some of these share
                traced = make_fx(function)(*(torch.empty_like(value) for value in values))
            if key is not None:
                self.traced[key] = traced
        inside = dict(zip(traced.graph.find_nodes(op="placeholder"), nodes, strict=True))
        for node in traced.graph.nodes:
            if node.op == "call_function":
                inside[node] = self.graph.node_copy(node, lambda used: inside[used])
                inside[node].meta = {"val": node.meta["val"], ROLE: role, "nn_module_stack": {module: (module, "")}}
        return [inside[node] for node in results_of(traced.graph)]
