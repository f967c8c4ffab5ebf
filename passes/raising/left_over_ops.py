"""What no kernel took in, as operators that hold the ops which they are, and those ops again.

An operator's first region is its formula. The second one holds the ops that it was made of, as they stood: what the
next compiler gets is what it would have got.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch_mlir import ir

from covan_mlir.dialects.arguments import read_arguments
from covan_mlir.dialects.chain_holders import HELD, OUTPUT
from covan_mlir.dialects.fred_chain import StepLocation, create, write_body
from covan_mlir.dialects.fred_data import attribute
from covan_mlir.dialects.identity import address
from covan_mlir.dialects.kir_operator import operator_attributes, operator_name
from covan_mlir.fred import chain_json
from covan_mlir.kir.recognition import operator_of
from covan_mlir.passes.framework.place import enter
from covan_mlir.passes.framework.rewriter import Rewriter
from covan_mlir.passes.raising.left_over import LeftOver, left_over
from covan_mlir.passes.raising.linalg_graph import LinalgGraph
from covan_mlir.passes.raising.linalg_reader import read_block
from covan_mlir.passes.raising.varying import varying
from covan_mlir.provenance.fusion import LeftOverRecord

_COPIED = frozenset(
    {"arith.constant", "tensor.empty", "linalg.fill", "tensor.pad", "tensor.expand_shape", "tensor.collapse_shape"}
)
"""Ops that an operator may hold copies of."""
_NUMBER = "kir.number"
"""Attribute of such an op, and of its copies: which it is."""


def raise_left_over(function: ir.Operation) -> list[LeftOverRecord]:
    """Makes operators of what no kernel took in, in a function that computes with steps.

    Returns:
        what the operators are, in the order of the program.
    """
    blocks = list(function.regions[0].blocks)
    if len(blocks) != 1:
        return []  # a declaration, or control flow
    arguments = read_arguments(function)
    graph = read_block(blocks[0], arguments)
    groups = list(left_over(graph, varying(blocks[0], arguments)))
    rewriter = Rewriter(function) if groups else None
    numbers = {address(node.op): node.index for node in graph.nodes} if groups else {}
    raised: list[LeftOverRecord] = []
    for group in groups:
        assert rewriter is not None
        if (record := _raised(group, graph, numbers, rewriter)) is not None:
            raised.append(record)
    return raised


def lower_held(operator: ir.Operation, rewriter: Rewriter, around: Mapping[int, ir.Operation]) -> None:
    """Puts the ops that an operator holds in its place.

    Args:
        around: as `numbered_ops` gives them.
    """
    with rewriter.replacing(operator) as new:
        block = operator.regions[HELD].blocks[0]
        values: dict[Any, ir.Value] = dict(zip(block.arguments, operator.operands, strict=True))
        for view in block:
            op = view.operation
            if op.name == OUTPUT:
                new.results(values[op.operands[0]])
                continue
            same = around.get(op.attributes[_NUMBER].value) if _NUMBER in op.attributes else None
            if same is None:
                copy = _copy(op, values)
                if _NUMBER in copy.attributes:
                    del copy.attributes[_NUMBER]
            else:
                values.update(zip(op.results, same.results, strict=True))


def numbered_ops(function: ir.Operation) -> dict[int, ir.Operation]:
    """The ops around operators that these hold copies of."""
    ops = (view.operation for view in function.regions[0].blocks[0])
    return {op.attributes[_NUMBER].value: op for op in ops if _NUMBER in op.attributes}


def forget_numbers(around: Mapping[int, ir.Operation]) -> None:
    """Once no operator holds anything any more."""
    for op in around.values():
        del op.attributes[_NUMBER]


def _copy(op: ir.Operation, values: dict[Any, ir.Value]) -> ir.Operation:
    """A copy of an op at the current insertion point, which reads the copies of what it read."""
    copy = op.clone()

    def visit(nested: ir.Operation) -> ir.WalkResult:
        for n, operand in enumerate(nested.operands):
            if operand in values:
                nested.operands[n] = values[operand]
        return ir.WalkResult.ADVANCE

    copy.walk(visit)
    values.update(zip(op.results, copy.results, strict=True))
    return copy


def _raised(
    group: LeftOver, graph: LinalgGraph, numbers: Mapping[int, int], rewriter: Rewriter
) -> LeftOverRecord | None:
    ops = [graph.nodes[n].op for n in group.nodes]
    operands = [graph.values[value] for value in group.inputs]
    held = _held(ops, operands)
    if held is None:
        return None
    copied = [op for op in held if op not in ops]
    enter(ops[-1].location)
    traces = {step.name: rewriter.trace(op) for step, op in zip(group.chain.steps, ops, strict=True)}
    chain = replace(group.chain, steps=tuple(replace(step, trace=traces[step.name]) for step in group.chain.steps))
    operator = operator_of(chain)
    places = [rewriter.location_of(op) for op in ops]
    locations = {step.name: StepLocation.of(place) for step, place in zip(chain.steps, places, strict=True)}
    with rewriter.replacing(*ops, at=ir.InsertionPoint(ops[-1])) as new:
        built = create(operator_name(operator), chain, operands, regions=HELD + 1)
        for name, value in operator_attributes(operator, chain, built.context).items():
            built.attributes[name] = value
        write_body(built, 0, chain, locations)
        kinds = [value.type for value in operands]
        block = built.regions[HELD].blocks.append(*kinds, arg_locs=[new.location] * len(kinds))
        values: dict[Any, ir.Value] = dict(zip(operands, block.arguments, strict=True))
        with ir.InsertionPoint(block):
            for op in held:
                if op in copied:
                    op.attributes[_NUMBER] = attribute(numbers[address(op)], op.context)
                copy = _copy(op, values)
                if op in copied:
                    _locate(copy, new.location)
            ir.Operation.create(OUTPUT, [], [values[ops[-1].results[0]]])
        new.results(built)
    graph.values[group.result] = built.results[0]
    return LeftOverRecord(tuple(sorted(rewriter.trace(built))), chain_json.dump(chain))


def _locate(op: ir.Operation, location: ir.Location) -> None:
    """Whose work an op is besides is none of the operator's that holds a copy of it."""

    def visit(nested: ir.Operation) -> ir.WalkResult:
        nested.location = location
        return ir.WalkResult.ADVANCE

    op.walk(visit)


def _held(ops: Sequence[ir.Operation], operands: Sequence[Any]) -> list[ir.Operation] | None:
    """All that has to stand in an operator, each op behind those that it reads; None where that is more than it may."""
    block, given = ops[0].block, {*operands}
    held: list[ir.Operation] = []

    def take(op: ir.Operation) -> bool:
        for value in _reads(op):
            owner = value.owner
            if value in given:
                continue
            if isinstance(owner, ir.Block):
                if owner == block:
                    return False
                continue
            source = owner.operation
            if source.block != block or source in held:
                continue
            if source.name not in _COPIED or not take(source):
                return False
        held.append(op)
        return True

    return held if all(map(take, ops)) else None


def _reads(op: ir.Operation) -> list[Any]:
    """What an op reads, itself or in its regions."""
    values: list[Any] = []

    def visit(nested: ir.Operation) -> ir.WalkResult:
        values.extend(nested.operands)
        return ir.WalkResult.ADVANCE

    op.walk(visit)
    return values
