"""Schedules of Triton kernels, measured: the same search and records as on CPUs, with a GPU, or a simulated one.

`Gpu` is what measures (`covan_mlir.tuning.session.Measures`); the device behind it runs kernels (`CudaGpu`), or has a
model of one (`SimulatedGpu`): so everything but the device itself is checked where there is none.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from covan_mlir.errors import TargetError
from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cuda import run
from covan_mlir.lowering.kernels.cuda.device import CudaDevice
from covan_mlir.lowering.kernels.cuda.kernel import CudaKernel
from covan_mlir.lowering.kernels.cuda.match import TileMatch
from covan_mlir.lowering.kernels.cuda.schedule import TileSchedule
from covan_mlir.lowering.kernels.cuda.target import CudaTarget
from covan_mlir.lowering.kernels.database import Database, Setting
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.measuring import reference as references
from covan_mlir.lowering.kernels.measuring.measure import MeasuringError, Outcome
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.lowering.kernels.measuring.timing import HOPELESS, ROUNDS
from covan_mlir.lowering.kernels.overrides import IllegalError
from covan_mlir.lowering.kernels.recorded import Recorded, workload
from covan_mlir.lowering.kernels.select import Choices, choices
from covan_mlir.tuning.session import WORTH, Load, Session, begin
from covan_mlir.tuning.space import space_of
from covan_mlir.tuning.tasks import Task

SEED = 1
FLUSH = 1 << 26
"""Bytes that are written before each call at least: its operands come from memory."""


class Device(Protocol):
    """What runs kernels.

    Attributes:
        name: what records of it hold for, besides what `CudaDevice` says; empty: nothing.
    """

    name: str

    def build(self, chain: Chain, kernels: Sequence[CudaKernel]) -> None:
        """Compiles kernels beside each other; of one that cannot be compiled `timed` tells."""
        ...

    def timed(self, chain: Chain, kernel: CudaKernel, schedule: TileSchedule) -> tuple[Callable[[], float], str]:
        """A function that runs a kernel once and gives the seconds of it; and what is wrong with its results.

        Raises:
            Exception: the kernel cannot be compiled, or does not run.
        """
        ...


class CudaGpu:
    """The GPU that is here.

    Args:
        facts: of the target that kernels are written for.

    Raises:
        TargetError: there is none, or it is another one.
    """

    name = ""

    def __init__(self, facts: CudaDevice) -> None:
        import torch

        if not torch.cuda.is_available():
            raise TargetError("there is no CUDA device here\nsimulate one, or run it where one is")
        properties = torch.cuda.get_device_properties(0)
        here = (10 * properties.major + properties.minor, properties.multi_processor_count)
        if here != (facts.capability, facts.multiprocessors):
            raise TargetError(
                f"{properties.name} has compute capability {here[0] / 10} and {here[1]} multiprocessors: "
                f"{facts.name} stands for {facts.capability / 10} and {facts.multiprocessors}"
            )
        self._torch: Any = torch
        self._flush = torch.empty(max(FLUSH, 2 * properties.L2_cache_size), dtype=torch.int8, device="cuda")
        self._folder = tempfile.TemporaryDirectory(prefix="covan-tune-")
        self._right: tuple[Chain, Any, references.Reference] | None = None

    def build(self, chain: Chain, kernels: Sequence[CudaKernel]) -> None:
        """See `Device`. Triton's passes and its assembler let other threads run."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for future in [pool.submit(self._prepared(chain, kernel)[0].build) for kernel in kernels]:
                future.exception()

    def timed(self, chain: Chain, kernel: CudaKernel, schedule: TileSchedule) -> tuple[Callable[[], float], str]:
        """See `Device`. Times are by CUDA events, with a cold second-level cache."""
        torch = self._torch
        launches, right = self._prepared(chain, kernel)
        outputs = launches()
        wrong = right.differs({o.name: x.cpu().numpy() for o, x in zip(kernel.outputs, outputs, strict=True)})

        def call() -> float:
            self._flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            launches()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e-3

        return call, wrong

    def _prepared(self, chain: Chain, kernel: CudaKernel) -> tuple[run.Prepared, references.Reference]:
        if self._right is None or self._right[0] is not chain:
            arrays = references.operands(chain, SEED)
            self._right = (chain, arrays, references.reference(chain, arrays))
        _, arrays, right = self._right
        inputs = [self._torch.from_numpy(arrays[operand.name]).cuda() for operand in kernel.inputs]
        return run.prepared(kernel, inputs, Path(tempfile.mkdtemp(dir=self._folder.name))), right


