"""Rules applied to graphs of known shapes: where a side of a rule is part of a program, and what the other side makes
of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from covan_mlir.subst.certificate import Certificate
from covan_mlir.subst.operators import OPERATORS
from covan_mlir.subst.program import Attributes, Node, Store, depends
from covan_mlir.subst.rewriting import solve_sizes
from covan_mlir.subst.rule_file import NamedRule
from covan_mlir.subst.shaping import NoShapesError
from covan_mlir.subst.sizes import Poly, poly
from covan_mlir.subst.terms import Apply, Rule, Shape, Term, Var, parse_size, subterms, variables

Bindings = Mapping[str, int]
"""Nodes by the names of a rule's tensors."""


@dataclass(frozen=True)
class Direction:
    """A rule, read in one direction.

    Attributes:
        backward: what the file has behind ``to`` is looked for.
    """

    named: NamedRule
    backward: bool = False

    @property
    def name(self) -> str:
        """Of the rule."""
        return self.named.name

    @property
    def certificate(self) -> Certificate:
        """Of the rule."""
        return self.named.certificate

    @property
    def rule(self) -> Rule:
        """As the file has it."""
        return self.named.rule

    @cached_property
    def source(self) -> tuple[Apply, ...]:
        """What is looked for."""
        side = self.rule.target if self.backward else self.rule.source
        return tuple(term for term in side if isinstance(term, Apply))

    @property
    def target(self) -> tuple[Term, ...]:
        """What takes its place."""
        return self.rule.source if self.backward else self.rule.target

    @cached_property
    def tensors(self) -> dict[str, Shape]:
        """Shapes of its tensors."""
        return dict(self.rule.shapes)

    @cached_property
    def conditions(self) -> tuple[Poly, ...]:
        """Sizes that have to be at least 0."""
        return tuple(map(parse_size, self.certificate.conditions))


@dataclass(frozen=True)
class Match:
    """A place where a rule applies.

    Attributes:
        results: nodes that the rule's left side computes.
        bindings: what its tensors are.
        sizes: what its sizes are.
    """

    rule: Direction
    results: tuple[int, ...]
    bindings: tuple[tuple[str, int], ...]
    sizes: tuple[tuple[str, int], ...]


def directions(rules: Iterable[NamedRule]) -> list[Direction]:
    """Each rule in the directions in which a program can be rewritten by it.

    Left out are those that need what nothing says: a tensor or a size that the other side has alone; constants that
    would have to be made; two results that have no tensor in common, which may be any two of a program; and those that
    only exchange operands, which matching does by itself.
    """
    usable = []
    for named in rules:
        for backward in (False, True):
            directed = Direction(named, backward)
            if _usable(directed):
                usable.append(directed)
    return usable


def _usable(directed: Direction) -> bool:
    rule = directed.rule
    source = rule.target if directed.backward else rule.source
    if len(directed.source) != len(source) or directed.source == directed.target:
        return False
    if len(source) > 1 and (directed.backward or len(set(source)) < len(source) or not _shared(source)):
        return False
    if not set(variables(directed.target)) <= set(variables(source)) or set(variables(source)) != {*directed.tensors}:
        return False
    if any(isinstance(term, Apply) and not term.args for term in subterms(source + directed.target)):
        return False
    if _sizes(directed.target) - _sizes(source) - {n for s in directed.tensors.values() for x in s for n in x.names()}:
        return False
    return len(source) > 1 or not _exchanges(directed.source[0], directed.target[0])


def _shared(source: Sequence[Term]) -> bool:
    return bool(set.intersection(*(set(variables((term,))) for term in source)))


def _sizes(terms: tuple[Term, ...]) -> set[str]:
    names: set[str] = set()
    for term in subterms(terms):
        if isinstance(term, Apply):
            names |= {name for _, value in term.attributes for size in value for name in size.names()}
    return names


def _exchanges(left: Apply, right: Term) -> bool:
    """Whether two terms are one operator on the same tensors, in another order or put together otherwise."""
    operators = {term.op for term in subterms((left, right)) if isinstance(term, Apply)}
    return operators in ({"add"}, {"mul"}) and len(list(subterms((left,)))) == len(list(subterms((right,))))


