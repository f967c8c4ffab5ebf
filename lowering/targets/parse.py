"""Targets from the names that users write."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from covan_mlir.errors import TargetError
from covan_mlir.lowering.targets.cpu import cpu
from covan_mlir.lowering.targets.cuda import ARCHITECTURES, cuda
from covan_mlir.lowering.targets.target import Target
from covan_mlir.lowering.targets.vulkan import derived, of_profile, vulkan
from covan_mlir.runtime import devices

KINDS = ("cpu", "vulkan", "cuda")


def parse(name: str) -> Target:
    """The target of a name: ``cpu``, ``cpu:znver4``, ``cpu:aarch64-linux-gnu``, ``vulkan``, ``vulkan:lavapipe``,
    ``cuda``, ``cuda:sm_90``, ``cuda:sm_90+tf32``. ``vulkan`` and ``cuda`` mean the device that this machine has.

    Raises:
        TargetError: there is no such target, or no device to derive it from.
    """
    kind, _, rest = name.partition(":")
    if kind == "cpu":
        return cpu(rest)
    if kind == "vulkan":
        discovered = devices.discover("vulkan") if not rest else []
        return of_profile("vulkan", derived(discovered[0].name, discovered[0].facts)) if discovered else vulkan(rest)
    if kind == "cuda":
        if not rest and (discovered := devices.discover("cuda")):
            rest = _architecture(discovered[0].facts.get("capability"))
        return cuda(rest)
    near = difflib.get_close_matches(kind, KINDS, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise TargetError(f"unknown target {name!r}; {hint}known: {', '.join(KINDS)}")


def parse_all(names: str | Sequence[str]) -> tuple[Target, ...]:
    """The targets of one name, or of several for an artifact that holds a program for each.

    Raises:
        TargetError: one of them is unknown, two are the same, or there is none.
    """
    targets = tuple(parse(name) for name in ([names] if isinstance(names, str) else names))
    if not targets:
        raise TargetError("no target is given; known: " + ", ".join(KINDS))
    seen: set[str] = set()
    for target in targets:
        if target.name in seen:
            raise TargetError(f"target {target.name!r} is given twice")
        seen.add(target.name)
    return targets


def _architecture(capability: Sequence[int] | None) -> str:
    """The newest architecture that a device can run."""
    able = [a for a in ARCHITECTURES.values() if capability is not None and list(a.capability) == list(capability)]
    older = [a for a in ARCHITECTURES.values() if capability is not None and list(a.capability) <= list(capability)]
    best = able or [a for a in older if not a.wgmma]
    return best[-1].name if best else ""
