"""Arguments that a call writes to, beside all others: a compiled program takes each as a tensor of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from covan_mlir.errors import InputError
from covan_mlir.runtime import values


class Passed(NamedTuple):
    """A tensor of a call.

    Attributes:
        name: as messages call it: ``argument x``.
        value: an array or a CPU tensor.
        written: the call changes it.
    """

    name: str
    value: Any
    written: bool


def check(tensors: Sequence[Passed]) -> None:
    """See that a call can write what it changes, and that nothing else of the call lies in the same memory.

    Raises:
        InputError: a tensor cannot be written, has several elements in one place, or shares memory with another: eager
            would see the change there, the program does not.
    """
    for passed in tensors:
        if passed.written:
            _check_writable(passed)
    last: tuple[int, Passed] | None = None
    for start, end, passed in sorted(_extents(tensors), key=lambda extent: extent[:2]):
        if last is not None and start < last[0]:
            # What reaches furthest covers all that begin before its end: the others are compared one by one.
            _check_apart(passed, tensors)
        if last is None or end > last[0]:
            last = end, passed


def _check_apart(passed: Passed, tensors: Iterable[Passed]) -> None:
    for other in tensors:
        if other is not passed and (other.written or passed.written) and _share(other.value, passed.value):
            raise InputError(
                f"{other.name} and {passed.name} share memory, and the call changes one of them in place: "
                "pass a copy of the other"
            )


def _check_writable(passed: Passed) -> None:
    value = passed.value
    if isinstance(value, np.ndarray | np.generic):  # scalars are read-only
        if not value.flags.writeable:
            raise InputError(f"{passed.name} is changed in place, but it is read-only: pass a copy")
        strides: Iterable[int] = value.strides
    else:
        torch: Any = values.torch_module()
        if value.is_inference() and not torch.is_inference_mode_enabled():
            raise InputError(f"{passed.name} is changed in place, but it was made in inference mode: pass a clone")
        strides = value.stride()
    if any(stride == 0 and size > 1 for size, stride in zip(value.shape, strides, strict=True)):
        raise InputError(
            f"{passed.name} is changed in place, but several of its elements lie in one place: pass a contiguous copy"
        )


def _extents(tensors: Iterable[Passed]) -> Iterable[tuple[int, int, Passed]]:
    """Addresses of the first byte and behind the last of each that has any."""
    for passed in tensors:
        value = passed.value
        if isinstance(value, np.ndarray):
            if value.size:
                yield *np.lib.array_utils.byte_bounds(value), passed
        elif value.numel():
            start = value.data_ptr()
            reach = sum((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
            yield start, start + (reach + 1) * value.element_size(), passed


def _share(one: Any, other: Any) -> bool:
    """Whether any byte belongs to both."""
    work: Any = 100_000  # numpy's stubs know but two of its values
    try:
        return bool(np.shares_memory(_bytes(one), _bytes(other), max_work=work))
    except np.exceptions.TooHardError:
        return True


def _bytes(value: Any) -> np.ndarray[Any, Any]:
    """An array over the same memory."""
    if isinstance(value, np.ndarray):
        return value
    torch: Any = values.torch_module()
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[value.element_size()]
    view: np.ndarray[Any, Any] = value.detach().view(whole).numpy()
    return view
