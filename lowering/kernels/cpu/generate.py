"""From a chain to a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.fred.fuse import fuse
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder
from covan_mlir.lowering.kernels.cpu.executable import joined
from covan_mlir.lowering.kernels.cpu.few_rows import FewRowsWriter
from covan_mlir.lowering.kernels.cpu.many_rows import ManyRowsWriter
from covan_mlir.lowering.kernels.cpu.merge import MergeWriter, part_operands, read_after
from covan_mlir.lowering.kernels.cpu.rows import RowsWriter
from covan_mlir.lowering.kernels.cpu.schedule import Schedule, contractions, predict, stack
from covan_mlir.lowering.kernels.cpu.schedule import rows as rows_template
from covan_mlir.lowering.kernels.cpu.team_functions import ARCHITECTURES
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Dispatch, Kernel, Operand, Refusal
from covan_mlir.lowering.kernels.reductions.redundant_precision import without_redundant_precision
from covan_mlir.lowering.kernels.reductions.roles import LoopRoles, loop_roles
from covan_mlir.machine.description import Machine
from covan_mlir.machine.elements import bits


def operands(chain: Chain) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """-> (inputs, outputs) of the dispatch."""

    def made(name: str) -> Operand:
        value = chain.values[name]
        sizes = {axis: chain.sizes[axis] for axis in value.axes}
        shape = tuple(-1 if size is None else size for size in sizes.values())
        return Operand(name, shape, value.dtype, tuple(axis for axis, size in sizes.items() if size is None))

    return tuple(made(value.name) for value in chain.inputs), tuple(made(name) for name in chain.outputs)


def refused(chain: Chain) -> str | None:
    """Why no shape of code can hold a chain, or None."""
    if any(axis.size == 0 for axis in chain.axes):
        return "an axis is empty"
    if not chain.reductions:
        return "nothing is reduced"
    if len(set(chain.outputs)) != len(chain.outputs):
        return "a value is returned twice"
    given = {value.name for value in chain.inputs}
    if given.intersection(chain.outputs):
        return "an input is returned"
    return None


def generate(
    chain: Chain,
    machine: Machine,
    schedule: Schedule | None = None,
    *,
    fusion: Fusion | None = None,
    name: str = "fred",
    made: type[KernelBuilder] = KernelBuilder,
) -> Kernel | Refusal:
    """Code for a chain.

    Args:
        chain: sizes that are known at run time only are operands of the kernel's dispatches.
        schedule: one of `legal_schedules`; None for the one that the cost model likes best.
        fusion: the chain's sweeps with their repairs, if they are already known; only contractions need them.
        name: symbol of the executable and its export.
        made: what functions are written with; a schedule has to suit it.
    """
    if (reason := refused(chain)) is not None:
        return Refusal(reason)
    unknown = chain.extents
    typical = chain.nominal
    sizes = typical.known_sizes
    inputs, outputs = operands(chain)
    team = made is KernelBuilder and machine.architecture in ARCHITECTURES
    several: tuple[Dispatch, ...] = ()
    try:
        if chain.single_domain:
            chain, typical = without_redundant_precision(chain), without_redundant_precision(typical)
            schedule = schedule or rows_template(typical, machine)
            code = made(name, inputs, outputs, schedule.lanes, unknown, team=team)
            rows = RowsWriter(code, chain, {**sizes, **code.extents}, schedule)
            text = code.write(rows.write, lambda found: rows.workgroups({**sizes, **found}))
            workgroups = 0 if unknown else rows.workgroups(sizes)
            flops = 0
        else:
            fusion = fusion or fuse(chain)
            found = loop_roles(fusion)
            schedule = schedule or contractions(fusion.chain.nominal, machine, found)
            if (reason := _not_laid_out(chain, found, schedule)) is not None:
                return Refusal(reason)
            left = part_operands(found, chain.sizes, schedule.split) if schedule.split > 1 else ()
            code = made(name, inputs, left or outputs, schedule.lanes, unknown, team=team)
            if (needed := stack(fusion.chain.nominal, machine, schedule, found)) > machine.stack:
                return Refusal(f"its tiles take {needed} bytes of stack, of which there are {machine.stack}")
            shape = FewRowsWriter if schedule.shape == "keys" else ManyRowsWriter
            writer: FewRowsWriter | ManyRowsWriter = shape(code, fusion, {**sizes, **code.extents}, schedule, found)
            text = code.write(writer.write, lambda given: writer.workgroups({**sizes, **given}))
            workgroups = 0 if unknown else writer.workgroups(sizes)
            if left:
                text, several = _merged(
                    text, Dispatch(name, inputs, left), outputs, fusion, sizes, schedule, found, made, team
                )
            flops = int(
                fusion.chain.nominal.contraction_flops
                * writer.span.share(max(found.free, key=lambda a: sizes[a], default=None), sizes)
            )
    except UnsupportedError as error:
        return Refusal(str(error))
    values = [chain.values[operand.name] for operand in (*inputs, *outputs)]
    moved = sum(prod(sizes[axis] for axis in value.axes) * bits(value.dtype) // 8 for value in values)
    seconds = predict(typical, machine, schedule)
    groups = (workgroups, 1, 1)
    return Kernel(name, text, groups, inputs, outputs, chain, schedule, seconds, flops, moved, several, unknown, team)


def _not_laid_out(chain: Chain, found: LoopRoles, schedule: Schedule) -> str | None:
    """Why code with contractions cannot be written: its tiles and loops are of sizes that are known beforehand."""
    needed = {axis for step in found.inner for axis in step.over}
    needed |= {found.feature_axis} if found.feature_axis else set()
    needed |= {*found.free} if schedule.shape == "keys" else set()
    unknown = [axis for axis in chain.extents if axis in needed]
    return f"the sizes of {', '.join(unknown)} are only known at run time" if unknown else None


def _merged(
    text: str,
    first: Dispatch,
    outputs: tuple[Operand, ...],
    fusion: Fusion,
    sizes: Mapping[str, int],
    schedule: Schedule,
    found: LoopRoles,
    made: type[KernelBuilder],
    team: bool,
) -> tuple[str, tuple[Dispatch, ...]]:
    """The module with a second executable that merges what the first one leaves -> (text, both dispatches)."""
    split = found.stage.split
    if split is None:
        raise UnsupportedError("nobody knows how the states of two parts merge")
    wanted = read_after(fusion, found)
    read = (*(value for value in first.inputs if value.name in wanted), *first.outputs)
    second = Dispatch(f"{first.name}_merge", read, outputs)
    code = made(second.name, read, outputs, schedule.lanes, fusion.chain.extents, team=team)
    writer = MergeWriter(code, fusion, {**sizes, **code.extents}, schedule, found, split)
    merging = code.write(writer.write, lambda given: writer.workgroups({**sizes, **given}))
    return joined(text, merging), (first, second)
