"""Which op an op is, as a number.

``hash`` of an op is of no use for it: it is computed from operands, attributes and location, so that equal ops have
the same and a changed op another. Wrappers come and go, and one of an erased op must not be touched.
"""

import ctypes

from torch_mlir import ir

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_CAPSULE = b"torch_mlir.ir.Operation._CAPIPtr"


def address(op: ir.Operation | ir.OpView) -> int:
    """The address of the op in memory, in 0.6 us. An op built after another was erased may be given the same."""
    where: int = _pointer(op._CAPIPtr, _CAPSULE)
    return where
