"""What a failed call of IREE's runtime means: whose fault, in whose words, and what to do."""

from __future__ import annotations

import re

from covan_mlir.errors import CovanError, DeviceError

RAISED = (RuntimeError, ValueError, IndexError, KeyError, TypeError, MemoryError)
"""What IREE's bindings raise for the statuses of its runtime: OUT_OF_RANGE is an ``IndexError``."""

_STATUS = re.compile(r"\b(?:RESOURCE_EXHAUSTED|ABORTED|FAILED_PRECONDITION|INTERNAL|UNAVAILABLE|UNKNOWN|DATA_LOSS); ")
_MEMORY = re.compile(r"RESOURCE_EXHAUSTED|OUT_OF_(?:DEVICE_|HOST_|POOL_)?MEMORY")
_DRIVER = re.compile(r"CUDA error '\w+' \(\d+\)|VK_ERROR_\w+|\bABORTED\b")
_TOO_OLD = re.compile(r"UNSUPPORTED_PTX_VERSION|SYSTEM_DRIVER_MISMATCH|INSUFFICIENT_DRIVER")
_REFUSED = re.compile(r"NO_BINARY_FOR_GPU|INVALID_PTX|INVALID_IMAGE|INVALID_SOURCE")


def words(error: Exception) -> str:
    """The driver's or the runtime's own words, without the stack around them."""
    text = " ".join(str(error).split())
    said = _STATUS.split(text)[-1].partition("; while ")[0].partition("; mismatched target")[0]
    return said[:400].rstrip(" .;")


def out_of_memory(error: Exception) -> bool:
    """Whether a device or the host had not enough memory."""
    return isinstance(error, MemoryError) or bool(_MEMORY.search(str(error)))


def loading(error: Exception, driver: str) -> CovanError:
    """For a program that could not be loaded, or failed while it prepared its constants."""
    if out_of_memory(error):
        return DeviceError(f"the device has no room for the program: {words(error)}. Use a smaller model")
    if not _DRIVER.search(str(error)):
        return CovanError(f"the program cannot be loaded on this machine: {' '.join(str(error).split())}")
    return DeviceError(f"the {driver} driver refuses the program: {words(error)}. {advice(str(error))}")


def advice(text: str) -> str:
    """What to do about a driver that refuses a program, or is refused."""
    if _TOO_OLD.search(text):
        return "The driver is too old: covan's programs need that of CUDA 12.0 (of 2022) or newer"
    if _REFUSED.search(text):
        return "Compile for one of the devices that 'covan devices' lists"
    return "The device's state is unknown: start a new process"


def running(error: Exception, driver: str) -> CovanError:
    """For a program that failed while it ran."""
    if out_of_memory(error):
        return DeviceError(f"the device is out of memory: {words(error)}. Use smaller inputs")
    if driver.startswith("local") or not _DRIVER.search(str(error)):
        return CovanError(f"the program failed: {error}")
    return _lost(error, "ran the program")


def moving(error: Exception, what: str) -> DeviceError:
    """For a tensor that did not get to the device, or from it.

    Args:
        what: ``an argument of 12 bytes``.
    """
    if out_of_memory(error):
        return DeviceError(f"the device has no room for {what}: {words(error)}. Use smaller inputs")
    return _lost(error, f"copied {what}")


def _lost(error: Exception, doing: str) -> DeviceError:
    # Errors of kernels come with whatever waits for them, and stay.
    return DeviceError(
        f"the device failed while it {doing}: {words(error)}. A kernel may have done what the device does not allow. "
        "What the device held is lost, and it takes no more calls from this process: start a new one"
    )
