"""HAL devices: what is here, and one of each for this process, whose memory and threads its programs share."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import iree.runtime as rt
from iree.runtime._binding import create_hal_driver, disable_leak_checker

from covan_mlir.errors import DeviceError
from covan_mlir.runtime import failures, vulkan_limits
from covan_mlir.runtime.requirements import missing

DRIVERS = ("local-task", "local-sync", "vulkan", "cuda")
_lock = threading.Lock()
_forks = 0


@dataclass(frozen=True)
class Device:
    """A device that a driver lists.

    Attributes:
        driver: of IREE's runtime.
        name: as the driver says it.
        path: which of several.
        facts: what programs may require: see `covan_mlir.runtime.requirements.missing`.
    """

    driver: str
    name: str
    path: str
    facts: Mapping[str, Any] = field(default_factory=dict)


def forks() -> int:
    """How many forks lie between this process and the one that imported this: what was loaded before the last one
    belongs to threads that are not here."""
    return _forks


def _forked() -> None:
    """In the child: forgets the parent's devices. They are kept as they are, for to end them is to wait for their
    threads."""
    global _forks, _lock
    _forks += 1
    _lock = threading.Lock()  # another thread of the parent's may have held it
    _device.cache_clear()
    instance.cache_clear()


os.register_at_fork(after_in_child=_forked)


def keep_for_ever(value: Any) -> None:
    """Python never frees it, not even at exit."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    disable_leak_checker()  # which would report it


@functools.cache
def instance() -> Any:
    """The VM instance of this process."""
    return rt.VmInstance()


KEPT = {"local-task": 256 << 20, "local-sync": 256 << 20, "cuda": 1 << 30}
"""Bytes of freed memory that the devices of a driver keep for their next results and intermediate values, of which
programs that run again need the same sizes. The C library and CUDA's driver give back what is large: its pages are
cleared or mapped anew at each call, which takes longer than most kernels that write them (0.3 ms for 64 MB on an H100,
which it writes in 0.02 ms)."""
KEPT_PIECES = 1024

_FLAGS = {"cuda": "--cuda_async_allocations=false"}
"""Of IREE's runtime, read when a driver is created. Pools that allocate in the order of a stream keep nothing whenever
the host waits for the device."""


def _driver(name: str) -> Any:
    if name in _FLAGS and name in rt.query_available_drivers():  # builds without the driver do not know its flags
        rt.flags.parse_flags(_FLAGS[name])
    # The runtime's own cache has the parent's, and its threads.
    return (create_hal_driver if _forks else rt.get_driver)(name)


@functools.cache
def _device(driver: str) -> Any:
    if _forks and not driver.startswith("local"):
        raise RuntimeError(f"{driver} devices do not survive a fork: start processes with the method 'spawn'")
    kept = [f"caching:*={KEPT[driver]};{KEPT[driver]};{KEPT_PIECES}"] if driver in KEPT else None
    device = _driver(driver).create_default_device(allocators=kept)
    # Results share the device's memory, and may be the last thing that Python frees at exit: the device must not go
    # before them. It lives as long as the process anyway.
    keep_for_ever(device)
    return device


def device(driver: str) -> Any:
    """The default device of a driver (``local-task``, ``local-sync``, ``vulkan``, ``cuda``).

    Raises:
        DeviceError: this build of the runtime has no such driver, or the driver finds no device.
    """
    with _lock:
        try:
            return _device(driver)
        except (RuntimeError, ValueError) as error:
            raise DeviceError(f"the device {driver!r} is not to be had here: {_why(driver, error)}") from error


def discover(driver: str) -> list[Device]:
    """The devices of a driver; none where the driver does not work.

    Args:
        driver: of `DRIVERS`.
    """
    return _discover(driver)[0]


def lacking(requires: Mapping[str, Any]) -> str:
    """Why this machine cannot run a program, in words; empty: it can.

    Args:
        requires: see `covan_mlir.runtime.requirements.missing`.
    """
    driver = str(requires.get("driver", "local"))
    if driver == "local":
        return "; ".join(missing(requires, {}))
    discovered = discover(driver)
    if not discovered:
        return f"a {driver} device ({trouble(driver)})"
    # The runtime opens the driver's default device, which is its first.
    return "; ".join(missing(requires, discovered[0].facts))


