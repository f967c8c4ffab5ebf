"""Modes without calibration: weights in fewer bits, and products of bfloat16, written into a graph.

Weights of 4 bits are kept as bytes from -8 to 7, one each, with a scale for each group of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from covan_mlir.frontend.quantized_operators import declared
from covan_mlir.quantizing.machines import Multiplied
from covan_mlir.quantizing.noise import Simulated, Switch
from covan_mlir.quantizing.products import Layer, Left, divided, duplicate, layers, weight_of
from covan_mlir.quantizing.scheme import Scheme

aten, steps = torch.ops.aten, declared()


@dataclass(frozen=True)
class Rewritten:
    """A graph whose layers have fewer bits.

    Attributes:
        module: the graph.
        simulated: as it was, with layers that can be switched.
        left: layers that stay in float, and why.
    """

    module: GraphModule
    simulated: Simulated
    left: list[Left]


def rewritten(module: GraphModule, scheme: Scheme) -> Rewritten:
    """A copy of a graph in fewer bits, as a scheme without steps of activations says.

    Raises:
        InputError: there is nothing to quantise, or ``keep`` names what is not there.
    """
    chosen, left = divided(layers(module.graph), scheme, Multiplied.on(scheme.target).lanes)
    changed = duplicate(module)
    nodes = {node.name: node for node in changed.graph.nodes}
    switches: dict[str, Switch] = {}
    for index, layer in enumerate(chosen):
        node = nodes[layer.node.name]
        if scheme.mode == "bf16":
            _halve(changed, layer, node, index, weight_of(module, layer.weight))
            switches[node.name] = _in_halves(layer)
        else:
            weight = _Steps.of(weight_of(module, layer.weight), layer, scheme)
            weight.write(changed, layer, node, index)
            switches[node.name] = _with_weight(layer, weight.value())
    changed.graph.eliminate_dead_code()
    changed.delete_all_unused_submodules()
    changed.recompile()
    known = [(layer, frozenset({layer.node.name})) for layer in chosen]
    return Rewritten(changed, Simulated(module, switches, known), left)


@dataclass(frozen=True)
class _Steps:
    """A weight as steps.

    Attributes:
        steps: bytes: in the weight's own shape with a scale for each channel, or a row for each channel.
        scales: of channels; or of groups, those of a row in a row.
        shape: of the weight, its channels first; in groups.
        group: how many steps of a row share a scale; 0: channels do.
        axis: of the channels.
    """

    steps: Tensor
    scales: Tensor
    shape: tuple[int, ...]
    group: int
    axis: int

    @classmethod
    def of(cls, weight: Tensor, layer: Layer, scheme: Scheme) -> _Steps:
        axis = layer.channels
        if scheme.mode == "weights-int8":
            other = [dim for dim in range(weight.dim()) if dim != axis]
            scales = _never_zero(weight.abs().amax(other) / 127)
            around = scales.reshape([-1 if dim == axis else 1 for dim in range(weight.dim())])
            return cls((weight / around).round().clamp(-127, 127).to(torch.int8), scales, tuple(weight.shape), 0, axis)
        first = weight.movedim(axis, 0)
        rows = first.reshape(first.shape[0], -1)
        group = min(scheme.group, rows.shape[1])
        groups = rows.reshape(rows.shape[0], -1, group)
        scales = _never_zero(torch.maximum(groups.amax(-1) / 7, groups.amin(-1) / -8))
        quantised = (groups / scales.unsqueeze(-1)).round().clamp(-8, 7).to(torch.int8)
        return cls(quantised.reshape(rows.shape), scales, tuple(first.shape), group, axis)

    def value(self) -> Tensor:
        """What the steps stand for."""
        if not self.group:
            around = [-1 if dim == self.axis else 1 for dim in range(self.steps.dim())]
            return self.steps * self.scales.reshape(around)
        groups = self.steps.reshape(self.steps.shape[0], -1, self.group) * self.scales.unsqueeze(-1)
        return groups.reshape(self.shape).movedim(0, self.axis)

    def write(self, module: GraphModule, layer: Layer, node: Node, index: int) -> None:
        """The same into a graph, for a layer."""
        graph = module.graph
        with graph.inserting_before(node):
            held = _held(module, f"_steps_{index}", self.steps)
            scales = _held(module, f"_scales_{index}", self.scales)
            if not self.group:
                zeros = _held(module, f"_zeros_{index}", torch.zeros_like(self.scales, dtype=torch.int64))
                arguments = (held, scales, zeros, self.axis, -127, 127, torch.int8)
                calls = [graph.call_function(steps.dequantize_per_channel.default, arguments)]
            else:
                grouped = (held, scales, None, -8, 7, torch.int8, self.group, torch.float32)
                calls = [graph.call_function(steps.dequantize_per_channel_group.default, grouped)]
                if len(self.shape) > 2:
                    calls.append(graph.call_function(aten.reshape.default, (calls[-1], list(self.shape))))
                if self.axis:
                    calls.append(graph.call_function(aten.t.default, (calls[-1],)))
        for call in calls:
            _place(call, node)
        node.update_arg(layer.place, calls[-1])


def _never_zero(scales: Tensor) -> Tensor:
    return torch.where(scales == 0, 1.0, scales)


def _held(module: GraphModule, name: str, value: Tensor) -> Node:
    module.register_buffer(name, value.contiguous())
    return module.graph.get_attr(name)


def _place(call: Node, node: Node) -> None:
    """A call that was added is of the module and line of the layer."""
    call.meta |= {key: node.meta[key] for key in ("stack_trace", "nn_module_stack") if key in node.meta}


def _with_weight(layer: Layer, weight: Tensor) -> Switch:
    def switched(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        target: Callable[..., Any] = layer.node.target  # type: ignore[assignment]  # of a call_function it is one
        return target(*args[: layer.place], weight, *args[layer.place + 1 :], **kwargs)

    return switched


def _in_halves(layer: Layer) -> Switch:
    def switched(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        target: Callable[..., Any] = layer.node.target  # type: ignore[assignment]  # of a call_function it is one
        halves = [arg.bfloat16() if isinstance(arg, Tensor) else arg for arg in args]
        return target(*halves, **kwargs).float()

    return switched


def _halve(module: GraphModule, layer: Layer, node: Node, index: int, weight: Tensor) -> None:
    """A layer of bfloat16, whose result is a float again: what follows is computed as it was."""
    graph = module.graph
    with graph.inserting_before(node):
        held = _held(module, f"_halves_{index}", weight.bfloat16())
        args = [_converted(arg, torch.bfloat16, node) if isinstance(arg, Node) else arg for arg in node.args]
    args[layer.place] = held
    node.args = tuple(args)
    users = list(node.users)
    with graph.inserting_after(node):
        wide = _converted(node, torch.float32, node)
    for user in users:
        user.replace_input_with(node, wide)


def _converted(value: Node, dtype: torch.dtype, of: Node) -> Node:
    call = of.graph.call_function(aten.to.dtype, (value, dtype))
    _place(call, of)
    return call
