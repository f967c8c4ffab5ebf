"""Chains of reductions as kernels of their own: from linalg to calls, and from calls to dispatches.

On torch-mlir's side a chain becomes a call of a private function, for only upstream dialects cross to IREE. There the
call becomes a dispatch of the executable that was written for the chain. What the results of the call are, and not just
what it performs in all, is in its location.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.embed import embed
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.reductions.demote import demoted
from covan_mlir.lowering.kernels.reductions.record import record
from covan_mlir.lowering.kernels.select import Selection, select
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.lowering.pipeline import State, Step
from covan_mlir.lowering.source_lines import Actions, Places, places
from covan_mlir.provenance.fusion import FusionRecord

log = logging.getLogger(__name__)
_PREFIX = "fred_"
"""Of the symbols of kernels."""


@dataclass
class Fusion:
    """The kernels of one compilation.

    Attributes:
        target: what they are for.
        always: they are made also where they are not predicted to pay.
        weights: how many of the last arguments of ``@main`` hold weights.
        sizes: names of the sizes of its first arguments that are known at run time only; see `Job.sizes`.
        actions: of the source's parts, where the kernels' line tables name the lines of the source.
        narrow: float64 becomes float32, as in the rest of the program.
        kernels: by chain and its places, whatever parts it comes from.
        decisions: on chains, in the order in which they were looked at.
        called: symbols of the kernels that the program has.
        shared: floating-point operations and elements of a call that kernels for teams of threads compute.
    """

    target: KernelTarget
    always: bool = False
    weights: int = 0
    sizes: tuple[tuple[str, ...], ...] = ()
    actions: Actions = field(default_factory=dict)
    narrow: bool = False
    kernels: dict[tuple[Chain, Places], Selection | Refusal] = field(default_factory=dict)
    decisions: list[FusionRecord] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    shared: dict[str, int] = field(default_factory=dict)

    def kernel(self, chain: Chain) -> Selection | Refusal:
        """The kernel of a chain, written once for all chains that compute the same, where lines matter: there."""
        plain, where = self._plain(chain), places(chain, self.actions)
        found = self.kernels.get((plain, where))
        if found is None:
            before = sum(known == plain for known, _ in self.kernels)
            name = symbol(plain) + (f"_{before + 1}" if before else "")
            found = self.kernels[plain, where] = select(plain, name, self.target, always=self.always, lines=where)
        return found

    def _plain(self, chain: Chain) -> Chain:
        return demoted(chain.untraced) if self.narrow else chain.untraced

    def wants(self, chain: Chain) -> bool:
        """Whether there is a kernel for a chain; remembers and logs why not."""
        found = self.kernel(chain)
        ids = sorted(frozenset().union(*(step.trace for step in chain.steps)))
        return self._decided(record(describe(chain), ids, self._plain(chain), found))

    def _decided(self, decision: FusionRecord) -> bool:
        self.decisions.append(decision)
        if decision.reason:
            log.info("%s: not fused into one kernel: %s", decision.what, decision.reason)
        return not decision.reason

    def _unbuildable(self, reason: str, ids: frozenset[int]) -> None:
        self._decided(FusionRecord("ops around a reduction", tuple(sorted(ids)), reason=reason))

    def steps(self) -> tuple[Step, Step]:
        """The steps on torch-mlir's side: linalg to chains, chains to calls."""
        return Step("fred-raise", self._raise), Step("fred-kernels", self._call)

    def embedding(self) -> Step:
        """The step on IREE's side: calls to dispatches."""
        return Step("iree:embed", self._embed)

    def _raise(self, state: State) -> None:
        from covan_mlir.passes.fred_raise import raise_chains

        with state.module.context:
            for function in _functions(state.module):
                main = function.attributes["sym_name"].value == "main"
                weights, sizes = (self.weights, self.sizes) if main else (0, ())
                raise_chains(function, weights, self.wants, unbuildable=self._unbuildable, sizes=sizes)

    def _call(self, state: State) -> None:
        from torch_mlir import ir

        from covan_mlir.dialects import prov_locations
        from covan_mlir.dialects.fred_chain import read_chain
        from covan_mlir.passes.fred_lower import lower_chain
        from covan_mlir.passes.rewriter import Rewriter

        with state.module.context, ir.Location.unknown():
            functions = list(_functions(state.module))
            for function in functions:
                chains = [view.operation for block in function.regions[0] for view in block]
                chains = [op for op in chains if op.name == "fred.chain"]
                if not chains:
                    continue
                rewriter = Rewriter(function)
                for op in chains:
                    chain = read_chain(op)
                    selection = self.kernel(chain)
                    if isinstance(selection, Refusal):
                        lower_chain(op, rewriter)
                    else:
                        self._call_one(op, chain, selection.executable, rewriter, state)
            if self.called:  # traces as names, which every context understands
                prov_locations.rewrite_locations(state.module.operation, lambda where: prov_locations.lower(where, {}))

    def _call_one(self, op: Any, chain: Chain, executable: Executable, rewriter: Any, state: State) -> None:
        from torch_mlir import ir
        from torch_mlir.dialects import func

        from covan_mlir.dialects.prov_locations import fused_key

        name = executable.name
        kinds = [value.type for value in op.operands], [value.type for value in op.results]
        kinds[0].extend([ir.IndexType.get()] * len(executable.sizes))
        if name not in self.called:
            self.called.append(name)
            with ir.InsertionPoint(state.module.body):
                func.FuncOp(name, kinds, visibility="private")
        ids = {step.name: step.trace for step in chain.steps}
        results = fused_key([ids.get(output, ()) for output in chain.outputs], frozenset().union(*ids.values()))
        with rewriter.replacing(op) as new:
            sizes = [_extent(axis, chain, op.operands) for axis in executable.sizes]
            call = func.CallOp(kinds[1], name, [*op.operands, *sizes])
            new.results(call)
        # Around the trace that the rewriter has given it.
        call.operation.location = ir.Location.name(results, call.operation.location)

    def _embed(self, state: State) -> None:
        if not self.called:
            return
        made = {one.executable.name: one for one in self.kernels.values() if isinstance(one, Selection)}
        with state.session.context:
            calls = embed(state.module, [made[name].executable for name in self.called])
        for name, count in calls.items():
            if made[name].executable.team:
                for key, amount in (("flops", made[name].cost.flops), ("elements", made[name].cost.elements)):
                    self.shared[key] = self.shared.get(key, 0) + count * amount


