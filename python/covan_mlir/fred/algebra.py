"""Expressions and SymPy, both ways; small tools on expressions that the whole algebra shares."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping

import sympy

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Apply, Const, Expr, Index, Read, Window, reads, walk
from covan_mlir.fred.formulas import CASTS, text
from covan_mlir.fred.scalars import is_float

WHOLE_TO_REAL = frozenset(
    {"arith.sitofp", "arith.uitofp", "arith.index_cast", "arith.index_castui", "arith.extsi", "arith.extui"}
)
"""Changes of how a whole number is held: the identity on those that fit."""


def f(op: str, *args: Expr) -> Apply:
    """An operation whose result has its operands' element type; ``f("addf", a, b)`` is arith, ``f("exp", a)`` math."""
    dialect = "arith" if op.endswith("f") and op not in ("absf", "powf") else "math"
    return Apply(f"{dialect}.{op}", args, args[0].dtype)


def select(condition: Expr, yes: Expr, no: Expr) -> Apply:
    """``condition ? yes : no``."""
    return Apply("arith.select", (condition, yes, no), yes.dtype)


def compare(predicate: str, a: Expr, b: Expr) -> Apply:
    """A comparison of floats: ``oeq``, ``ogt``, ``uno``."""
    return Apply(f"arith.cmpf:{predicate}", (a, b), "i1")


def varies(expr: Expr, chain: Chain, axes: Iterable[str]) -> bool:
    """Whether an expression's value depends on the position on one of ``axes``."""
    swept = set(axes)
    for node in walk(expr):
        if isinstance(node, Index) and node.axis in swept:
            return True
        if isinstance(node, Window) and swept & node.axes:
            return True
        if isinstance(node, Read) and node.name in chain.values and swept & set(chain.values[node.name].axes):
            return True
    return False


def suffixed(expr: Expr, names: Iterable[str], suffix: str) -> Expr:
    """The expression with some names read as of a moment: ``m`` becomes ``m.new``."""
    wanted = set(names)
    return rename(expr, {name: f"{name}.{suffix}" for name in wanted})


