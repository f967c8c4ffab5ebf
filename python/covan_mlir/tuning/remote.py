"""Measuring on several machines at once, by Dask distributed: workers say which machine they are, and get its work.

::

    this process      Remote.measure(batch) ──► scheduler ──► a worker of the same machine and versions
                      a second worker measures the best of the batch again ◄── before it counts

A worker is `covan worker tcp://...`: it announces a resource whose name is the `Setting` of its machine and versions,
one of it, so that it measures one batch at a time. The scheduler gives what a worker had that ended to another one.
What takes much longer than batches did so far is asked of another worker, too, and the first answer counts. Where two
workers do not agree on a time, a third decides; whoever is off gets no more work, and its batch is measured anew.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import median
from typing import Any

from covan_mlir.errors import InputError
from covan_mlir.fred import chain_json
from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.database import Setting
from covan_mlir.lowering.kernels.measuring.measure import Measurer, MeasuringError, Outcome
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.lowering.kernels.recorded import compact
from covan_mlir.machine.description import Machine

log = logging.getLogger(__name__)

AGREE = 1.25
"""Times by which two machines of one kind may differ about a ratio."""
CLAIM = 0.98
"""Time over the default's, below which a schedule is measured by a second worker before it counts."""
PATIENCE = 60.0
"""Seconds after which another worker is asked for a batch as well, at first."""
SLOW = 4.0
"""The same in times of what batches took so far."""


