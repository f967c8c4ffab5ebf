"""The machine that this process runs on: as ``COVAN_MACHINE`` says, or read and measured.

Importing measures nothing, nor does loading an artifact: what was never measured counts as it was read. The first
compilation for this machine measures it, beside the export of the model; so does the first profile.
"""

from __future__ import annotations

import os
import threading
from dataclasses import fields, replace
from pathlib import Path

import msgspec

from covan_mlir.errors import TargetError
from covan_mlir.machine import measured
from covan_mlir.machine.description import PRESETS, Machine
from covan_mlir.machine.measured import Fingerprint, Speeds
from covan_mlir.machine.reading import cores, read

VARIABLE = "COVAN_MACHINE"

_known: dict[Fingerprint, Speeds | None] = {}
"""What this process has measured, for lack of a folder to keep it; None: it could not, and does not try again."""

_background: threading.Thread | None = None

_assumed: Machine | None = None


def host(*, measure: bool = True) -> Machine:
    """This machine.

    Args:
        measure: its speeds, if they are not known: that takes about a second, once.

    Raises:
        TargetError: ``COVAN_MACHINE`` is neither the name of a preset nor a file with a machine.
    """
    if _assumed is not None:
        return _assumed
    if name := os.environ.get(VARIABLE):
        return given(name)
    machine = read(cores())
    of = measured.fingerprint(machine)
    if measure and _background is not None:
        _background.join()
    speeds = _speeds(of)
    if speeds is None and measure and of not in _known:
        speeds = _measure(of, machine)
    return machine if speeds is None else speeds.of(machine)


def assume(machine: Machine) -> None:
    """Have `host` give a machine from now on: what another process, which asks for work here, knows of it."""
    global _assumed
    _assumed = machine


def prepare() -> None:
    """Begin to measure this machine, unless its speeds are known: `host` then waits for what is left."""
    global _background
    if os.environ.get(VARIABLE) or (_background is not None and _background.is_alive()):
        return
    machine = read(cores())
    of = measured.fingerprint(machine)
    if _speeds(of) is None and of not in _known:
        _background = threading.Thread(target=_measure, args=(of, machine), name="measure-machine", daemon=True)
        _background.start()


def remeasured() -> Machine:
    """This machine, measured again: of each figure the higher counts from now on.

    Raises:
        TargetError: as `host` does.
    """
    if not os.environ.get(VARIABLE):
        machine = read(cores())
        _measure(measured.fingerprint(machine), machine)
    return host(measure=False)


def given(name: str) -> Machine:
    """A preset, or what a file describes: JSON, with the fields of `Machine` as keys.

    Raises:
        TargetError: there is no such preset or file, or no machine in it.
    """
    if name in PRESETS:
        return replace(PRESETS[name], speeds="given")
    try:
        text = Path(name).read_bytes()
    except OSError as error:
        raise TargetError(
            f"{VARIABLE}={name}: neither a preset ({', '.join(PRESETS)}) nor a file that can be read ({error})"
        ) from error
    try:
        machine = msgspec.json.decode(text, type=Machine)
        unknown = msgspec.json.decode(text, type=dict[str, object]).keys() - {field.name for field in fields(Machine)}
    except msgspec.MsgspecError as error:
        raise TargetError(f"{VARIABLE}={name}: {error}; 'covan machine --json' prints a valid one") from error
    if unknown:
        raise TargetError(f"{VARIABLE}={name}: a machine has no {', '.join(sorted(unknown))}")
    return replace(machine, speeds="given")


def _speeds(of: Fingerprint) -> Speeds | None:
    return measured.kept(of) or _known.get(of)


def _measure(of: Fingerprint, machine: Machine) -> Speeds | None:
    before, now = _speeds(of), measured.measure(machine)
    speeds = now.higher(before) if now and before else now or before
    _known[of] = speeds
    if now and speeds:
        measured.keep(of, speeds)
    return speeds
