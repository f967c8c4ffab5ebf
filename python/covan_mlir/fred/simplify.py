"""Chains as fusion wants them: maps inlined, one precision, factors that do not vary taken out of reductions.

Plain code for attention divides by the sum of exponentials before it multiplies with the values; FlashAttention divides
once, at the end (Dao et al. 2022, section 3.1). Here that is one instance of taking a factor out of a sum. It is done
only where it is harmless in floating point: at most one of the factors that stay may be large.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from covan_mlir.fred.algebra import compare, f, rename, select, strip_casts, varies
from covan_mlir.fred.bounds import Bounds
from covan_mlir.fred.chain import Chain, Combine, Map, Reduce, Step
from covan_mlir.fred.conditions import condition_of_extremum, hoist_condition
from covan_mlir.fred.expression import Apply, Const, Expr, Extent, Read, reads, substitute, walk
from covan_mlir.fred.forms import Rewrite
from covan_mlir.fred.formulas import text, text_of
from covan_mlir.fred.names import fresh
from covan_mlir.fred.obligation import Law, Obligation
from covan_mlir.fred.products import Fraction, build, factors
from covan_mlir.fred.proving import certify
from covan_mlir.fred.scalars import is_float


@dataclass(frozen=True)
class Normal:
    """A normalised chain and the proved steps that led to it."""

    chain: Chain
    rewrites: tuple[Rewrite, ...]


def normalise(chain: Chain, narrow: bool = True) -> Normal:
    """The chain in the form that fusion starts from.

    Args:
        chain: any chain.
        narrow: compute in f32 what detours through f64 (as torch's import makes them for variances) unless an input is
            f64; if not, such chains are computed in f64 throughout.
    """
    rewrites: list[Rewrite] = []
    chain = _one_precision(chain, narrow, rewrites)
    for _ in range(4):
        before = chain
        chain = _inline(chain)
        chain = _share(chain)
        chain = _hoist_all(chain, rewrites)
        if chain == before:
            break
    return Normal(_without_dead(_inline(chain)), tuple(rewrites))


def with_steps(chain: Chain, steps: tuple[Step, ...]) -> Chain:
    """The chain with other steps."""
    return Chain(chain.axes, chain.inputs, steps, chain.outputs)


# Precision


def compute_dtype(chain: Chain, narrow: bool) -> str:
    """The element type that a chain's floats are computed in."""
    wide = any(value.dtype == "f64" for value in chain.inputs)
    wide |= any(step.dtype == "f64" and not (narrow and _is_moment(step)) for step in chain.steps)
    return "f64" if wide else "f32"


def _is_moment(step: Step) -> bool:
    """Whether a step may be one of a variance's, which lowerings take in f64; if not, f64 is the program's own.

    Those sum values and squares, and take at most a root.
    """
    nodes = [node for node in walk(step.expr) if isinstance(node, Apply)]
    if any(node.op.startswith("math.") and node.op not in ("math.sqrt", "math.rsqrt") for node in nodes):
        return False
    mixed = any(node.op == "arith.mulf" and node.args[0] != node.args[1] for node in nodes)
    return not (mixed and isinstance(step, Reduce))


def _one_precision(chain: Chain, narrow: bool, rewrites: list[Rewrite]) -> Chain:
    dtype = compute_dtype(chain, narrow)
    names = set(chain.values)
    inner: dict[str, str] = {}
    changed: list[Obligation] = []
    steps: list[Step] = []
    kept = {step.name: dtype if is_float(step.dtype) else step.dtype for step in chain.steps}
    for step in chain.steps:
        expr = strip_casts(_retyped(rename(step.expr, inner), kept), dtype)
        if expr != step.expr and is_float(step.dtype):
            changed.append(Obligation(f"{step.name} in {dtype}", rename(step.expr, inner), expr))
        new: Step = replace(step, expr=expr, dtype=kept[step.name])
        if isinstance(new, Reduce) and is_float(new.dtype):
            new = replace(new, initial=Const(new.initial.value, dtype))
        if step.name in chain.outputs and kept[step.name] != step.dtype:
            inner[step.name] = fresh(names, f"{step.name}_wide")
            new = replace(new, name=inner[step.name])
            kept[new.name] = dtype
            cast = Apply(
                "arith.truncf" if dtype == "f64" or step.dtype != "f64" else "arith.extf",
                (Read(new.name, dtype),),
                step.dtype,
            )
            steps += [new, Map(step.name, step.axes, cast, step.dtype, step.trace)]
        else:
            steps.append(new)
    if changed:
        claim = "a change of precision is the identity on the reals"
        rewrites.append(Rewrite("*", "precision", f"all in {dtype}", certify(claim, changed)))
    return with_steps(chain, tuple(steps))


def _retyped(expr: Expr, dtypes: dict[str, str]) -> Expr:
    values: dict[str, Expr] = {name: Read(name, dtypes[name]) for name in reads(expr) if name in dtypes}
    return substitute(expr, values)


# Maps


def _inline(chain: Chain) -> Chain:
    """Maps written into their readers, except those computed per row that read a reduction: they are statistics."""
    maps: dict[str, Map] = {}
    steps: list[Step] = []
    for step in chain.steps:
        expr, trace = step.expr, step.trace
        while True:
            inlined = {
                name: maps[name] for name in reads(expr) & maps.keys() if not _is_statistic(chain, maps[name], step)
            }
            if not inlined:
                break
            for value in inlined.values():
                trace |= value.trace
            expr = substitute(expr, {name: value.expr for name, value in inlined.items()})
        new = replace(step, expr=expr, trace=trace)
        steps.append(new)
        if isinstance(new, Map):
            maps[new.name] = new
    return _without_dead(with_steps(chain, tuple(steps)))


def _is_statistic(chain: Chain, value: Map, reader: Step) -> bool:
    """Whether a map stays a value of its own: computed from reductions, for fewer positions than its reader."""
    over = set(reader.over) if isinstance(reader, Reduce) else set()
    if over & set(value.axes) or set(value.axes) == {*reader.axes, *over} or isinstance(value.expr, Read):
        return False
    return _reads_reduction(chain, value.name)


def _reads_reduction(chain: Chain, name: str) -> bool:
    return any(isinstance(chain.values[value], Reduce) for value in chain.depends(name))


def _without_dead(chain: Chain) -> Chain:
    alive = set(chain.outputs)
    kept: list[Step] = []
    for step in reversed(chain.steps):
        if step.name in alive:
            alive |= reads(step.expr)
            kept.append(step)
    return with_steps(chain, tuple(reversed(kept)))


def _share(chain: Chain) -> Chain:
    """Reductions that compute the same become one."""
    same: dict[str, str] = {}
    known: dict[tuple[object, ...], int] = {}
    steps: list[Step] = []
    for step in chain.steps:
        new = replace(step, expr=rename(step.expr, same))
        if isinstance(new, Reduce):
            key = (new.axes, frozenset(new.over), new.combine, new.expr, new.initial)
            if key in known and new.name not in chain.outputs:
                at = known[key]
                same[new.name] = steps[at].name
                steps[at] = replace(steps[at], trace=steps[at].trace | new.trace)
                continue
            known.setdefault(key, len(steps))
        steps.append(new)
    return with_steps(chain, tuple(steps))


# Factors


def _hoist_all(chain: Chain, rewrites: list[Rewrite]) -> Chain:
    steps: list[Step] = []
    names = set(chain.values)
    bounds = Bounds(chain)
    for step in chain.steps:
        rewritten: tuple[Step, ...] | None = None
        if isinstance(step, Reduce):
            rewritten = condition_of_extremum(step, names, rewrites) or hoist_condition(chain, step, names, rewrites)
            rewritten = rewritten or _hoist(chain, step, bounds, names, rewrites)
        steps += rewritten or (step,)
    return with_steps(chain, tuple(steps))


def _hoist(
    chain: Chain, step: Reduce, bounds: Bounds, names: set[str], rewrites: list[Rewrite]
) -> tuple[Step, ...] | None:
    if not is_float(step.dtype):
        return None
    if step.combine in ("max", "min"):
        return _hoist_monotone(chain, step, names, rewrites)
    if step.combine != "add" or step.initial.value != 0:
        return None
    product = factors(step.expr)
    out = Fraction(*([e for e in side if not varies(e, chain, step.over)] for side in (product.top, product.bottom)))
    stay = Fraction(*([e for e in side if varies(e, chain, step.over)] for side in (product.top, product.bottom)))
    if not stay.top and not stay.bottom:
        return _hoist_constant(chain, step, rewrites)
    if not out.top and not out.bottom:
        return None
    large = sum(not bounds.of(e).is_bounded for e in stay.top) + len(stay.bottom)
    moderate = all(_is_moderate(e) for e in out.top + out.bottom) or _all_weights(chain, bounds, out)
    if large > 1 and not moderate:
        return None
    rest, factor = build(stay, step.dtype), build(out, step.dtype)
    raw = fresh(names, f"{step.name}_sum")
    a, b = Read("a", step.dtype), Read("b", step.dtype)
    certificate = certify(
        f"{text(factor)} leaves the sum {step.name}",
        [
            Obligation("one element", step.expr, f("mulf", factor, rest)),
            Obligation(
                "two parts", f("addf", f("mulf", factor, a), f("mulf", factor, b)), f("mulf", factor, f("addf", a, b))
            ),
        ],
    )
    inner = replace(step, name=raw, expr=rest)
    outer = Map(
        step.name,
        step.axes,
        build(Fraction([Read(raw, step.dtype), *out.top], out.bottom), step.dtype),
        step.dtype,
        step.trace,
    )
    rewrites.append(Rewrite(step.name, "hoist", f"{text_of(inner)}; {text_of(outer)}", certificate))
    return inner, outer


def _is_moderate(expr: Expr) -> bool:
    return isinstance(expr, Const) and 1e-3 <= abs(expr.value) <= 1e3


def _all_weights(chain: Chain, bounds: Bounds, out: Fraction) -> bool:
    """Whether what is taken out only divides, by sums between one and the number of positions."""
    for expr in out.bottom:
        value = chain.values.get(expr.name) if isinstance(expr, Read) else None
        sums = isinstance(value, Reduce) and value.combine == "add" and bounds.of(value.expr).is_bounded
        if not (sums and bounds.of(expr).low >= 1):
            return False
    return all(map(_is_moderate, out.top))


def _hoist_constant(chain: Chain, step: Reduce, rewrites: list[Rewrite]) -> tuple[Step, ...]:
    """A sum of the same value at all positions is that value times their number."""
    total: Expr = Const(1.0, step.dtype)
    for axis in step.over:
        size = chain.sizes[axis]
        extent: Expr = Const(float(size), step.dtype) if size is not None else _extent(axis, step.dtype)
        total = extent if total == Const(1.0, step.dtype) else f("mulf", total, extent)
    n = Read("n", step.dtype)
    one = f("addf", n, Const(1.0, step.dtype))
    law = Obligation("one more", f("mulf", step.expr, one), f("addf", f("mulf", step.expr, n), step.expr))
    outer = Map(step.name, step.axes, f("mulf", step.expr, total), step.dtype, step.trace)
    rewrites.append(Rewrite(step.name, "count", text_of(outer), certify(f"{step.name} counts positions", [law])))
    return (outer,)


def _extent(axis: str, dtype: str) -> Expr:
    return Apply("arith.sitofp", (Apply("arith.index_cast", (Extent(axis),), "i64"),), dtype)


# Extrema

_INCREASING = {"math.exp": "exp-monotone", "math.tanh": "tanh-monotone"}


def _hoist_monotone(chain: Chain, step: Reduce, names: set[str], rewrites: list[Rewrite]) -> tuple[Step, ...] | None:
    """The maximum of a monotone function is the function of the maximum; a decreasing one turns max into min."""
    expr = step.expr
    if not isinstance(expr, Apply) or not math.isinf(float(step.initial.value)) or not _waits(chain, step):
        return None
    fixed = [not varies(arg, chain, step.over) for arg in expr.args]
    hole = Read("u", step.dtype)
    inner: Expr | None = None
    flip, laws, given = False, "", tuple[Expr, ...]()
    if expr.op in _INCREASING:
        inner, outer, laws = expr.args[0], Apply(expr.op, (hole,), expr.dtype), _INCREASING[expr.op]
    elif expr.op == "arith.negf":
        inner, outer, flip = expr.args[0], Apply(expr.op, (hole,), expr.dtype), True
    elif expr.op in ("arith.addf", "arith.subf") and any(fixed):
        at = 1 if fixed[0] else 0
        inner, flip = expr.args[at], expr.op == "arith.subf" and at == 1
        outer = Apply(expr.op, (expr.args[0], hole) if at else (hole, expr.args[1]), expr.dtype)
    elif expr.op == "math.absf" and step.combine == "max" and _is_sum(expr.args[0]):
        return _hoist_absolute(step, expr.args[0], names, rewrites)
    elif (scaled := _scaled(chain, step, expr)) is not None:
        inner, outer, factor = scaled
        given = (compare("ogt", factor, Const(0.0, step.dtype)),)
    if inner is None:
        return None
    a, b = Read("a", step.dtype), Read("b", step.dtype)

    def at_point(point: Expr) -> Expr:
        return substitute(outer, {"u": point})

    small, large = (b, a) if flip else (a, b)
    law = Obligation(
        "order is kept" if not flip else "order is turned",
        at_point(small),
        at_point(large),
        "<=",
        (compare("ole", a, b), *given),
        (Law(laws, (a, b)),) if laws else (),
    )
    certificate = certify(f"{step.combine} of {text(outer)} is taken inside", [law])
    combine: Combine = step.combine
    if flip:
        combine = "min" if step.combine == "max" else "max"
    sign = -1.0 if flip else 1.0
    raw = fresh(names, f"{step.name}_{combine}")
    inside = replace(step, name=raw, expr=inner, combine=combine, initial=Const(sign * step.initial.value, step.dtype))
    outside = Map(step.name, step.axes, at_point(Read(raw, step.dtype)), step.dtype, step.trace)
    rewrites.append(Rewrite(step.name, "monotone", f"{text_of(inside)}; {text_of(outside)}", certificate))
    return inside, outside


def _waits(chain: Chain, step: Reduce) -> bool:
    """Whether a reduction depends on another one over the same axes."""
    before = [chain.values[name] for name in chain.depends(step.name)]
    return any(isinstance(value, Reduce) and set(value.over) == set(step.over) for value in before)


def _scaled(chain: Chain, step: Reduce, expr: Apply) -> tuple[Expr, Apply, Expr] | None:
    """A product with, or a quotient by, a positive number that does not vary -> (what varies, the operation on
    ``u``, the number).

    The operation stays as it is: what it rounds before the maximum is taken, and after, must be the same number. The
    sign plays no part in that, so that the number leaves an absolute value, too.
    """
    inside = expr.args[0] if expr.op == "math.absf" else expr
    if not isinstance(inside, Apply) or inside.op not in ("arith.mulf", "arith.divf"):
        return None
    bounds, hole = Bounds(chain), Read("u", step.dtype)
    for at in (0, 1) if inside.op == "arith.mulf" else (0,):
        value, factor = inside.args[at], inside.args[1 - at]
        if _is_fixed_positive(chain, step, bounds, factor):
            operands = (factor, hole) if at else (hole, factor)
            inner = f("absf", value) if inside is not expr else value
            return inner, Apply(inside.op, operands, inside.dtype), factor
    return None


def _is_fixed_positive(chain: Chain, step: Reduce, bounds: Bounds, expr: Expr) -> bool:
    return not varies(expr, chain, step.over) and bounds.of(expr).is_positive


def _is_sum(expr: Expr) -> bool:
    return isinstance(expr, Apply) and expr.op in ("arith.addf", "arith.subf")


def _hoist_absolute(step: Reduce, inner: Expr, names: set[str], rewrites: list[Rewrite]) -> tuple[Step, ...]:
    """max |u| is max(max u, -min u)."""
    high, low = fresh(names, f"{step.name}_high"), fresh(names, f"{step.name}_low")
    u, zero = Read("u", step.dtype), Const(0.0, step.dtype)
    law = Obligation("one element", f("absf", u), select(compare("oge", u, zero), u, f("negf", u)))
    split = Obligation("as a maximum", f("absf", u), f("maximumf", u, f("negf", u)))
    certificate = certify(f"{step.name} is the larger of two extrema", [law, split])
    infinite = Const(math.inf, step.dtype)
    steps = (
        replace(step, name=high, expr=inner, initial=Const(-math.inf, step.dtype)),
        replace(step, name=low, expr=inner, combine="min", initial=infinite),
        Map(
            step.name,
            step.axes,
            f("maximumf", Read(high, step.dtype), f("negf", Read(low, step.dtype))),
            step.dtype,
            step.trace,
        ),
    )
    rewrites.append(Rewrite(step.name, "absolute", "; ".join(text_of(s) for s in steps), certificate))
    return steps
