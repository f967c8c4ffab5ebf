"""What a target is for those who write kernels for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.reductions.profitability import Rates


class KernelTarget(ABC):
    """A device to write kernels for. Hashable: what was chosen for it is remembered.

    Attributes:
        kind: whose templates write its kernels: ``cpu``, ``cuda``, ``vulkan``.
        alignment: bytes; its kernels take operands that begin at multiples of so many from the beginning of an
            allocation, or at any element (1).
    """

    kind: ClassVar[str]
    alignment: ClassVar[int] = 1

    @property
    @abstractmethod
    def name(self) -> str:
        """Of the device, for messages."""

    @abstractmethod
    def rates(self, chain: Chain) -> Rates:
        """What the compiler's own code for a chain reaches, which a kernel is weighed against."""

    def allowing(self, winograd: int) -> Self:
        """The same device with another limit of the rounding errors of convolutions by Winograd's filtering, in those
        of direct sums. Where no template writes any, there is nothing to limit."""
        return self

    def holding(self, layouts: frozenset[str]) -> Self:
        """The same device for a program of which other versions hold weights in these layouts
        (`covan_mlir.lowering.kernels.layouts`): its kernels are to read them as they are there. Where no template lays
        weights out, there is nothing to choose."""
        return self

    @property
    def layouts(self) -> frozenset[str]:
        """Those layouts; empty: any will do."""
        return frozenset()

    @property
    def integer_lanes(self) -> int | None:
        """Sums to which it adds products of integers of 8 bits at a time, in windows over one channel: 0 where it
        multiplies such integers elsewhere alone; None: nowhere."""
        return None

    def unable(self) -> str | None:
        """Why no kernel at all can be made for it here, or None."""
        return None
