"""Layers: calls that multiply by a weight, and why some of them stay in float."""

from __future__ import annotations

import copy
import difflib
import warnings
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Interpreter, Node

from covan_mlir.errors import InputError
from covan_mlir.frontend.actions import source_actions, writes
from covan_mlir.frontend.rebuild import mutates
from covan_mlir.provenance.model import Action
from covan_mlir.quantizing.scheme import Scheme

aten = torch.ops.aten

_WORD = 4
"""Steps that are multiplied at a time (docs/quantised.md)."""
_TAPS = 64
"""Of a window over one channel, at most."""

CONVOLUTIONS = frozenset(
    {aten.conv1d.default, aten.conv1d.padding, aten.conv2d.default, aten.conv2d.padding, aten.convolution.default}
)
_LINEAR = frozenset({aten.linear.default})
_MATRICES = frozenset({aten.matmul.default, aten.mm.default, aten.addmm.default})


@dataclass(frozen=True)
class Layer:
    """A call that multiplies by a weight.

    Attributes:
        action: of the source.
        read, weight: nodes that it multiplies.
        place: of the weight among the call's arguments.
        channels: axis of the weight that its results have, too.
    """

    node: Node
    action: Action
    read: Node
    weight: Node
    place: int
    channels: int

    @property
    def name(self) -> str:
        """As ``keep`` takes it: the module's path, or the action's name where no module has one."""
        return self.action.module or self.action.name


@dataclass(frozen=True)
class Left:
    """A layer that stays in float, and why."""

    name: str
    why: str


def layers(graph: Graph) -> list[Layer]:
    """All of them, in order."""
    actions, weights = source_actions(graph), weights_of(graph)
    return [layer for node in graph.nodes if (layer := _layer(node, actions, weights)) is not None]


def weights_of(graph: Graph) -> set[Node]:
    """Nodes whose values are the same at every call, and of the model: parameters, and what is computed of them."""
    weights: set[Node] = set()
    written = written_to(graph)
    for node in graph.nodes:
        if node.op == "get_attr":
            held = isinstance(node.meta.get("val"), Tensor) and node not in written
        else:
            held = (
                node.op.startswith("call") and bool(node.all_input_nodes) and weights.issuperset(node.all_input_nodes)
            )
        if held:
            weights.add(node)
    return weights


def written_to(graph: Graph) -> set[Node]:
    """Nodes whose memory some call writes to, by the storage of example tensors: they are other values later."""
    if not mutates(graph):
        return set()
    sharing: dict[int, set[Node]] = {}
    for node in graph.nodes:
        if isinstance(value := node.meta.get("val"), Tensor):
            sharing.setdefault(value.untyped_storage()._cdata, set()).add(node)
    return {
        other
        for node in graph.nodes
        for read in node.all_input_nodes
        if writes(node, read) and isinstance(value := read.meta.get("val"), Tensor)
        for other in sharing[value.untyped_storage()._cdata]
    }


def _layer(node: Node, actions: Mapping[str, Action], weights: Set[Node]) -> Layer | None:
    if node.target in CONVOLUTIONS | _LINEAR:
        place, channels = 1, 0
    elif node.target in _MATRICES:
        place, channels = (2, 1) if node.target is aten.addmm.default else (1, 1)
    else:
        return None
    read, weight = node.args[place - 1], node.args[place]
    if not isinstance(read, Node) or not isinstance(weight, Node) or weight not in weights or read in weights:
        return None
    if node.target is aten.convolution.default and node.args[6]:
        return None  # it is transposed: channels are summed along another axis
    if node.target in _MATRICES and weight.meta["val"].dim() != 2:
        return None
    return Layer(node, actions[node.name], read, weight, place, channels)


def weight_of(module: GraphModule, node: Node) -> Tensor:
    """The value of such a node."""
    run = Interpreter(module, garbage_collect_values=False)
    pending = [node]
    with torch.no_grad():
        while pending:
            missing = [read for read in pending[-1].all_input_nodes if read not in run.env]
            pending += missing
            if not missing:
                step = pending.pop()
                run.env[step] = run.run_node(step)
    value: Tensor = run.env[node]
    return value.detach()


