"""Which tensors of a graph become steps: what torchao's preparation reads. Needs torchao.

The edges into layers are annotated, so that a tensor becomes steps behind the activation, and where it is read by
layers alone: what is between two layers is part of the first one's kernel. Pooling and concatenation of what becomes
steps anyway share the range of what they read. Means do not: they are computed in float, and cover less. Residuals are
read as steps where these are in memory, for another layer's sake.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import PerChannelMinMaxObserver
from torchao.quantization.pt2e.quantizer import (
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)
from torchao.quantization.pt2e.quantizer.quantizer import Q_ANNOTATION_KEY

from covan_mlir.quantizing.machines import Multiplied
from covan_mlir.quantizing.observers import OBSERVERS
from covan_mlir.quantizing.products import Layer, Left, divided, layers, weights_of, written_to
from covan_mlir.quantizing.scheme import Scheme

aten = torch.ops.aten

VIEWS = frozenset(
    {
        aten.view.default,
        aten.reshape.default,
        aten.flatten.using_ints,
        aten.unflatten.int,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.unsqueeze.default,
        aten.dropout.default,  # in inference
    }
)
"""What gives each element that it reads, in order."""
_CHOICES = frozenset({aten.max_pool1d.default, aten.max_pool2d.default, aten.cat.default})
"""What gives some of the elements that it reads."""
_RESIDUALS = frozenset({aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor})
_BOUNDS = {"u8": (torch.uint8, 0, 255), "s8": (torch.int8, -128, 127)}


class Annotator(Quantizer):  # type: ignore[misc]  # torchao is untyped
    """Annotates a graph as a scheme says.

    Attributes:
        layers: that are quantised; known behind `annotate`.
        left: those that stay in float.
    """

    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme
        self.layers: list[Layer] = []
        self.left: list[Left] = []
        self._not_computed_anew: set[Node] = set()
        dtype, least, largest = _BOUNDS[scheme.activations]
        self._steps = QuantizationSpec(
            dtype, OBSERVERS[scheme.observer], least, largest, qscheme=torch.per_tensor_affine
        )
        self._weights = [
            QuantizationSpec(
                torch.int8, PerChannelMinMaxObserver, -127, 127, qscheme=torch.per_channel_symmetric, ch_axis=axis
            )
            for axis in (0, 1)
        ]

    def annotate(self, model: GraphModule) -> GraphModule:
        """Raises InputError: as `divided`."""
        self.layers, self.left = divided(layers(model.graph), self.scheme, Multiplied.on(self.scheme.target).lanes)
        self._not_computed_anew = weights_of(model.graph) | written_to(model.graph)
        for layer in self.layers:
            annotated = {layer.read: self._steps, layer.weight: self._weights[layer.channels]}
            layer.node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(annotated, _annotated=True)
        for node in reversed(model.graph.nodes):
            if node.target in VIEWS:
                self._hoist(node)
            elif node.target in _CHOICES:
                self._share(node)
        for node in model.graph.nodes:
            if node.target in _RESIDUALS:
                self._read_along(node)
        return model

    def validate(self, model: GraphModule) -> None:
        """Nothing is annotated but what was looked at."""

    def _becomes_steps(self, node: Node) -> bool:
        """Whether all who read a value read steps."""
        return bool(node.users) and all(_annotated(user, node) for user in node.users)

    def _hoist(self, view: Node) -> None:
        """What a view reads becomes steps, and not what it gives: so they are computed where their numbers are."""
        (read, *_) = view.all_input_nodes
        if not self._becomes_steps(view) or not self._plain(view.all_input_nodes[:1]) or not _is_f32(view):
            return
        for user in view.users:
            del user.meta[Q_ANNOTATION_KEY].input_qspec_map[view]
        view.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation({read: self._steps}, _annotated=True)

    def _share(self, node: Node) -> None:
        reads = node.all_input_nodes
        if not self._becomes_steps(node) or not self._plain(reads) or not reads:
            return
        shared = SharedQuantizationSpec((reads[0], node))
        annotated = {read: self._steps if read is reads[0] else shared for read in reads}
        node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(annotated, shared, _annotated=True)

    def _read_along(self, node: Node) -> None:
        reads = [read for read in node.all_input_nodes if any(_annotated(user, read) for user in read.users)]
        if reads and self._plain(reads):
            annotated = dict.fromkeys(reads, self._steps)
            node.meta[Q_ANNOTATION_KEY] = QuantizationAnnotation(annotated, _annotated=True)

    def _plain(self, nodes: Iterable[Node]) -> bool:
        """Whether values are numbers that a call computes anew."""
        return all(_is_f32(node) and node not in self._not_computed_anew for node in nodes)


def _annotated(user: Node, read: Node) -> bool:
    return Q_ANNOTATION_KEY in user.meta and read in user.meta[Q_ANNOTATION_KEY].input_qspec_map


def _is_f32(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.dtype is torch.float32
