"""Whether a rule holds: for all sizes by its normal form, and at random sizes by numbers; and under which conditions
on sizes."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from covan_mlir.subst.certificate import Certificate
from covan_mlir.subst.evaluate import Numbers, draw, evaluate
from covan_mlir.subst.guards import Facts
from covan_mlir.subst.inference import Typed, infer, result
from covan_mlir.subst.normal import Normalizer, TooManyCasesError
from covan_mlir.subst.operators import OPERATORS
from covan_mlir.subst.shaping import NoShapesError
from covan_mlir.subst.sizes import ONE, Poly, least, of, poly
from covan_mlir.subst.terms import Apply, Attribute, Rule, Term, Var, replace, subterms

POINTS = 64
"""At how many points a rule is tried, over an eighth as many sizes."""

TRIES = 400


@dataclass(frozen=True)
class Proved:
    """A rule as general as it could be proved, or why it is none.

    Attributes:
        rule: with its sizes; None where none makes sense.
    """

    rule: Rule | None
    certificate: Certificate


def names_of(rule: Rule) -> list[str]:
    """Names of all sizes in a rule."""
    names: set[str] = set()
    for _, shape in rule.shapes:
        names |= {name for size in shape for name in size.names()}
    for term in subterms(rule.source + rule.target):
        if isinstance(term, Apply):
            names |= {name for _, value in term.attributes for size in value for name in size.names()}
    return sorted(names)


def random_sizes(typed: Typed, rng: np.random.Generator) -> dict[str, int] | None:
    """Small sizes for which the rule makes sense; None where none were met with."""
    names = names_of(typed.rule)
    for _ in range(TRIES):
        sizes = {name: int(rng.integers(least(name), 3 if name.startswith(_FEW) else 5)) for name in names}
        try:
            fit = all(condition.value(sizes) >= 0 for condition in typed.conditions)
            fit = fit and all(1 <= size.value(sizes) <= 12 for shape in typed.shapes.values() for size in shape)
        except (ValueError, ZeroDivisionError):
            continue
        if fit:
            return sizes
    return None


_FEW = ("pad", "border", "stride", "groups", "dilation")


def differ(typed: Typed, sizes: Mapping[str, int], points: int, rng: np.random.Generator) -> bool:
    """Whether the sides of a rule differ on random tensors of given sizes."""
    ranks = {term: len(shape) for term, shape in typed.shapes.items()}
    given: dict[str, Numbers] = {}
    for name, shape in typed.rule.shapes:
        given[name] = draw((points, *(size.value(sizes) for size in shape)), rng)
    left = evaluate(typed.rule.source, ranks, given, sizes)
    right = evaluate(typed.rule.target, ranks, given, sizes)
    return not all(np.array_equal(a.field, b.field) for a, b in zip(left, right, strict=True))


def counterexample(typed: Typed, points: int = POINTS) -> tuple[str, int]:
    """Sizes for which the sides differ, empty where none were found; and at how many points they were compared."""
    rng = np.random.default_rng(zlib.crc32(str(typed.rule).encode()))
    each, compared = max(points // 8, 1), 0
    for _ in range(8):
        sizes = random_sizes(typed, rng)
        if sizes is None:
            break
        if differ(typed, sizes, each, rng):
            return ", ".join(f"{name} = {size}" for name, size in sorted(sizes.items())) or "any", compared
        compared += each
    return "", compared


def normal_forms(typed: Typed) -> tuple[list[str], list[str]]:
    """Of the results of both sides.

    Raises:
        TooManyCasesError: one is too large.
    """
    normalizer = Normalizer(Facts(typed.conditions))
    sides = []
    for terms in (typed.rule.source, typed.rule.target):
        texts = []
        for term, other in zip(terms, typed.rule.source, strict=True):
            names = [f"%o{axis}" for axis in range(len(typed.shapes[term]))]
            value, _ = result(term, typed.shapes, names)
            texts.append(normalizer.normal(value, dict(zip(names, typed.shapes[other], strict=True))))
        sides.append(texts)
    return sides[0], sides[1]


def certify(typed: Typed, points: int = POINTS) -> Certificate:
    """What can be said of a rule with these sizes."""
    conditions = tuple(sorted(map(str, typed.conditions)))
    refuted, compared = counterexample(typed, points)
    if refuted:
        return Certificate("refuted", conditions=conditions, counterexample=refuted)
    try:
        left, right = normal_forms(typed)
    except (TooManyCasesError, NoShapesError):
        return Certificate("undecided", points=compared, conditions=conditions)
    if left != right or not compared:
        return Certificate("undecided", points=compared, conditions=conditions)
    digest = hashlib.sha256("\n".join(left).encode()).hexdigest()[:16]
    return Certificate("proved", digest, compared, conditions)


def specialisations(rule: Rule) -> Iterator[dict[str, Poly]]:
    """Sizes to fix where a rule does not hold in general: none, one for a kind of parameters, for several."""
    names = names_of(rule)
    kinds = [kind for kind in ("groups", "dilation", "stride") if any(name.startswith(kind) for name in names)]
    for chosen in ((), *((kind,) for kind in kinds), ("groups", "dilation"), ("groups", "stride"), tuple(kinds)):
        if chosen and set(chosen) <= set(kinds):
            yield {name: _usual(name) for name in names if name.startswith(tuple(chosen))}
        elif not chosen:
            yield {}


def _usual(name: str) -> Poly:
    """The value that a parameter had where it was met with, which `lift` writes behind its name; 1 for others."""
    number = name.partition("_")[2]
    return poly(int(number)) if number.isdigit() else ONE


def equal_sizes(typed: Typed) -> Iterator[dict[str, Poly]]:
    """Sizes that might have to be equal: those of which one less another is a size."""
    for condition in typed.conditions:
        rising = [m for m, number in condition.terms.items() if number > 0 and len(m) == 1]
        falling = [m for m, number in condition.terms.items() if number < 0 and len(m) == 1]
        for (up,), (down,) in ((a, b) for a in rising for b in falling):
            if isinstance(up, str) and isinstance(down, str) and least(up) == least(down):
                yield {down: of(up)}


def prove(rule: Rule, points: int = POINTS) -> Proved:
    """A rule under the weakest conditions with which it could be proved.

    Args:
        rule: its sizes are names wherever they need not be numbers.

    Returns:
        The rule with what shapes say put in; or, where none is proved, the most general one with what became of it.
    """
    first: Proved | None = None
    for given in specialisations(rule):
        try:
            typed = infer(rule, given)
        except NoShapesError as reason:
            first = first or Proved(None, Certificate("undecided", counterexample=f"no sizes: {reason}"))
            continue
        trials = [typed]
        for equal in equal_sizes(typed):
            try:
                trials.append(infer(typed.rule, equal))
            except NoShapesError:
                continue
        for trial in trials:
            settled = infer(tidy(trial.rule))
            certificate = certify(settled, points)
            if certificate.status == "proved":
                return Proved(settled.rule, certificate)
            if first is None or first.rule is None:
                first = Proved(settled.rule, certificate)
    assert first is not None
    return first


# Names


def lift(rule: Rule) -> Rule:
    """A rule on tensors of some shapes, as general as its terms allow: sizes become names, and parameters that are the
    same number the same name.

    Args:
        rule: its shapes are numbers; only their ranks are read.
    """
    count = 0
    memo: dict[Term, Term] = {}

    def fresh(prefix: str) -> Poly:
        nonlocal count
        count += 1
        return of(f"{prefix}_{count}")

    def lifted(term: Term) -> Term:
        if isinstance(term, Var):
            return term
        if term not in memo:
            kinds = dict(OPERATORS[term.op].attributes)
            attributes: list[tuple[str, Attribute]] = []
            for name, value in term.attributes:
                if kinds[name] == "axes":
                    attributes.append((name, value))
                elif kinds[name] == "parameter":
                    attributes.append((name, tuple(of(f"{name}{at}_{size}") for at, size in enumerate(value))))
                else:
                    prefix = "border" if name == "border" else "n"
                    attributes.append((name, tuple(fresh(prefix) for _ in value)))
            memo[term] = Apply(term.op, tuple(map(lifted, term.args)), tuple(attributes))
        return memo[term]

    shapes = tuple((name, tuple(fresh("n") for _ in shape)) for name, shape in rule.shapes)
    return Rule(tuple(map(lifted, rule.source)), tuple(map(lifted, rule.target)), shapes)


def _tidy_names(rule: Rule) -> dict[str, Poly]:
    """Short names, in the order in which sizes come up."""
    names: dict[str, Poly] = {}
    counts: dict[str, int] = {}

    def note(size: Poly) -> None:
        for name in sorted(size.names()):
            if name not in names:
                stem = name.rstrip("0123456789").split("_")[0].rstrip("0123456789") or "n"
                counts[stem] = counts.get(stem, -1) + 1
                names[name] = of(f"{stem}{counts[stem]}")

    for _, shape in rule.shapes:
        for size in shape:
            note(size)
    for term in subterms(rule.source + rule.target):
        if isinstance(term, Apply):
            for _, value in term.attributes:
                for size in value:
                    note(size)
    return names


def tidy(rule: Rule) -> Rule:
    """With short names for sizes."""
    names = _tidy_names(rule)
    return Rule(
        tuple(replace(term, {}, names) for term in rule.source),
        tuple(replace(term, {}, names) for term in rule.target),
        tuple((name, tuple(size.substitute(names) for size in shape)) for name, shape in rule.shapes),
    )