def duplicate(module: GraphModule) -> GraphModule:
    """A copy of a graph and of what it holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own pytree classes
        copied: GraphModule = copy.deepcopy(module)
        return copied


def divided(known: Sequence[Layer], scheme: Scheme, lanes: int) -> tuple[list[Layer], list[Left]]:
    """Those that are quantised, and those that stay in float.

    Args:
        lanes: words of a vector of the machine.

    Raises:
        InputError: nothing is called as a pattern of ``keep``; or nothing is left.
    """
    _check_patterns(known, scheme.keep)
    written = written_to(known[0].node.graph) if known else set[Node]()
    reasons = {
        layer.node: "what it reads is written to in place" if layer.read in written else _why_not(layer, scheme, lanes)
        for layer in known
    }
    left = [Left(layer.name, why) for layer in known if (why := reasons[layer.node])]
    chosen = [layer for layer in known if not reasons[layer.node]]
    if not chosen:
        said = "; ".join(f"{one.name}: {one.why}" for one in left[:3])
        raise InputError(f"no layer of the model can be quantised{f' ({said})' if said else ''}: compile it as it is")
    return chosen, left


def _why_not(layer: Layer, scheme: Scheme, lanes: int) -> str:
    if any(_matches(layer, pattern) for pattern in scheme.keep):
        return "kept"
    x, w = layer.read.meta["val"], layer.weight.meta["val"]
    if x.dtype is not torch.float32 or w.dtype is not torch.float32:
        return f"it is no product of f32: {x.dtype} by {w.dtype}"
    if scheme.mode == "weights-int4":
        terms = w.numel() // max(1, w.shape[layer.channels])
        return (
            ""
            if terms <= scheme.group or terms % scheme.group == 0
            else (f"its {terms} terms are no multiple of the group, {scheme.group}")
        )
    return _why_no_steps(layer, x, w, lanes) if scheme.mode == "int8" else ""


def _why_no_steps(layer: Layer, x: Tensor, w: Tensor, lanes: int) -> str:
    """Why covan's kernels would compute a layer of steps in float."""
    if layer.node.target in CONVOLUTIONS:
        return _why_no_windows(layer.node, x, w, lanes)
    terms = w.shape[1 - layer.channels]
    return f"{terms} terms: {_WORD} are multiplied at a time" if terms % _WORD else ""


def _why_no_windows(node: Node, x: Tensor, w: Tensor, lanes: int) -> str:
    """The same of a convolution."""
    groups = x.shape[1] // w.shape[1]
    filters, channels = w.shape[0] // groups, w.shape[1]
    strides, widths = _each(node, 3, w.dim() - 2), _each(node, 5, w.dim() - 2)
    if groups > 1 and filters == channels == 1:
        if (taps := prod(w.shape[2:])) > _TAPS:
            return f"{taps} points of a window over one channel: {_TAPS} are the most"
        read = (lanes - 1) * strides[-1] + (min(_WORD, w.shape[-1]) - 1) * widths[-1]
        if read < lanes * _WORD:
            return ""
        return f"windows of one channel, {strides[-1]} apart: a vector does not show them"
    if filters == 1:
        return f"one filter{' of each group' if groups > 1 else ''}: several are multiplied with what is read"
    if prod(w.shape[2:]) > 1 or max(strides) > 1:
        return ""
    if groups > 1:
        return f"its channels are in {groups} groups of single points: they are summed in float"
    return "" if channels % _WORD == 0 else f"{channels} channels of single points: {_WORD} are multiplied at a time"


def _each(node: Node, place: int, count: int) -> list[int]:
    """For each dimension along which windows slide, an argument of numbers: 1 where it is not given."""
    numbers = node.args[place] if len(node.args) > place else 1
    given = list(numbers) if isinstance(numbers, (list, tuple)) else [numbers]
    return [int(str(number)) for number in (given * count)[:count]]


def _matches(layer: Layer, pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in _names(layer))


def _names(layer: Layer) -> Iterator[str]:
    """The action's, and paths of the module and of those around it."""
    yield layer.action.name
    parts = layer.action.module.split(".")
    yield from (".".join(parts[: count + 1]) for count in range(len(parts)) if layer.action.module)


def _check_patterns(known: Sequence[Layer], keep: Sequence[str]) -> None:
    for pattern in keep:
        if not any(_matches(layer, pattern) for layer in known):
            names = list(dict.fromkeys(layer.name for layer in known))
            near = difflib.get_close_matches(pattern, names, n=3) or names[:8]
            listed = f"there are {', '.join(near)}" if near else "the model has no layers"
            raise InputError(f"keep: no layer is called {pattern!r}\n{listed}")
