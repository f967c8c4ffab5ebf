"""Times of the kernels that templates write for a chain: built on all cores, timed alone, checked before a time counts.

Processes of our own do it, since kernels may crash or hang, and so may compilers. A batch in which that happens is done
again kernel by kernel, so that the one whose fault it is is found; the others get their times.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from covan_mlir.fred import chain_json
from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.measuring import messages
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.lowering.kernels.recorded import compact
from covan_mlir.machine.description import Machine
from covan_mlir.support.processes import frames
from covan_mlir.support.processes.child import Child, ending, lacking

log = logging.getLogger(__name__)

START = 120.0
"""Seconds in which a process has to greet, a kernel to be built, or one to be checked; after more of them it hangs."""
EACH = 10.0
"""More of them for each kernel."""
SEED = 1


class MeasuringError(Exception):
    """Nothing can be measured; the message says why."""


@dataclass(frozen=True)
class Outcome:
    """What became of a candidate.

    Attributes:
        seconds: median of its calls; None: it has no time, for the reason in ``failure``.
        ratio: median of its calls over those of the reference in the same turns; None: see there.
        rounds: turns.
    """

    candidate: Candidate
    seconds: float | None
    ratio: float | None
    rounds: int
    failure: str = ""


@dataclass(frozen=True)
class _Program:
    """Kernels of a program, and the candidates that they are of."""

    code: bytes
    kernels: tuple[dict[str, Any], ...]
    candidates: tuple[Candidate, ...]


class _LostError(Exception):
    """A process ended, or hung and was ended; the message says which."""


class _Process:
    """One process, which is started again when it is lost."""

    def __init__(self, extensions: Sequence[str]) -> None:
        self._extensions = extensions
        self._child: Child | None = None

    def ask(self, request: messages.Request, blobs: Sequence[bytes], seconds: float) -> tuple[messages.Answer, bytes]:
        """Raises `_LostError`; `MeasuringError` if it cannot be started."""
        child = self._started()
        child.pipe.deadline = time.monotonic() + seconds
        try:
            frames.send(child.pipe, request, blobs)
            answer, given = frames.receive(child.pipe, messages.ANSWERS)
        except TimeoutError:
            self.stop()
            raise _LostError(f"hangs: it was stopped after {seconds:.0f} s") from None
        except (EOFError, OSError):
            code = child.process.wait()
            said = child.tail()[-500:]
            self.stop()
            raise _LostError(f"{ending(code)}{f' ({said})' if said else ''}") from None
        except BaseException:  # Ctrl-C: an answer that nobody waits for would be taken for the next one's
            self.stop()
            raise
        return answer, given[0] if given else b""

    def _started(self) -> Child:
        if self._child is not None and self._child.alive:
            return self._child
        try:
            self._child = Child("covan_mlir.lowering.kernels.measuring.child", self._extensions)
            self._child.pipe.deadline = time.monotonic() + START
            answer, _ = frames.receive(self._child.pipe, messages.ANSWERS)
        except OSError as error:
            raise MeasuringError(f"the process that measures cannot be started: {lacking(error)}") from error
        except (EOFError, TimeoutError) as error:
            assert self._child is not None
            said = self._child.tail()[-500:]
            self.stop()
            raise MeasuringError(f"the process that measures does not start: {said}") from error
        if isinstance(answer, messages.Failed):
            self.stop()
            raise MeasuringError(answer.reason)
        return self._child

    def stop(self) -> None:
        """End it."""
        if self._child is not None:
            self._child.stop()
            self._child = None


class Measurer:
    """Measures kernels on this machine; a context manager, which ends its processes.

    Args:
        machine: that kernels are written for.
        winograd: the most that rounding errors of convolutions by Winograd's filtering may be, in direct sums'.
        driver: that programs run on.
        extensions: files of the user's own that register templates.

    Attributes:
        slots: batches that are measured at once: others would disturb it.
    """

    slots = 1

    def __init__(self, machine: Machine, winograd: int, driver: str, extensions: Sequence[str] = ()) -> None:
        self._machine, self._winograd, self._driver = machine, winograd, driver
        self._processes = [_Process(extensions) for _ in range(max(1, machine.cores))]

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End its processes."""
        for process in self._processes:
            process.stop()

    def measure(
        self, chain: Chain, reference: Candidate, candidates: Sequence[Candidate], seconds: float
    ) -> list[Outcome]:
        """The times of some schedules of a chain, and of the one that all are compared with, which comes first.

        Args:
            seconds: that timing takes, about; building comes on top of it.

        Raises:
            MeasuringError: the reference has no time, or processes cannot be started.
        """
        text = compact(chain_json.dump(chain))
        outcomes: dict[Candidate, Outcome] = {}
        programs = self._built(text, [reference, *candidates], outcomes)
        if reference in outcomes:
            raise MeasuringError(f"the predicted kernel cannot be built: {outcomes[reference].failure}")
        there = [candidate for program in programs for candidate in program.candidates]
        wanted = [number for number, candidate in enumerate(there) if candidate != reference]
        self._timed(text, programs, there, reference, wanted, seconds, outcomes)
        return [outcomes[candidate] for candidate in dict.fromkeys((reference, *candidates)) if candidate in outcomes]

    def _built(self, chain: str, candidates: Sequence[Candidate], outcomes: dict[Candidate, Outcome]) -> list[_Program]:
        """Programs with the kernels of the candidates; those that have none get their outcome here."""
        distinct = list(dict.fromkeys(candidates))
        count = len(self._processes)
        shares = [share for share in (distinct[n::count] for n in range(count)) if share]
        with ThreadPoolExecutor(len(shares)) as threads:
            built = list(
                threads.map(
                    lambda pair: self._build(pair[0], chain, pair[1]), zip(self._processes, shares, strict=False)
                )
            )
        programs: list[_Program] = []
        for program, failures in built:
            programs += program
            outcomes.update({candidate: Outcome(candidate, None, None, 0, why) for candidate, why in failures})
        return programs

    def _build(
        self, process: _Process, chain: str, candidates: Sequence[Candidate]
    ) -> tuple[list[_Program], list[tuple[Candidate, str]]]:
        request = messages.Build(chain, self._machine, self._winograd, tuple(candidates))
        try:
            answer, code = process.ask(request, (), START + EACH * len(candidates))
        except _LostError as error:
            answer, code = messages.Failed(f"the compiler {error}"), b""
        if isinstance(answer, messages.Built):
            rows = list(zip(candidates, answer.kernels, answer.refusals, strict=True))
            kernels = [(candidate, kernel) for candidate, kernel, _ in rows if kernel is not None]
            program = _Program(code, tuple(k for _, k in kernels), tuple(c for c, _ in kernels))
            return [program] if kernels else [], [(c, reason) for c, kernel, reason in rows if kernel is None]
        assert isinstance(answer, messages.Failed)
        if len(candidates) == 1:
            return [], [(candidates[0], answer.reason)]
        log.info("%d kernels are built one by one: %s", len(candidates), answer.reason)
        programs, failures = [], []
        for candidate in candidates:
            more, failed = self._build(process, chain, [candidate])
            programs += more
            failures += failed
        return programs, failures

    def _timed(
        self,
        chain: str,
        programs: Sequence[_Program],
        there: Sequence[Candidate],
        reference: Candidate,
        wanted: Sequence[int],
        seconds: float,
        outcomes: dict[Candidate, Outcome],
    ) -> None:
        first = there.index(reference)
        request = messages.Time(
            chain,
            tuple(program.kernels for program in programs),
            first,
            tuple(wanted),
            self._driver,
            seconds,
            SEED,
            self._machine.l2 * self._machine.cores,
            float(max(1, self._winograd)),
        )
        codes = [program.code for program in programs]
        try:
            answer, _ = self._processes[0].ask(request, codes, START + 4.0 * seconds + EACH * len(wanted))
        except _LostError as error:
            answer = messages.Failed(f"the kernel {error}")
        if isinstance(answer, messages.Timed):
            for number in (first, *wanted):
                time_, ratio, why = answer.seconds[number], answer.ratios[number], answer.failures[number]
                outcomes[there[number]] = Outcome(there[number], time_, ratio, answer.rounds, why)
            return
        assert isinstance(answer, messages.Failed)
        if not wanted:
            raise MeasuringError(f"the predicted kernel cannot be timed: {answer.reason}")
        if len(wanted) == 1:
            # Is it the one that others are compared with? Alone it is timed, or raises.
            if reference not in outcomes:
                self._timed(chain, programs, there, reference, (), seconds / 4, outcomes)
            outcomes[there[wanted[0]]] = Outcome(there[wanted[0]], None, None, 0, answer.reason)
            return
        log.info("%d kernels are timed one by one: %s", len(wanted), answer.reason)
        for number in wanted:
            self._timed(chain, programs, there, reference, (number,), seconds / len(wanted), outcomes)
