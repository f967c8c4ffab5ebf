"""What a kernel is expected to cost, as the template that writes it predicts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """What a kernel costs.

    Attributes:
        seconds: predicted time.
        flops: floating-point operations of the contractions, those skipped by masks left out.
        bytes: of inputs and outputs.
        elements: that its steps compute.
    """

    seconds: float
    flops: int = 0
    bytes: int = 0
    elements: int = 0
