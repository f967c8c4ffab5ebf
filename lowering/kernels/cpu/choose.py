"""Choosing a schedule: by template and cost model, or as somebody says, for a chain or its fused form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.fred.fuse import fuse
from covan_mlir.lowering.kernels.cpu.generate import refused
from covan_mlir.lowering.kernels.cpu.schedule import Schedule, legal_schedules, predict
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.roles import LoopRoles, loop_roles
from covan_mlir.machine.description import PRESETS, Machine, host


class IllegalError(ValueError):
    """A machine or a schedule that was asked for cannot be."""


@dataclass(frozen=True)
class Choice:
    """A chain with its schedules on a machine.

    Attributes:
        chain: what the schedule is of: the chain itself, or the normal form of it that its fused form computes, with
            nominal sizes where they are known at run time only.
        found: roles of the axes, where there are contractions.
    """

    chain: Chain
    machine: Machine
    found: LoopRoles | None

    @property
    def schedules(self) -> Iterator[Schedule]:
        """All legal schedules, the cost model's choice first."""
        return legal_schedules(self.chain, self.machine, self.found)

    def pick(self, number: int = 0, override: Mapping[str, str] | None = None) -> Schedule:
        """The schedule of this number, changed in the fields that are overridden.

        Raises:
            IllegalError: there are fewer schedules, or the machine cannot hold the changed one.
        """
        legal = list(self.schedules)
        if not 0 <= number < len(legal):
            raise IllegalError(f"there are {len(legal)} legal schedules, numbered from 0; {number} is none of them")
        if not override:
            return legal[number]
        made: Schedule = _changed(legal[number], override)
        if made not in legal:
            changes = ", ".join(f"{key}={value}" for key, value in override.items())
            raise IllegalError(f"{changes} is not legal on {self.machine.name} (list=true lists what is)")
        return made

    def seconds(self, schedule: Schedule) -> float:
        """Predicted time."""
        return predict(self.chain, self.machine, schedule)


def choice(chain: Chain, machine: Machine, fusion: Fusion | None = None) -> Choice | str:
    """The schedules of a chain, or why it has none.

    Args:
        fusion: its fused form, if that is known already.
    """
    if (reason := refused(chain)) is not None:
        return reason
    if chain.single_domain:
        return Choice(chain.nominal, machine, None)
    fusion = fusion or fuse(chain)
    try:
        return Choice(fusion.chain.nominal, machine, loop_roles(fusion))
    except UnsupportedError as error:
        return str(error)


def machine(name: str, override: Mapping[str, str] | None = None) -> Machine:
    """A machine by name, ``host`` or one of `PRESETS`, changed in the fields that are overridden.

    Raises:
        IllegalError: there is none of this name, or it has no such field.
    """
    if name != "host" and name not in PRESETS:
        raise IllegalError(f"there is no machine {name!r}: host, {', '.join(PRESETS)}")
    found = host() if name == "host" else PRESETS[name]
    return _changed(found, override) if override else found


def _changed(value: Any, override: Mapping[str, str]) -> Any:
    """A copy of a dataclass with some numbers and flags changed."""
    known = {field.name: type(getattr(value, field.name)) for field in fields(value)}
    changes: dict[str, Any] = {}
    for key, text in override.items():
        kind = known.get(key)
        if kind not in (int, float, bool):
            able = ", ".join(name for name, its in known.items() if its in (int, float, bool))
            raise IllegalError(f"a {type(value).__name__.lower()} has no number {key!r} to change: {able}")
        try:
            changes[key] = text == "true" if kind is bool else kind(text)
        except ValueError:
            raise IllegalError(f"{key} is a {kind.__name__}, not {text!r}") from None
    return replace(value, **changes)
