"""Limits of Vulkan devices that IREE's runtime does not report, asked from the loader (libvulkan) itself.

Offsets are those of ``VkPhysicalDeviceProperties`` and ``VkPhysicalDeviceFeatures`` in Vulkan 1.0 (vk.xml), which later
versions extend elsewhere.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import struct
from dataclasses import dataclass

_PROPERTIES_SIZE = 824
_NAME, _LIMITS = 20, 296
# Within VkPhysicalDeviceLimits, one after the other: maxComputeSharedMemorySize, maxComputeWorkGroupCount[3],
# maxComputeWorkGroupInvocations, maxComputeWorkGroupSize[3].
_COMPUTE = 216
_FEATURES, _SHADER_FLOAT64 = 55, 39  # then shaderInt64, shaderInt16


@dataclass(frozen=True)
class Limits:
    """Of compute shaders on one device, by the device's name."""

    name: str
    shared_memory: int
    workgroup_counts: tuple[int, int, int]
    workgroup_invocations: int
    workgroup_size: tuple[int, int, int]
    float64: bool
    int64: bool
    int16: bool


class _CreateInfo(ctypes.Structure):
    # VkInstanceCreateInfo without application, layers and extensions.
    _fields_ = (
        ("type", ctypes.c_uint32),
        ("next", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("application", ctypes.c_void_p),
        ("layer_count", ctypes.c_uint32),
        ("layers", ctypes.c_void_p),
        ("extension_count", ctypes.c_uint32),
        ("extensions", ctypes.c_void_p),
    )


def limits() -> list[Limits]:
    """All devices in the loader's order; none without a loader or driver."""
    library = ctypes.util.find_library("vulkan") or "libvulkan.so.1"
    try:
        vk = ctypes.CDLL(library)
    except OSError:
        return []
    handle = ctypes.c_void_p
    vk.vkEnumeratePhysicalDevices.argtypes = [handle, ctypes.c_void_p, ctypes.c_void_p]
    vk.vkGetPhysicalDeviceProperties.argtypes = [handle, ctypes.c_void_p]
    vk.vkGetPhysicalDeviceFeatures.argtypes = [handle, ctypes.c_void_p]
    vk.vkDestroyInstance.argtypes = [handle, ctypes.c_void_p]
    instance = handle()
    if vk.vkCreateInstance(ctypes.byref(_CreateInfo(type=1)), None, ctypes.byref(instance)):
        return []
    try:
        count = ctypes.c_uint32()
        if vk.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None):
            return []
        physical_devices = (handle * count.value)()
        if vk.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), physical_devices):
            return []
        return [_limits(vk, device) for device in physical_devices[: count.value]]
    finally:
        vk.vkDestroyInstance(instance, None)


def _limits(vk: ctypes.CDLL, device: int | None) -> Limits:
    raw = ctypes.create_string_buffer(_PROPERTIES_SIZE + 64)
    vk.vkGetPhysicalDeviceProperties(device, raw)
    name = raw.raw[_NAME : _NAME + 256].split(b"\0")[0].decode(errors="replace")
    shared, x, y, z, invocations, a, b, c = struct.unpack_from("8I", raw.raw, _LIMITS + _COMPUTE)
    features = (ctypes.c_uint32 * _FEATURES)()
    vk.vkGetPhysicalDeviceFeatures(device, features)
    float64, int64, int16 = (bool(f) for f in features[_SHADER_FLOAT64 : _SHADER_FLOAT64 + 3])
    return Limits(name, shared, (x, y, z), invocations, (a, b, c), float64, int64, int16)