def trouble(driver: str) -> str:
    """Why a driver lists nothing; empty if it lists something."""
    return _discover(driver)[1]


@functools.cache
def _discover(driver: str) -> tuple[list[Device], str]:
    try:
        hal_driver = _driver(driver)
        infos = [
            (info, hal_driver.dump_device_info(info["device_id"])) for info in hal_driver.query_available_devices()
        ]
    except (RuntimeError, ValueError) as error:
        return [], _why(driver, error)
    if not infos:
        return [], f"the driver lists no device; {_ADVICE.get(driver, '')}".rstrip("; ")
    read: Callable[[str], dict[str, Any]] = {"vulkan": _vulkan_facts, "cuda": _cuda_facts}.get(driver, lambda _: {})
    return [
        Device(driver, info["name"].partition(" (")[0] or driver, info["path"], read(text)) for info, text in infos
    ], ""


_STATUS = re.compile(r"[A-Z_]{5,}; ")
_ADVICE = {
    "vulkan": "install a Vulkan driver and its loader (Debian: libvulkan1, and mesa-vulkan-drivers for the CPU)",
    "cuda": "install NVIDIA's driver",
}


def _why(driver: str, error: Exception) -> str:
    said = _STATUS.split(" ".join(str(error).split()))[-1].partition("; please ensure")[0].rstrip(" .;")
    if "CUDA_ERROR_NO_DEVICE" in said:
        return f"{said}; there is no NVIDIA GPU, or CUDA_VISIBLE_DEVICES hides it"
    if "CUDA error" in said:
        return f"{said}; {failures.advice(said)}"
    return f"{said}; {_ADVICE.get(driver, 'drivers are ' + ', '.join(DRIVERS))}"


def _vulkan_facts(text: str) -> dict[str, Any]:
    """From IREE's description of the device, and from the loader where that is silent."""

    def number(key: str) -> int:
        match = re.search(rf"\b{key}=(\d+)", text)
        return int(match[1]) if match else 0

    name_line = re.search(r"^name: (.*)$", text, re.MULTILINE)
    name = name_line[1].strip() if name_line else ""
    on = set(re.findall(r"(\w+)=yes", text))
    size = number("size")
    facts: dict[str, Any] = {
        "subgroup_size": size,
        "subgroup_sizes": [number("minSubgroupSize") or size, number("maxSubgroupSize") or size]
        if "subgroupSizeControl" in on
        else [size, size],
        "memory": max((int(n) for n in re.findall(r"^ *\[\d+\] size=(\d+)", text, re.MULTILINE)), default=0),
        "api": (re.search(r"^api: (\S+)", text, re.MULTILINE) or ["", ""])[1],
        "driver": (re.search(r"^driver_info: (.*)$", text, re.MULTILINE) or ["", ""])[1].strip(),
        # What every device has (Vulkan 1.3, table "Required Limits"), unless the loader says more.
        "shared_memory": 16384,
        "workgroup_invocations": 128,
        "workgroup_size": [128, 128, 64],
        "workgroup_counts": [65535, 65535, 65535],
    }
    types = [t for t, needs in (("fp16", "shaderFloat16"), ("int8", "shaderInt8")) if needs in on]
    same = [limits for limits in vulkan_limits.limits() if limits.name == name]
    if same:
        limits = same[0]
        facts |= {
            "shared_memory": limits.shared_memory,
            "workgroup_invocations": limits.workgroup_invocations,
            "workgroup_size": list(limits.workgroup_size),
            "workgroup_counts": list(limits.workgroup_counts),
        }
        types += [t for t, has in (("int16", limits.int16), ("int64", limits.int64), ("fp64", limits.float64)) if has]
    if "storageBuffer16BitAccess" not in on:
        types = [t for t in types if not t.endswith("16")]
    if "storageBuffer8BitAccess" not in on:
        types = [t for t in types if t != "int8"]
    return facts | {"types": types}


def _cuda_facts(text: str) -> dict[str, Any]:
    match = re.search(r"compute-capability: *(\d+)\.(\d+)", text)
    return {"capability": [int(match[1]), int(match[2])]} if match else {}
