"""Steps in place of numbers: torchao's preparation, calibration and conversion of a graph. Needs torchao."""

from __future__ import annotations

from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node
from torch.fx.graph import CodeGen, _PyTreeCodeGen
from torch.utils import _pytree as pytree
from torchao.quantization.pt2e import FakeQuantizeBase, ObserverBase, move_exported_model_to_eval
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from covan_mlir.errors import InputError
from covan_mlir.frontend.quantized_operators import declared, is_conversion
from covan_mlir.quantizing.annotator import Annotator
from covan_mlir.quantizing.noise import Simulated, Switch, unwritten
from covan_mlir.quantizing.products import Layer, Left, duplicate, layers
from covan_mlir.quantizing.scheme import Scheme

steps = declared()


@dataclass(frozen=True)
class Prepared:
    """A graph that observes what it computes.

    Attributes:
        layers: that read steps.
        left: those that stay in float, and why.
    """

    module: GraphModule
    layers: list[Layer]
    left: list[Left]

    def check(self) -> None:
        """Raises InputError: something was not observed, or was no number."""
        for node, observer in _observers(self.module):
            _check_range(node, observer)

    def simulated(self) -> Simulated:
        """The graph with steps that can be switched on."""
        return _simulated(self)

    def converted(self) -> GraphModule:
        """The graph of `quantized_decomposed`'s operators; this object is used up."""
        with _flat(self.module) as codegen, unwritten(self.module):  # folding constants makes calls that write to them
            converted: GraphModule = convert_pt2e(self.module)
        converted.graph.set_codegen(codegen)
        converted.recompile()
        for node in converted.graph.nodes:
            if is_conversion(node) and not node.meta.get("stack_trace"):
                _placed(node)
        return converted


def prepared(module: GraphModule, scheme: Scheme) -> Prepared:
    """A graph that observes what will be steps.

    Raises:
        InputError: there is nothing to quantise, or ``keep`` names what is not there.
    """
    annotator = Annotator(scheme)
    observing = prepare_pt2e(module, annotator)
    return Prepared(observing, annotator.layers, annotator.left)


def adopted(model: GraphModule) -> tuple[Prepared, bool]:
    """What somebody else's preparation gave, as a copy; and whether its ranges are those of training.

    Raises:
        InputError: ranges are to be found anew at every call.
    """
    module = move_exported_model_to_eval(duplicate(model))
    observers = _observers(module)
    for node, observer in observers:
        if getattr(observer, "is_dynamic", False):
            raise InputError(f"{node.name} finds its steps at every call, which is not supported: prepare it without")
    known = layers(module.graph)
    chosen = [layer for layer in known if _switched(layer, {node for node, _ in observers})]
    left = [Left(layer.name, "it was prepared so") for layer in known if layer not in chosen]
    return Prepared(module, chosen, left), any(isinstance(observer, FakeQuantizeBase) for _, observer in observers)


@contextmanager
def _flat(module: GraphModule) -> Iterator[CodeGen]:
    """A graph whose results have no structure: torchao folds constants with placeholders for results, which structures
    of the user's own may not take. Gives what writes the graph as it was."""
    before: Any = module.graph._codegen
    count = len(module.graph.output_node().args[0])  # type: ignore[arg-type]  # of an exported graph a tuple
    flat = pytree.tree_structure((0,) * count)
    module.graph.set_codegen(_PyTreeCodeGen(before.pytree_info._replace(out_spec=flat)))
    yield before


def _observers(module: GraphModule) -> list[tuple[Node, nn.Module]]:
    """Calls of what observes, in order."""
    called = [(node, module.get_submodule(str(node.target))) for node in module.graph.find_nodes(op="call_module")]
    return [(node, inner) for node, inner in called if isinstance(inner, ObserverBase | FakeQuantizeBase)]


def _check_range(node: Node, observer: nn.Module) -> None:
    """Raises InputError: what was observed is no range."""
    inner = getattr(observer, "activation_post_process", observer)
    least, largest = getattr(inner, "min_val", None), getattr(inner, "max_val", None)
    if not isinstance(least, Tensor) or not isinstance(largest, Tensor):
        return  # its range is fixed
    (read, *_) = node.all_input_nodes
    if not least.numel() or bool((least > largest).any()):
        raise InputError(f"the values of {read.name} were never observed: give calibration data in which it has some")
    if not bool(least.isfinite().all() & largest.isfinite().all()):
        reader = next((user.name for user in node.users), "the results")
        raise InputError(f"{read.name} has NaN or infinities in the calibration data, before {reader}: {_KEEP}")


_KEEP = "keep that layer in float, with keep=(...)"


def _switched(layer: Layer, observers: Set[Node]) -> frozenset[str]:
    """Names of the observers of what a layer multiplies."""
    return frozenset(
        node.name
        for read in (layer.node.args[layer.place - 1], layer.node.args[layer.place])
        for node in _behind(read)
        if node in observers
    )


def _behind(read: Any) -> Iterator[Node]:
    """A value, and those that it is a view of, or computed of alone."""
    while isinstance(read, Node):
        yield read
        read = read.all_input_nodes[0] if len(read.all_input_nodes) == 1 else None


def _simulated(prepared: Prepared) -> Simulated:
    observers = _observers(prepared.module)
    switches = {node.name: _switch(observer) for node, observer in observers}
    nodes = {node for node, _ in observers}
    known = [(layer, _switched(layer, nodes)) for layer in prepared.layers]
    return Simulated(prepared.module, switches, known, frozenset(switches))


def _switch(observer: Any) -> Switch:
    """Numbers as steps and back, as `convert_pt2e` writes it."""
    scale, zero = observer.calculate_qparams()
    bounds = observer.quant_min, observer.quant_max, observer.dtype
    if observer.qscheme in (torch.per_channel_affine, torch.per_channel_symmetric):
        by_channel = (scale, zero, int(observer.ch_axis), *bounds)
        return lambda args, kwargs: steps.dequantize_per_channel(
            steps.quantize_per_channel(args[0], *by_channel), *by_channel
        )
    whole = (float(scale), int(zero), *bounds)
    return lambda args, kwargs: steps.dequantize_per_tensor(steps.quantize_per_tensor(args[0], *whole), *whole)


def _placed(node: Node) -> None:
    """A conversion is of the call whose value it takes, or else of the one that takes its."""
    near = [*node.all_input_nodes, *node.users]
    placed = next((other for other in near if other.meta.get("stack_trace")), None)
    if placed is not None:
        node.meta |= {key: placed.meta[key] for key in ("stack_trace", "nn_module_stack") if key in placed.meta}
