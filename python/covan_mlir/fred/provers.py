"""The provers behind certificates: numbers that refute, Z3 over the reals, SymPy's simplification."""

from __future__ import annotations

import functools
import zlib
from typing import Any

import numpy as np
import sympy
import z3

from covan_mlir.fred.algebra import WHOLE_TO_REAL, compare, to_sympy
from covan_mlir.fred.expression import Apply, Const, Expr, Extent, Index, Read, Window, walk
from covan_mlir.fred.formulas import CASTS, text
from covan_mlir.fred.obligation import Law, Obligation, Result
from covan_mlir.fred.scalars import DTYPES, Array, compute, is_float, is_known

RESOURCES = 1_000_000
"""What Z3 may spend on an obligation, as it counts: ten times what any proof has taken so far, under two seconds. Not a
time: what is fused must not depend on how busy the machine is, and Z3's timers are threads."""

SAMPLES = 256


def domain(obligation: Obligation) -> list[Expr]:
    """That both sides are defined: denominators are not zero, logarithms and roots are of what they can be of."""
    facts: dict[str, Expr] = {}
    for side in (obligation.left, obligation.right):
        for node in walk(side):
            if not isinstance(node, Apply):
                continue
            arg, predicate = node.args[-1], ""
            if node.op == "arith.divf":
                predicate = "one"
            elif node.op in ("math.log", "math.rsqrt"):
                predicate = "ogt"
            elif node.op == "math.sqrt":
                predicate = "oge"
            if predicate and not isinstance(arg, Const):
                fact = compare(predicate, arg, Const(0.0, arg.dtype))
                facts[text(fact)] = fact
    return list(facts.values())


# Numbers


def _sample(expr: Expr, rng: np.random.Generator, env: dict[Expr, Array]) -> Array:
    samples: dict[int, Array] = {}
    for node in walk(expr):
        if isinstance(node, Apply):
            dtype = "f64" if is_float(node.dtype) else node.dtype
            samples[id(node)] = compute(node.op, tuple(samples[id(arg)] for arg in node.args), dtype)
        elif isinstance(node, Const):
            samples[id(node)] = np.full(SAMPLES, node.value, DTYPES["f64" if is_float(node.dtype) else node.dtype])
        else:
            key = Read(node.name, "f64") if isinstance(node, Read) and is_float(node.dtype) else node
            if key not in env:
                if is_float(node.dtype):
                    env[key] = rng.choice([-1.0, 1.0, 1.0], SAMPLES) * np.exp(rng.normal(0, 1, SAMPLES))
                elif node.dtype == "i1":
                    env[key] = rng.integers(0, 2, SAMPLES).astype(np.bool_)
                else:
                    env[key] = rng.integers(1, 5, SAMPLES).astype(DTYPES[node.dtype])
            samples[id(node)] = env[key]
    return samples[id(expr)]


def refute(obligation: Obligation) -> str:
    """Values of the names on which the obligation does not hold; empty where none was found."""
    sides = (obligation.left, obligation.right)
    if any(isinstance(node, Apply) and not is_known(node.op) for side in sides for node in walk(side)):
        return ""
    rng = np.random.default_rng(zlib.crc32(str(obligation).encode()))
    env: dict[Expr, Array] = {}
    left, right = (_sample(side, rng, env) for side in sides)
    valid = np.ones(SAMPLES, np.bool_)
    for hypothesis in (*obligation.given, *domain(obligation)):
        valid &= _sample(hypothesis, rng, env).astype(np.bool_)
    with np.errstate(all="ignore"):
        a, b = left.astype(np.float64), right.astype(np.float64)
        valid &= np.isfinite(a) & np.isfinite(b) & (np.abs(a) < 1e12)
        slack = 1e-7 * (1 + np.abs(a) + np.abs(b))
        # Hypotheses that tie names together are met by construction or not at all: equality is up to rounding.
        wrong = valid & ((np.abs(a - b) > slack) if obligation.relation == "=" else (a > b + slack))
    if not wrong.any():
        return ""
    at = int(np.argmax(wrong))
    values = {text(node): value[at] for node, value in env.items()}
    shown = ", ".join(f"{name} = {float(value):.4g}" for name, value in sorted(values.items()))
    return f"{shown}: {a[at]:.6g} is not {obligation.relation} {b[at]:.6g}"


