"""Rules from nothing: programs are enumerated, those that compute the same are candidates, and what is proved and
said by no other rule is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from covan_mlir.subst.families import Family, Numbered
from covan_mlir.subst.generate import Attributes, Enumerator, Kind
from covan_mlir.subst.prove import Proved, lift, prove, tidy
from covan_mlir.subst.prune import alike_in_a_part, renamed
from covan_mlir.subst.rewriting import Rewriting, Shapes, weight
from covan_mlir.subst.sizes import poly
from covan_mlir.subst.terms import Apply, Rule, Term, Var, parse_size, replace, variables


@dataclass
class Counts:
    """How many programs and candidates there were, level by level.

    Attributes:
        programs: that were evaluated.
        initial: candidates.
        renaming: of these, those that differ by more than names.
        common: of these, those whose sides have no part in common that might be any tensor.
        dominance: of these, those that do not follow from smaller rules.
        refuted: of these, those with a counterexample.
        undecided: of these, those that are neither proved nor refuted.
    """

    programs: int = 0
    initial: int = 0
    renaming: int = 0
    common: int = 0
    dominance: int = 0
    refuted: int = 0
    undecided: int = 0


@dataclass
class Derivation:
    """Rules of a family.

    Attributes:
        rules: with their certificates, smaller ones first.
        rejected: those that were refuted, or neither proved nor refuted.
        levels: counts by number of operators.
        seconds: that each step took.
    """

    family: Family
    rules: list[Proved] = field(default_factory=list)
    rejected: list[Proved] = field(default_factory=list)
    levels: list[Counts] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


def derive(family: Family, operators: int, note: Callable[[str], None] = lambda text: None) -> Derivation:
    """All rules between programs of up to so many operators, but those that follow from others.

    Args:
        note: is told how far it is.
    """
    derivation = Derivation(family)
    shapes = Shapes(dict(family.tensors))
    rewriting = Rewriting(shapes)
    examples: dict[Proved, Rule] = {}
    reducible = _Reducible(rewriting)
    enumerator = Enumerator(family, reducible)
    rng = np.random.default_rng(1)
    clock = _Clock(derivation.seconds)
    for count in range(1, operators + 1):
        reducible.known.clear()
        candidates = enumerator.level(count, last=count == operators)
        counts = Counts(enumerator.programs[-1], len(candidates))
        clock("enumeration")
        candidates = renamed(family, candidates)
        counts.renaming = len(candidates)
        clock("renaming")
        ordered = sorted(candidates, key=_size)
        new = [rule for rule in ordered if not alike_in_a_part(family, rule, shapes, rng)]
        counts.common = len(new)
        clock("common parts")
        note(f"{family.name}, {count} operators: {counts}")
        for rule in new:
            if rewriting.normal(rule.source[0]) == rewriting.normal(rule.target[0]):
                clock("dominance")
                continue
            clock("dominance")
            counts.dominance += 1
            proved = prove(lift(rule))
            clock("proofs")
            if proved.certificate.status != "proved" or proved.rule is None:
                counts.refuted += proved.certificate.status == "refuted"
                counts.undecided += proved.certificate.status == "undecided"
                derivation.rejected.append(Proved(proved.rule or rule, proved.certificate))
                continue
            derivation.rules.append(proved)
            examples[proved] = rule
            rewriting.add(proved.rule, tuple(map(parse_size, proved.certificate.conditions)))
        derivation.levels.append(counts)
        note(f"{family.name}, {count} operators: {counts}, {clock}")
    derivation.rules = without_implied(derivation.rules, shapes, examples)
    clock("dominance")
    return derivation


def _size(rule: Rule) -> tuple[int, str]:
    """How large a rule is: constants, and tensors that come up again, count more, for such rules are cases of
    others."""
    size = 0
    for term in rule.source + rule.target:
        leaves = _leaves(term)
        names = [leaf.name for leaf in leaves if isinstance(leaf, Var)]
        size += weight(term) + 2 * (len(leaves) - len(set(names)))
    return size, str(rule)


def _leaves(term: Term) -> list[Term]:
    if isinstance(term, Var) or not term.args:
        return [term]
    return [leaf for arg in term.args for leaf in _leaves(arg)]


def without_implied(rules: Iterable[Proved], shapes: Shapes, examples: dict[Proved, Rule]) -> list[Proved]:
    """Rules that others do not imply: smaller ones are looked at first.

    Args:
        examples: of each, on tensors of known shapes.
    """
    rewriting = Rewriting(shapes)
    kept = []
    for proved in sorted(rules, key=lambda proved: _size(examples[proved])):
        example = examples[proved]
        assert proved.rule is not None
        if rewriting.normal(example.source[0]) != rewriting.normal(example.target[0]):
            kept.append(proved)
            rewriting.add(proved.rule, tuple(map(parse_size, proved.certificate.conditions)))
    return kept


class _Clock:
    """Seconds by what they went to."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds, self.last = seconds, time.perf_counter()

    def __call__(self, what: str) -> None:
        now = time.perf_counter()
        self.seconds[what] = self.seconds.get(what, 0.0) + now - self.last
        self.last = now

    def __str__(self) -> str:
        return ", ".join(f"{what} {seconds:.1f} s" for what, seconds in self.seconds.items())


