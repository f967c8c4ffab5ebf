"""A chain as JSON, and back: what a proof about it can be found again from.

Expressions are arrays, what they are in front: ``["apply", "arith.addf", [...], "f32"]``. Numbers are texts, for not
all of them are JSON's. Traces are left out: what a chain computes does not depend on them.
"""

from __future__ import annotations

from typing import Any

from covan_mlir.fred.chain import NOMINAL, Axis, Chain, ChainError, Input, Map, Reduce, Step
from covan_mlir.fred.expression import Affine, Apply, Const, Expr, Extent, Index, Read, Window


def dump(chain: Chain) -> dict[str, Any]:
    """JSON-able form; `load` is its inverse, up to traces."""
    return {
        "axes": [_axis(axis) for axis in chain.axes],
        "inputs": [[value.name, list(value.axes), value.dtype, value.weight] for value in chain.inputs],
        "steps": [_step(step) for step in chain.steps],
        "outputs": list(chain.outputs),
    }


def load(value: Any) -> Chain:
    """The inverse of `dump`.

    Raises:
        ChainError: it is no chain.
    """
    try:
        return Chain(
            axes=tuple(Axis(*axis) for axis in value["axes"]),
            inputs=tuple(Input(name, tuple(axes), dtype, weight) for name, axes, dtype, weight in value["inputs"]),
            steps=tuple(map(_loaded_step, value["steps"])),
            outputs=tuple(value["outputs"]),
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ChainError(f"no chain: {error}") from error


def _axis(axis: Axis) -> list[Any]:
    usual = [axis.usual] if axis.size is None and axis.usual != NOMINAL else []
    return [axis.name, axis.size, *usual]


def _step(step: Step) -> list[Any]:
    if isinstance(step, Map):
        return ["map", step.name, list(step.axes), _expr(step.expr), step.dtype]
    initial = _expr(step.initial)
    return ["reduce", step.name, list(step.axes), list(step.over), step.combine, _expr(step.expr), initial, step.dtype]


def _loaded_step(value: Any) -> Step:
    if value[0] == "map":
        _, name, axes, expr, dtype = value
        return Map(name, tuple(axes), _loaded(expr), dtype)
    _, name, axes, over, combine, expr, initial, dtype = value
    return Reduce(name, tuple(axes), tuple(over), combine, _loaded(expr), _constant(initial), dtype)


def _expr(expr: Expr) -> list[Any]:
    match expr:
        case Const():
            return ["const", type(expr.value).__name__, repr(expr.value), expr.dtype]
        case Read():
            return ["read", expr.name, expr.dtype]
        case Window():
            at = [[list(map(list, position.terms)), position.offset] for position in expr.at]
            return ["window", expr.name, expr.dtype, at, _expr(expr.outside)]
        case Index():
            return ["index", expr.axis, expr.dtype]
        case Extent():
            return ["extent", expr.axis, expr.dtype]
        case Apply():
            return ["apply", expr.op, [_expr(arg) for arg in expr.args], expr.dtype]


def _loaded(value: Any) -> Expr:
    kind, *rest = value
    match kind:
        case "const":
            return _constant(value)
        case "read":
            return Read(*rest)
        case "window":
            name, dtype, at, outside = rest
            positions = tuple(Affine(tuple((axis, factor) for axis, factor in terms), offset) for terms, offset in at)
            return Window(name, dtype, positions, _constant(outside))
        case "index":
            return Index(*rest)
        case "extent":
            return Extent(*rest)
        case "apply":
            op, args, dtype = rest
            return Apply(op, tuple(map(_loaded, args)), dtype)
    raise ChainError(f"no expression: {kind}")


def _constant(value: Any) -> Const:
    _, kind, text, dtype = value
    return Const(text == "True" if kind == "bool" else int(text) if kind == "int" else float(text), dtype)
