"""Which chains of a function become kernels: what is asked about each of them, and what was decided."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from torch_mlir import ir

from covan_mlir.dialects.prov import has_table, read_table
from covan_mlir.dialects.prov_lines import lines_of, read_lines
from covan_mlir.errors import TargetError
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.scaled_weights import scaled
from covan_mlir.lowering.kernels import targets
from covan_mlir.lowering.kernels.common_layout import common_layout
from covan_mlir.lowering.kernels.dense.scaled_weights import with_weights_apart
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.layouts import LAYOUTS
from covan_mlir.lowering.kernels.recorded import RECORDS, Recorded, load, workload
from covan_mlir.lowering.kernels.reductions.demote import demoted
from covan_mlir.lowering.kernels.reductions.record import record
from covan_mlir.lowering.kernels.select import Choices, Selection, select, worth
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.lowering.request import WINOGRAD
from covan_mlir.lowering.source_lines import Actions, SourceLines, actions, source_lines_of
from covan_mlir.provenance.fusion import FusionRecord

log = logging.getLogger(__name__)

DEVICE = "covan.device"
"""Attribute of a module: the element of ``hal.device.targets`` that its target's name stands for."""

USUAL = "covan.usual"
"""Attribute of a module: what its chains' sizes are taken for that are known at run time only."""

OTHERS = "covan.others"
"""Attribute of a module: what other versions of the program take these sizes for, as JSON."""

DECISIONS = "covan.decisions"
"""Attribute of a function: what was decided about its chains, as JSON of `FusionRecord`."""

_PREFIX = "fred_"  # of the symbols of kernels

_listener: ContextVar[Callable[[Executable], object] | None] = ContextVar("listener", default=None)


@contextmanager
def telling(listener: Callable[[Executable], object]) -> Iterator[None]:
    """While active, each kernel is told of as soon as it is decided on: long before the program calls it."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@dataclass(frozen=True)
class Chooser:
    """Gives chains their kernels. Equal ones give equal kernels the same names, in whatever process.

    Attributes:
        always: kernels are made also where they are not predicted to pay.
        demote: float64 becomes float32, as in the rest of the program.
        actions: where the user wrote what the chains perform, where kernels' line tables name it.
        records: schedules that were measured to be the best, by workload.
        usual: what sizes that are known at run time only are taken for; 0: the chain says.
        others: what versions of the program take them for, which are to read its weights.
    """

    target: KernelTarget
    always: bool = False
    demote: bool = False
    actions: Actions = field(default_factory=dict)
    records: Mapping[str, Recorded] = field(default_factory=dict)
    usual: int = 0
    others: tuple[int, ...] = ()

    def kernel(self, chain: Chain) -> Selection | Refusal:
        """The kernel of a chain, the same for all chains that compute the same; where lines matter: there."""
        given, lines = self.plain(chain), source_lines_of(scaled(chain).chain, self.actions)
        parts = scaled(given)
        recorded = self.records.get(workload(parts.chain)) if self.records else None
        name = symbol(given, lines)
        target = self._for(parts.chain)
        kernel = select(parts.chain, name, target, always=self.always, lines=lines, recorded=recorded)
        if isinstance(kernel, Refusal):
            return kernel
        return replace(kernel, executable=with_weights_apart(kernel.executable, given, parts.weights))

    def worth(self, chain: Chain) -> Choices | Refusal:
        """The templates that take a chain, or why it is not worth a kernel; nothing is written."""
        computed = self.computed(chain)
        return worth(computed, self._for(computed), always=self.always)

    def _for(self, chain: Chain) -> KernelTarget:
        """The target, with layouts for the chain's weights that are to suit other versions as well."""
        if not self.others or not chain.extents or not any(value.weight for value in chain.inputs):
            return self.target
        return self.target.holding(common_layout(chain, self.target, self.others))

    def computed(self, chain: Chain) -> Chain:
        """The chain as its kernel computes it, with weights that are scaled ahead of time."""
        return scaled(self.plain(chain)).chain

    def decisions(self) -> Decisions:
        """For the chains of one function."""
        return Decisions(self)

    def plain(self, chain: Chain) -> Chain:
        """The chain as the program has it, whatever parts it comes from."""
        chain = demoted(chain.untraced) if self.demote else chain.untraced
        if not self.usual or not chain.extents:
            return chain
        return replace(chain, axes=tuple(replace(axis, usual=self.usual) for axis in chain.axes))


