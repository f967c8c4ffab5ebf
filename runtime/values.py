"""Tensors in and out: torch or numpy to HAL buffer views and back, without copies where memory allows.

IREE's generated code assumes that buffers start at multiples of 64 bytes; memory that does not is copied.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import iree.runtime as rt
import numpy as np

ALIGNMENT = 64

# dtype as torch spells it -> (numpy's name, HAL element type). numpy knows bfloat16 through ml_dtypes only.
_TYPES: dict[str, tuple[str, Any]] = {
    "float64": ("float64", rt.HalElementType.FLOAT_64),
    "float32": ("float32", rt.HalElementType.FLOAT_32),
    "float16": ("float16", rt.HalElementType.FLOAT_16),
    "bfloat16": ("bfloat16", rt.HalElementType.BFLOAT_16),
    "int64": ("int64", rt.HalElementType.SINT_64),
    "int32": ("int32", rt.HalElementType.SINT_32),
    "int16": ("int16", rt.HalElementType.SINT_16),
    "int8": ("int8", rt.HalElementType.SINT_8),
    "uint64": ("uint64", rt.HalElementType.UINT_64),
    "uint32": ("uint32", rt.HalElementType.UINT_32),
    "uint16": ("uint16", rt.HalElementType.UINT_16),
    "uint8": ("uint8", rt.HalElementType.UINT_8),
    "bool": ("bool", rt.HalElementType.BOOL_8),
}


PAIRS = {"complex64": "float32", "complex128": "float64"}
"""Complex dtypes: programs take and give them as pairs of real numbers, with a last axis of two."""


def as_pairs(value: Any) -> Any:
    """A complex tensor or array as pairs, over the same memory where it is contiguous."""
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value).view(value.real.dtype).reshape(*value.shape, 2)
    torch: Any = torch_module()
    return torch.view_as_real(value.detach().resolve_conj().resolve_neg())


def from_pairs(pairs: Any) -> Any:
    """The complex tensor or array whose pairs these are, over the same memory."""
    if isinstance(pairs, np.ndarray):
        return pairs.view(np.result_type(pairs.dtype, np.complex64)).reshape(pairs.shape[:-1])
    torch: Any = torch_module()
    return torch.view_as_complex(pairs)


def supported(dtype: str) -> bool:
    """Whether tensors of this dtype can be passed in and out."""
    return dtype in _TYPES


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """numpy's dtype for torch's name of one.

    Raises:
        ImportError: bfloat16 without ``ml_dtypes``.
    """
    if dtype == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(_TYPES[dtype][0])


def element_type(dtype: str) -> Any:
    """The runtime's element type for torch's name of a dtype."""
    return _TYPES[dtype][1]


def torch_module() -> Any | None:
    """torch where it is loaded: a value can be its tensor only then."""
    return sys.modules.get("torch")


def is_tensor(value: Any) -> bool:
    """Whether it is torch's."""
    torch = torch_module()
    return torch is not None and isinstance(value, torch.Tensor)


def array_of(value: Any, dtype: str, shape: Sequence[int | str]) -> Any:
    """An argument as a tensor or an array: other frameworks' arrays share their memory, a number is one of no axes.

    What is none of these is given back as it is.
    """
    if isinstance(value, np.ndarray | np.generic) or is_tensor(value):
        return value
    if isinstance(value, bool | int | float | complex):
        kind = numpy_dtype(dtype) if not shape and dtype in _TYPES else None
        fits = kind is not None and np.result_type(type(value)).kind in _NUMBERS.get(kind.kind, "bifc")
        return np.asarray(value, kind) if fits else value
    return np.asarray(value) if hasattr(type(value), "__array__") else value


_NUMBERS = {"b": "b", "i": "bi", "u": "bi", "f": "bif", "V": "bif", "c": "bifc"}
"""Kinds of Python's numbers that elements of a kind may be given as."""


