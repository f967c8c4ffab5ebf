"""Functions of numbers that are read from tensors, computed on tensors without axes.

Of numbers torch-mlir lowers sums, products, quotients and comparisons of integers. In comparisons of floats it takes
NaN for larger than all others, and some it does not know. Each function has a counterpart of tensors, which is lowered.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Node

from covan_mlir.frontend.index_operands import call_of

_aten = torch.ops.aten
_convert = torch.ops.prims.convert_element_type.default
_NUMBER = _aten._local_scalar_dense.default
_BOOLEAN = _aten.Bool.Tensor
"""The number of a tensor that is a boolean: the importer takes all others for integers or floats."""
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_COMPARISONS = {
    operator.lt: _aten.lt.Tensor,
    operator.le: _aten.le.Tensor,
    operator.gt: _aten.gt.Tensor,
    operator.ge: _aten.ge.Tensor,
    operator.eq: _aten.eq.Tensor,
    operator.ne: _aten.ne.Tensor,
}
_OF_TENSORS: Mapping[Callable[..., Any], torch._ops.OpOverload] = {
    **_COMPARISONS,
    operator.and_: _aten.bitwise_and.Tensor,
    operator.or_: _aten.bitwise_or.Tensor,
    operator.xor: _aten.bitwise_xor.Tensor,
    operator.lshift: _aten.bitwise_left_shift.Tensor,
    operator.rshift: _aten.bitwise_right_shift.Tensor,
    operator.abs: _aten.abs.default,
    operator.mod: _aten.remainder.Tensor,
    operator.pow: _aten.pow.Tensor_Tensor,
    builtins.round: _aten.round.default,
    math.ceil: _aten.ceil.default,
    math.floor: _aten.floor.default,
    math.trunc: _aten.trunc.default,
    torch.sym_ite: _aten.where.self,
    torch.sym_max: _aten.gt.Tensor,
    torch.sym_min: _aten.lt.Tensor,
    torch.sym_not: _aten.logical_not.default,
    **{
        getattr(torch, f"_sym_{name}"): getattr(_aten, name).default
        for name in ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "log2")
        if hasattr(torch, f"_sym_{name}")
    },
}


_EXTREMES = (torch.sym_max, torch.sym_min)


def compute_on_tensors(graph: Graph) -> None:
    """Have tensors compute what the lowering has no function of numbers for."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _OF_TENSORS and _is_rewritten(node):
            with graph.inserting_before(node):
                rewrite = _multiply if node.target is operator.pow and _type_of(node) is torch.int64 else _rewrite
                rewrite(node)
        elif node.target is _NUMBER and _type_of(node) is torch.bool:
            node.target = _BOOLEAN


def drop_settled_assertions(graph: Graph) -> None:
    """Erase assertions that cannot fail: that a boolean is 0 or 1, and on where in its memory a view begins."""
    for assertion in graph.find_nodes(op="call_function", target=_aten._assert_scalar.default):
        condition = assertion.args[0]
        if isinstance(condition, Node) and (_is_true(condition.meta.get("val")) or _is_of_memory(condition)):
            graph.erase_node(assertion)


def _is_true(value: Any) -> bool:
    if isinstance(value, torch.SymBool):
        return bool(sympy.piecewise_fold(value.node.expr) == sympy.true)
    return value is True


def _is_of_memory(condition: Node) -> bool:
    return any(node.target is _aten.sym_storage_offset.default for node in condition.all_input_nodes)


def _is_rewritten(node: Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, _SYMBOLIC):
        return False
    if node.target in _COMPARISONS:
        return {_type_of(argument) for argument in node.args} != {torch.int64}
    if node.target is builtins.round and node.args[1:] not in ((), (None,)):  # to a place after the point
        return False
    if node.target is operator.mod:  # machine code would call a function of C for floats
        return _type_of(node) is torch.int64
    if node.target is operator.pow and _type_of(node) is torch.int64:
        return isinstance(node.args[1], int) and node.args[1] > 0
    return True


def _rewrite(node: Node) -> None:
    """Make of a function of numbers the number that a tensor holds."""
    function: Any = node.target
    numbers = [number for number in node.args if number is not None]
    given = _type_of(node)
    node.target = _BOOLEAN if given is torch.bool else _NUMBER
    types = _computed_in(function, numbers, given)
    tensors = [_tensor(node, number, dtype) for number, dtype in zip(numbers, types, strict=True)]
    result = call_of(node, _OF_TENSORS[function], *(reversed(tensors) if function in _EXTREMES else tensors))
    if function in _EXTREMES:  # as Python's: the first one, also beside NaN, where the other is no larger
        result = call_of(node, _aten.where.self, result, *reversed(tensors))
    if result.meta["val"].dtype is not given:
        result = call_of(node, _convert, result, given)
    node.args = (result,)


def _multiply(node: Node) -> None:
    """Make of a power of an integer products, which are lowered, and lose no digits."""
    base, exponent = node.args
    factors: tuple[Any, Any] = base, 1
    for bit in f"{exponent:b}"[1:]:
        power = base if factors[1] == 1 else call_of(node, operator.mul, *factors)
        factors = power, power
        if bit == "1":
            factors = call_of(node, operator.mul, *factors), base
    node.target, node.args = operator.mul, factors


def _computed_in(function: Any, numbers: list[Any], given: torch.dtype) -> list[torch.dtype]:
    """The types in which the operands of a function are taken."""
    own = [_type_of(number) for number in numbers]
    if function is torch.sym_ite:
        return [torch.bool, given, given]
    widest = max(own, key=(torch.bool, torch.int64, torch.float64).index)
    if given is torch.float64 or (given is torch.int64 and widest is torch.bool):
        widest = given
    return [widest] * len(own)


def _tensor(node: Node, number: Any, dtype: torch.dtype) -> Node:
    """A number as a tensor without axes."""
    examples = (other.meta.get("val") for other in node.graph.nodes)
    with next(example.fake_mode for example in examples if isinstance(example, FakeTensor)):
        value = torch.empty((), dtype=dtype)
    return call_of(node, _aten.scalar_tensor.default, number, value=value, dtype=dtype)


def _type_of(number: Any) -> torch.dtype:
    value = number.meta["val"] if isinstance(number, Node) else number
    if isinstance(value, bool | torch.SymBool):
        return torch.bool
    return torch.int64 if isinstance(value, int | torch.SymInt) else torch.float64
