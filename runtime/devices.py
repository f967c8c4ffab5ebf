"""HAL devices, one per driver and process: programs share a device's threads."""

from __future__ import annotations

import functools
import threading
from typing import Any

import iree.runtime as rt

from covan_mlir.errors import TargetError

_lock = threading.Lock()


@functools.cache
def instance() -> Any:
    """The VM instance of this process."""
    return rt.VmInstance()


@functools.cache
def _device(driver: str) -> Any:
    return rt.get_driver(driver).create_default_device()


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
