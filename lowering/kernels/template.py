"""The contract of templates: what writes kernels of one loop nest for the chains that have it.

A template is asked whether it takes a chain on a target. If so, it gives a `Match`, which lists the schedules that the
target can hold, predicts the time of each, and writes the kernel of one. `covan_mlir.lowering.kernels.registry` holds
the templates, `covan_mlir.lowering.kernels.select` chooses among them.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, ClassVar, Generic, Literal, TypeVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.kernel import Executable, Preparation, Refusal
from covan_mlir.lowering.kernels.overrides import IllegalError
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.lowering.source_lines import SourceLines

ChainKind = Literal["rows", "contractions", "products", "windows"]
"""Whether all reductions of a chain run over the same axes, or some are contractions under others; whether it is one
sum of products of which no factor has all axes; or whether it reads an input through windows. Templates are asked about
the kinds that they say."""


@dataclass(frozen=True)
class Schedule:
    """How a kernel is laid out: data of a template, opaque to all others."""

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        fields: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return fields


class IllegalScheduleError(IllegalError):
    """The target cannot hold a schedule."""


@dataclass(frozen=True)
class Cost:
    """What a kernel costs, as its template predicts.

    Attributes:
        flops: floating-point operations of the contractions, those skipped by masks left out.
        bytes: of inputs and outputs.
        elements: that its steps compute, with nominal sizes where they are known at run time only.
    """

    seconds: float
    flops: int = 0
    bytes: int = 0
    elements: int = 0


S = TypeVar("S", bound=Schedule)
T = TypeVar("T", bound=KernelTarget)


class Match(ABC, Generic[S]):
    """A chain that a template takes, on a target."""

    @abstractmethod
    def schedules(self) -> Iterable[S]:
        """The legal schedules, the one that is predicted to be best first: all of them, or, where there are `more`,
        those that may be good. There is at least one."""

    @abstractmethod
    def predict(self, schedule: S) -> float:
        """Seconds that the kernel takes, besides what its dispatches take."""

    @abstractmethod
    def emit(self, schedule: S, name: str, lines: SourceLines) -> Executable | Refusal:
        """The kernel.

        Args:
            name: of the executable; symbols of its dispatches begin with it.
            lines: of the user's source, by step of the chain, for code that has line tables.

        Raises:
            UnsupportedError: there is no code for something; counts as a refusal.
        """

    def prepared(self, schedule: S) -> tuple[Preparation, ...]:
        """What a kernel with a schedule reads prepared; inputs that are prepared are not read as they are."""
        return ()

    def cost(self, schedule: S) -> Cost:
        """What the kernel costs, for records and reports."""
        return Cost(self.predict(schedule))

    def structure(self, schedule: S) -> Structure | None:
        """The structure of the loop nest that a schedule has the numbers of; None: the template does not say."""
        return None

    def structured(self, structure: Structure) -> Iterable[S]:
        """The schedules of a structure."""
        return (schedule for schedule in self.schedules() if self.structure(schedule) == structure)

    @property
    def more(self) -> bool:
        """Whether it writes schedules that are not listed."""
        return False

    def sampled(self, structure: Structure, random: Random) -> S | None:
        """A schedule of a structure, all equally likely; None if there is none."""
        schedules = list(self.structured(structure))
        return random.choice(schedules) if schedules else None

    def mutated(self, schedule: S, random: Random) -> S | None:
        """A schedule that differs in one number and is not listed; None: all of them are."""
        return None

    def crossed(self, one: S, other: S, random: Random) -> S | None:
        """A schedule made of stages of two that is not listed; None: all of them are."""
        return None

    def read(self, fields: Mapping[str, Any]) -> S:
        """The schedule that `Schedule.to_json` wrote.

        Raises:
            IllegalScheduleError: it is none that is legal here.
        """
        for schedule in self.schedules():
            if schedule.to_json() == fields:
                return schedule
        raise IllegalScheduleError(f"the target cannot hold the schedule {json.dumps(fields)}")


class Template(ABC, Generic[T, S]):
    """Writes kernels of one loop nest.

    Attributes:
        name: unlike that of the other templates for the target.
        target: kind of the target that it writes for: ``cpu``, ``cuda``, ``vulkan``.
        chains: kinds of chains that it is asked about.
        tries: schedules that are tried, best first, where code cannot be written for one after all.
    """

    name: ClassVar[str]
    target: ClassVar[str]
    chains: ClassVar[tuple[ChainKind, ...]] = ("rows", "contractions")
    tries: ClassVar[int] = 1

    def floor(self, chain: Chain, target: T) -> float:
        """Seconds that each kernel of its is predicted to take at least, known at once; 0: unknown. It is not asked
        about a chain that another template is predicted to compute in this time."""
        return 0.0

    @abstractmethod
    def match(self, chain: Chain, target: T, fusion: Fusion | None = None) -> Match[S] | Refusal:
        """Whether it takes a chain on a target.

        Args:
            chain: one that is not refused for all (`covan_mlir.lowering.kernels.reductions.operands.refused`).
            fusion: its fused form, if that is known already.

        Raises:
            UnsupportedError: it does not; counts as a refusal.
        """