def chooser(
    op: ir.Operation, target: str, *, always: bool = False, winograd: int = WINOGRAD, demote: bool = False
) -> Chooser | None:
    """The chooser for the program that ``op`` is, or stands in; None where a target takes no kernels.

    Raises:
        TargetError: there is no such target, or what the module says of measured schedules cannot be read.
    """
    module = _module(op)
    device = module.attributes[DEVICE].value if DEVICE in module.attributes else ""
    kernel_target = targets.of(target, device)
    if kernel_target is None:
        return None
    lines: Actions = {}
    if targets.names_lines(target):
        lines = actions(lines_of(read_table(module)) if has_table(module) else read_lines(module))
    kernel_target = kernel_target.allowing(winograd)
    if LAYOUTS in module.attributes:
        kernel_target = kernel_target.holding(frozenset(json.loads(module.attributes[LAYOUTS].value)))
    usual = module.attributes[USUAL].value if USUAL in module.attributes else 0
    others = tuple(json.loads(module.attributes[OTHERS].value)) if OTHERS in module.attributes else ()
    return Chooser(kernel_target, always, demote, lines, _records(module), usual, others)


def _records(module: ir.Operation) -> Mapping[str, Recorded]:
    if RECORDS not in module.attributes:
        return {}
    try:
        return load(module.attributes[RECORDS].value)
    except ValueError as error:
        raise TargetError(f"the module's attribute {RECORDS} holds no measured schedules: {error}") from error


def _module(op: ir.Operation) -> ir.Operation:
    while (above := op.parent) is not None:
        op = above.operation
    return op


@dataclass
class Decisions:
    """What was decided about the chains of a function, in the order in which they were looked at."""

    chooser: Chooser
    records: list[FusionRecord] = field(default_factory=list)

    def accept(self, chain: Chain) -> bool:
        """Whether a chain is worth a kernel; remembers and logs why not."""
        choice = self.chooser.worth(chain)
        return not isinstance(choice, Refusal) or self._add(self._record(chain, choice))

    def predict(self, chain: Chain) -> float | None:
        """Seconds that a chain's kernel is predicted to take; None where there is none, or layouts are not chosen."""
        if self.chooser.target.kind != "cpu":
            return None
        choice = self.chooser.worth(chain)
        return None if isinstance(choice, Refusal) else choice.candidates[0].seconds

    def writable(self, chain: Chain) -> bool:
        """Whether there is a kernel for a chain."""
        return isinstance(self.chooser.kernel(chain), Selection)

    def settle(self, chain: Chain) -> bool:
        """Whether there is a kernel for a chain, which is told of; remembers it, or logs why not."""
        kernel = self.chooser.kernel(chain)
        return self._add(self._record(chain, kernel)) and self._tell(kernel)

    def resettle(self, before: Chain, after: Chain) -> None:
        """The kernel of another chain in place of that of one that was settled."""
        kernel = self.chooser.kernel(after)
        settled = self._record(before, self.chooser.kernel(before))
        self.records[self.records.index(settled)] = self._record(after, kernel)
        self._tell(kernel)

    def _record(self, chain: Chain, kernel: Selection | Refusal) -> FusionRecord:
        return record(describe(chain), sorted(chain.trace), self.chooser.plain(chain), kernel)

    def _tell(self, kernel: Selection | Refusal) -> bool:
        if isinstance(kernel, Selection) and (listener := _listener.get()) is not None:
            listener(kernel.executable)
        return isinstance(kernel, Selection)

    def unbuildable(self, reason: str, ids: frozenset[int]) -> None:
        """Notes why ops that belong together are no chain."""
        self._add(FusionRecord("ops around a reduction", tuple(sorted(ids)), reason=reason))

    def _add(self, decision: FusionRecord) -> bool:
        self.records.append(decision)
        if decision.reason:
            log.info("%s: not fused into one kernel: %s", decision.what, decision.reason)
        return not decision.reason

    def write(self, function: ir.Operation) -> None:
        """Keeps them with the function."""
        if self.records:
            text = json.dumps([decision.to_json() for decision in self.records])
            function.attributes[DECISIONS] = ir.StringAttr.get(text, function.context)


def describe(chain: Chain) -> str:
    """A chain in a few words."""
    sizes = " ".join(f"{axis.name}={axis.size or '?'}" for axis in chain.axes)
    return f"a chain of {len(chain.reductions)} reductions in {len(chain.steps)} steps ({sizes})"


def symbol(chain: Chain, lines: SourceLines = ()) -> str:
    """The name of a chain's kernel: its reductions, its sizes, and what tells it from all others:
    ``fred_max_add_8x128_f32_b5001c2f90d1e3a4``.

    Args:
        lines: what its line tables name.
    """
    kinds = "_".join(dict.fromkeys(step.combine for step in chain.reductions))
    sizes = "x".join(str(axis.size or "D") for axis in chain.axes)
    types = "_".join(dict.fromkeys(entry.dtype for entry in chain.inputs))
    content = repr((chain, lines) if lines else chain)
    return f"{_PREFIX}{kinds}_{sizes}_{types}_{hashlib.sha256(content.encode()).hexdigest()[:16]}"
