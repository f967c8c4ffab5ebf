"""Greatest common divisors and least common multiples: Euclid's algorithm, in a loop of the program."""

from __future__ import annotations

import torch
from torch import Tensor

from covan_mlir.frontend.rules.loops import elementwise, looped
from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten


def _divisors(a: Tensor, b: Tensor) -> Tensor:
    """The greatest common divisors of two rows of int64; of 0 and 0 it is 0."""

    def unfinished(a: Tensor, b: Tensor) -> Tensor:
        return (b != 0).any()

    def onwards(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        ended = b == 0
        return torch.where(ended, a, b), torch.where(ended, b, torch.remainder(a, torch.where(ended, 1, b)))

    return looped(unfinished, onwards, (a.abs(), b.abs()))[0]


def _multiples(a: Tensor, b: Tensor) -> Tensor:
    """The least common multiples of two rows of int64; with 0 it is 0."""
    divisor = _divisors(a, b)
    return (torch.div(a, torch.where(divisor == 0, 1, divisor), rounding_mode="trunc") * b).abs()


@rule(aten.gcd.default)
def gcd(a: Tensor, b: Tensor) -> Tensor:
    return elementwise(_divisors, a, b, torch.result_type(a, b), torch.int64)


@rule(aten.lcm.default)
def lcm(a: Tensor, b: Tensor) -> Tensor:
    return elementwise(_multiples, a, b, torch.result_type(a, b), torch.int64)
