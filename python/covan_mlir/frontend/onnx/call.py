"""One node as its translation sees it: operands, attributes, opset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from covan_mlir.frontend.onnx.dtypes import torch_type
from covan_mlir.frontend.translation.refused import Refused
from covan_mlir.frontend.translation.value import Item, Number, Value

T = TypeVar("T")


class NeedsInput(Exception):
    """What a translation has to know is computed of inputs of the graph, which can be fixed."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(", ".join(sorted(names)))
        self.names = names


@dataclass
class Call:
    """One node.

    Attributes:
        node: as the file has it.
        items: what its inputs stand for; None for those that are left out.
        opset: version of the operator's domain.
        run: translates a subgraph, in the scope of the node: (graph, values of its inputs) -> its outputs.
        captured: what a subgraph reads from outside, of what the program computes or holds.
        rebound: `run` where names from outside stand for something else.
        unmarked: in it, a subgraph's calls are not known as those of its nodes: nobody reads what they give.
    """

    node: onnx.NodeProto
    items: Sequence[Item]
    opset: int
    run: Callable[[onnx.GraphProto, Sequence[Item]], list[Item]]
    captured: Callable[[onnx.GraphProto], Mapping[str, Value]]
    rebound: Callable[[Mapping[str, Value]], Callable[[onnx.GraphProto, Sequence[Item]], list[Item]]]
    unmarked: Callable[[], AbstractContextManager[None]]

    def __post_init__(self) -> None:
        self._attributes = {attribute.name: attribute for attribute in self.node.attribute}

    @property
    def count(self) -> int:
        """Operands, up to the last that is given."""
        given = [index for index, item in enumerate(self.items) if item is not None]
        return given[-1] + 1 if given else 0

    def has(self, index: int) -> bool:
        """Whether an operand is given."""
        return index < len(self.items) and self.items[index] is not None

    def value(self, index: int) -> Value:
        """An operand that is a tensor."""
        item = self.items[index] if index < len(self.items) else None
        if isinstance(item, list):
            raise Refused(f"operand {index} is a sequence")
        if item is None:
            raise Refused(f"operand {index} is missing")
        return item

    def tensor(self, index: int) -> torch.Tensor:
        """An operand, as the program computes with it."""
        return self.value(index).tensor

    def pair(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Two operands that are broadcast. Before opset 7 an attribute tells with which axis the second one begins."""
        first, second = self.tensor(0), self.tensor(1)
        if self.opset < 7 and not self.node.domain and self.integer("broadcast") and self.given("axis"):
            behind = first.dim() - self.integer("axis") % first.dim() - second.dim()
            second = second.reshape(*second.shape, *[1] * behind)
        return first, second

    def optional(self, index: int) -> torch.Tensor | None:
        """The same of an operand that may be left out."""
        return self.tensor(index) if self.has(index) else None

    def tensors(self, start: int = 0) -> list[torch.Tensor]:
        """All operands from one on."""
        return [self.tensor(index) for index in range(start, self.count)]

    def sequence(self, index: int) -> list[Item]:
        """An operand that is a sequence."""
        item = self.items[index]
        if not isinstance(item, list):
            raise Refused(f"operand {index} is no sequence")
        return item

    def sizes(self, index: int) -> list[Number]:
        """The elements of an operand, which have to be known or open sizes; flat."""
        value = self.value(index)
        if not value.is_known:
            if value.inputs:
                raise NeedsInput(value.inputs)
            raise Refused(
                f"operand {index} ({self.node.input[index]}) decides about shapes, and is computed from values"
            )
        return list(value.objects().flat)

    def known(self, index: int) -> torch.Tensor:
        """An operand whose elements have to be known, as a real tensor."""
        value = self.value(index)
        if value.known is None:
            if value.inputs:
                raise NeedsInput(value.inputs)
            raise Refused(f"operand {index} ({self.node.input[index]}) has to be known when the model is compiled")
        return value.known

    def number(self, index: int, default: Number) -> Number:
        """The only element of an operand that has to be known."""
        return self.sizes(index)[0] if self.has(index) else default

    def axes(self, index: int, name: str = "axes") -> list[int] | None:
        """Axes, which are an attribute in old opsets and an operand in new ones; None: not given."""
        if self.has(index):
            return [int(axis) for axis in self.sizes(index)]
        return self.integers(name)

    def given(self, name: str) -> bool:
        """Whether an attribute is there."""
        return name in self._attributes

    def attribute(self, name: str) -> Any:
        """The value of an attribute, as `onnx.helper` gives it; None: not given."""
        held = self._attributes.get(name)
        return None if held is None else onnx.helper.get_attribute_value(held)

    def integer(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        value = self.attribute(name)
        return default if value is None else int(value)

    def real(self, name: str, default: float = 0.0) -> float:
        """A floating-point attribute: the f32 that the file holds."""
        value = self.attribute(name)
        return default if value is None else float(value)

    def text(self, name: str, default: str = "") -> str:
        """A string attribute."""
        value = self.attribute(name)
        return default if value is None else value.decode("utf-8", "replace")

    def texts(self, name: str) -> list[str]:
        """A list of strings; empty if it is not there."""
        return [word.decode("utf-8", "replace") for word in self.attribute(name) or ()]

    def integers(self, name: str) -> list[int] | None:
        """A list of integers; None if it is not there."""
        value = self.attribute(name)
        return None if value is None else [int(number) for number in value]

    def reals(self, name: str) -> list[float] | None:
        """A list of numbers; None if it is not there."""
        value = self.attribute(name)
        return None if value is None else [float(number) for number in value]

    def graph(self, name: str) -> onnx.GraphProto:
        """A subgraph."""
        value = self.attribute(name)
        assert isinstance(value, onnx.GraphProto)
        return value

    def dtype(self, name: str, default: torch.dtype = torch.float32) -> torch.dtype:
        """An element type, given by ONNX's number of it."""
        number = self.integer(name, 0)
        return torch_type(number) if number else default

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """A tensor attribute."""
        return numpy_helper.to_array(self.attribute(name))