def plain_bools(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Of bools: all as 0 and 1. Other bytes are true, but programs look at single bits."""
    integers = array.view(np.uint8)
    return integers != 0 if array.size and integers.max() > 1 else array


def from_numpy(device: Any, array: np.ndarray[Any, Any], dtype: str) -> Any:
    """Buffer view over an array's memory, or over an aligned copy of it."""
    if (
        not array.flags.c_contiguous
        or not array.flags.writeable  # numpy lends no read-only memory through DLPack
        or array.__array_interface__["data"][0] % ALIGNMENT
    ):
        array = aligned_copy(array)
    # DLPack ties the array's life to the native buffer; importing a host allocation ties it to a Python wrapper that
    # is gone before the call is over.
    if dtype == "bfloat16":  # a type that DLPack in numpy does not know
        view = device.from_dlpack_capsule(array.view(np.uint16).__dlpack__())
        return rt.HalBufferView(view.get_buffer(), array.shape, _TYPES[dtype][1])
    return device.from_dlpack_capsule(array.__dlpack__())


def aligned_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """C-contiguous copy whose memory starts at a multiple of 64 bytes."""
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    # In two steps: a slice of no elements would begin at the memory's own start.
    start = -memory.__array_interface__["data"][0] % ALIGNMENT
    copy: np.ndarray[Any, Any] = memory[start:][: array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def to_numpy(view: Any, dtype: str) -> np.ndarray[Any, Any]:
    """Array over a result's memory, which lives as long as the array."""
    array: np.ndarray[Any, Any] = view.map().asarray(view.shape, numpy_dtype(dtype))
    return array


def host_array(value: Any, dtype: str) -> np.ndarray[Any, Any]:
    """An array of a tensor's elements, which may share its memory; of bfloat16 the bits, as uint16."""
    if not isinstance(value, np.ndarray | np.generic):
        torch: Any = torch_module()
        value = value.detach().contiguous().resolve_neg()
        value = (value.view(torch.uint16) if dtype == "bfloat16" else value).numpy()
    array = np.asarray(value)
    return array.view(np.uint16) if dtype == "bfloat16" else array


def torch_reader(device: Any, dtype: str) -> Callable[[Any], Any]:
    """A function from a CPU tensor to a buffer view over its memory, or over an aligned copy of it; it raises
    ``RuntimeError``, ``ValueError`` or ``BufferError`` for tensors that have no such memory."""
    torch: Any = torch_module()
    to_dlpack, take = torch.utils.dlpack.to_dlpack, device.from_dlpack_capsule
    contiguous = torch.contiguous_format

    def read(tensor: Any) -> Any:
        if tensor.requires_grad:
            tensor = tensor.detach()
        address = tensor.data_ptr()
        if not address and tensor.numel():
            raise ValueError("it has no memory")
        if dtype == "bool":
            array = tensor.numpy()
            if (plain := plain_bools(array)) is not array:
                tensor, address = torch.from_numpy(plain), 1
        if not tensor.is_contiguous() or address % ALIGNMENT or tensor.is_neg():
            # torch allocates at multiples of 64; clone() would keep a tensor that only looks contiguous
            fresh = torch.empty(tensor.shape, dtype=tensor.dtype, memory_format=contiguous)
            tensor = fresh.copy_(tensor)
        try:
            return take(to_dlpack(tensor))
        except ValueError:  # axes of no or one element may have any stride for torch, and not for IREE
            fresh = torch.empty(tensor.shape, dtype=tensor.dtype, memory_format=contiguous)
            return take(to_dlpack(fresh.copy_(tensor)))

    return read


def torch_writer(device: Any, dtype: str) -> Callable[[Any], Any]:
    """A function from a result's buffer view to a tensor over its memory, which lives as long as the tensor."""
    torch: Any = torch_module()
    from_dlpack, give = torch.utils.dlpack.from_dlpack, device.create_dlpack_capsule
    wanted = getattr(torch, dtype)

    def write(view: Any) -> Any:
        tensor = from_dlpack(give(view, 1, 0))  # 1: kDLCPU
        return tensor if tensor.dtype is wanted else tensor.view(wanted)  # IREE forgets unsignedness

    return write


def raw(value: Any) -> np.ndarray[Any, Any]:
    """The bytes of a weight where they are."""
    if isinstance(value, np.ndarray):
        return value.reshape(-1).view(np.uint8)
    torch: Any = torch_module()
    flat: np.ndarray[Any, Any] = value.detach().reshape(-1).view(torch.uint8).numpy()
    return flat


@cache
def dtype_name(dtype: Any) -> str:
    """Of torch's or numpy's object for a type; to spell it at every call takes as long as to import a tensor."""
    return str(dtype).removeprefix("torch.")


def dtype_of(value: Any) -> str:
    """As torch spells that of a tensor or array."""
    return dtype_name(value.dtype)


def overwrite(old: Any, new: Any) -> None:
    """Give the caller's own array or tensor its new value."""
    if isinstance(old, np.ndarray):
        old[...] = new
    else:
        torch: Any = torch_module()
        with torch.no_grad():
            old.copy_(new)
