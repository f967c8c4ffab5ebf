"""Divisions of integers: by what no processor divides, none is left.

By zero, and of the least integer by -1, the machine's instruction ends the process. Such divisors become 1, and the
dividend of -1 its negative; eager raises for zero, and so does the program (`checks`). Without checks, ``x // 0`` and
``fmod(x, 0)`` are ``x``, and ``x % 0`` is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch._ops import OpOverload
from torch.fx import Graph, Node

from covan_mlir.frontend.actions import graphs
from covan_mlir.frontend.checks import INTEGERS, Checks, check_at
from covan_mlir.frontend.index_operands import call_of
from covan_mlir.frontend.intervals import Interval, intervals, known

aten = torch.ops.aten
_convert = torch.ops.prims.convert_element_type.default
_QUOTIENTS = {aten.div, aten.floor_divide}
_REMAINDERS = {aten.remainder, aten.fmod}


def check_divisors(decomposed: Graph, checks: Checks, *, told: bool) -> None:
    """Make the divisions of integers in a program safe.

    Args:
        told: whether divisors that are zero are errors.
    """
    for _, graph in list(graphs(decomposed)):
        divisions = [node for node in graph.nodes if _divides(node)]
        if not divisions:
            continue
        ranges = intervals(graph, checks.weights)
        given = checks.regions(graph, ranges) if graph is decomposed else {}
        for division in divisions:
            if _is_safe(division.args[1], ranges):
                continue
            check = msgspec.structs.replace(check_at(checks.origin(division)), kind="divisor")
            divisor: Any = division.args[1]
            zero = _made_safe(division)
            on_argument = told and divisor in given and checks.of_argument(check, given[divisor])
            if told and not on_argument and not checks.is_told((divisor, "divisor")):
                with graph.inserting_before(division):
                    checks.tell((divisor, "divisor"), check, call_of(division, aten.any.default, zero))


def _divides(node: Node) -> bool:
    packet = getattr(node.target, "overloadpacket", None)
    value = node.meta.get("val")
    return packet in (*_QUOTIENTS, *_REMAINDERS) and isinstance(value, torch.Tensor) and value.dtype in INTEGERS


def _is_safe(divisor: Any, ranges: Mapping[Node, Interval]) -> bool:
    """Whether a divisor is neither 0 nor -1."""
    if isinstance(divisor, Node) and divisor not in ranges:
        divisor = divisor.meta["val"]
    if isinstance(divisor, Node):
        return known(ranges[divisor].low > 0) or known(ranges[divisor].high < -1)
    return not isinstance(divisor, torch.Tensor) and (known(divisor > 0) or known(divisor < -1))


def _made_safe(division: Node) -> Node:
    """Divide by another number where the divisor is 0 or -1; -> whether it is 0, by element."""
    dividend, divisor = division.args[:2]
    dtype = division.meta["val"].dtype
    with division.graph.inserting_before(division):
        if not isinstance(divisor, Node) or not isinstance(divisor.meta["val"], torch.Tensor):
            divisor = call_of(division, aten.scalar_tensor.default, divisor, dtype=dtype)
        zero = call_of(division, aten.eq.Scalar, divisor, 0)
        minus = call_of(division, aten.eq.Scalar, divisor, -1)
        either = call_of(division, aten.bitwise_or.Tensor, zero, minus)
        one = call_of(division, aten.scalar_tensor.default, 1, dtype=divisor.meta["val"].dtype)
        other = call_of(division, aten.where.self, either, one, divisor)
        assert isinstance(division.target, OpOverload)
        if division.target.overloadpacket in _QUOTIENTS:
            if not isinstance(dividend, Node):
                dividend = call_of(division, aten.scalar_tensor.default, dividend, dtype=dtype)
            elif dividend.meta["val"].dtype is not dtype:
                dividend = call_of(division, _convert, dividend, dtype)
            negative = call_of(division, aten.neg.default, dividend)
            dividend = call_of(division, aten.where.self, minus, negative, dividend)
    division.target = _WITH_TENSORS.get(division.target, division.target)
    division.args = (dividend, other, *division.args[2:])
    return zero


_WITH_TENSORS: dict[Any, Any] = {
    aten.div.Scalar_mode: aten.div.Tensor_mode,
    aten.floor_divide.Scalar: aten.floor_divide.default,
    aten.remainder.Scalar: aten.remainder.Tensor,
    aten.fmod.Scalar: aten.fmod.Tensor,
}
