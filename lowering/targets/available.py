"""What this machine has: devices, their limits, and the targets whose programs they run."""

from __future__ import annotations

import platform
from typing import Any

from covan_mlir.lowering.targets.cuda import ARCHITECTURES
from covan_mlir.lowering.targets.vulkan import PROFILES
from covan_mlir.machine.reading import cores
from covan_mlir.runtime import devices
from covan_mlir.runtime.requirements import cpu_features, instructions, linux_name, missing


def rows() -> list[dict[str, Any]]:
    """One row per device, as JSON; a driver without one has a row that says why."""
    return [_cpu(), *_others("vulkan"), *_others("cuda")]


def text(device_rows: list[dict[str, Any]]) -> str:
    """The rows for people."""
    lines = []
    for row in device_rows:
        if row["trouble"]:
            lines.append(f"{row['kind']}: none: {row['trouble']}")
            continue
        lines.append(f"{row['kind']}: {row['name']}")
        lines += [f"  {key.replace('_', ' ')}: {_words(value)}" for key, value in row["facts"].items() if value]
        lines.append(f"  runs programs for: {', '.join(row['targets']) or 'no target that covan knows by name'}")
    return "\n".join(lines) + "\n"


def _words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _cpu() -> dict[str, Any]:
    have = cpu_features() or frozenset()
    facts = {
        "architecture": platform.machine(),
        "cores": cores(),
        "instructions": [f for f in instructions() if linux_name(f) in have],
    }
    return {"kind": "cpu", "name": platform.machine(), "trouble": "", "facts": facts, "targets": ["cpu"]}


def _others(kind: str) -> list[dict[str, Any]]:
    discovered = devices.discover(kind)
    if not discovered:
        return [{"kind": kind, "name": "", "trouble": devices.trouble(kind), "facts": {}, "targets": []}]
    return [
        {
            "kind": kind,
            "name": device.name,
            "trouble": "",
            "facts": dict(device.facts),
            "targets": _fitting(kind, device),
        }
        for device in discovered
    ]


def _fitting(kind: str, device: devices.Device) -> list[str]:
    wanted = (
        {name: profile.requires() for name, profile in PROFILES.items()}
        if kind == "vulkan"
        else {name: architecture.requires() for name, architecture in ARCHITECTURES.items()}
    )
    named = [f"{kind}:{name}" for name, requires in wanted.items() if not missing(requires, device.facts)]
    return [kind, *named]