def rename(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression with reads renamed."""
    renamed: dict[int, Expr] = {}
    for node in walk(expr):
        new: Expr = node
        if isinstance(node, Read) and node.name in names:
            new = Read(names[node.name], node.dtype)
        elif isinstance(node, Apply):
            args = tuple(renamed[id(arg)] for arg in node.args)
            new = (
                node if all(a is b for a, b in zip(args, node.args, strict=True)) else Apply(node.op, args, node.dtype)
            )
        renamed[id(node)] = new
    return renamed[id(expr)]


def are_moments(a: Expr, b: Expr) -> bool:
    """Whether two expressions are the same one before and after a change: ``m.old`` and ``m.new``."""
    swap = {n: f"{n[:-4]}{'.new' if n.endswith('.old') else '.old'}" for n in reads(a) if n[-4:] in (".old", ".new")}
    return bool(swap) and rename(a, swap) == b


_UNARY: dict[str, Callable[[sympy.Expr], sympy.Expr]] = {
    "arith.negf": lambda a: -a,
    "math.exp": sympy.exp,
    "math.exp2": lambda a: sympy.exp(a * sympy.log(2)),
    "math.log": sympy.log,
    "math.sqrt": sympy.sqrt,
    "math.rsqrt": lambda a: 1 / sympy.sqrt(a),
    "math.absf": sympy.Abs,
}
_BINARY: dict[str, Callable[[sympy.Expr, sympy.Expr], sympy.Expr]] = {
    "arith.addf": lambda a, b: a + b,
    "arith.subf": lambda a, b: a - b,
    "arith.mulf": lambda a, b: a * b,
    "arith.divf": lambda a, b: a / b,
    "math.powf": lambda a, b: a**b,
}


def number(value: float) -> sympy.Expr:
    """A constant as an exact rational; infinities and NaN as symbols that nothing is known of."""
    if not math.isfinite(value):
        return sympy.Symbol(f"constant_{value}")
    return sympy.Rational(value)


def symbol(name: str, positive: bool = False) -> sympy.Symbol:
    """The real variable that stands for a name."""
    return sympy.Symbol(name, real=True, positive=True) if positive else sympy.Symbol(name, real=True)


def to_sympy(
    expr: Expr, table: Mapping[Expr, sympy.Expr] | None = None, positive: frozenset[str] = frozenset()
) -> sympy.Expr:
    """The expression over the reals.

    Args:
        expr: what to read; operations without a law become functions that nothing is known of.
        table: subtrees that stand for something else.
        positive: names whose values are known to be positive.
    """
    converted: dict[int, sympy.Expr] = {}
    for node in walk(expr):
        if table and node in table:
            converted[id(node)] = table[node]
        elif isinstance(node, Const):
            converted[id(node)] = number(float(node.value))
        elif isinstance(node, Read):
            converted[id(node)] = symbol(node.name, node.name in positive)
        elif isinstance(node, Window):
            converted[id(node)] = symbol(text(node))
        elif not isinstance(node, Apply):
            converted[id(node)] = symbol(f"{type(node).__name__}_{node.axis}")
        else:
            args = [converted[id(arg)] for arg in node.args]
            if node.op in CASTS or node.op in WHOLE_TO_REAL:
                converted[id(node)] = args[0]
            elif node.op in _UNARY:
                converted[id(node)] = _UNARY[node.op](args[0])
            elif node.op in _BINARY:
                converted[id(node)] = _BINARY[node.op](args[0], args[1])
            else:
                converted[id(node)] = sympy.Function(node.op.replace(".", "_").replace(":", "_"))(*args)
    return converted[id(expr)]


def from_sympy(value: sympy.Expr, table: Mapping[sympy.Symbol, Expr], dtype: str) -> Expr:
    """Arithmetic over symbols as an expression: sums, products, quotients, whole powers and square roots.

    Raises:
        ValueError: it holds something else.
    """

    def product(parts: list[sympy.Expr]) -> Expr | None:
        result: Expr | None = None
        for part in parts:
            factor = go(part)
            result = factor if result is None else f("mulf", result, factor)
        return result

    def powers(parts: tuple[sympy.Expr, ...]) -> Expr:
        """A product that overflows late: (a / b) * (a / b) for a^2 / b^2, and one factor after the other."""
        degrees: dict[int, tuple[list[sympy.Expr], list[sympy.Expr]]] = {}
        for part in parts:
            base, exponent = part.as_base_exp()
            if part.is_Rational or not exponent.is_Integer:
                base, exponent = part, sympy.Integer(1)
            degrees.setdefault(abs(int(exponent)), ([], []))[int(exponent) < 0].append(base)
        result: Expr | None = None
        for degree in sorted(degrees):
            base_ = quotient(*degrees[degree])
            for _ in range(degree):
                if result is not None and isinstance(base_, Apply) and base_.args[0] == Const(1.0, dtype):
                    result = f("divf", result, base_.args[1])
                else:
                    result = base_ if result is None else f("mulf", result, base_)
        assert result is not None
        return result

    def quotient(top: list[sympy.Expr], bottom: list[sympy.Expr]) -> Expr:
        """Old and new values of the same statistic are divided by each other first."""
        pairs: list[Expr] = []
        for below in list(bottom):
            partner = next((t for t in top if is_partner(t, below)), None)
            if partner is not None:
                top.remove(partner)
                bottom.remove(below)
                pairs.append(f("divf", go(partner), go(below)))
        factors = [*map(go, top), *pairs]
        upper = functools.reduce(lambda a, b: f("mulf", a, b), factors) if factors else Const(1.0, dtype)
        lower = product(bottom)
        return upper if lower is None else f("divf", upper, lower)

    def is_partner(a: sympy.Expr, b: sympy.Expr) -> bool:
        if not (isinstance(a, sympy.Symbol) and isinstance(b, sympy.Symbol)):
            return False
        return are_moments(table[a], table[b])

    def go(e: sympy.Expr) -> Expr:
        if isinstance(e, sympy.Symbol):
            return table[e]
        if e.is_Number:
            return Const(float(e), dtype)
        if isinstance(e, sympy.Add):
            terms = sorted(e.args, key=lambda t: (bool(t.could_extract_minus_sign()), sympy.default_sort_key(t)))
            result = go(terms[0])
            for term in terms[1:]:
                negative = term.could_extract_minus_sign()
                result = f("subf", result, go(-term)) if negative else f("addf", result, go(term))
            return result
        if isinstance(e, sympy.Mul):
            if e.args[0] == -1:
                return f("negf", go(-e))
            return powers(e.args)
        if isinstance(e, sympy.Pow):
            if e.exp.is_negative:
                return f("divf", Const(1.0, dtype), go(1 / e))
            if e.exp == sympy.Rational(1, 2):
                return f("sqrt", go(e.base))
            if e.exp.is_Integer:
                base = go(e.base)
                result = base
                for _ in range(int(e.exp) - 1):
                    result = f("mulf", result, base)
                return result
        raise ValueError(f"{e} is not arithmetic")

    return go(value)


def strip_casts(expr: Expr, dtype: str) -> Expr:
    """The expression with all floats computed in ``dtype``: precision changes only where something is read.

    On the reals the two are the same.
    """
    stripped: dict[int, Expr] = {}
    for node in walk(expr):
        new: Expr = node
        if isinstance(node, Read) and is_float(node.dtype) and node.dtype != dtype:
            new = Apply("arith.truncf" if node.dtype == "f64" else "arith.extf", (node,), dtype)
        elif isinstance(node, Const) and is_float(node.dtype):
            new = Const(node.value, dtype)
        elif isinstance(node, Apply):
            args = tuple(stripped[id(arg)] for arg in node.args)
            new = args[0] if node.op in CASTS else Apply(node.op, args, dtype if is_float(node.dtype) else node.dtype)
        stripped[id(node)] = new
    return stripped[id(expr)]
