"""Candidates that say nothing that others do not say: other names for tensors, and programs that are alike in a
part."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from covan_mlir.subst.evaluate import draw, evaluate
from covan_mlir.subst.families import Family
from covan_mlir.subst.generate import rule_of
from covan_mlir.subst.rewriting import Shapes, weight
from covan_mlir.subst.terms import Apply, Rule, Term, Var, replace, subterms, variables


def renamed(family: Family, rules: Iterable[Rule]) -> list[Rule]:
    """One of those that are the same but for the names of tensors of one shape, and the direction."""
    kept: dict[frozenset[tuple[Term, ...]], Rule] = {}
    for rule in rules:
        forms = [_in_order(family, rule.source, rule.target), _in_order(family, rule.target, rule.source)]
        kept.setdefault(frozenset(itertools.chain(*forms)), rule_of(family, *forms[0]))
    return list(kept.values())


def _in_order(
    family: Family, source: tuple[Term, ...], target: tuple[Term, ...]
) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """With tensors of one shape named in the order in which they come up."""
    shapes = dict(family.tensors)
    names: dict[str, Term] = {}
    for name in variables(source + target):
        alike = [other for other, shape in family.tensors if shape == shapes[name]]
        taken = sum(shapes[other] == shapes[name] for other in names)
        names[name] = Var(alike[taken])
    return tuple(replace(term, names) for term in source), tuple(replace(term, names) for term in target)


def alike_in_a_part(family: Family, rule: Rule, shapes: Shapes, rng: np.random.Generator) -> bool:
    """Whether both sides compute something that might as well be any tensor."""
    left, right = (set(subterms(side)) for side in (rule.source, rule.target))
    common = [term for term in left & right if isinstance(term, Apply) and term.args]
    for part in sorted(common, key=weight, reverse=True):
        if part in rule.source or part in rule.target:
            continue
        sides = [tuple(_without(term, part) for term in side) for side in (rule.source, rule.target)]
        if _equal(family, sides[0], sides[1], shapes, part, rng):
            return True
    return False


PART = "part"


def _without(term: Term, part: Term) -> Term:
    if term == part:
        return Var(PART)
    if isinstance(term, Var):
        return term
    return Apply(term.op, tuple(_without(arg, part) for arg in term.args), term.attributes)


def _equal(
    family: Family,
    left: tuple[Term, ...],
    right: tuple[Term, ...],
    shapes: Shapes,
    part: Term,
    rng: np.random.Generator,
) -> bool:
    tensors = {**dict(family.tensors), PART: shapes(part)}
    here = Shapes(tensors)
    ranks = {term: len(here(term)) for term in subterms(left + right)}
    given = {name: draw((16, *tensors[name]), rng) for name in variables(left + right)}
    values = [evaluate(side, ranks, given, {}) for side in (left, right)]
    return all(np.array_equal(a.field, b.field) for a, b in zip(*values, strict=True))
