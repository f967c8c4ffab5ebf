"""Shapes of all that is in a rule, and what its results are, element by element."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from covan_mlir.subst.expressions import Sum
from covan_mlir.subst.operators import OPERATORS, Call, read
from covan_mlir.subst.shaping import NoShapesError, Shaping
from covan_mlir.subst.sizes import Poly, least, of
from covan_mlir.subst.terms import Rule, Shape, Term, Var, replace, subterms


@dataclass(frozen=True)
class Typed:
    """A rule with shapes that fit.

    Attributes:
        rule: its sizes are as general as they can be.
        shapes: of each term in it.
        conditions: what has to be at least 0 besides, for the rule to make sense.
    """

    rule: Rule
    shapes: Mapping[Term, Shape]
    conditions: tuple[Poly, ...]


def infer(rule: Rule, given: Mapping[str, Poly] | None = None) -> Typed:
    """The most general sizes with which both sides have shapes, and the same.

    Args:
        given: sizes that are fixed beforehand, by name.

    Raises:
        NoShapesError: there are none, or it is not known which.
    """
    shaping = Shaping()
    for name, size in (given or {}).items():
        shaping.equal(of(name), size)
    tensors = dict(rule.shapes)
    shapes: dict[Term, Shape] = {}
    for term in subterms(rule.source + rule.target):
        shapes[term] = _shape(term, shapes, tensors, shaping)
    for _, shape in rule.shapes:
        for size in shape:
            shaping.require(size - 1)
    for left, right in zip(rule.source, rule.target, strict=True):
        if len(shapes[left]) != len(shapes[right]):
            raise NoShapesError("results of different ranks")
        for a, b in zip(shapes[left], shapes[right], strict=True):
            shaping.equal(a, b)
    conditions = tuple(shaping.unmet())

    def known(term: Term) -> Term:
        return replace(term, {}, shaping.solution)

    def sizes(shape: Shape) -> Shape:
        return tuple(map(shaping.resolve, shape))

    resolved = Rule(
        tuple(map(known, rule.source)),
        tuple(map(known, rule.target)),
        tuple((name, sizes(shape)) for name, shape in rule.shapes),
    )
    return Typed(resolved, {known(term): sizes(shape) for term, shape in shapes.items()}, conditions)


def _shape(term: Term, shapes: Mapping[Term, Shape], tensors: Mapping[str, Shape], shaping: Shaping) -> Shape:
    if isinstance(term, Var):
        if term.name not in tensors:
            raise NoShapesError(f"nothing says what shape {term.name} has")
        return tensors[term.name]
    operator = OPERATORS.get(term.op)
    if operator is None or len(term.args) != operator.arity:
        raise NoShapesError(f"no operator: {term}")
    if [name for name, _ in term.attributes] != [name for name, _ in operator.attributes]:
        raise NoShapesError(f"{term.op} has the attributes {[name for name, _ in operator.attributes]}: {term}")
    kinds = dict(operator.attributes)
    for name, value in term.attributes:
        if kinds[name] != "axes":
            for size in value:
                shaping.require(size - least(name))
    return operator.shape(term, [shapes[arg] for arg in term.args], shaping)


def element(term: Term, shapes: Mapping[Term, Shape], at: Sequence[Poly]) -> Sum:
    """What a term's element at a position is, in terms of the elements of variables."""
    if isinstance(term, Var):
        return read(term.name)(at)

    call = Call(
        term,
        tuple(functools.partial(element, arg, shapes) for arg in term.args),
        tuple(shapes[arg] for arg in term.args),
        shapes[term],
    )
    return OPERATORS[term.op].element(call, at)


def result(term: Term, shapes: Mapping[Term, Shape], names: Sequence[str]) -> tuple[Sum, dict[str, Poly]]:
    """Its element at positions with these names, and the ranges of the names."""
    ranges = dict(zip(names, shapes[term], strict=True))
    return element(term, shapes, [of(name) for name in names]), ranges
