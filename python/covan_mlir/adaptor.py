"""`adaptive`: a model that is compiled, while it is called, for the sizes that it is called with most."""

from __future__ import annotations

import copy
import itertools
import logging
import os
import queue
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from covan_mlir.compilation import versions
from covan_mlir.compilation.captured import EXPORT_LOCK
from covan_mlir.compilation.learned_sizes import LearnedSizes, Sizes
from covan_mlir.compilation.options import CompileOptions
from covan_mlir.compilation.origin import Origin
from covan_mlir.errors import CompileError, ExportError, InputError
from covan_mlir.executable import Executable
from covan_mlir.frontend.open_dimensions import Example
from covan_mlir.lowering import pool, targets
from covan_mlir.machine import host
from covan_mlir.runtime.compiled_program import CompiledProgram
from covan_mlir.specialised import NOT_FASTER, Specialiser
from covan_mlir.support.interrupts import orderly

log = logging.getLogger(__name__)

_COUNTED = 4096
"""Sizes that are counted, at most."""


class Adaptive:
    """A model that adapts to the sizes of its arguments. Call it as the model: same arguments, same results.

    Safe to call from several threads. Calls never wait for a compilation; where only the model itself has the right
    results, because there is no program for the sizes yet, they may wait for an export.

    Attributes:
        general: the program for all sizes; None if there is none: what has no version runs in PyTorch.
    """

    def __init__(
        self,
        model: Any,
        example: Example,
        specialiser: Specialiser,
        general: Executable | None,
        program: CompiledProgram | None,
        learned: LearnedSizes,
        *,
        after: int,
        limit: int,
    ) -> None:
        self._model, self._specialiser = model, specialiser
        self._names = list(example.dimensions)
        self._places = [example.places[name] for name in self._names]
        self._flat = not example.kwargs and all(isinstance(value, torch.Tensor) for value in example.args)
        self._keywords = list(example.kwargs)
        self._after, self._limit = after, limit
        self._lock = threading.Lock()
        self._serving: dict[Sizes, Executable] = {}
        self._counts: dict[Sizes, int] = {}
        self._settled: dict[Sizes, str] = {}
        self._used: dict[Sizes, int] = {}
        self._more: dict[Sizes, int] = {}  # bytes of weights that a version alone reads
        self._told: set[Sizes] = set()
        self._states = threading.RLock()
        self._clock = itertools.count()
        self._pending: queue.Queue[Sizes | None] = queue.Queue()
        self._asked: set[Sizes] = set()
        self._owner = os.getpid()
        self.general, self._program, self._learned = general, program, learned
        self._copied = _structure(example)
        self._thread: threading.Thread | None = None
        for sizes, count in learned.read().items():
            if len(sizes) == len(self._names):
                self._counts[sizes] = count
                if count >= after and len(self._asked) < limit:
                    self._ask(sizes)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model.

        Raises:
            InputError, CovanError: as `covan_mlir.Executable` does; where the model itself runs, what it raises.
        """
        sizes = self._sizes(args, kwargs)
        if sizes is None:
            return self._otherwise((), args, kwargs)
        version = self._serving.get(sizes)
        if version is not None:
            self._used[sizes] = next(self._clock)
            return self._run(version, args, kwargs)
        self._count(sizes)
        return self._otherwise(sizes, args, kwargs)

    def _otherwise(self, sizes: Sizes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call without a version of its own."""
        if self.general is not None and 1 not in sizes:
            return self._run(self.general, args, kwargs)
        if sizes not in self._told:
            self._told.add(sizes)
            log.info("%s: there is no program for such sizes yet: the model runs in PyTorch", self._name(sizes))
        with self._states, EXPORT_LOCK, torch.no_grad():  # while it exports, torch tells every model so
            return self._model(*args, **kwargs)

    def _run(self, program: Executable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if program.pure:
            return program(*args, **kwargs)
        with self._states:  # which programs have in common
            return program(*args, **kwargs)

    def _name(self, sizes: Sizes) -> str:
        return ", ".join(f"{name}={size}" for name, size in zip(self._names, sizes, strict=False)) or "other arguments"

    def _sizes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sizes | None:
        """Of the open dimensions, in their order; None: the arguments are not like the example's."""
        try:
            if self._flat and not kwargs:
                leaves: Sequence[Any] = args
            elif self.general is not None:
                leaves = self.general._leaves(args, kwargs)
            else:
                named = {name: kwargs[name] for name in self._keywords if name in kwargs}
                leaves = torch.utils._pytree.tree_leaves((args, named))
            return tuple([int(leaves[leaf].shape[axis]) for leaf, axis in self._places])
        except (AttributeError, IndexError, RuntimeError, InputError):
            return None

    def _count(self, sizes: Sizes) -> None:
        with self._lock:
            count = self._counts[sizes] = self._counts.get(sizes, 0) + 1
            if len(self._counts) > _COUNTED:  # what was seen long ago, or once, is forgotten
                self._counts = {key: half for key, old in self._counts.items() if (half := old // 2)}
            for remembered in (self._settled, self._told):
                if len(remembered) > _COUNTED:
                    remembered.clear()
            if count >= self._after and sizes not in self._settled:
                self._ask(sizes)

    def _ask(self, sizes: Sizes) -> None:
        """Have a version compiled, once."""
        if sizes in self._asked or self._owner != os.getpid():
            return
        if any(size < 1 for size in sizes) or not self._allowed(sizes):
            self._settled[sizes] = "the model does not allow them"
            return
        self._asked.add(sizes)
        if self._thread is None:
            self._thread = threading.Thread(
                target=_work, args=(weakref.ref(self), self._pending), name="covan-adaptive", daemon=True
            )
            self._thread.start()
            weakref.finalize(self, self._pending.put, None)
        self._pending.put(sizes)

    def _allowed(self, sizes: Sizes) -> bool:
        dimensions = (self._specialiser.dimensions[name] for name in self._names)
        return all(
            each.low <= size and (each.high is None or size <= each.high)
            for each, size in zip(dimensions, sizes, strict=True)
        )

    def _build(self, sizes: Sizes) -> None:
        """Compile a version, and let calls have it."""
        reason = ""
        try:
            if isinstance(self._copied, str):
                reason = self._copied
            else:
                built = self._compiled(self._copied, sizes)
                if isinstance(built, str):
                    reason = built
                else:
                    self._serve(sizes, built)
        except Exception as error:  # of a model of the user's, in a thread where nobody waits for it
            reason = str(error)
        if reason:
            log.log(
                logging.INFO if reason == NOT_FASTER else logging.WARNING,
                *("no version for %s: %s", self._name(sizes), reason),
            )
        with self._lock:
            if reason:
                self._settled[sizes] = reason
            self._asked.discard(sizes)
            counts = dict(self._counts)
        self._learned.write(counts)

    def _compiled(self, example: Example, sizes: Sizes) -> Executable | str:
        wanted = {name: (size, size) for name, size in zip(self._names, sizes, strict=True)}
        if self._program is None:
            return Executable(*self._specialiser.alone(wanted, example=example))
        built = self._specialiser.version(self._program, wanted, example=example, worth=0.0)
        if isinstance(built, str):
            return built
        program, origin = built
        more = versions.weight_bytes(program) - versions.weight_bytes(self._program)
        self._more = {key: size for key, size in self._more.items() if key in self._serving}
        needed = versions.needed(wanted)
        most = (versions.MEMORY - 1) * versions.weight_bytes(self._program)
        if not needed and more + sum(self._more.values()) > most:
            return "versions would hold too much that the program for all sizes does not hold"
        self._more[sizes] = more
        own = program.version(0)
        return Executable(own, Origin(origin.captured, origin.options))

    def _serve(self, sizes: Sizes, version: Executable) -> None:
        with self._lock:
            self._used[sizes] = next(self._clock)
            serving = {**self._serving, sizes: version}
            while len(serving) > self._limit:
                oldest = min(serving, key=lambda key: self._used.get(key, 0))
                del serving[oldest]
                self._counts[oldest] = 0  # it has to be frequent again
                log.info("the version for %s gives way", self._name(oldest))
            self._used = {key: self._used.get(key, 0) for key in serving}
            self._serving = serving

    def settle(self) -> None:
        """Wait until what was asked for so far is compiled, or cannot be."""
        if self._owner == os.getpid():  # a forked process has no such thread
            self._pending.join()

    @property
    def versions(self) -> Mapping[Sizes, Executable]:
        """The programs that there are now, by the sizes of the open dimensions (`dimensions`)."""
        return dict(self._serving)

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Names of the open dimensions, in the order of sizes."""
        return tuple(self._names)

    @property
    def refused(self) -> Mapping[Sizes, str]:
        """Frequent sizes that have no version, and why."""
        with self._lock:
            return dict(self._settled)

    def __repr__(self) -> str:
        return f"<Adaptive over {', '.join(self._names)}: {len(self._serving)} versions>"


def _work(reference: weakref.ref[Adaptive], pending: queue.Queue[Sizes | None]) -> None:
    """The thread: compiles what is asked for, until the object is gone."""
    while (sizes := pending.get()) is not None:
        adaptive_model = reference()
        try:
            if adaptive_model is not None:
                adaptive_model._build(sizes)
        finally:
            del adaptive_model
            pending.task_done()
    pending.task_done()


def _structure(example: Example) -> Example | str:
    """The example with a copy of the model that shares its tensors: an export puts others in their places for a while,
    which calls must not see. Text: why there is none."""
    if not isinstance(example.model, torch.nn.Module):
        return example
    held = [*example.model.parameters(), *example.model.buffers()]
    try:
        return replace(example, model=copy.deepcopy(example.model, {id(tensor): tensor for tensor in held}))
    except Exception as error:  # of classes of the user's
        return f"the model cannot be copied, which its export beside calls needs: {type(error).__name__}: {error}"


@orderly()
def adaptive(
    model: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any,
    target: str = "cpu",
    options: CompileOptions | None = None,
    after: int = 32,
    limit: int = 8,
    folder: str | os.PathLike[str] | None = None,
) -> Adaptive:
    """Compile a model for all sizes now, and in the background for the sizes that it is called with most.

    Args:
        model: a module or a function of torch's.
        args, kwargs: example arguments.
        dynamic_shapes: as `torch.export.export` takes it, with names: ``{"x": {0: torch.export.Dim("batch")}}``.
        target, options: as of `covan_mlir.compile_module`.
        after: calls with the same sizes, after which these are frequent.
        limit: versions that are there at once; the one that was called least recently gives way.
        folder: where is kept which sizes were frequent; by default the user's cache.

    Raises:
        InputError: no size is open by name, or ``after`` or ``limit`` are no positive numbers.
        TargetError: there is no such target.
    """
    for name, number in (("after", after), ("limit", limit)):
        if type(number) is not int or number < 1:
            raise InputError(f"{name}={number!r}: give a positive whole number")
    options = options or CompileOptions()
    if options.specialise:
        raise InputError("adaptive chooses the sizes itself: leave specialise out")
    goals = [targets.parse(target)]
    pool.prepare(options.trace)
    if options.fuse_reductions and goals[0].is_host:
        host.prepare()
    example = Example.of(model, args, kwargs, dynamic_shapes)
    dimensions = example.dimensions
    if not dimensions:
        raise InputError("adaptive: no size is open by name: pass dynamic_shapes with torch.export.Dim")
    specialiser = Specialiser(example, dimensions, versions.USUAL, goals, options)
    program, general = None, None
    try:  # not by the object: torch may keep the frames of an export, and with them all that they name
        program, origin = specialiser.program()
        general = Executable(program, origin)
        text = str(origin.captured.program.graph)
    except (ExportError, CompileError) as error:
        log.warning("there is no program for all sizes, and the model runs in PyTorch: %s", error)
        text = f"{type(model).__module__}.{type(model).__qualname__} {dynamic_shapes}"
    learned = LearnedSizes(f"{text} {target} {options.to_json()}", Path(folder) if folder is not None else None)
    return Adaptive(model, example, specialiser, general, program, learned, after=after, limit=limit)