def _extent(axis: str, chain: Chain, operands: Sequence[Any]) -> Any:
    """The size of an axis, from an operand that has it."""
    from torch_mlir import ir
    from torch_mlir.dialects import arith, tensor

    number, value = next((n, value) for n, value in enumerate(chain.inputs) if axis in value.axes)
    position = arith.ConstantOp(ir.IndexType.get(), value.axes.index(axis)).result
    return tensor.DimOp(operands[number], position).result


def _functions(module: Any) -> Iterator[Any]:
    for view in module.body.operations:
        if view.operation.name == "func.func" and len(view.operation.regions[0].blocks):
            yield view.operation


def describe(chain: Chain) -> str:
    """A chain in a few words."""
    sizes = " ".join(f"{axis.name}={axis.size or '?'}" for axis in chain.axes)
    return f"a chain of {len(chain.reductions)} reductions in {len(chain.steps)} steps ({sizes})"


def symbol(chain: Chain) -> str:
    """The name of a chain's kernel: its reductions, its sizes, and what tells it from all others:
    ``fred_max_add_8x128_f32_b5001c2f90d1e3a4``."""
    kinds = "_".join(dict.fromkeys(step.combine for step in chain.reductions))
    sizes = "x".join(str(axis.size or "D") for axis in chain.axes)
    types = "_".join(dict.fromkeys(entry.dtype for entry in chain.inputs))
    return f"{_PREFIX}{kinds}_{sizes}_{types}_{hashlib.sha256(repr(chain).encode()).hexdigest()[:16]}"