class Matcher:
    """Where rules apply to programs, and what comes of it."""

    def __init__(self, store: Store, rules: Sequence[Direction]) -> None:
        self.store = store
        self.rules = rules

    def matches(self, nodes: Sequence[int]) -> Iterator[Match]:
        """All places in a program, or in a part of one, whose nodes these are, operands first."""
        kinds: dict[_Kind, list[int]] = {}
        for number in nodes:
            node = self.store[number]
            if node.known and not node.constant:
                kinds.setdefault((node.op, tuple(self.store[arg].op for arg in node.args)), []).append(number)
        for rule in self.rules:
            candidates = [_candidates(term, kinds) for term in rule.source]
            if all(candidates):
                yield from self._of(rule, candidates)

    def _of(self, rule: Direction, candidates: Sequence[Sequence[int]]) -> Iterator[Match]:
        seen: set[tuple[int, ...]] = set()
        for results, bindings, equations in self._results(rule, candidates, 0, (), {}, ()):
            if len(results) > 1 and tuple(sorted(results)) in seen and self._alike(rule):
                continue
            sizes = self._solved(rule, bindings, equations)
            if sizes is None or (len(results) > 1 and depends(self.store, bindings.values(), results)):
                continue
            seen.add(tuple(sorted(results)))
            yield Match(rule, results, tuple(sorted(bindings.items())), tuple(sorted(sizes.items())))

    @staticmethod
    def _alike(rule: Direction) -> bool:
        """Whether it does not matter which result is which."""
        return len({(term.op, term.attributes) for term in rule.source}) == 1

    def _results(
        self,
        rule: Direction,
        candidates: Sequence[Sequence[int]],
        at: int,
        results: tuple[int, ...],
        bindings: dict[str, int],
        equations: tuple[tuple[Poly, int], ...],
    ) -> Iterator[tuple[tuple[int, ...], dict[str, int], tuple[tuple[Poly, int], ...]]]:
        if at == len(rule.source):
            yield results, bindings, equations
            return
        pattern = rule.source[at]
        for number in candidates[at]:
            if number not in results:
                for bound, known in self.unify(pattern, number, bindings, equations):
                    yield from self._results(rule, candidates, at + 1, (*results, number), bound, known)

    def unify(
        self, pattern: Term, number: int, bindings: dict[str, int], equations: tuple[tuple[Poly, int], ...]
    ) -> Iterator[tuple[dict[str, int], tuple[tuple[Poly, int], ...]]]:
        """Each way in which a pattern is a node, beside what is bound already; with what sizes have to be."""
        if isinstance(pattern, Var):
            known = bindings.get(pattern.name)
            if known is None:
                yield {**bindings, pattern.name: number}, equations
            elif known == number:
                yield bindings, equations
            return
        node = self.store[number]
        if pattern.op != node.op or not node.element:
            return
        if pattern.attributes:
            more = _equations(pattern, node)
            if more is None:
                return
            equations += more
        orders = [node.args]
        if OPERATORS[node.op].commutes and node.args[0] != node.args[1]:
            orders.append(node.args[::-1])
        for order in orders:
            partial = [(bindings, equations)]
            for inner, arg in zip(pattern.args, order, strict=True):
                partial = [pair for bound, known in partial for pair in self.unify(inner, arg, bound, known)]
            yield from partial

    def _solved(
        self, rule: Direction, bindings: Bindings, equations: Sequence[tuple[Poly, int]]
    ) -> dict[str, int] | None:
        """The sizes, where shapes and attributes give them and all conditions hold."""
        equations = list(equations)
        for name, number in bindings.items():
            node, shape = self.store[number], rule.tensors[name]
            if not node.element or len(node.shape) != len(shape):
                return None
            equations += zip(shape, node.shape, strict=True)
        sizes = solve_sizes(equations)
        if sizes is None:
            return None
        values = {name: poly(size) for name, size in sizes.items()}
        for condition in rule.conditions:
            constant = condition.substitute(values).constant
            if constant is None or constant < 0:
                return None
        return sizes

    def built(self, match: Match) -> tuple[int, ...] | None:
        """The nodes that take the place of the results; None where they do not fit."""
        values: dict[Term, int] = {Var(name): number for name, number in match.bindings}
        sizes = {name: poly(size) for name, size in match.sizes}
        try:
            for term in subterms(match.rule.target):
                if isinstance(term, Apply):
                    values[term] = self.store.apply(term.op, [values[arg] for arg in term.args], numbers(term, sizes))
        except (NoShapesError, ValueError):
            return None
        new = tuple(values[term] for term in match.rule.target)
        same = all(self.store[a].shape == self.store[b].shape for a, b in zip(match.results, new, strict=True))
        return new if same else None


_Kind = tuple[str, tuple[str, ...]]
"""An operator, and those of its operands."""


def _candidates(pattern: Apply, kinds: Mapping[_Kind, list[int]]) -> list[int]:
    """Nodes that may be a pattern, by their operators and those of their operands."""
    wanted = [arg.op if isinstance(arg, Apply) else "" for arg in pattern.args]
    numbers: list[int] = []
    for (op, given), nodes in kinds.items():
        if op == pattern.op:
            orders = [given, given[::-1]] if OPERATORS[op].commutes else [given]
            if any(all(not w or w == g for w, g in zip(wanted, order, strict=True)) for order in orders):
                numbers += nodes
    return numbers


def _equations(pattern: Apply, node: Node) -> tuple[tuple[Poly, int], ...] | None:
    """What a pattern's attributes have to be; None where they cannot."""
    more = []
    for (_, wanted), (_, given) in zip(pattern.attributes, node.attributes, strict=True):
        for size, value in zip(wanted, given, strict=True):
            constant = size.constant
            if constant is None:
                more.append((size, value))
            elif constant != value:
                return None
    return tuple(more)


def numbers(term: Apply, sizes: Mapping[str, Poly]) -> Attributes:
    """The attributes of a rule's operator as numbers.

    Raises:
        ValueError: nothing says one of them.
    """
    given: list[tuple[str, tuple[int, ...]]] = []
    for name, value in term.attributes:
        known = []
        for size in value:
            constant = size.substitute(sizes).constant
            if constant is None or int(constant) != constant:
                raise ValueError(f"nothing says {size}")
            known.append(int(constant))
        given.append((name, tuple(known)))
    return tuple(given)
