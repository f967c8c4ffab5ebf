"""Values that are computed of nothing but numbers that are known, as a program in half precision has them: rounded.

Compilers compute such values ahead of time and write them into code (a coefficient that was learnt, of four vectors).
Elsewhere floats stand for real numbers, and what a type rounds is left out of account: of these it cannot be, for they
are numbers in the code, and not what code computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod

import numpy as np
import torch

from covan_mlir.checking.source_values import SourceValues
from covan_mlir.checking.tensors import Held, exactly
from covan_mlir.fred.scalars import Array
from covan_mlir.frontend.dtypes import DTYPES
from covan_mlir.provenance import arguments
from covan_mlir.provenance.bodies import Held as HeldNumbers
from covan_mlir.provenance.bodies import Runs, shape_of
from covan_mlir.provenance.model import Part

_HALVES = ("bf16[", "f16[")
_FEW = 1 << 16
"""Elements that a value may have."""


class KnownValues:
    """Those of one source, computed once.

    Args:
        constant: whether no argument lies behind a part's value.
        held: what some weights hold.
        source: values of the source, with nothing drawn.
    """

    def __init__(
        self,
        parts: Mapping[int, Part],
        constant: Mapping[int, bool],
        held: Mapping[str, HeldNumbers],
        source: SourceValues,
    ) -> None:
        self._parts = parts
        self._constant = constant
        self._held = held
        self._source = source
        self._values: dict[int, Array] = {}

    @cached_property
    def parts(self) -> frozenset[int]:
        """Parts of half precision behind which there are known numbers alone."""
        known: set[int] = set()
        for index in sorted(self._parts):
            part = self._parts[index]
            weights = [str(name) for kind, name in arguments.operands(part.args) if kind == "w"]
            held = all(name in self._held and not isinstance(self._held[name], Runs) for name in weights)
            if self._constant[index] and held and known.issuperset(part.inputs):
                known.add(index)
        return frozenset(index for index in known if self._is_half(self._parts[index]))

    @staticmethod
    def _is_half(part: Part) -> bool:
        return (
            len(part.types) == 1
            and part.types[0].startswith(_HALVES)
            and prod(shape_of(part.types[0])[1] or ()) <= _FEW
        )

    def of(self, index: int) -> Array:
        """The elements of one of `parts`.

        Raises:
            UnevaluatedError: torch does not say what they are.
        """
        stack, behind = [index], set[int]()
        while stack:
            current = stack.pop()
            if current not in behind and self._parts[current].twin not in self._values:
                behind.add(current)
                stack += self._parts[current].inputs
        with exactly(exact=False):
            for part in sorted(behind & self.parts):
                kind = DTYPES[self._parts[part].types[0].partition("[")[0]]
                operand = self._source.twin(("p", part))
                exact = self._source.tensor(operand)
                numbers = torch.from_numpy(np.ascontiguousarray(exact.all(), np.float64)).to(kind).double().numpy()
                self._values[self._parts[part].twin] = numbers
                self._source.values[operand] = Held(numbers)
        return self._values[self._parts[index].twin]
