"""How an expression changes when the statistics that it reads change.

``transport`` writes ``f(x, s.new)`` as a polynomial in values at ``s.old`` that depend on the position (*atoms*), whose
coefficients do not: ``exp(x - m.new)`` is ``exp(m.old - m.new)`` times the atom ``exp(x - m.old)``. It works from the
leaves up: where an argument changes by a term or by a factor that is the same at all positions, the law of the
operation says how the result changes. No form of expression is known as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import sympy

from covan_mlir.fred.algebra import f, from_sympy, number, select, suffixed, varies
from covan_mlir.fred.bounds import Bounds
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Apply, Const, Expr, Read, walk
from covan_mlir.fred.formulas import CASTS, text
from covan_mlir.fred.obligation import Law


class NoLawError(ValueError):
    """An operation reads a statistic, and nothing says how its result follows."""


Pair = tuple[sympy.Expr, sympy.Expr]
"""An expression at ``s.old`` and at ``s.new``, over the same atoms."""


@dataclass
class Transport:
    """The change of expressions over ``axes`` when ``statistics`` change.

    Attributes:
        atoms: symbols of values that depend on the position, as expressions over plain names (read: at ``s.old``).
        coefficients: symbols of values that do not, as expressions over ``.old`` and ``.new`` names.
        laws: instances of laws that the result rests on.
    """

    chain: Chain
    axes: tuple[str, ...]
    statistics: frozenset[str]
    dtype: str
    atoms: dict[sympy.Symbol, Expr] = field(default_factory=dict)
    coefficients: dict[sympy.Symbol, Expr] = field(default_factory=dict)
    laws: list[Law] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bounds = Bounds(self.chain)

    # Symbols

    def old(self, expr: Expr) -> Expr:
        """The expression with the statistics before the change."""
        return suffixed(expr, self.statistics, "old")

    def new(self, expr: Expr) -> Expr:
        """The expression with the statistics after the change."""
        return suffixed(expr, self.statistics, "new")

    def atom(self, expr: Expr) -> sympy.Symbol:
        """The symbol of a value that depends on the position."""
        for known, meaning in self.atoms.items():
            if meaning == expr:
                return known
        atom = sympy.Symbol(f"a{len(self.atoms)}")
        self.atoms[atom] = expr
        return atom

    def coefficient(self, expr: Expr) -> sympy.Expr:
        """The symbol of a value that is the same at all positions."""
        if isinstance(expr, Const):
            return number(float(expr.value))
        for known, meaning in self.coefficients.items():
            if meaning == expr:
                return known
        coefficient = sympy.Symbol(f"c{len(self.coefficients)}")
        self.coefficients[coefficient] = expr
        return coefficient

    def fixed(self, value: sympy.Expr) -> bool:
        """Whether a value is the same at all positions."""
        return not value.free_symbols & self.atoms.keys()

    def expr(self, value: sympy.Expr) -> Expr:
        """A value that is the same at all positions as an expression over ``.old`` and ``.new`` names."""
        return from_sympy(value, self.coefficients, self.dtype)

    def ratio(self, pair: Pair) -> sympy.Expr | None:
        """The factor by which a value changes, if it is the same at all positions."""
        if pair[0] == pair[1]:
            return sympy.Integer(1)
        if pair[0] == 0:
            return None
        value = sympy.cancel(pair[1] / pair[0])
        return value if self.fixed(value) else None

    def difference(self, pair: Pair) -> sympy.Expr | None:
        """The term by which a value changes, if it is the same at all positions."""
        value = sympy.expand(pair[1] - pair[0])
        return value if self.fixed(value) else None

    # The walk

    def run(self, expr: Expr) -> Pair:
        """The expression before and after the change.

        Raises:
            NoLawError: an operation on the way has no law.
        """
        pairs: dict[int, Pair] = {}
        for node in walk(expr):
            args = [pairs[id(arg)] for arg in node.args] if isinstance(node, Apply) else []
            if args and None in args:
                continue
            pairs[id(node)] = self._node(node, args)
        return pairs[id(expr)]

    def _node(self, node: Expr, args: list[Pair]) -> Pair:
        if not varies(node, self.chain, self.axes):
            return self.coefficient(self.old(node)), self.coefficient(self.new(node))
        if not any(isinstance(n, Read) and n.name in self.statistics for n in walk(node)):
            atom = self.atom(node)
            return atom, atom
        assert isinstance(node, Apply)
        name = node.op.partition(".")[2]
        if node.op in CASTS:
            return args[0]
        if name in ("addf", "subf"):
            sign = 1 if name == "addf" else -1
            return self._by_term(node, (args[0][0] + sign * args[1][0], args[0][1] + sign * args[1][1]))
        if name == "negf":
            return self._by_term(node, (-args[0][0], -args[0][1]))
        if name == "mulf":
            return self._by_factor(node, (args[0][0] * args[1][0], args[0][1] * args[1][1]))
        if name == "divf":
            return self._quotient(node, args)
        if name in ("exp", "exp2"):
            return self._exp(node, args[0])
        if name in ("sqrt", "rsqrt", "absf"):
            return self._root(node, args[0])
        if name == "log":
            return self._log(node, args[0])
        if name == "powf":
            return self._power(node, args)
        if name in ("maximumf", "minimumf", "maxnumf", "minnumf"):
            return self._extremum(node, args)
        if name == "select":
            return self._select(node, args)
        raise NoLawError(f"no law says how {name.removesuffix('f')} follows in {text(node)}")

    def _scaled(self, node: Expr, factor: Expr) -> Pair:
        atom = self.atom(node)
        return atom, self.coefficient(factor) * atom

    def _shifted(self, node: Expr, term: Expr) -> Pair:
        atom = self.atom(node)
        return atom, atom + self.coefficient(term)

    def _by_term(self, node: Expr, pair: Pair) -> Pair:
        term = self.difference(pair)
        if term is not None and not self.fixed(pair[0]):
            return self._shifted(node, self.expr(term))
        return self._by_factor(node, pair)

    def _by_factor(self, node: Expr, pair: Pair) -> Pair:
        factor = self.ratio(pair)
        return pair if factor is None else self._scaled(node, self.expr(factor))

    def _quotient(self, node: Apply, args: list[Pair]) -> Pair:
        (top, top_new), (bottom, bottom_new) = args
        if self.fixed(bottom) and self.fixed(bottom_new):
            return self._by_factor(node, (top / bottom, top_new / bottom_new))
        factor = self.ratio(args[1])
        if factor is None:
            raise NoLawError(f"the denominator of {text(node)} does not change by a factor")
        inverse = self.atom(f("divf", Const(1.0, self.dtype), node.args[1]))
        return self._by_factor(node, (top * inverse, top_new * inverse / factor))

    def _exp(self, node: Apply, arg: Pair) -> Pair:
        term = self.difference(arg)
        if term is None:
            raise NoLawError(f"the exponent of {text(node)} does not change by a term")
        shift = self.expr(term)
        self.laws.append(Law("exp-sum", (self.old(_argument(node)), shift)))
        return self._scaled(node, Apply(node.op, (shift,), self.dtype))

    def _log(self, node: Apply, arg: Pair) -> Pair:
        factor = self.ratio(arg)
        if factor is None:
            raise NoLawError(f"the argument of {text(node)} does not change by a factor")
        scale = self.expr(factor)
        self.laws.append(Law("log-product", (self.old(node.args[0]), scale)))
        return self._shifted(node, f("log", scale))

    def _root(self, node: Apply, arg: Pair) -> Pair:
        factor = self.ratio(arg)
        if factor is None:
            raise NoLawError(f"the argument of {text(node)} does not change by a factor")
        scale = self.expr(factor)
        if node.op == "math.absf":
            return self._scaled(node, scale if self.bounds.of(scale).is_positive else f("absf", scale))
        self.laws.append(Law("sqrt-product", (self.old(node.args[0]), scale)))
        return self._scaled(node, Apply(node.op, (scale,), self.dtype))

    def _power(self, node: Apply, args: list[Pair]) -> Pair:
        exponent = node.args[1]
        if not isinstance(exponent, Const) or float(exponent.value) not in (2.0, 3.0, 4.0):
            raise NoLawError(f"{text(node)} is not a small whole power")
        degree = int(exponent.value)
        return self._by_factor(node, (args[0][0] ** degree, args[0][1] ** degree))

    def _extremum(self, node: Apply, args: list[Pair]) -> Pair:
        terms = [self.difference(arg) for arg in args]
        if terms[0] is not None and terms[0] == terms[1]:
            return self._shifted(node, self.expr(terms[0]))
        factor = self._common_factor(args)
        if factor is not None and self.bounds.of(self.expr(factor)).is_positive:
            return self._scaled(node, self.expr(factor))
        raise NoLawError(f"the sides of {text(node)} do not change alike")

    def _common_factor(self, args: list[Pair]) -> sympy.Expr | None:
        factors = {self.ratio(arg) for arg in args if arg != (0, 0)}
        return factors.pop() if len(factors) == 1 else None

    def _select(self, node: Apply, args: list[Pair]) -> Pair:
        condition = node.args[0]
        if any(isinstance(n, Read) and n.name in self.statistics for n in walk(condition)):
            raise NoLawError(f"the condition of {text(node)} changes")
        factor = self._common_factor(args[1:])
        if factor is not None:
            return self._scaled(node, self.expr(factor))
        terms = [self.difference(arg) for arg in args[1:]]
        if terms[0] is not None and terms[0] == terms[1]:
            return self._shifted(node, self.expr(terms[0]))
        one, zero = Const(1.0, self.dtype), Const(0.0, self.dtype)
        yes, no = self.atom(select(condition, one, zero)), self.atom(select(condition, zero, one))
        return args[1][0] * yes + args[2][0] * no, args[1][1] * yes + args[2][1] * no


def _argument(node: Apply) -> Expr:
    if node.op == "math.exp":
        return node.args[0]
    raise NoLawError(f"{text(node)}: only the natural exponential has its law instantiated")
