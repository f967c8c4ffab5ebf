"""A program in a process of its own, as its caller sees it: called as `covan_mlir.runtime.program.Program` is."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import iree.runtime as rt
import msgspec
import numpy as np

from covan_mlir.errors import ArtifactError, CovanError, DeviceError, IsolationError
from covan_mlir.runtime import devices, values
from covan_mlir.runtime.contract import ContractError
from covan_mlir.runtime.isolation import arena, messages
from covan_mlir.runtime.isolation.arena import Arena, Bytes
from covan_mlir.runtime.isolation.limits import Isolation
from covan_mlir.support.processes import frames
from covan_mlir.support.processes.child import Child, ending, lacking
from covan_mlir.support.typed_json import constant, scalar, short

log = logging.getLogger(__name__)

_BYTES = np.dtype(np.uint8)


@dataclass(frozen=True, eq=False)
class Place:
    """Where a program comes from that runs in a process of its own.

    Attributes:
        path: of the artifact, for messages.
        file: the artifact as it was opened: whatever the path names later, this is what runs.
        limits: of the process.
        version: which of the versions for some sizes it is; None: the general one.
    """

    path: str
    file: IO[bytes]
    limits: Isolation
    version: int | None = None


class IsolatedProgram:
    """A program that another process loads and calls. A process that died is followed by a new one at the next call.

    Calls take turns. The process ends with this object, with `close`, and with this process, however that ends.

    Attributes:
        device: on which arguments and results are made here; no program runs on it.
        driver: of the device that runs the program there.
    """

    def __init__(self, place: Place, target: str) -> None:
        """Start a process and load the program there.

        Raises:
            IsolationError: it died, took too long or too much memory.
            ArtifactError, ContractError, DeviceError, CovanError: as for a program that is loaded here.
        """
        self.device = devices.device("local-sync")
        rt.create_hal_module(devices.instance(), self.device)  # lists take no buffer views before
        self._place, self._target = place, target
        self._lock = threading.Lock()
        self._held: list[tuple[Child, Arena]] = []  # the process, if one is there
        weakref.finalize(self, _end, self._held)
        self.driver = self._start()

    def invoke(self, arguments: Sequence[Any], results: int) -> Any:
        """Run once; see `Program.invoke`. Tensors are copied there and back.

        Raises:
            IsolationError: the process died, took too long or too much memory.
            DeviceError, CovanError: as for a program that runs here.
            ContractError: what came back is no such list of results.
        """
        with self._lock:
            if not self._held or not self._held[0][0].alive:
                _end(self._held)
                log.info("starting a new process for %s: that of the last call is gone", self._place.path)
                self._start()
            memory = self._held[0][1]
            passed = self._pass(memory, arguments)
            returned = self._ask(messages.Call(passed, results), "the call")
            if not isinstance(returned, messages.Returned) or len(returned.results) != results:
                raise ContractError(f"the program's process did not give {results} values")
            return self._results(memory, arguments, returned.results)

    def close(self) -> None:
        """End the process; another call starts a new one."""
        with self._lock:
            _end(self._held)

    def _start(self) -> str:
        try:
            memory = Arena.new()
            try:
                file = self._place.file.fileno()
                child = Child(
                    "covan_mlir.runtime.isolation.worker",
                    [str(file), str(memory.descriptor)],
                    [file, memory.descriptor],
                )
            except BaseException:
                memory.close()
                raise
        except OSError as error:
            raise IsolationError(f"{self._place.path}: its process cannot be started: {lacking(error)}") from error
        self._held.append((child, memory))
        try:
            loaded = self._ask(
                messages.Load(self._target, self._place.limits.memory, self._place.version), "loading it"
            )
            if not isinstance(loaded, messages.Loaded) or loaded.driver not in devices.DRIVERS:
                raise ContractError("the program's process does not say on which device it runs")
        except BaseException:
            _end(self._held)
            raise
        return loaded.driver

    def _ask(self, request: messages.Load | messages.Call, what: str) -> messages.Loaded | messages.Returned:
        child = self._held[0][0]
        limits = self._place.limits
        child.pipe.deadline = None if limits.timeout is None else time.monotonic() + limits.timeout
        try:
            frames.send(child.pipe, request)
            answer, _ = frames.receive(child.pipe, messages.ANSWERS, messages.MESSAGE_LIMIT)
        except TimeoutError:
            child.process.kill()
            raise self._lost(
                f"took longer than the {limits.timeout:g} s allowed for {what}, and was stopped; "
                "Isolation(timeout=...) allows more"
            ) from None
        except (EOFError, OSError):
            raise self._lost("") from None
        except msgspec.MsgspecError as error:
            _end(self._held)
            raise ContractError(f"the program's process said what it cannot say: {short(str(error))}") from error
        except BaseException:  # Ctrl-C above all: an answer may be half read
            _end(self._held)
            raise
        if isinstance(answer, messages.Refused):
            raise self._refused(answer)
        return answer

    def _lost(self, why: str) -> IsolationError:
        child = self._held[0][0]
        code = child.process.wait()
        said = child.tail().splitlines()
        _end(self._held)
        last = f": {said[-1][:400]}" if said and not why else ""
        return IsolationError(
            f"{self._place.path}: the program's process {why or ending(code)}{last}\nThis process is not harmed: "
            "the next call starts another"
        )

    def _refused(self, answer: messages.Refused) -> CovanError:
        limit = self._place.limits.memory
        if answer.kind == "memory":
            allowed = (
                f"more than the {limit:,} bytes allowed; Isolation(memory=...) allows more" if limit else "too much"
            )
            return IsolationError(f"{self._place.path}: the program takes memory, {allowed}: {answer.message}")
        kinds: dict[str, type[CovanError]] = {
            "contract": ContractError,
            "artifact": ArtifactError,
            "device": DeviceError,
        }
        text = answer.message.replace(f"/dev/fd/{self._place.file.fileno()}", self._place.path)
        return kinds.get(answer.kind, CovanError)(text)

    def _pass(self, memory: Arena, arguments: Sequence[Any]) -> tuple[messages.Passed, ...]:
        passed: list[messages.Passed] = []
        end = 0
        for argument in arguments:
            if isinstance(argument, rt.HalBufferView):
                size = argument.byte_length
                passed.append(messages.Tensor(end, size, tuple(argument.shape), int(argument.element_type)))
                end = arena.aligned(end + size)
            else:
                passed.append(messages.Number(constant(argument)))
        try:
            whole = memory.bytes(end)
        except OSError as error:
            raise IsolationError(f"no memory for {end} bytes of arguments: {error.strerror or error}") from error
        for argument, place in zip(arguments, passed, strict=True):
            if isinstance(place, messages.Tensor) and place.size:
                whole[place.start : place.start + place.size] = argument.map().asarray((place.size,), _BYTES)
        return tuple(passed)

    def _results(self, memory: Arena, arguments: Sequence[Any], results: Sequence[messages.Given]) -> Any:
        tensors = [result for result in results if isinstance(result, messages.Tensor)]
        # Each lies in a place of its own: many that claim one would take more memory here than there.
        if sum(tensor.size for tensor in tensors) > os.fstat(memory.descriptor).st_size:
            raise ContractError("the program's results are larger than the memory that they lie in")
        out = rt.VmVariantList(len(results))
        for result in results:
            if isinstance(result, messages.Same):
                same = arguments[result.argument] if result.argument < len(arguments) else None
                if not isinstance(same, rt.HalBufferView):
                    raise ContractError("a result of the program is an argument that is no tensor")
                out.push_ref(same)
                continue
            if isinstance(result, messages.Number):
                value = scalar(result.value)
                if type(value) is float:
                    out.push_float(value)
                elif type(value) is int and -(2**63) <= value < 2**63:
                    out.push_int(value)
                else:
                    raise ContractError("a result of the program is no number")
                continue
            part = memory.held(result.start, result.size)
            if part is None:
                raise ContractError("a result of the program lies where no memory is")
            out.push_ref(self._view(part, result))
        return out

    def _view(self, part: Bytes, result: messages.Tensor) -> Any:
        copy = values.aligned_copy(part)
        try:
            buffer = values.from_numpy(self.device, copy, "uint8").get_buffer()
            return rt.HalBufferView(buffer, result.shape, result.element)
        except (RuntimeError, ValueError, IndexError, TypeError, OverflowError) as error:
            raise ContractError(f"a result of the program is no tensor: {short(str(error))}") from error


def _end(held: list[tuple[Child, Arena]]) -> None:
    while held:
        child, memory = held.pop()
        child.stop()
        with contextlib.suppress(OSError):
            memory.close()
