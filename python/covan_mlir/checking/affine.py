"""Affine maps as MLIR prints them: ``(d0, d1) -> (d0, d1 * 2 - 1)``."""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from covan_mlir.checking.tensors import UnevaluatedError

_MAP = re.compile(r"(?:affine_map<)?\((?P<dims>[^)]*)\)(?:\[(?P<symbols>[^\]]*)\])? -> \((?P<results>.*)\)>?")
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
