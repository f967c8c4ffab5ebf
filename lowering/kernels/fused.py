"""Chains of reductions as kernels of their own: from linalg to calls, and from calls to dispatches.

On torch-mlir's side a chain becomes a call of a private function, for only upstream dialects cross to IREE. There the
call becomes a dispatch of the executable that was written for the chain. What the results of the call are, and not just
what it performs in all, is in its location.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu import team
from covan_mlir.lowering.kernels.cpu.executable import WORDS
from covan_mlir.lowering.kernels.cuda.generator import Executables
from covan_mlir.lowering.kernels.kernel import Kernel, Refusal
from covan_mlir.lowering.kernels.reductions.demote import demoted
from covan_mlir.lowering.kernels.reductions.record import record
from covan_mlir.lowering.pipeline import State, Step
from covan_mlir.lowering.source_lines import Actions, Places, places
from covan_mlir.provenance.fusion import FusionRecord

log = logging.getLogger(__name__)
_PREFIX = "fred_"
"""Of the symbols of kernels."""


Generator = Callable[[Chain, str, Places], Kernel | Executables | Refusal]
"""Writes the kernel of a chain under a name, for steps that are at some places in the user's source."""


@dataclass
class Fusion:
    """The kernels of one compilation.

    Attributes:
        generate: writes them.
        weights: how many of the last arguments of ``@main`` hold weights.
        sizes: names of the sizes of its first arguments that are known at run time only; see `Job.sizes`.
        actions: of the source's parts, where the kernels' line tables name the lines of the source.
        narrow: float64 becomes float32, as in the rest of the program.
        kernels: by chain and its places, whatever parts it comes from.
        decisions: on chains, in the order in which they were looked at.
        called: symbols of the kernels that the program has.
        shared: floating-point operations and elements of a call that kernels for teams of threads compute.
    """

    generate: Generator
    weights: int = 0
    sizes: tuple[tuple[str, ...], ...] = ()
    actions: Actions = field(default_factory=dict)
    narrow: bool = False
    kernels: dict[tuple[Chain, Places], Kernel | Executables | Refusal] = field(default_factory=dict)
    decisions: list[FusionRecord] = field(default_factory=list)
    called: list[str] = field(default_factory=list)
    shared: dict[str, int] = field(default_factory=dict)

    def kernel(self, chain: Chain) -> Kernel | Executables | Refusal:
        """The kernel of a chain, written once for all chains that compute the same, where lines matter: there."""
        plain, where = self._plain(chain), places(chain, self.actions)
        found = self.kernels.get((plain, where))
        if found is None:
            before = sum(known == plain for known, _ in self.kernels)
            name = symbol(plain) + (f"_{before + 1}" if before else "")
            found = self.kernels[plain, where] = self.generate(plain, name, where)
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
                    kernel = self.kernel(chain)
                    if isinstance(kernel, Refusal):
                        lower_chain(op, rewriter)
                    else:
                        self._call_one(op, chain, kernel, rewriter, state)
            if self.called:  # traces as names, which every context understands
                prov_locations.rewrite_locations(state.module.operation, lambda where: prov_locations.lower(where, {}))

    def _call_one(self, op: Any, chain: Chain, kernel: Kernel | Executables, rewriter: Any, state: State) -> None:
        from torch_mlir import ir
        from torch_mlir.dialects import func

        from covan_mlir.dialects.prov_locations import fused_key

        name = kernel.name
        extents = kernel.extents if isinstance(kernel, Kernel) else ()
        kinds = [value.type for value in op.operands], [value.type for value in op.results]
        kinds[0].extend([ir.IndexType.get()] * len(extents))
        if name not in self.called:
            self.called.append(name)
            with ir.InsertionPoint(state.module.body):
                func.FuncOp(name, kinds, visibility="private")
        ids = {step.name: step.trace for step in chain.steps}
        results = fused_key([ids.get(output, ()) for output in chain.outputs], frozenset().union(*ids.values()))
        with rewriter.replacing(op) as new:
            sizes = [_extent(axis, chain, op.operands) for axis in extents]
            call = func.CallOp(kinds[1], name, [*op.operands, *sizes])
            new.results(call)
        # Around the trace that the rewriter has given it.
        call.operation.location = ir.Location.name(results, call.operation.location)

    def _embed(self, state: State) -> None:
        import iree.compiler.ir as ir

        if not self.called:
            return
        kernels = {kernel.name: kernel for kernel in self.kernels.values() if not isinstance(kernel, Refusal)}
        with state.session.context as context, ir.Location.unknown():
            # An op of a dialect that is not loaded yet would be one of an unknown dialect for ever.
            context.get_dialect_descriptor("flow")
            body = state.module.body
            for view in list(body.operations):
                if view.operation.name != "func.func":
                    continue
                if view.attributes["sym_name"].value in self.called:
                    view.operation.erase()
                    continue
                for block in view.regions[0]:
                    calls = [inner.operation for inner in block if inner.operation.name == "func.call"]
                    for call in calls:
                        if (name := ir.FlatSymbolRefAttr(call.attributes["callee"]).value) in self.called:
                            self._count(kernels[name])
                            _dispatch(call, kernels[name])
            texts = [kernels[name].text for name in self.called]
            if self.shared:
                texts.append(team.DECLARATIONS)
            for text in texts:
                kernel = ir.Module.parse(text)  # owns what is in it until that is moved
                for op in list(kernel.body.operations):
                    op.detach_from_parent()
                    body.append(op)

    def _count(self, kernel: Kernel | Executables) -> None:
        if isinstance(kernel, Kernel) and kernel.team:
            for key, amount in (("flops", kernel.flops), ("elements", kernel.elements)):
                self.shared[key] = self.shared.get(key, 0) + amount


