"""Tensors to and from devices with memory of their own: copies, through buffers that the host can map."""

from __future__ import annotations

from typing import Any

import iree.runtime as rt
import numpy as np

from covan_mlir.runtime import failures, values


def is_remote(driver: str) -> bool:
    """Whether the device of a driver works on memory that is not the host's."""
    return not driver.startswith("local")


def to_device(device: Any, value: Any, dtype: str) -> Any:
    """Buffer view on the device with the values of an array or CPU tensor.

    Raises:
        DeviceError: the device has not enough memory, or fails.
    """
    array = value if isinstance(value, np.ndarray) else values.host_array(value, dtype)
    array = values.plain_bools(array) if dtype == "bool" else array
    try:
        return device.allocator.allocate_buffer_copy(
            memory_type=rt.MemoryType.DEVICE_LOCAL,
            allowed_usage=rt.BufferUsage.DEFAULT,
            device=device,
            buffer=np.ascontiguousarray(array),
            element_type=values.element_type(dtype),
        )
    except (RuntimeError, ValueError, MemoryError) as error:
        raise failures.moving(error, f"an argument of {array.nbytes} bytes") from error


def to_numpy(device: Any, view: Any, dtype: str) -> np.ndarray[Any, Any]:
    """A result's values, copied.

    Results lie where the host cannot map them, and importing a host allocation fails on devices that demand page
    alignment: so the device copies them into a buffer that can be mapped.
    """
    source = view.get_buffer()
    size = source.byte_length()
    try:
        staging = device.allocator.allocate_buffer(
            memory_type=rt.MemoryType.HOST_LOCAL | rt.MemoryType.DEVICE_VISIBLE,
            allowed_usage=rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING,
            allocation_size=max(size, 1),
        )
        if size:
            done = rt.HalFence.create_at(device.create_semaphore(0), 1)
            device.queue_copy(source, staging, rt.HalFence(0), done)
            done.wait()
    except (RuntimeError, ValueError, MemoryError) as error:
        raise failures.moving(error, f"a result of {size} bytes") from error
    array: np.ndarray[Any, Any] = staging.map().asarray(tuple(view.shape), values.numpy_dtype(dtype)).copy()
    return array


def to_torch(device: Any, view: Any, dtype: str) -> Any:
    """A result's values, copied into a CPU tensor."""
    torch: Any = values.torch_module()
    if dtype == "bfloat16":  # numpy has none
        source = to_numpy(device, view, "uint16")
        return torch.from_numpy(source).view(torch.bfloat16)
    return torch.from_numpy(to_numpy(device, view, dtype))
