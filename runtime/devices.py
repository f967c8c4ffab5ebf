"""HAL devices, one per driver and process: programs share a device's threads."""

from __future__ import annotations

import ctypes
import functools
import threading
from typing import Any

import iree.runtime as rt
from iree.runtime._binding import disable_leak_checker

from covan_mlir.errors import TargetError

_lock = threading.Lock()


@functools.cache
def instance() -> Any:
    """The VM instance of this process."""
    return rt.VmInstance()


@functools.cache
def _device(driver: str) -> Any:
    device = rt.get_driver(driver).create_default_device()
    # Results share the device's memory, and may be the last thing that Python frees at exit: the device must not go
    # before them. It lives as long as the process anyway.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(device))
    disable_leak_checker()  # which would report this one
    return device


def device(driver: str) -> Any:
    """The default device of a driver (``local-task``, ``local-sync``).

    Raises:
        TargetError: this build of the runtime has no such driver, or the driver finds no device.
    """
    with _lock:
        try:
            return _device(driver)
        except (RuntimeError, ValueError) as error:
            raise TargetError(f"the device {driver!r} is not to be had here: {error}") from error
