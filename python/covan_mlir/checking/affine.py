"""Affine maps as MLIR prints them: ``(d0, d1) -> (d0, d1 * 2 - 1)``; operations on positions."""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from covan_mlir.checking.tensors import UnevaluatedError
from covan_mlir.provenance.bodies import Operation

_MAP = re.compile(r"(?:affine_map<)?\((?P<dims>[^)]*)\)(?:\[(?P<symbols>[^\]]*)\])? -> \((?P<results>.*)\)>?")
_DYNAMIC = -(2**63)
"""Stands for a number that is known at run time only."""
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: lambda a, b: -((-a) // b),  # ceildiv, see below
}


@dataclass(frozen=True)
class AffineMap:
    """Positions that depend on others.

    Attributes:
        dims: how many it depends on; with symbols.
        plain: for each result, the dimension that it is, or None.
        used: the dimensions that occur.
    """

    dims: int
    plain: tuple[int | None, ...]
    used: frozenset[int]
    _names: tuple[str, ...]
    _results: tuple[ast.expr, ...]

    def __call__(self, dims: Sequence[Any]) -> list[Any]:
        values = dict(zip(self._names, dims, strict=True))
        return [_value(result, values) for result in self._results]


@functools.lru_cache(maxsize=4096)
def affine_map(text: str) -> AffineMap:
    """Reads a map.

    Raises:
        UnevaluatedError: it is none.
    """
    match = _MAP.fullmatch(text.strip())
    if match is None:
        raise UnevaluatedError(f"the map {text[:80]}")
    names = tuple(name.strip() for name in f"{match['dims']},{match['symbols'] or ''}".split(",") if name.strip())
    body = match["results"].replace("floordiv", "//").replace("ceildiv", "/").replace(" mod ", " % ")
    try:
        tree = ast.parse(f"({body},)" if body.strip() else "()", mode="eval").body
    except SyntaxError as error:
        raise UnevaluatedError(f"the map {text[:80]}") from error
    results = tuple(tree.elts) if isinstance(tree, ast.Tuple) else (tree,)
    plain = tuple(
        names.index(e.id) if isinstance(e, ast.Name) and e.id in names else _shifted(e, names) for e in results
    )
    words = {node.id for result in results for node in ast.walk(result) if isinstance(node, ast.Name)}
    used = frozenset(k for k, name in enumerate(names) if name in words)
    return AffineMap(len(names), plain, used, names, results)


def _shifted(expr: ast.expr, names: tuple[str, ...]) -> int | None:
    """The dimension of ``d0 * 1 + 0``."""
    match expr:
        case ast.BinOp(ast.BinOp(ast.Name(name), ast.Mult(), ast.Constant(1)), ast.Add(), ast.Constant(0)):
            return names.index(name) if name in names else None
    return None


def _value(expr: ast.expr, values: dict[str, Any]) -> Any:
    match expr:
        case ast.Name(name) if name in values:
            return values[name]
        case ast.Constant(int() as number):
            return number
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand, values)
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
    raise UnevaluatedError("an affine expression of another form")


def _linearized(operation: Operation, operands: Sequence[Any]) -> list[Any]:
    count = operation.attributes["operandSegmentSizes"][0]
    basis = _basis(operation, operands[count:])
    total, step = np.int64(0), np.int64(1)
    for place in reversed(operands[:count]):
        total = total + place * step
        step = step * basis.pop() if basis else step
    return [total]


def _delinearized(operation: Operation, operands: Sequence[Any]) -> list[Any]:
    rest, *dynamic = operands
    basis = _basis(operation, dynamic)
    places: list[Any] = []
    while len(places) + 1 < len(operation.types):
        rest, place = np.divmod(rest, basis.pop())
        places.append(place)
    return [rest, *reversed(places)]


def _basis(operation: Operation, dynamic: Sequence[Any]) -> list[Any]:
    """Of how many places the digits of a position are, the outermost first; that one may be left out."""
    rest = list(dynamic)
    return [rest.pop(0) if size == _DYNAMIC else np.int64(size) for size in operation.attributes["static_basis"]]


INDICES: Mapping[str, Callable[[Operation, Sequence[Any]], list[Any]]] = {
    "affine.linearize_index": _linearized,
    "affine.delinearize_index": _delinearized,
}
"""Operations between a position and its places on several dimensions."""
