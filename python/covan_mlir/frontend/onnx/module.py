"""An ONNX model as a module of torch, which runs it node by node."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.onnx.evaluate import Evaluator, Scope
from covan_mlir.frontend.onnx.reading import Loaded
from covan_mlir.frontend.translation.names import identifier
from covan_mlir.frontend.translation.value import FIXED, Item, Value, computed, constant


class OnnxModule(torch.nn.Module):
    """A graph whose initializers are buffers.

    Args:
        pack: puts the results together; without, one result is itself and several are a tuple.

    Attributes:
        names: of its inputs, as identifiers, in order.
        used: initializers that the last run computed with.
        known_nodes, size_nodes: of the last run, see `Evaluator`.
    """

    def __init__(
        self,
        loaded: Loaded,
        places: Mapping[int, int],
        fixed: Mapping[str, Tensor],
        pack: Callable[[Sequence[Any]], Any] | None = None,
    ) -> None:
        super().__init__()
        self._pack = pack
        self._loaded, self._places = loaded, places
        self._fixed = dict(fixed)
        self.marks = False
        self.known_nodes: set[int] = set()
        self.size_nodes: set[int] = set()
        self.used: set[str] = set()
        self._buffer_of: dict[str, str] = {}
        taken: set[str] = set()
        self.names = tuple(identifier(value.name, taken) for value in loaded.inputs)
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in self.names]
        call = self._run

        def forward(*inputs: Any) -> Any:
            return call(*inputs)

        forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what inspect asks for
        self.forward = forward

    def hold(self, names: Sequence[str]) -> None:
        """Make initializers buffers of the module, which are weights of the program."""
        taken = set(self.names)
        for name in names:
            own = identifier(name, taken)
            self._buffer_of[name] = own
            self.register_buffer(own, self._loaded.weights[name])

    def _run(self, *inputs: Any) -> Any:
        model = self._loaded.model
        evaluator = Evaluator(model, self._places, self.marks)
        self.used = set()
        scope: Scope = {name: self._initializer(name, tensor) for name, tensor in self._loaded.weights.items()}
        for value, given in zip(self._loaded.inputs, inputs, strict=True):
            scope[value.name] = self._input(value.name, given)
        items = evaluator.graph(model.graph, scope)
        # In place: export restores what a module assigns while it is traced.
        for own, told in ((self.known_nodes, evaluator.known_nodes), (self.size_nodes, evaluator.size_nodes)):
            own.clear()
            own.update(told)
        results = tuple(_result(item) for item in items)
        if self._pack is not None:
            return self._pack(results)
        return results[0] if len(results) == 1 else results

    def _initializer(self, name: str, tensor: Tensor) -> Value:
        def make() -> Tensor:
            self.used.add(name)
            own = self._buffer_of.get(name)
            held: Tensor = tensor if own is None else getattr(self, own)
            return held

        return Value(tensor.dtype, make, known=tensor, held=True)

    def _input(self, name: str, given: Any) -> Item:
        if given is None:
            return None
        if isinstance(given, list | tuple):
            return [self._input("", item) for item in given]
        if name in self._fixed:
            return constant(self._fixed[name])
        item = computed(given)
        if given.dim() <= 1 and isinstance(given.numel(), int) and given.numel() <= FIXED:
            item.inputs = frozenset([name])
        return item


def _result(item: Item) -> Any:
    if isinstance(item, list):
        return [_result(inner) for inner in item]
    return None if item is None else item.tensor