class _Reducible:
    """Whether rules make something smaller of all programs with these two last operators, whatever is below them."""

    def __init__(self, rewriting: Rewriting) -> None:
        self.rewriting = rewriting
        self.known: dict[tuple[str, Attributes, tuple[Kind, ...]], bool] = {}

    def __call__(self, op: str, attributes: Attributes, kinds: tuple[Kind, ...]) -> bool:
        key = (op, attributes, kinds)
        if key not in self.known:
            args = tuple(self._any(kind, place) for place, kind in enumerate(kinds))
            self.known[key] = self.rewriting.step(Apply(op, args, attributes)) is not None
        return self.known[key]

    def _any(self, kind: Kind, place: int) -> Term:
        head, shape, operands = kind
        if head is None:
            return self._tensor(shape, f"{place}")
        return Apply(head.op, tuple(self._tensor(s, f"{place}_{n}") for n, s in enumerate(operands)), head.attributes)

    def _tensor(self, shape: Numbered, place: str) -> Term:
        name = f"any_{place}_{'x'.join(map(str, shape))}"
        self.rewriting.shapes.tensors[name] = shape
        return Var(name)


def several_results(rules: Iterable[Proved]) -> list[Proved]:
    """Rules with two results: what is joined to one tensor on one side, computed as one and split."""
    several = []
    for proved in rules:
        assert proved.rule is not None
        sides = proved.rule.source[0], proved.rule.target[0]
        for joined, other in (sides, sides[::-1]):
            if not isinstance(joined, Apply) or joined.op != "concat" or isinstance(other, Var):
                continue
            if all(isinstance(arg, Var) for arg in joined.args) or (other.op == "concat" == joined.op):
                continue
            split = tuple(
                Apply(part, (other,), (*joined.attributes, ("size", (poly(1),)))) for part in ("head", "tail")
            )
            rule = Rule(joined.args, split, proved.rule.shapes)
            again = prove(_sized(rule))
            if again.certificate.status == "proved":
                several.append(again)
    return several


def distinct(rules: Iterable[Proved]) -> list[Proved]:
    """Rules that differ by more than the names of their tensors and the direction."""
    kept: dict[frozenset[tuple[str, ...]], Proved] = {}
    for proved in rules:
        assert proved.rule is not None
        sides = proved.rule.source, proved.rule.target
        kept.setdefault(frozenset(_nameless(proved.rule, *order) for order in (sides, sides[::-1])), proved)
    return list(kept.values())


def _nameless(rule: Rule, source: tuple[Term, ...], target: tuple[Term, ...]) -> tuple[str, ...]:
    shapes = dict(rule.shapes)
    order = variables(source + target)
    names: dict[str, Term] = {name: Var(f"t{at}") for at, name in enumerate(order)}
    renamed_ = Rule(
        tuple(replace(term, names) for term in source),
        tuple(replace(term, names) for term in target),
        tuple((f"t{at}", shapes[name]) for at, name in enumerate(order)),
    )
    return tuple(str(tidy(renamed_)).splitlines())


def _sized(rule: Rule) -> Rule:
    """With names for the sizes that its splits have."""
    target = []
    for number, term in enumerate(rule.target):
        assert isinstance(term, Apply)
        attributes = tuple((k, v if k != "size" else (parse_size(f"n_9{number}"),)) for k, v in term.attributes)
        target.append(Apply(term.op, term.args, attributes))
    return Rule(rule.source, tuple(target), rule.shapes)
