"""The process of one program: loads it, calls it when it is asked to, until its caller is gone. Needs no torch."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import iree.runtime as rt
import numpy as np

from covan_mlir.errors import ArtifactError, CovanError, DeviceError
from covan_mlir.runtime import failures, remote, team, values
from covan_mlir.runtime.compiled import CompiledModel
from covan_mlir.runtime.contract import ContractError
from covan_mlir.runtime.isolation import arena, messages
from covan_mlir.runtime.isolation.arena import Arena
from covan_mlir.runtime.loading import read
from covan_mlir.support.processes import frames, parent
from covan_mlir.support.typed_json import constant, scalar

_BYTES = np.dtype(np.uint8)


def main(caller: int, file: int, shared: int) -> None:
    """Serve the process ``caller``.

    Args:
        file: descriptor of the artifact.
        shared: of the arena.
    """
    parent.watch(caller)
    pipe = frames.Pipe(0, os.dup(1))
    os.dup2(2, 1)  # what a program prints is no message
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    memory = Arena(shared)
    model: CompiledModel | None = None
    while True:
        try:
            request = frames.receive(pipe, messages.REQUESTS)[0]
        except EOFError:
            return
        answer: messages.Loaded | messages.Returned | messages.Refused
        try:
            if isinstance(request, messages.Load):
                _limit(request.memory)
                model = _load(f"/dev/fd/{file}", request)
                answer = messages.Loaded(model.driver)
            else:
                assert model is not None
                answer = messages.Returned(_call(model, memory, request))
        except (CovanError, MemoryError, OSError) as error:
            answer = _refused(error)
        frames.send(pipe, answer)


def _limit(memory: int | None) -> None:
    """What is mapped of files does not count; what the runtime has taken for itself by now is not the program's."""
    if memory is None:
        return
    with open("/proc/self/status") as status:
        kilobytes = next(line.split()[1] for line in status if line.startswith("VmData:"))
    for kind, limit in ((resource.RLIMIT_DATA, (int(kilobytes) << 10) + memory), (resource.RLIMIT_FSIZE, memory)):
        hard = resource.getrlimit(kind)[1]
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (limit, limit))


def _load(path: str, request: messages.Load) -> CompiledModel:
    compiled = read(path)
    compiled = replace(compiled, specialised=()) if request.version is None else compiled.version(request.version)
    variants = tuple(variant for variant in compiled.variants if variant.target == request.target)
    # OpenMP's threads are torch's, which is not here.
    device = "local-task" if compiled.device == team.DRIVER else compiled.device
    model = CompiledModel(replace(compiled, variants=variants, device=device))
    model.check_device()
    return model


def _call(model: CompiledModel, memory: Arena, request: messages.Call) -> tuple[messages.Given, ...]:
    device = model.program.device
    is_remote = remote.is_remote(model.driver)
    end = max((part.start + part.size for part in request.arguments if isinstance(part, messages.Tensor)), default=0)
    whole = memory.bytes(end)
    arguments: list[Any] = []
    for given in request.arguments:
        if isinstance(given, messages.Number):
            arguments.append(scalar(given.value))
            continue
        part = whole[given.start : given.start + given.size]
        held = remote.to_device(device, part, "uint8") if is_remote else values.from_numpy(device, part, "uint8")
        arguments.append(rt.HalBufferView(held.get_buffer(), given.shape, given.element))
    out = model.program.invoke(arguments, request.results)
    views = [_view(out, index) for index in range(len(out))]
    results: list[messages.Given] = []
    end = arena.aligned(end)
    for index, view in enumerate(views):
        if view is None:
            results.append(messages.Number(constant(out.get_variant(index))))
            continue
        if not is_remote and (same := _argument(view, arguments)) is not None:
            results.append(messages.Same(same))
            continue
        results.append(messages.Tensor(end, view.byte_length, tuple(view.shape), int(view.element_type)))
        end = arena.aligned(end + view.byte_length)
    whole = memory.bytes(end)
    _copy(device if is_remote else None, views, results, whole)
    return tuple(results)


def _view(out: Any, index: int) -> Any | None:
    try:
        return out.get_as_object(index, rt.HalBufferView)
    except (ValueError, IndexError, TypeError):
        return None


def _argument(view: Any, arguments: Sequence[Any]) -> int | None:
    """The index of the argument that a result is."""
    size = view.byte_length
    if not size:
        return None
    for index, argument in enumerate(arguments):
        if (
            isinstance(argument, rt.HalBufferView)
            and argument.byte_length == size
            and argument.element_type == view.element_type
            and list(argument.shape) == list(view.shape)
            and _address(argument) == _address(view)
        ):
            return index
    return None


def _address(view: Any) -> int:
    array: np.ndarray[Any, Any] = view.map().asarray((view.byte_length,), _BYTES)
    return int(array.__array_interface__["data"][0])


def _copy(device: Any | None, views: Sequence[Any], places: Sequence[messages.Given], whole: arena.Bytes) -> None:
    for view, place in zip(views, places, strict=True):
        if isinstance(place, messages.Tensor) and place.size:
            if device is None:
                data = view.map().asarray((place.size,), _BYTES)
            else:
                plain = rt.HalBufferView(view.get_buffer(), (place.size,), values.element_type("uint8"))
                data = remote.to_numpy(device, plain, "uint8")
            whole[place.start : place.start + place.size] = data


def _refused(error: Exception) -> messages.Refused:
    cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
    if failures.out_of_memory(cause) or failures.out_of_memory(error) or isinstance(error, OSError):
        return messages.Refused("memory", str(error) or type(error).__name__)
    match error:
        case ContractError():
            return messages.Refused("contract", str(error))
        case ArtifactError():
            return messages.Refused("artifact", str(error))
        case DeviceError():
            return messages.Refused("device", str(error))
    return messages.Refused("other", str(error))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