# Z3


class _Translation:
    """Expressions as Z3 terms; functions are uninterpreted, with facts about them collected on the way."""

    def __init__(self) -> None:
        self.context = z3.Context()  # of its own: the shared one is not safe where several threads compile
        self.facts: list[Any] = []
        self._made: dict[Expr, Any] = {}

    def function(self, name: str, *args: Any) -> Any:
        sorts = [arg.sort() for arg in args]
        return z3.Function(name, *sorts, z3.RealSort(self.context))(*args)

    def number(self, expr: Expr) -> Any:
        """As a real; truth values as 1 and 0."""
        term = self.term(expr)
        return z3.If(term, z3.RealVal(1, self.context), z3.RealVal(0, self.context)) if z3.is_bool(term) else term

    def truth(self, expr: Expr) -> Any:
        """As a truth value."""
        term = self.term(expr)
        return term if z3.is_bool(term) else term != 0

    def term(self, expr: Expr) -> Any:
        for node in walk(expr):
            if node not in self._made:
                self._made[node] = self._node(node)
        return self._made[expr]

    def _node(self, node: Expr) -> Any:
        if isinstance(node, Const):
            if node.dtype == "i1":
                return z3.BoolVal(bool(node.value), self.context)
            value = float(node.value)
            if not np.isfinite(value):
                return z3.Real(f"constant_{value}", self.context)
            numerator, denominator = value.as_integer_ratio()
            return z3.Q(numerator, denominator, self.context)
        if isinstance(node, Read):
            return z3.Bool(node.name, self.context) if node.dtype == "i1" else z3.Real(node.name, self.context)
        if isinstance(node, Window):
            return z3.Real(text(node), self.context)
        if isinstance(node, Index | Extent):
            return z3.Real(f"{type(node).__name__}_{node.axis}", self.context)
        return self._apply(node)

    def _apply(self, node: Apply) -> Any:
        name, _, predicate = node.op.partition(".")[2].partition(":")
        if name == "select":
            yes, no = node.args[1:]
            if node.dtype == "i1":
                return z3.If(self.truth(node.args[0]), self.truth(yes), self.truth(no))
            return z3.If(self.truth(node.args[0]), self.number(yes), self.number(no))
        if node.dtype == "i1" and name in ("andi", "ori", "xori"):
            a, b = map(self.truth, node.args)
            return {"andi": z3.And, "ori": z3.Or, "xori": z3.Xor}[name](a, b)
        args = [self.number(arg) for arg in node.args]
        if node.op in CASTS or node.op in WHOLE_TO_REAL:
            return args[0]
        if name in ("cmpf", "cmpi"):
            a, b = args
            if predicate in ("ord", "uno"):
                return z3.BoolVal(predicate == "ord", self.context)
            return {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[predicate[-2:]]
        if name in ("addf", "addi"):
            return args[0] + args[1]
        if name in ("subf", "subi"):
            return args[0] - args[1]
        if name in ("mulf", "muli"):
            return args[0] * args[1]
        if name == "divf":
            return args[0] / args[1]
        if name == "negf":
            return -args[0]
        if name == "fma":
            return args[0] * args[1] + args[2]
        if name in ("maximumf", "maxnumf"):
            return z3.If(args[0] >= args[1], args[0], args[1])
        if name in ("minimumf", "minnumf"):
            return z3.If(args[0] <= args[1], args[0], args[1])
        if name == "absf":
            return z3.If(args[0] >= 0, args[0], -args[0])
        return self._function(name, args, node.dtype)

    def _function(self, name: str, args: list[Any], dtype: str) -> Any:
        if name in ("sqrt", "rsqrt"):
            root = self.function("sqrt", args[0])
            self.facts.append(z3.Implies(args[0] >= 0, z3.And(root >= 0, root * root == args[0])))
            return root if name == "sqrt" else 1 / root
        if name == "exp2":
            name, args = "exp", [args[0] * z3.Real("log2", self.context)]
        result = self.function(name, *args)
        if name == "exp":
            self.facts.append(result > 0)
        return result != 0 if dtype == "i1" else result

    def law(self, law: Law) -> Any:
        """The instance of a law."""
        args = [self.number(arg) for arg in law.args]
        exp, log, sqrt, tanh = (functools.partial(self.function, name) for name in ("exp", "log", "sqrt", "tanh"))
        match law.name, args:
            case "exp-sum", [a, b]:
                return exp(a + b) == exp(a) * exp(b)
            case "exp-positive", [a]:
                return exp(a) > 0
            case "exp-zero", []:
                return exp(z3.RealVal(0, self.context)) == 1
            case "exp-monotone", [a, b]:
                return z3.Implies(a <= b, exp(a) <= exp(b))
            case "log-product", [a, b]:
                return z3.Implies(z3.And(a > 0, b > 0), log(a * b) == log(a) + log(b))
            case "log-exp", [a]:
                return log(exp(a)) == a
            case "sqrt-product", [a, b]:
                return z3.Implies(z3.And(a >= 0, b >= 0), sqrt(a * b) == sqrt(a) * sqrt(b))
            case "sqrt-square", [a]:
                return z3.Implies(a >= 0, z3.And(sqrt(a) >= 0, sqrt(a) * sqrt(a) == a))
            case "tanh-monotone", [a, b]:
                return z3.Implies(a <= b, tanh(a) <= tanh(b))
        raise ValueError(f"no law is called {law.name} with {len(args)} arguments")


def ask_z3(obligation: Obligation, resources: int = RESOURCES) -> tuple[Result, str]:
    """Whether Z3 proves the obligation; a model where it finds one (functions may be any that obey the instances, so a
    model refutes only what has no functions)."""
    translation = _Translation()
    left, right = translation.number(obligation.left), translation.number(obligation.right)
    goal = left == right if obligation.relation == "=" else left <= right
    hypotheses = [translation.truth(e) for e in (*obligation.given, *domain(obligation))]
    laws = [translation.law(law) for law in obligation.laws]
    solver = z3.Solver(ctx=translation.context)
    solver.set("rlimit", resources)
    solver.add(*hypotheses, *laws, *translation.facts, z3.Not(goal))
    answer = solver.check()
    if answer == z3.unsat:
        return "proved", ""
    if answer == z3.sat and not _has_functions(obligation):
        return "refuted", str(solver.model()).replace("\n", "")
    return "unknown", ""


def _has_functions(obligation: Obligation) -> bool:
    nodes = (node for side in (obligation.left, obligation.right, *obligation.given) for node in walk(side))
    return any(isinstance(node, Apply) and node.op.startswith("math.") and node.op != "math.absf" for node in nodes)


# SymPy


def ask_sympy(obligation: Obligation) -> bool:
    """Whether SymPy simplifies the difference of the two sides to zero, arguments of logarithms and roots positive."""
    if obligation.relation != "=" or obligation.given:
        return False
    positive = frozenset(
        node.name
        for fact in domain(obligation)
        if isinstance(fact, Apply) and fact.op != "arith.cmpf:one"
        for node in walk(fact)
        if isinstance(node, Read)
    )
    difference = to_sympy(obligation.left, positive=positive) - to_sympy(obligation.right, positive=positive)
    for attempt in (sympy.expand, lambda e: sympy.expand(sympy.numer(sympy.together(sympy.expand_log(e, force=True))))):
        difference = attempt(difference)
        if difference == 0 or sympy.powsimp(difference) == 0:
            return True
    return False
