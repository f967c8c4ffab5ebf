"""The OpenMP runtime of this process, whose threads kernels may share their work with.

See `covan_mlir.lowering.kernels.cpu.team` for the other side.
"""

from __future__ import annotations

import ctypes
import logging
import re
from functools import cache
from pathlib import Path
from typing import Any

import iree.runtime as rt

from covan_mlir.errors import DeviceError

log = logging.getLogger(__name__)

DRIVER = "openmp"
"""Not a driver of IREE's: programs run on the calling thread, and share kernels with OpenMP threads."""
SETTER = "covan_team"
"""The function of a program that takes the address and the number of threads; not all programs have such kernels."""

# GNU's, LLVM's and Intel's; the latter two export GNU's interface as well.
_RUNTIME = re.compile(r"/lib(?:gomp|omp|iomp5)[^/]*\.so[^/]*$")
_START = "GOMP_parallel"


def address() -> int:
    """Where ``GOMP_parallel`` is, of the OpenMP runtime that torch, or who else, has brought along; 0: there is none.

    None is loaded for this: only threads that work for others as well are likely to be awake.
    """
    for path in _libraries():
        if entry_point := _start(path):
            return entry_point
    return 0


def threads() -> int:
    """How many threads a team of the calling thread has now (`torch.set_num_threads`)."""
    for path in _libraries():
        if _start(path):
            return int(ctypes.CDLL(path).omp_get_max_threads())
    return 0


def _libraries() -> list[str]:
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []  # not Linux: its calling convention is what kernels know
    files = (line.split(maxsplit=5)[5:] for line in lines)
    return list(dict.fromkeys(file[0] for file in files if file and _RUNTIME.search(file[0])))


@cache
def _start(path: str) -> int:
    try:
        return ctypes.cast(getattr(ctypes.CDLL(path), _START), ctypes.c_void_p).value or 0
    except (OSError, AttributeError) as error:
        log.warning("%s has no threads to share with: %s", path, error)
        return 0


def hal(driver: str) -> str:
    """The driver of IREE's that programs run on."""
    return "local-sync" if driver == DRIVER else driver


def share(context: Any, module: Any) -> None:
    """Has the kernels of a loaded module share their work with this process's OpenMP threads.

    Raises:
        DeviceError: there are none.
    """
    start = address()
    if not start:
        raise DeviceError(
            "no OpenMP threads to run on in this process: import torch first, or use device='local-task' or 'auto'"
        )
    if (setter := module.lookup_function(SETTER)) is not None:
        arguments = rt.VmVariantList(2)
        arguments.push_int(start)
        arguments.push_int(threads())
        context.invoke(setter, arguments, rt.VmVariantList(0))
