"""A StableHLO module as a module of torch, which runs it operation by operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.stablehlo.evaluate import Evaluator
from covan_mlir.frontend.stablehlo.nodes import Ledger
from covan_mlir.frontend.stablehlo.reading import Loaded
from covan_mlir.frontend.translation.names import identifier
from covan_mlir.frontend.translation.value import Item, Value, computed


class StableHloModule(torch.nn.Module):
    """A module whose larger constants are buffers.

    Attributes:
        ledger: the operations that runs meet. In place: export restores what a module assigns while it is traced.
        used: constants that the last run computed with, by their numbers.
    """

    def __init__(self, loaded: Loaded) -> None:
        super().__init__()
        self._loaded, self.ledger = loaded, Ledger(loaded.module)
        self.marks = False
        self.used: dict[int, None] = {}
        self._buffer_of: dict[int, str] = {}

    def hold(self, numbers: Sequence[int]) -> None:
        """Make constants buffers of the module, which are weights of the program."""
        taken: set[str] = set()
        for count, number in enumerate(numbers):
            own = identifier(f"constant_{count}", taken)
            self._buffer_of[number] = own
            self.register_buffer(own, self._loaded.tensors[number].clone())

    def _held(self, number: int) -> Tensor:
        self.used[number] = None
        own = self._buffer_of.get(number)
        held: Tensor = self._loaded.tensors[number] if own is None else getattr(self, own)
        return held

    def forward(self, *inputs: Any) -> tuple[Any, ...]:
        """The results for flat arguments."""
        evaluator = Evaluator(self._loaded, self.ledger, self._held, self.marks)
        self.used.clear()
        items: list[Item] = evaluator.main([computed(given) for given in inputs])
        return tuple(item.tensor if isinstance(item, Value) else None for item in items)
