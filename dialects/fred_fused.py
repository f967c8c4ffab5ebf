"""A ``fred.fused`` as `covan_mlir.fred.forms.Fusion`, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast, get_args

from torch_mlir import ir

from covan_mlir.dialects.fred_chain import OutputReader, create, input_block, read_chain, read_inputs, write_body
from covan_mlir.dialects.fred_data import attribute, data
from covan_mlir.dialects.fred_limits import MAX_STATES
from covan_mlir.dialects.fred_scalars import attribute_of, constant
from covan_mlir.dialects.fred_steps import (
    MalformedChain,
    StepReader,
    StepWriter,
    only_block,
    segments,
    strings,
    strings_of,
    traced,
)
from covan_mlir.fred.certificate import Certificate, Proof
from covan_mlir.fred.chain import Chain, ChainError, Map, Reduce, Step
from covan_mlir.fred.expression import Const, Expr, Read
from covan_mlir.fred.forms import Fusion, Guard, Local, Repair, RepairKind, Rolling, SplitK, Stage, State, Update
from covan_mlir.support.typed_json import SchemaError

_SIDES = ("a", "b")
_KINDS: tuple[str, ...] = get_args(RepairKind)


# Reading


def read_fusion(op: ir.Operation) -> Fusion:
    """The fused form that a ``fred.fused`` is.

    A repair that has not been certified has a certificate whose result is ``unknown``. A loop whose merge has not been
    written has no `SplitK`.

    Raises:
        MalformedChain: it is none; a verified module has no such.
    """
    chain = read_chain(op)
    reader = StepReader(chain.sizes)
    read_inputs(op, 1, reader)
    outputs = OutputReader(op, reader)
    stages: list[_Stage] = []
    for view in only_block(op, 1):
        child = view.operation
        if child.name == "arith.constant":
            reader.constant(child)
        elif child.name == "fred.output":
            outputs.add(child)
        elif child.name == "fred.sweep":
            stages.append(_Stage(strings_of(child.attributes["axes"], "axes", child), child.attributes["why"].value))
        elif not stages:
            raise MalformedChain("stands before the first fred.sweep", child)
        else:
            stages[-1].add(child, reader, chain)
    if outputs.names() != chain.outputs:
        raise MalformedChain(f"gives {', '.join(outputs.names())} where the chain gives {', '.join(chain.outputs)}", op)
    fused_stages = tuple(stage.made(chain) for stage in stages)
    certificates = {r.certificate.claim: r.certificate for r in _repairs(fused_stages) if r.kind != "none"}
    return Fusion(chain, chain, fused_stages, certificates=tuple(certificates.values()))


def _repairs(stages: Sequence[Stage]) -> list[Repair]:
    return [repair for stage in stages if stage.rolling for repair in stage.rolling.repairs]


@dataclass
class _Stage:
    """A stage in the reading."""

    axes: tuple[str, ...]
    why: str
    rolling: Rolling | None = None
    split: SplitK | None = None
    elements: list[Step] = field(default_factory=list)
    rows: list[Step] | None = None

    def add(self, op: ir.Operation, reader: StepReader, chain: Chain) -> None:
        match op.name:
            case "fred.rolling":
                if self.rolling is not None or self.elements or self.rows is not None:
                    raise MalformedChain("must come first in its sweep, and alone", op)
                self.rolling, self.split = _Loop(op, reader, chain).read()
                if self.rolling.axes != self.axes:
                    raise MalformedChain(f"runs over {self.rolling.axes} in a sweep over {self.axes}", op)
            case "fred.rows":
                self.rows = []
            case "fred.map" | "fred.reduce":
                step = reader.step(op)
                _check_step(step, chain, op)
                (self.elements if self.rows is None else self.rows).append(step)
            case name:
                raise MalformedChain(f"'{name}' cannot stand in a sweep", op)

    def made(self, chain: Chain) -> Stage:
        reductions = () if self.rolling is None else tuple(r.target for r in self.rolling.repairs)
        writes = tuple(step.name for step in self.elements if step.name in chain.outputs)
        rows = tuple(self.rows or ())
        return Stage(self.axes, reductions, self.rolling, self.split, tuple(self.elements), writes, rows, self.why)


def _check_step(step: Step, chain: Chain, op: ir.Operation) -> None:
    """Elements are steps of the chain, computed where they are needed."""
    known = chain.values.get(step.name)
    if not isinstance(known, Map | Reduce) or known.axes != step.axes:
        raise MalformedChain(f"computes {step.name} over {step.axes}, which the chain does not have", op)


class _Loop:
    def __init__(self, op: ir.Operation, reader: StepReader, chain: Chain) -> None:
        self.op = op
        self.reader = reader
        self.chain = chain
        self.repairs: dict[str, Repair] = {}
        self.guards: list[Guard] = []

    def read(self) -> tuple[Rolling, SplitK | None]:
        op = self.op
        axes = strings_of(op.attributes["axes"], "axes", op)
        states = self._states()
        self._arguments(0, [(s, "old") for s in states] + [(s, "local") for s in states if s.name == "count"])
        elements, body = self._lines(0, [f"{s.name}.new" for s in states])
        reduced = [s for s in states if s.name != "count"]
        self._arguments(1, [(s, "new") for s in states])
        _, finish = self._lines(1, [s.name for s in reduced])
        if len(op.results) != len(reduced):
            raise MalformedChain(f"has {len(op.results)} results for {len(reduced)} states", op)
        for result, state in zip(op.results, reduced, strict=True):
            self.reader.define(result, state.name, state.axes, op)
        repairs = tuple(self.repairs.get(s.name) or self._unrepaired(s) for s in reduced)
        if strange := self.repairs.keys() - {s.name for s in reduced}:
            raise MalformedChain(f"repairs {sorted(strange)[0]}, which is no state", op)
        rolling = Rolling(axes, states, elements, body, cast("tuple[Update, ...]", finish), repairs, tuple(self.guards))
        if not list(op.regions[2].blocks):
            return rolling, None
        self._arguments(2, [(s, side) for side in _SIDES for s in states])
        _, merge = self._lines(2, [f"{s.name}.new" for s in states])
        certificates = tuple(r.certificate for r in repairs if r.kind != "none")
        return rolling, SplitK(rolling, cast("tuple[Update, ...]", merge), certificates)

    def _states(self) -> tuple[State, ...]:
        op = self.op
        names = strings_of(op.attributes["states"], "states", op)
        axes_attributes, initials = list(op.attributes["state_axes"]), list(op.attributes["initials"])
        if not len(names) == len(axes_attributes) == len(initials) or len(set(names)) != len(names):
            raise MalformedChain("must have axes and a start for each state, and each state once", op)
        states = []
        for name, axes_attribute, attribute_ in zip(names, axes_attributes, initials, strict=True):
            initial = constant(attribute_)
            if initial is None:
                raise MalformedChain(f"starts {name} from {attribute_}, which is no number", op)
            axes = strings_of(axes_attribute, f"the axes of {name}", op)
            value = self.chain.values.get(name)
            if name != "count" and (not isinstance(value, Reduce) or value.axes != axes):
                raise MalformedChain(f"has the state {name} over {axes}, which is no reduction of the chain", op)
            states.append(State(name, axes, initial.dtype, initial))
        return tuple(states)

    def _arguments(self, region: int, values: Sequence[tuple[State, str]]) -> None:
        block = only_block(self.op, region)
        if len(block.arguments) != len(values):
            what = ("body", "finish", "merge")[region]
            raise MalformedChain(f"has {len(block.arguments)} arguments of its {what}, not {len(values)}", self.op)
        for argument, (state, moment) in zip(block.arguments, values, strict=True):
            name = f"{state.name}.{moment}"
            if self.reader.define(argument, name, state.axes, self.op) != state.dtype:
                raise MalformedChain(f"takes {name} as a {argument.type}, and it starts as a {state.dtype}", self.op)

    def _lines(self, region: int, expected: Sequence[str]) -> tuple[tuple[Step, ...], tuple[Local | Update, ...]]:
        elements: list[Step] = []
        lines: list[Local | Update] = []
        given: list[str] = []
        for view in only_block(self.op, region):
            child = view.operation
            match child.name:
                case "arith.constant":
                    self.reader.constant(child)
                case "fred.next":
                    given.append(self.reader.known.get(child.operands[0], ("a value from outside", ""))[0])
                case "fred.repair" if region == 0:
                    self._repair(child)
                case "fred.map" | "fred.reduce":
                    step = self.reader.step(child)
                    if region == 0 and "." not in step.name:
                        _check_step(step, self.chain, child)
                        elements.append(step)
                    else:
                        lines.append(self._line(step, child))
                case name:
                    raise MalformedChain(f"'{name}' cannot stand in a fred.rolling", child)
        if given != list(expected):
            raise MalformedChain(f"gives {', '.join(given)} where it must give {', '.join(expected)}", self.op)
        return tuple(elements), tuple(lines)

    def _line(self, step: Step, op: ir.Operation) -> Local | Update:
        if isinstance(step, Reduce):
            if not step.name.endswith(".local"):
                raise MalformedChain(f"reduces a block to {step.name}, which must end in .local", op)
            return Local(step.name, step)
        if "guard" in op.attributes:
            self.guards.append(self._guard(step, op))
        return Update(step.name, step.axes, step.expr, step.dtype, step.trace)

    @staticmethod
    def _guard(step: Map, op: ir.Operation) -> Guard:
        args: tuple[Expr, ...] = getattr(step.expr, "args", ())
        statistic = step.name.removesuffix(".safe")
        if len(args) != 3 or not isinstance(args[1], Const) or args[2] != Read(f"{statistic}.new", step.dtype):
            raise MalformedChain(f"guards {step.name} by something else than a choice of a number or its value", op)
        return Guard(statistic, args[0], args[1], op.attributes["guard"].value)

    def _repair(self, op: ir.Operation) -> None:
        name, kind = op.attributes["value"].value, op.attributes["kind"].value
        if kind not in _KINDS or kind == "none":
            raise MalformedChain(f"is of the kind {kind!r}: one of {', '.join(_KINDS[1:])}", op)
        if name in self.repairs:
            raise MalformedChain(f"repairs {name} a second time", op)
        statistics = strings_of(op.attributes["statistics"], "statistics", op)
        helpers = strings_of(op.attributes["helpers"], "helpers", op)
        certificate = uncertified(f"repair of {name}")
        if "certificate" in op.attributes:
            try:
                certificate = Certificate.from_json(data(op.attributes["certificate"]))
            except (SchemaError, TypeError) as error:
                raise MalformedChain(f"has a certificate that is none: {error}", op) from error
        repair_kind = cast(RepairKind, kind)
        self.repairs[name] = Repair(name, repair_kind, statistics, helpers, self.reader.expression(op), certificate)

    @staticmethod
    def _unrepaired(state: State) -> Repair:
        certificate = Certificate(f"{state.name} reads no statistic of the loop", ())
        return Repair(state.name, "none", (), (), Read(f"{state.name}.old", state.dtype), certificate)


def uncertified(claim: str) -> Certificate:
    """What stands for the proof of a claim that nobody has proved yet."""
    return Certificate(claim, (Proof("not certified", claim, (), (), (), "unknown", "", 0.0),))


# Writing


def write_fusion(fusion: Fusion, operands: Sequence[ir.Value]) -> ir.Operation:
    """Builds the ``fred.fused`` at the current insertion point and location, without merges and certificates.

    Args:
        operands: one per input of the chain, each of its type.

    Raises:
        ChainError: it has more inputs, outputs or states than the operations can have.
    """
    for stage in fusion.stages:
        if stage.rolling is not None and len(stage.rolling.state) > MAX_STATES:
            raise ChainError(f"a fred.rolling has at most {MAX_STATES} states, and this one {len(stage.rolling.state)}")
    op = create("fred.fused", fusion.chain, operands, regions=2)
    write_body(op, 0, fusion.chain, {})
    writer = input_block(op, 1, fusion.chain)
    with ir.InsertionPoint(op.regions[1].blocks[0]):
        for stage in fusion.stages:
            attributes = {"axes": strings(stage.axes), "why": ir.StringAttr.get(stage.why)}
            ir.Operation.create("fred.sweep", [], [], attributes=attributes)
            if stage.rolling is not None:
                _write_rolling(stage.rolling, writer)
            _write_steps(stage.elements, writer)
            if stage.rows:
                ir.Operation.create("fred.rows", [], [])
                _write_steps(stage.rows, writer)
        for name in fusion.chain.outputs:
            ir.Operation.create("fred.output", [], [writer.tensors[name]])
    return op


def _write_steps(steps: Sequence[Step], writer: StepWriter) -> None:
    here = ir.Location.current
    for step in steps:
        with traced(step.trace, here):
            writer.step(step)


def _write_rolling(rolling: Rolling, writer: StepWriter) -> None:
    reduced = [state for state in rolling.state if state.name != "count"]
    counts = [state for state in rolling.state if state.name == "count"]
    attributes = {
        "axes": strings(rolling.axes),
        "states": strings([state.name for state in rolling.state]),
        "state_axes": ir.ArrayAttr.get([strings(state.axes) for state in rolling.state]),
        "initials": ir.ArrayAttr.get([attribute_of(state.initial, writer.context) for state in rolling.state]),
        "resultSegmentSizes": segments(len(reduced), MAX_STATES),
    }
    kinds = [writer.kind(state.axes, state.dtype) for state in reduced]
    op = ir.Operation.create("fred.rolling", kinds, [], attributes=attributes, regions=3)
    arguments = [(s, f"{s.name}.old") for s in rolling.state] + [(s, "count.local") for s in counts]
    inside = _block(op, 0, arguments, writer)
    with ir.InsertionPoint(op.regions[0].blocks[0]):
        _write_steps(rolling.elements, inside)
        _write_lines(rolling.body, inside, rolling)
        _write_next([f"{state.name}.new" for state in rolling.state], inside)
    inside = _block(op, 1, [(s, f"{s.name}.new") for s in rolling.state], writer)
    with ir.InsertionPoint(op.regions[1].blocks[0]):
        _write_lines(rolling.finish, inside)
        _write_next([state.name for state in reduced], inside)
    for state, result in zip(reduced, op.results, strict=True):
        writer.tensors[state.name] = result


def _block(op: ir.Operation, region: int, values: Sequence[tuple[State, str]], outside: StepWriter) -> StepWriter:
    kinds = [outside.kind(state.axes, state.dtype) for state, _ in values]
    block = op.regions[region].blocks.append(*kinds, arg_locs=[op.location] * len(kinds))
    named = {name: argument for (_, name), argument in zip(values, block.arguments, strict=True)}
    return StepWriter(outside.sizes, {**outside.tensors, **named}, outside.context)


def _write_lines(lines: Sequence[Local | Update], writer: StepWriter, rolling: Rolling | None = None) -> None:
    here = ir.Location.current
    repairs = {f"{r.target}.new": r for r in rolling.repairs if r.kind != "none"} if rolling else {}
    guards = {f"{g.statistic}.safe": g for g in rolling.guards} if rolling else {}
    for line in lines:
        step = line.reduce if isinstance(line, Local) else Map(line.name, line.axes, line.expr, line.dtype, line.trace)
        with traced(step.trace, here):
            if line.name in repairs:
                _write_repair(repairs[line.name], writer)
            op = writer.step(step)
        if line.name in guards:
            op.attributes["guard"] = ir.StringAttr.get(guards[line.name].reason)


def _write_repair(repair: Repair, writer: StepWriter) -> None:
    attributes = {
        "value": ir.StringAttr.get(repair.target),
        "kind": ir.StringAttr.get(repair.kind),
        "statistics": strings(repair.statistics),
        "helpers": strings(repair.helpers),
    }
    op = ir.Operation.create("fred.repair", [], [], attributes=attributes, regions=1)
    writer.expression(op, repair.update)


def _write_next(names: Sequence[str], writer: StepWriter) -> None:
    for name in names:
        ir.Operation.create("fred.next", [], [writer.tensors[name]])


# Changing


def rolling_ops(op: ir.Operation) -> list[ir.Operation]:
    """The loops of a ``fred.fused``, in the order of its stages."""
    return [view.operation for view in only_block(op, 1) if view.operation.name == "fred.rolling"]


def write_merge(op: ir.Operation, split: SplitK, chain: Chain) -> None:
    """The merge of a ``fred.rolling`` that has none."""
    context = op.context
    outside = StepWriter(chain.sizes, _visible(op, chain), context)
    values = [(s, f"{s.name}.{side}") for side in _SIDES for s in split.rolling.state]
    with context, op.location:
        inside = _block(op, 2, values, outside)
        with ir.InsertionPoint(op.regions[2].blocks[0]):
            _write_lines(split.merge, inside)
            _write_next([f"{state.name}.new" for state in split.rolling.state], inside)


def _visible(rolling: ir.Operation, chain: Chain) -> dict[str, ir.Value]:
    """The values that a loop can read by name: inputs, and what stands before it."""
    block = rolling.block
    values: dict[str, ir.Value] = dict(zip((v.name for v in chain.inputs), block.arguments, strict=True))
    for view in block:
        op = view.operation
        if op == rolling:
            break
        if op.name in ("fred.map", "fred.reduce"):
            values[op.attributes["value"].value] = op.results[0]
        elif op.name == "fred.rolling":
            names = [name for name in strings_of(op.attributes["states"], "states", op) if name != "count"]
            values |= dict(zip(names, op.results, strict=True))
    return values


def attach_certificates(op: ir.Operation, certificates: dict[str, Certificate]) -> None:
    """Gives each ``fred.repair`` in a ``fred.rolling`` its certificate, by the name of what it repairs."""
    for view in only_block(op):
        if view.operation.name == "fred.repair":
            name = view.operation.attributes["value"].value
            view.operation.attributes["certificate"] = attribute(certificates[name].to_json(), op.context)
