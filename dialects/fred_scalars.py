"""Expressions as operations of the arith and math dialects, and back."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from torch_mlir import ir

from covan_mlir.fred.expression import Apply, Const, Expr, Extent, Index, Read, Window, rebuild, walk

_FLOAT_PREDICATES = [
    "false",
    "oeq",
    "ogt",
    "oge",
    "olt",
    "ole",
    "one",
    "ord",
    "ueq",
    "ugt",
    "uge",
    "ult",
    "ule",
    "une",
    "uno",
    "true",
]
_INT_PREDICATES = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]
_PREDICATES = {"arith.cmpf": _FLOAT_PREDICATES, "arith.cmpi": _INT_PREDICATES}
# They allow the compiler to assume more, and an expression that forgets them asks for less.
_HINTS = frozenset({"fastmath", "overflowFlags", "isExact", "nonNeg"})


class UnreadableError(ValueError):
    """An operation is no scalar expression; ``op`` is the one."""

    def __init__(self, message: str, op: Any) -> None:
        super().__init__(message)
        self.op = op


def held(op: ir.Operation) -> Const | None:
    """The number that an ``arith.constant`` is, or None. Complex ones are none, and the bindings have no attribute for
    them."""
    kind: Any = op.results[0].type
    return None if isinstance(getattr(kind, "element_type", kind), ir.ComplexType) else constant(op.attributes["value"])


def constant(attribute: Any) -> Const | None:
    """A number, or the one that all elements of a tensor are; None for anything else."""
    if isinstance(attribute, ir.DenseElementsAttr):
        if not attribute.is_splat:
            return None
        attribute = attribute.get_splat_value()
    if isinstance(attribute, ir.BoolAttr):
        return Const(bool(attribute.value), "i1")
    if isinstance(attribute, ir.FloatAttr):
        return Const(attribute.value, str(attribute.type))
    if isinstance(attribute, ir.IntegerAttr):
        value = attribute.value
        return Const(bool(value), "i1") if str(attribute.type) == "i1" else Const(value, str(attribute.type))
    return None


def attribute_of(const: Const, context: ir.Context) -> ir.Attribute:
    """The number as an attribute of its type."""
    kind = ir.Type.parse(const.dtype, context)
    if isinstance(const.value, float) or const.dtype.startswith(("f", "bf")):
        with ir.Location.unknown(context):
            return ir.FloatAttr.get(kind, float(const.value))
    return ir.IntegerAttr.get(kind, int(const.value))


def read_op(op: ir.Operation, args: tuple[Expr, ...]) -> Expr:
    """One operation of a scalar expression, on ``args``.

    Raises:
        UnreadableError: it is of another dialect, has regions or several results, or says more than its name does.
    """
    name = op.name
    if name == "arith.constant":
        const = held(op)
        if const is None:
            raise UnreadableError("a constant must be a number", op)
        return const
    if not name.startswith(("arith.", "math.")) or len(op.regions) or len(op.results) != 1:
        raise UnreadableError(f"'{name}' is no operation on scalars of the arith and math dialects", op)
    if name in _PREDICATES:
        name = f"{name}:{_PREDICATES[name][op.attributes['predicate'].value]}"
    else:
        for attribute in op.attributes:
            if attribute not in _HINTS:
                raise UnreadableError(f"'{name}' has the attribute {attribute}, which an expression cannot say", op)
    return folded(Apply(name, args, str(op.results[0].type)))


_NEUTRAL = {"arith.andi": True, "arith.ori": False}


def folded(expr: Apply) -> Expr:
    """The expression, simpler where that changes no bit: conversions of numbers, masks of one value, powers."""
    if expr.dtype == "i1" and expr.op in _NEUTRAL:
        for one, other in (expr.args, expr.args[::-1]):
            if isinstance(one, Const) and one.value is _NEUTRAL[expr.op]:
                return other
    if expr.op.startswith("arith.cmpf:") and (narrow := _narrowed(expr)) is not None:
        return narrow
    if expr.op in ("math.fpowi", "math.powf") and isinstance(expr.args[1], Const) and expr.args[1].value in (2, 3, 4):
        base, power = expr.args[0], int(expr.args[1].value)
        square = Apply("arith.mulf", (base, base), expr.dtype)
        return square if power == 2 else Apply("arith.mulf", (square, base if power == 3 else square), expr.dtype)
    if len(expr.args) != 1 or not isinstance(expr.args[0], Const) or expr.dtype not in ("f32", "f64", "i64", "index"):
        return expr
    value = expr.args[0].value
    if expr.op in ("arith.truncf", "arith.extf", "arith.sitofp"):
        return Const(to_f32(float(value)) if expr.dtype == "f32" else float(value), expr.dtype)
    if expr.op in ("arith.index_cast", "arith.extsi"):
        return Const(-int(value) if expr.args[0].dtype == "i1" else int(value), expr.dtype)
    return expr


def folded_throughout(expr: Expr) -> Expr:
    """The expression as it is read from IR that it is written to: every operation `folded`."""
    return rebuild(expr, lambda node: folded(node) if isinstance(node, Apply) else node)


def _narrowed(compare: Apply) -> Apply | None:
    """A comparison of a widened value with a number that the narrow type has: torch-mlir compares in f64."""
    wide, number = compare.args
    if not isinstance(number, Const) or not isinstance(wide, Apply) or wide.op != "arith.extf":
        return None
    if wide.args[0].dtype != "f32" or to_f32(float(number.value)) != number.value:
        return None
    return Apply(compare.op, (wide.args[0], Const(number.value, "f32")), compare.dtype)


def to_f32(value: float) -> float:
    """The nearest number that an f32 holds."""
    if math.isnan(value) or math.isinf(value):
        return value
    try:
        nearest: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return nearest


Leaf = Callable[[Read | Window | Index | Extent], ir.Value]


def write(expr: Expr, leaf: Leaf, context: ir.Context) -> ir.Value:
    """Builds an expression at the current insertion point and location.

    Args:
        leaf: builds what is read: elements, positions, sizes.
    """
    values: dict[int, ir.Value] = {}
    for node in walk(expr):
        if isinstance(node, Const):
            attributes = {"value": attribute_of(node, context)}
            kind = ir.Type.parse(node.dtype, context)
            values[id(node)] = ir.Operation.create("arith.constant", [kind], attributes=attributes).results[0]
        elif isinstance(node, Apply):
            name, _, predicate = node.op.partition(":")
            attributes = {}
            if predicate:
                i64 = ir.IntegerType.get_signless(64, context)
                attributes["predicate"] = ir.IntegerAttr.get(i64, _PREDICATES[name].index(predicate))
            operands = [values[id(arg)] for arg in node.args]
            kind = ir.Type.parse(node.dtype, context)
            values[id(node)] = ir.Operation.create(name, [kind], operands, attributes=attributes).results[0]
        else:
            values[id(node)] = leaf(node)
    return values[id(expr)]
