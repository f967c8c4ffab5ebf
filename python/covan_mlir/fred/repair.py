"""Deriving repairs: how the partial result of a reduction follows the statistics that it was computed with.

For ``r(s) = sum over j of f(x, s)`` the derivation writes ``f(x, s.new)`` as ``k * f(x, s.old)`` plus a combination of
other terms at ``s.old`` (`covan_mlir.fred.transport`); summed over the positions seen so far, each of those terms is

* something times an accumulator of the chain (``sum of exp(x - m)`` is ``l``),
* a new accumulator, which needs a repair of its own: ``sum of x - mean`` is zero on the reals, because ``mean`` is
  their mean, but the residue that rounding leaves is what keeps a variance accurate far from zero.

The online softmax (Milakov and Gimelshein 2018, section 3), the merge of variances (Chan, Golub and LeVeque 1979;
Welford 1962) and the rescaling of FlashAttention (Dao et al. 2022, section 3.1) come out, and so do chains without a
name. Proofs are over one element and over two parts; induction over blocks does the rest (docs/fused-reductions.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sympy

from covan_mlir.fred.algebra import compare, f, from_sympy, rename, symbol, to_sympy, varies
from covan_mlir.fred.bounds import Bounds
from covan_mlir.fred.certificate import Certificate
from covan_mlir.fred.chain import Chain, Map, Reduce
from covan_mlir.fred.expression import Apply, Const, Expr, Read, reads, rebuild, substitute, walk
from covan_mlir.fred.forms import Repair, RepairKind
from covan_mlir.fred.formulas import text, text_of
from covan_mlir.fred.obligation import Law, Obligation
from covan_mlir.fred.proving import certify, prove
from covan_mlir.fred.scalars import is_float
from covan_mlir.fred.transport import NoLawError, Transport

MAX_TERMS = 12


class NoRepairError(ValueError):
    """A reduction cannot follow the change of a statistic; says why."""


@dataclass(frozen=True)
class Derived:
    """A repair, and the accumulators that it needs besides those of the chain."""

    repair: Repair
    helpers: tuple[Reduce, ...] = ()


@dataclass(frozen=True)
class _Term:
    """``coefficient * sum of element`` as part of a repair.

    Attributes:
        factor: the coefficient, over the symbols of the transport.
        element: over plain names; None for the number of positions.
        total: the sum over the positions seen so far, over ``.old`` names.
        raw: the sum before it was simplified by what is known of the statistics; the same where nothing was.
    """

    factor: sympy.Expr
    coefficient: Expr
    element: Expr | None
    total: Expr
    raw: Expr
    helper: Reduce | None = None


def derive(chain: Chain, target: Reduce, loop: Sequence[Reduce], statistics: frozenset[str]) -> Derived:
    """The repair of one reduction.

    Args:
        chain: the normalised chain.
        target: the reduction; reads the statistics.
        loop: the reductions of the same loop that come before it.
        statistics: names of values computed in the loop that ``target`` reads: reductions, and maps of them.

    Raises:
        NoRepairError: there is none, or none that this derivation finds.
        NoCertificateError: one was derived, and not proved: a bug.
    """
    if not statistics:
        return Derived(
            Repair(target.name, "none", (), (), _old(target.name, target.dtype), certify(_claim(target), ()))
        )
    if not is_float(target.dtype):
        raise NoRepairError(f"{target.name} is not a float")
    change = Transport(chain, target.over, statistics, target.dtype)
    try:
        old, new = change.run(target.expr)
    except NoLawError as error:
        raise NoRepairError(str(error)) from None
    if target.combine != "add":
        kind, update, obligations = _extremum(chain, target, change, old, new)
        certificate = certify(_claim(target), obligations)
        return Derived(Repair(target.name, kind, tuple(sorted(statistics)), (), update, certificate))
    return _sum(chain, target, loop, change, old, new)


def verify(
    chain: Chain, target: Reduce, loop: Sequence[Reduce], statistics: frozenset[str], update: Expr
) -> Certificate:
    """Whether a repair that someone claims is right: the certificate of ``update``, proved or refuted.

    Args:
        loop: the reductions that it may read: those before the target, and its helpers.

    Raises:
        NoRepairError: no repair is known to compare it with.
    """
    change = Transport(chain, target.over, statistics, target.dtype)
    try:
        old, new = change.run(target.expr)
    except NoLawError as error:
        raise NoRepairError(str(error)) from None
    if target.combine != "add":
        _, derived, obligations = _extremum(chain, target, change, old, new)
        obligations[-1:] = [Obligation("the update", derived, update), _unchanged(target, statistics, update)]
        return prove(_claim(target), obligations)
    kept, terms = _decompose(change, old, new)
    closed = [_close(chain, target, loop, change, c, m, k) for k, (c, m) in enumerate(terms)]
    return prove(_claim(target), _obligations(chain, target, change, kept, closed, update))


def _claim(target: Reduce) -> str:
    return f"repair of {text_of(target)}"


def _old(name: str, dtype: str) -> Read:
    return Read(f"{name}.old", dtype)


def _facts(chain: Chain, exprs: Sequence[Expr]) -> tuple[Expr, ...]:
    """What is known of the signs of the names that expressions read, as hypotheses."""
    bounds = Bounds(chain)
    facts: dict[str, Expr] = {}
    for expr in exprs:
        for node in walk(expr):
            if isinstance(node, Read) and is_float(node.dtype) and bounds.of_name(node.name).is_positive:
                facts[node.name] = compare("ogt", node, Const(0.0, node.dtype))
    return tuple(facts.values())


# Extrema


def _extremum(
    chain: Chain, target: Reduce, change: Transport, old: sympy.Expr, new: sympy.Expr
) -> tuple[RepairKind, Expr, list[Obligation]]:
    if target.combine not in ("max", "min", "maxnum", "minnum"):
        raise NoRepairError(f"no repair is known for reductions that combine by {target.combine}")
    acc = _old(target.name, target.dtype)
    a, b = Read("a", target.dtype), Read("b", target.dtype)
    combine = "maximumf" if target.combine.startswith("max") else "minimumf"
    before, after = change.old(target.expr), change.new(target.expr)
    factor, term = change.ratio((old, new)), change.difference((old, new))
    obligations: list[Obligation]
    kind: RepairKind
    if term is not None:
        shift = change.expr(term)
        kind, update = "additive", f("addf", acc, shift)
        obligations = [
            Obligation("one element", after, f("addf", before, shift), laws=tuple(change.laws)),
            Obligation(
                "two parts", f(combine, f("addf", a, shift), f("addf", b, shift)), f("addf", f(combine, a, b), shift)
            ),
        ]
    elif factor is not None:
        scale = change.expr(factor)
        if not Bounds(chain).of(scale).is_positive:
            raise NoRepairError(f"{target.name} changes by the factor {text(scale)}, whose sign is not known")
        kind, update = "multiplicative", f("mulf", acc, scale)
        given = _facts(chain, [scale])
        c = Read("c", target.dtype)
        positive = compare("ogt", c, Const(0.0, target.dtype))
        obligations = [
            Obligation("one element", after, f("mulf", scale, before), laws=tuple(change.laws)),
            Obligation("the factor is not negative", Const(0.0, target.dtype), scale, "<=", given),
            Obligation(
                "two parts",
                f(combine, f("mulf", c, a), f("mulf", c, b)),
                f("mulf", c, f(combine, a, b)),
                given=(positive,),
            ),
        ]
    else:
        raise NoRepairError(f"{text(target.expr)} changes neither by a factor nor by a term that all positions share")
    obligations.append(_unchanged(target, change.statistics, update))
    return kind, update, obligations


# Sums


def _sum(
    chain: Chain, target: Reduce, loop: Sequence[Reduce], change: Transport, old: sympy.Expr, new: sympy.Expr
) -> Derived:
    kept, terms = _decompose(change, old, new)
    closed = [
        _close(chain, target, loop, change, coefficient, monomial, k) for k, (coefficient, monomial) in enumerate(terms)
    ]
    acc = _old(target.name, target.dtype)
    update = _linear(change, kept, acc, closed)
    helpers = tuple(term.helper for term in closed if term.helper is not None)
    names = sorted({name.removesuffix(".old") for term in closed for name in reads(term.total) if name != "count"})
    known = {r.name for r in (*loop, *helpers)} | {"count"}
    kind: RepairKind = "multiplicative" if not closed else "additive" if kept == 1 else "polynomial"
    certificate = certify(_claim(target), _obligations(chain, target, change, kept, closed, update))
    statistics = tuple(sorted(change.statistics))
    used = tuple(name for name in names if name in known)
    return Derived(Repair(target.name, kind, statistics, used, update, certificate), helpers)


def _decompose(
    change: Transport, old: sympy.Expr, new: sympy.Expr
) -> tuple[sympy.Expr, list[tuple[sympy.Expr, sympy.Expr]]]:
    """``new = k * old + sum of coefficient * monomial``, monomials in atoms."""
    factor = change.ratio((old, new))
    if factor is not None:
        return factor, []
    atoms = sorted(change.atoms, key=lambda a: int(a.name[1:]))
    try:
        before, after = sympy.Poly(old, *atoms), sympy.Poly(new, *atoms)
    except sympy.PolynomialError as error:
        raise NoRepairError(f"not a polynomial in what depends on the position: {error}") from None
    lead = max(before.monoms(), key=lambda m: (sum(m), m))
    kept = sympy.cancel(after.coeff_monomial(lead) / before.coeff_monomial(lead))
    rest = sympy.Poly(new - kept * old, *atoms)
    terms = []
    for powers, value in rest.terms():
        coefficient = sympy.factor(sympy.cancel(value))
        if coefficient != 0:
            terms.append((coefficient, sympy.prod(a**p for a, p in zip(atoms, powers, strict=True))))
    if len(terms) > MAX_TERMS:
        raise NoRepairError(f"the change has {len(terms)} terms")
    return kept, terms


def _linear(change: Transport, kept: sympy.Expr, acc: Expr, terms: Sequence[_Term]) -> Expr:
    """``k * acc + sum of coefficient * total``, without what is known to be zero."""
    acc_symbol = sympy.Symbol("acc")
    table = {**change.coefficients, acc_symbol: acc}
    repaired = sympy.Integer(0)
    for n, term in enumerate(terms):
        if term.total == Const(0.0, change.dtype):
            continue
        place = sympy.Integer(1)
        if term.total != Const(1.0, change.dtype):
            place = sympy.Symbol(f"t{n}")
            table[place] = term.total
        repaired += term.factor * place
    # By Horner's rule: d * (2 * r + n * d) has the sign of d * d where r is small, whatever overflows.
    squared = [
        s for s in sorted(change.coefficients, key=str) if repaired.is_polynomial(s) and sympy.degree(repaired, s) > 1
    ]
    if squared:
        repaired = sympy.horner(sympy.expand(repaired), wrt=squared[0])
    return from_sympy(kept * acc_symbol + repaired, table, change.dtype)


def _close(
    chain: Chain,
    target: Reduce,
    loop: Sequence[Reduce],
    change: Transport,
    coefficient: sympy.Expr,
    monomial: sympy.Expr,
    number_: int,
) -> _Term:
    """The sum of a monomial over the positions seen so far."""
    dtype = target.dtype
    factor = change.expr(coefficient)
    if monomial == 1:
        count = _old("count", dtype)
        return _Term(coefficient, factor, None, count, count)
    element = from_sympy(monomial, change.atoms, dtype)
    known_sum = _known_sum(chain, target, loop, element)
    if known_sum is not None:
        raw, total = known_sum
        return _Term(coefficient, factor, element, total, raw)
    name = f"{target.name}_{number_}"
    while name in chain.values:
        name += "_"
    helper = replace(target, name=name, expr=element, trace=frozenset())
    total = _old(name, dtype)
    return _Term(coefficient, factor, element, total, total, helper)


def _known_sum(chain: Chain, target: Reduce, loop: Sequence[Reduce], element: Expr) -> tuple[Expr, Expr] | None:
    """The sum of ``element`` by accumulators that are there: as they are, and simplified by what maps of them mean."""
    sums = [r for r in loop if r.combine == "add" and set(r.over) == set(target.over) and r.initial.value == 0]
    sums = [r for r in sums if set(r.axes) <= set(target.axes)]
    bounds = Bounds(chain)
    positive = frozenset(name for name in (*chain.values, "count") if bounds.of_name(name).is_positive)
    goal = sympy.expand(to_sympy(element, positive=positive))
    moving = _moving(chain, target, (element, *(r.expr for r in sums)), positive)
    bases = [(to_sympy(r.expr, positive=positive), symbol(r.name, r.name in positive)) for r in sums]
    bases.append((sympy.Integer(1), symbol("count", True)))
    for term, total in bases[:-1]:
        ratio = sympy.powsimp(sympy.cancel(goal / term)) if goal != term else sympy.Integer(1)
        if not ratio.free_symbols & moving:
            return _both(chain, target, loop, ratio * total, positive)
    value = sympy.Integer(0)
    for part in sympy.Add.make_args(goal):
        for term, total in bases:
            ratio = sympy.powsimp(part / term)
            if not ratio.free_symbols & moving and not ratio.atoms(sympy.Function) & goal.atoms(sympy.Function):
                value += ratio * total
                break
        else:
            return None
    raw, simplified = _both(chain, target, loop, value, positive) or (None, None)
    # A combination of several sums cancels, to zero where a mean is what it should be. Rounding leaves a residue that
    # repairs multiply by large changes: an accumulator of its own keeps it.
    if raw is None or simplified is None or len(sympy.Add.make_args(to_sympy(raw))) > 1:
        return None
    return raw, simplified


def _moving(chain: Chain, target: Reduce, exprs: Sequence[Expr], positive: frozenset[str]) -> set[sympy.Symbol]:
    """Symbols whose value depends on the position."""
    nodes = {node for expr in exprs for node in walk(expr)}
    return {
        to_sympy(node, positive=positive)
        for node in nodes
        if not getattr(node, "args", ()) and varies(node, chain, target.over)
    }


def _both(
    chain: Chain, target: Reduce, loop: Sequence[Reduce], value: sympy.Expr, positive: frozenset[str]
) -> tuple[Expr, Expr] | None:
    definitions = {
        symbol(n, n in positive): to_sympy(e, positive=positive) for n, e in in_loop_maps(chain, loop).items()
    }
    simplified = sympy.cancel(value.subs(definitions))
    plain = (
        value if simplified.free_symbols - value.free_symbols or len(str(simplified)) > len(str(value)) else simplified
    )
    dtype = target.dtype

    def back(e: sympy.Expr) -> Expr | None:
        table: dict[sympy.Symbol, Expr] = {s: _old_of(chain, loop, s.name, dtype) for s in e.free_symbols}
        logs = {g: sympy.Symbol(f"log_{k}") for k, g in enumerate(sorted(e.atoms(sympy.log, sympy.exp), key=str))}
        for g, place in logs.items():
            arg = back(g.args[0])
            if arg is None:
                return None
            table[place] = f("log" if isinstance(g, sympy.log) else "exp", arg)
        try:
            return from_sympy(e.subs(logs), table, dtype)
        except ValueError:
            return None

    raw, short = back(value), back(plain)
    return None if raw is None or short is None else (raw, short)


def _old_of(chain: Chain, loop: Sequence[Reduce], name: str, dtype: str) -> Read:
    moving = {"count", *(r.name for r in loop), *in_loop_maps(chain, loop)}
    return Read(f"{name}.old" if name in moving else name, dtype)


def in_loop_maps(chain: Chain, loop: Sequence[Reduce]) -> dict[str, Expr]:
    """The maps per row that depend on reductions of a loop, with the number of positions seen so far as ``count``.

    Where a chain divides a sum by the size of the axis, the loop divides the sum so far by the count so far: both agree
    after the last block, and in between the mean of what was seen is the better guess.
    """
    names = {r.name for r in loop}
    exprs: dict[str, Expr] = {}
    swept = set(loop[0].over) if loop else set()
    for step in chain.steps:
        if isinstance(step, Map) and not swept & set(step.axes) and reads(step.expr) & (names | exprs.keys()):
            exprs[step.name] = counted(chain, step.expr, loop[0].over)
    return exprs


def counted(chain: Chain, expr: Expr, over: Sequence[str]) -> Expr:
    """The expression with the number of positions on the axes ``over`` read as ``count``."""
    total: int | None = 1
    for axis in over:
        size = chain.sizes[axis]
        total = None if total is None or size is None else total * size

    def change(node: Expr) -> Expr:
        if isinstance(node, Const) and is_float(node.dtype) and total is not None and total > 1 and node.value == total:
            return Read("count", node.dtype)
        if (
            total is None
            and to_sympy(node) == sympy.prod(symbol(f"Extent_{axis}") for axis in over)
            and is_float(node.dtype)
        ):
            return Read("count", node.dtype)
        return node

    return rebuild(expr, change)


def _obligations(
    chain: Chain, target: Reduce, change: Transport, kept: sympy.Expr, terms: Sequence[_Term], update: Expr
) -> list[Obligation]:
    dtype = target.dtype
    before, after = change.old(target.expr), change.new(target.expr)
    keep = change.expr(kept)

    def combination(acc: Expr, totals: Sequence[Expr]) -> Expr:
        value: Expr = f("mulf", keep, acc)
        for term, total in zip(terms, totals, strict=True):
            value = f("addf", value, f("mulf", term.coefficient, total))
        return value

    one: Expr = Const(1.0, dtype)
    elements = [one if t.element is None else change.old(t.element) for t in terms]
    obligations = [Obligation("one element", after, combination(before, elements), laws=tuple(change.laws))]
    # The combination is linear in its accumulators, whatever the coefficients are.
    places = [f"t{n}" for n in range(len(terms))]
    halves = [combination(Read(f"acc.{s}", dtype), [Read(f"{p}.{s}", dtype) for p in places]) for s in "ab"]
    both = combination(
        f("addf", Read("acc.a", dtype), Read("acc.b", dtype)),
        [f("addf", Read(f"{p}.a", dtype), Read(f"{p}.b", dtype)) for p in places],
    )
    names = {id(c): Read(f"k{n}", dtype) for n, c in enumerate([keep, *(t.coefficient for t in terms)])}
    abstract = [_replace_nodes(e, names) for e in (*halves, both)]
    obligations.append(Obligation("two parts", f("addf", abstract[0], abstract[1]), abstract[2]))
    acc = _old(target.name, dtype)
    meanings = {f"{n}.old": _olden(chain, target, e) for n, e in in_loop_maps(chain, _loop_of(chain, target)).items()}
    for term in terms:
        if term.raw != term.total:
            raw, short = substitute(term.raw, dict(meanings)), substitute(term.total, dict(meanings))
            obligations.append(Obligation("what the statistics mean", raw, short))
    obligations.append(Obligation("the update", combination(acc, [t.total for t in terms]), update))
    obligations.append(_unchanged(target, change.statistics, update))
    return obligations


def _unchanged(target: Reduce, statistics: frozenset[str], update: Expr) -> Obligation:
    """Guards rest on this: where a statistic is read as if it had not changed, nothing is repaired."""
    still = rename(update, {f"{name}.new": f"{name}.old" for name in statistics})
    exponential = any(isinstance(node, Apply) and node.op == "math.exp" for node in walk(still))
    laws = (Law("exp-zero", ()),) if exponential else ()
    return Obligation("nothing changes", still, _old(target.name, target.dtype), laws=laws)


def _loop_of(chain: Chain, target: Reduce) -> list[Reduce]:
    return [r for r in chain.reductions if set(r.over) == set(target.over) and r.name != target.name]


def _olden(chain: Chain, target: Reduce, expr: Expr) -> Expr:
    loop = _loop_of(chain, target)
    names = {"count", *(r.name for r in loop), *in_loop_maps(chain, loop)}
    return rebuild(expr, lambda n: Read(f"{n.name}.old", n.dtype) if isinstance(n, Read) and n.name in names else n)


def _replace_nodes(expr: Expr, names: Mapping[int, Expr]) -> Expr:
    if id(expr) in names:
        return names[id(expr)]
    if not isinstance(expr, Apply):
        return expr
    return replace(expr, args=tuple(_replace_nodes(arg, names) for arg in expr.args))