@dataclass(frozen=True)
class Batch:
    """What a worker is asked; see `Measurer`."""

    chain: str
    reference: Candidate
    candidates: tuple[Candidate, ...]
    seconds: float
    machine: Machine
    winograd: int
    driver: str
    extensions: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What a worker answers.

    Attributes:
        worker: its address.
        trouble: why there are no outcomes; empty: there are.
    """

    worker: str
    outcomes: tuple[Outcome, ...]
    trouble: str = ""

    def off(self, batch: Batch) -> str:
        """What is wrong with it as an answer, whatever the times are; empty: nothing."""
        if self.trouble:
            return self.trouble
        asked = list(dict.fromkeys((batch.reference, *batch.candidates)))
        if [outcome.candidate for outcome in self.outcomes] != asked:
            return "it answers what it was not asked"
        for outcome in self.outcomes:
            times = (outcome.seconds, outcome.ratio)
            if not outcome.failure and not all(each is not None and 0 < each < math.inf for each in times):
                return f"it gives no time of {outcome.candidate}, and no reason"
        if self.outcomes[0].failure:
            return f"the predicted kernel has no time: {self.outcomes[0].failure}"
        return ""

    def ratio(self, candidate: Candidate) -> float | None:
        """Of a schedule's time to the default's; None: it has none."""
        return next((outcome.ratio for outcome in self.outcomes if outcome.candidate == candidate), None)


def resource(setting: Setting) -> str:
    """What a worker announces: the machine and the versions that its times hold for."""
    return f"covan-{setting.kind}-{setting.machine}-{setting.versions}"


@cache
def measurer_of(machine: Machine, winograd: int, driver: str, extensions: tuple[str, ...]) -> Measurer:
    """Of this process, which is a worker."""
    return Measurer(machine, winograd, driver, extensions)


def measured(batch: Batch) -> Answer:
    """What a worker does."""
    import distributed

    worker = distributed.get_worker().address
    chain = chain_json.load(json.loads(batch.chain))
    try:
        measurer = measurer_of(batch.machine, batch.winograd, batch.driver, batch.extensions)
        outcomes = measurer.measure(chain, batch.reference, batch.candidates, batch.seconds)
    except MeasuringError as error:
        return Answer(worker, (), str(error))
    return Answer(worker, tuple(outcomes))


async def serve(scheduler: str, setting: Setting) -> None:
    """Be a worker, until the scheduler ends it or is gone.

    Args:
        setting: of this machine.
    """
    import distributed

    # One thread, and the measuring processes end with this one.
    async with distributed.Worker(scheduler, nthreads=1, resources={resource(setting): 1}) as worker:
        await worker.finished()


def work(scheduler: str, setting: Setting) -> None:
    """See `serve`.

    Raises:
        InputError: there is no scheduler, or the library is not installed.
    """
    _library()
    logging.getLogger("distributed").setLevel(logging.WARNING)
    try:
        asyncio.run(serve(scheduler, setting))
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{scheduler}: {error}\nstart one with 'dask scheduler'") from error


def _library() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise InputError("distributed is not installed\npip install 'covan-mlir[many]'") from error
    return distributed


@dataclass
class Workers:
    """The workers of a scheduler that are machines like this one; a context manager.

    Attributes:
        distrusted: whose answers were wrong, and why.
    """

    client: Any
    setting: Setting
    distrusted: dict[str, str] = field(default_factory=dict)
    _took: list[float] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @staticmethod
    def of(scheduler: str, setting: Setting) -> Workers:
        """Raises `InputError`: there is no scheduler, none of its workers is such a machine, or no library."""
        distributed = _library()
        try:
            client = distributed.Client(scheduler, timeout=20)
        except (OSError, ValueError) as error:
            raise InputError(f"{scheduler}: {error}\nstart one with 'dask scheduler'") from error
        workers = Workers(client, setting)
        if not workers.addresses():
            others = len(workers._announced())
            client.close()
            raise InputError(
                f"{scheduler}: none of {others} workers is a machine like this one, with the same versions\n"
                f"start some with 'covan worker {scheduler}'"
            )
        return workers

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()

    def _announced(self) -> dict[str, dict[str, float]]:
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        return {address: facts.get("resources", {}) for address, facts in workers.items()}

    def addresses(self, without: Collection[str] = ()) -> list[str]:
        """Of those that are there, and trusted."""
        name = resource(self.setting)
        return [
            address
            for address, resources in self._announced().items()
            if name in resources and address not in self.distrusted and address not in without
        ]

    def distrust(self, address: str, why: str) -> None:
        """Give it no more work."""
        with self._lock:
            if address not in self.distrusted:
                log.warning("worker %s gets no more work: %s", address, why)
                self.distrusted[address] = why

    def ask(self, batch: Batch, without: Collection[str] = ()) -> Answer:
        """The answer of a worker, which makes sense at least.

        Raises:
            MeasuringError: there is none.
        """
        distributed = _library()
        start, running, busy, asking = time.monotonic(), [], set(without), True
        while True:
            if asking and (addresses := self.addresses(busy)):
                running.append(self._submit(batch, addresses))
            if not running:
                told = "; ".join(f"{address}: {why}" for address, why in self.distrusted.items())
                raise MeasuringError(f"there is no worker left{f' ({told})' if told else ''}")
            try:
                done, pending = distributed.wait(running, timeout=self._patience(), return_when="FIRST_COMPLETED")
            except TimeoutError:
                slow = {each for each, keys in self.client.processing().items() if {f.key for f in running} & {*keys}}
                log.info("%s take long: another worker is asked", ", ".join(sorted(slow)) or "batches")
                asking, busy = not slow <= busy, busy | slow
                continue
            future = next(iter(done))
            try:
                answer: Answer = future.result()
            except Exception as error:  # the scheduler gave it to several workers, and all of them ended
                raise MeasuringError(f"workers end while they measure it: {error}") from error
            running, asking = list(pending), True
            if why := answer.off(batch):
                self.distrust(answer.worker, why)
                continue
            self.client.cancel(running)
            self._took.append(time.monotonic() - start)
            return answer

    def _submit(self, batch: Batch, addresses: Sequence[str]) -> Any:
        return self.client.submit(
            measured, batch, workers=list(addresses), resources={resource(self.setting): 1}, pure=False
        )

    def _patience(self) -> float:
        return max(1.0, SLOW * median(self._took)) if len(self._took) > 2 else PATIENCE


class Remote:
    """Measures on workers: what `Measurer` does here, in as many threads as there are workers.

    Args:
        machine, winograd, driver, extensions: as for `Measurer`; files are read where the workers run.
    """

    def __init__(
        self, workers: Workers, machine: Machine, winograd: int, driver: str, extensions: Sequence[str] = ()
    ) -> None:
        self._workers = workers
        self._how = (machine, winograd, driver, tuple(extensions))

    @property
    def slots(self) -> int:
        """Workers."""
        return max(1, len(self._workers.addresses()))

    def measure(
        self, chain: Chain, reference: Candidate, candidates: Sequence[Candidate], seconds: float
    ) -> list[Outcome]:
        """See `Measurer.measure`; what is said to be the best was measured by a second worker, if there is one."""
        text = compact(chain_json.dump(chain))
        while True:
            batch = Batch(text, reference, tuple(candidates), seconds, *self._how)
            answer = self._workers.ask(batch)
            claimed = [o for o in answer.outcomes[1:] if o.ratio is not None and o.ratio < CLAIM]
            if not claimed or not self._workers.addresses([answer.worker]):
                return list(answer.outcomes)
            best = min(claimed, key=lambda outcome: outcome.ratio or 0.0)
            again = Batch(text, reference, (best.candidate,), seconds / len(candidates), *self._how)
            if self._believed(answer, again):
                return list(answer.outcomes)

    def _believed(self, answer: Answer, again: Batch) -> bool:
        """Whether other workers agree; whoever is off gets no more work. Where two do not agree and there is no third,
        the one who claimed more is the one who is off."""
        candidate = again.candidates[0]
        second = self._workers.ask(again, [answer.worker])
        if _agree(answer, second, candidate):
            return True
        asked = [answer.worker, second.worker]
        if self._workers.addresses(asked):
            third = self._workers.ask(again, asked)
            if _agree(answer, third, candidate) and not _agree(second, third, candidate):
                self._workers.distrust(second.worker, f"others do not find its time of {candidate}")
                return True
        self._workers.distrust(answer.worker, f"others do not find its time of {candidate}")
        return False


def _agree(first: Answer, second: Answer, candidate: Candidate) -> bool:
    one, other = first.ratio(candidate), second.ratio(candidate)
    return one is not None and other is not None and max(one, other) <= AGREE * min(one, other)