def _extent(axis: str, chain: Chain, operands: Sequence[Any]) -> Any:
    """The size of an axis, from an operand that has it."""
    from torch_mlir import ir
    from torch_mlir.dialects import arith, tensor

    number, value = next((n, value) for n, value in enumerate(chain.inputs) if axis in value.axes)
    position = arith.ConstantOp(ir.IndexType.get(), value.axes.index(axis)).result
    return tensor.DimOp(operands[number], position).result


def _dispatch(call: Any, kernel: Kernel | Executables) -> None:
    import iree.compiler.ir as ir
    from iree.compiler.dialects import arith

    from covan_mlir.dialects.prov_locations import fused_key, fused_of

    extents = kernel.extents if isinstance(kernel, Kernel) else ()
    names = [*(operand.name for operand in kernel.inputs), *extents]
    values = dict(zip(names, call.operands, strict=True))
    sizes = {axis: values[axis] for axis in extents}
    with ir.Location.unknown(), ir.InsertionPoint(call):  # no action computes them
        i32 = ir.IntegerType.get_signless(32)
        numbers = [arith.index_castui(i32, size) for size in sizes.values()]
        if team.wanted(kernel):
            address = {"callee": ir.FlatSymbolRefAttr.get(team.ADDRESS)}
            numbers += ir.Operation.create("func.call", [i32] * WORDS, attributes=address).results
    for step in kernel.dispatches:
        shapes = [[sizes[axis] for operand in side for axis in operand.extents] for side in (step.inputs, step.outputs)]
        counts = [len(sizes), len(step.inputs) + len(numbers), *map(len, shapes)]
        attributes = {
            "entry_points": ir.ArrayAttr.get([ir.SymbolRefAttr.get([step.name, step.name])]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get(counts),
        }
        kinds = [ir.Type.parse(operand.tensor) for operand in step.outputs]
        where = call.location
        if step.outputs != kernel.outputs and (said := fused_of(where)) is not None:
            # States of a part: partial results of all that the chain performs.
            where = ir.Location.name(fused_key([said[1]] * len(kinds), said[1]), where)
        with where, ir.InsertionPoint(call):
            operands = [values[operand.name] for operand in step.inputs]
            given = [*sizes.values(), *operands, *numbers, *shapes[0], *shapes[1]]
            op = ir.Operation.create("flow.dispatch", kinds, given, attributes=attributes)
        values |= dict(zip([operand.name for operand in step.outputs], op.results, strict=True))
    for before, operand in zip(call.results, kernel.outputs, strict=True):
        before.replace_all_uses_with(values[operand.name])
    call.erase()


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
    ``fred_max_add_8x128_f32_b5001c``."""
    kinds = "_".join(dict.fromkeys(step.combine for step in chain.reductions))
    sizes = "x".join(str(axis.size or "D") for axis in chain.axes)
    types = "_".join(dict.fromkeys(entry.dtype for entry in chain.inputs))
    return f"{_PREFIX}{kinds}_{sizes}_{types}_{hashlib.sha256(repr(chain).encode()).hexdigest()[:6]}"