@dataclass
class SimulatedGpu:
    """A GPU as a model, which is not the one that predicts: a roofline, of which tiles reach a part that grows with
    what they hold and with blocks on their way, in waves of programs; stages that need more than its memory fail.

    Attributes:
        noise: relative, of a call's time; the same call is not the same time twice.
    """

    facts: CudaDevice
    name: str = "simulated"
    noise: float = 0.02

    def seconds(self, chain: Chain, schedule: TileSchedule) -> float:
        """Of a call, without noise."""
        sizes = chain.known_sizes
        volume = [(math.prod(sizes[a] for a in value.axes), 4) for value in chain.inputs]
        moved = sum(count * size for count, size in volume) * 1.2
        rows = max(1, math.prod(sizes[axis] for axis in schedule.rows))
        programs = -(-rows // schedule.block_rows) * schedule.parts
        held = schedule.block_rows * (schedule.block_stream + schedule.block_wide)
        busy = 1.0 - math.exp(-held / (700.0 * schedule.num_warps))
        hidden = 1.0 - 0.5**schedule.num_stages
        spilled = 1.0 + max(0.0, held / (32 * schedule.num_warps) / 160.0 - 1.0)
        waves = -(-programs // self.facts.multiprocessors) * self.facts.multiprocessors / programs
        compute = chain.contraction_flops / self.facts.flops
        launches = self.facts.launch * (2 if schedule.parts > 1 else 1)
        return launches + max(compute, moved / self.facts.bandwidth) * waves * spilled / (busy * hidden)

    def build(self, chain: Chain, kernels: Sequence[CudaKernel]) -> None:
        """See `Device`: a model has nothing to compile."""

    def timed(self, chain: Chain, kernel: CudaKernel, schedule: TileSchedule) -> tuple[Callable[[], float], str]:
        """See `Device`."""
        if schedule.num_stages * schedule.block_stream * (schedule.block_wide + schedule.block_rows) > 1 << 18:
            raise MemoryError("out of resources: shared memory")
        seconds, calls = self.seconds(chain, schedule), 0

        def call() -> float:
            nonlocal calls
            calls += 1
            digest = hashlib.sha256(f"{schedule} {calls}".encode()).digest()
            return seconds * (1.0 + self.noise * (digest[0] / 255.0 - 0.5))

        return call, ""


class Gpu:
    """Measures schedules of Triton kernels on a device.

    Args:
        target: that kernels are written for.
    """

    slots = 1

    def __init__(self, target: CudaTarget, device: Device) -> None:
        self._target, self._device = target, device

    def measure(
        self, chain: Chain, reference: Candidate, candidates: Sequence[Candidate], seconds: float
    ) -> list[Outcome]:
        """See `covan_mlir.lowering.kernels.measuring.measure.Measurer`."""
        listed = choices(chain, self._target)
        if isinstance(listed, Refusal):
            raise MeasuringError(listed.reason)
        calls: dict[Candidate, Callable[[], float]] = {}
        failures: dict[Candidate, str] = {}
        asked = list(dict.fromkeys((reference, *candidates)))
        written: dict[Candidate, tuple[CudaKernel, TileSchedule]] = {}
        for candidate in asked:
            try:
                written[candidate] = _written(listed, candidate)
            except (IllegalError, UnsupportedError) as error:
                failures[candidate] = str(error)
        self._device.build(chain, [kernel for kernel, _ in written.values()])
        for candidate, (kernel, schedule) in written.items():
            call, wrong = self._timed(chain, kernel, schedule)
            if wrong or call is None:
                failures[candidate] = wrong
            else:
                calls[candidate] = call
        if reference in failures:
            raise MeasuringError(f"the predicted kernel cannot be timed: {failures[reference]}")
        times = _in_turns(calls, reference, seconds)
        return [
            Outcome(c, None, None, 0, failures[c])
            if c in failures
            else Outcome(
                c,
                median(own for own, _ in times[c]),
                median(own / base for own, base in times[c]),
                len(times[c]),
            )
            for c in asked
        ]

    def _timed(
        self, chain: Chain, kernel: CudaKernel, schedule: TileSchedule
    ) -> tuple[Callable[[], float] | None, str]:
        try:
            return self._device.timed(chain, kernel, schedule)
        except Exception as error:  # of Triton, ptxas or the driver: a candidate without a time is not the search's end
            return None, f"{type(error).__name__}: {error}"[:2000]


def _written(listed: Choices, candidate: Candidate) -> tuple[CudaKernel, TileSchedule]:
    """The kernel of a candidate.

    Raises:
        IllegalError: its schedule is none of the chain's.
        UnsupportedError: it cannot be written.
    """
    chosen, schedule = listed.scheduled(candidate.template, json.loads(candidate.schedule))
    assert isinstance(chosen.match, TileMatch)
    assert isinstance(schedule, TileSchedule)
    return chosen.match.write(schedule, "kernel"), schedule


def _in_turns(
    calls: dict[Candidate, Callable[[], float]], reference: Candidate, seconds: float
) -> dict[Candidate, list[tuple[float, float]]]:
    """Times of each, with that of the reference in the same round."""
    times: dict[Candidate, list[tuple[float, float]]] = {candidate: [] for candidate in calls}
    active, spent, rounds = list(calls), 0.0, 0
    while rounds < ROUNDS or (spent < seconds and rounds < 100 and len(active) > 1):
        base = calls[reference]()
        for candidate in active:
            own = base if candidate == reference else calls[candidate]()
            times[candidate].append((own, base))
            spent += own
        rounds += 1
        if rounds >= ROUNDS:
            active = [c for c in active if median(own / base for own, base in times[c]) < HOPELESS]
    return times


@dataclass(frozen=True)
class Best:
    """What became of a chain.

    Attributes:
        seconds: of what prediction takes.
        ratio: of the best one's time to that.
        tried: schedules that have a time.
        points: schedules that there are.
    """

    seconds: float
    ratio: float
    tried: int
    points: int
    candidate: Candidate


def tune_chains(
    chains: dict[str, Chain],
    target: CudaTarget,
    device: Device,
    database: Database,
    end: float,
    tell: Callable[[str], None],
    clock: Callable[[], float],
) -> dict[str, Best]:
    """Tune kernels by their names, each weighing the same; those that are faster are taken by later compilations.

    Args:
        end: when it ends, on ``clock``.
    """
    setting = Setting.of_gpu(target.device, device.name)
    tuned = []
    for name, chain in chains.items():
        space = space_of(chain, target)
        if isinstance(space, Refusal):
            tell(f"{name} is not tuned: {space.reason}")
            continue
        tuned.append(begin(Task(name, workload(chain), chain, 1, name, space), database, setting))
    measurer = Gpu(target, device)
    loads = [Load({number: 1.0}, 0.0) for number in range(len(tuned))]
    Session(tuned, loads, lambda driver: measurer, database, setting, end, tell, clock).run()
    best = {}
    for one in tuned:
        candidate, ratio = one.search.best[0]
        seconds = one.search.base or one.task.space.default.predicted
        timed = sum(each is not None for each in one.search.ratios.values())
        best[one.task.what] = Best(seconds, ratio, timed, len(one.task.space.points), candidate)
        if ratio < WORTH and one.search.base is not None:
            record = Recorded(one.task.workload, candidate.template, candidate.schedule, seconds * ratio)
            database.choose(setting, [record])
    return best
