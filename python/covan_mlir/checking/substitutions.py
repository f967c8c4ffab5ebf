"""Checks substitutions: the steps of a lineage lead from the model's graph to the one that was compiled, each by a rule
that is proved here again.

The graph that was exported is read as terms. Of each step, the rule's left side has to be what stands at its place, on
sizes that meet the rule's conditions; its right side takes the place. What comes out has to be the graph that the
compiled program is held against. Nothing of what searches, matches or writes programs is used: rules are parsed and
proved as anybody would, and terms compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from covan_mlir.checking.substituted_values import Values, values_of
from covan_mlir.checking.verdict import Counterexample
from covan_mlir.subst.operators import OPERATORS
from covan_mlir.subst.program import Attributes, Store
from covan_mlir.subst.rule_file import NamedRule, RuleFileError, UnprovedRuleError, read, shipped
from covan_mlir.subst.shaping import NoShapesError
from covan_mlir.subst.sizes import Poly, least, poly
from covan_mlir.subst.terms import Apply, Term, Var, parse_size, subterms

if TYPE_CHECKING:
    from covan_mlir.checking.subject import Subject
    from covan_mlir.provenance.substitution import AppliedRule, Rewrite

PHASE = "substitutions"


def check_substitutions(subject: Subject) -> tuple[list[Counterexample], list[str]]:
    """What is wrong with the steps, and what could not be checked."""
    substitution = subject.lineage.substitution
    assert substitution is not None
    check = _Check(subject)
    return list(check.run()), check.missing


class _WrongError(Exception):
    """A step is no application of its rule."""


class _Check:
    def __init__(self, subject: Subject) -> None:
        assert subject.lineage.substitution is not None
        self.subject = subject
        self.lineage = subject.lineage
        self.done = subject.lineage.substitution
        self.missing: list[str] = []
        self.store = Store()
        self.places: dict[str, int] = {}
        self.owners: dict[int, set[int]] = {}
        self.given: dict[int, set[int]] = {}
        """Of nodes that steps made, the actions whose work they do."""

    def run(self) -> Iterator[Counterexample]:
        """Goes through the steps; stops at the first that is wrong, for all behind it are about another graph."""
        rules: dict[str, NamedRule] = {}
        for applied in self.done.rules:
            try:
                rules[applied.name] = self._proved(applied)
            except _WrongError as wrong:
                yield self._example(f"rule {applied.name} {wrong}")
                return
        source = values_of(self.store, self.done.parts, self.done.results)
        self.places = {_place(*operand): number for operand, number in source.nodes.items()}
        for part in self.done.parts:
            for number in source.covered[part.id]:
                self.owners.setdefault(number, set()).add(part.action)
        for count, step in enumerate(self.done.steps):
            if step.rule not in rules:
                yield self._example(f"step {count} is said to be by {step.rule}, which is not among the rules", step)
                return
            try:
                self._apply(count, step, rules[step.rule])
            except _WrongError as wrong:
                yield self._example(f"step {count} is no application of {step.rule}: {wrong}", step)
                return
        yield from self._compared()

    def _proved(self, applied: AppliedRule) -> NamedRule:
        """A rule, proved again."""
        try:
            (rule,) = read(applied.text, assume=applied.assumed, again=True)
        except (RuleFileError, ValueError) as error:
            raise _WrongError(f"cannot be read: {error}") from error
        except UnprovedRuleError as error:
            raise _WrongError(f"does not hold: {error}") from error
        if rule.name != applied.name:
            raise _WrongError(f"is called {rule.name} by its own text")
        known = next((other for other in shipped() if other.name == rule.name), None)
        if known is not None and known.rule != rule.rule:
            raise _WrongError("is another rule than covan has by this name")
        if rule.certificate.status == "assumed":
            self.missing.append(f"rule {rule.name} is assumed, and was not proved")
        return rule

    def _apply(self, count: int, step: Rewrite, named: NamedRule) -> None:
        rule = named.rule
        left, right = (rule.target, rule.source) if step.backward else (rule.source, rule.target)
        sizes = {name: poly(size) for name, size in step.sizes.items()}
        bindings = self._bindings(step, named, sizes)
        results = [self._at(place) for place in step.results]
        if len(results) != len(left) or len(set(results)) != len(results):
            raise _WrongError(f"it has {len(left)} results, and {len(set(results))} are replaced")
        regions = [set[int]() for _ in results]
        for pattern, number, region in zip(left, results, regions, strict=True):
            if not self._is(pattern, number, bindings, sizes, region):
                raise _WrongError(f"{pattern} is not what stands at {step.results[results.index(number)]}")
        if len(results) > 1 and self._reaches(bindings.values(), set(results)):
            raise _WrongError("one of what it replaces is computed of another")
        doing = [set[int]().union(*(self.owners.get(n, set()) for n in region)) for region in regions]
        if set(step.actions) != set[int]().union(*doing):
            told = ", ".join(self.lineage.actions[action].name for action in step.actions) or "none"
            raise _WrongError(f"the actions that did what it replaces are not {told}")
        before = set(self._behind(self.places.values()))
        new = [self._made(term, bindings, sizes) for term in right]
        for old, number in zip(results, new, strict=True):
            if self.store[old].shape != self.store[number].shape:
                raise _WrongError(f"it gives a tensor of the shape {self.store[number].shape}")
        for number, actions in zip(new, doing, strict=True):
            for inner in self._behind([number]):
                if inner not in before:
                    self.owners.setdefault(inner, set()).update(actions)
                    self.given.setdefault(inner, set()).update(actions)
        self._replace(dict(zip(results, new, strict=True)))
        self.places |= {f"s{count}.{index}": number for index, number in enumerate(new)}

    def _bindings(self, step: Rewrite, named: NamedRule, sizes: Mapping[str, Poly]) -> dict[str, int]:
        """The rule's tensors: they have to have its shapes, on sizes that it allows."""
        for name, size in step.sizes.items():
            if size < least(name):
                raise _WrongError(f"{name} is {size}")
        for condition in named.certificate.conditions:
            value = parse_size(condition).substitute(sizes).constant
            if value is None or value < 0:
                raise _WrongError(f"{condition} is to be at least 0, and is {value}")
        bindings: dict[str, int] = {}
        for name, shape in named.rule.shapes:
            if name not in step.bindings:
                raise _WrongError(f"nothing says what {name} is")
            number = self._at(step.bindings[name])
            known = tuple(size.substitute(sizes).constant for size in shape)
            if known != self.store[number].shape or not self.store[number].element:
                raise _WrongError(f"{name} is of the shape {self.store[number].shape}, not {known}")
            bindings[name] = number
        return bindings

    def _at(self, place: str) -> int:
        """The node at a place."""
        first, *path = place.split("/") if not place.startswith("w:") else _weight_path(place, self.places)
        if first not in self.places:
            raise _WrongError(f"there is no place {first}")
        number = self.places[first]
        for at in path:
            args = self.store[number].args
            if not at.isdecimal() or int(at) >= len(args):
                raise _WrongError(f"there is no place {place}")
            number = args[int(at)]
        return number

    def _is(
        self, pattern: Term, number: int, bindings: Mapping[str, int], sizes: Mapping[str, Poly], region: set[int]
    ) -> bool:
        """Whether a term of the rule is a node; notes the nodes on the way."""
        if isinstance(pattern, Var):
            return bindings.get(pattern.name) == number
        node = self.store[number]
        if node.op != pattern.op or not node.known or node.attributes != _numbers(pattern, sizes):
            return False
        orders: list[Sequence[int]] = [node.args]
        if OPERATORS[node.op].commutes:
            orders.append(node.args[::-1])
        for order in orders:
            inner: set[int] = set()
            pairs = zip(pattern.args, order, strict=True)
            if all(self._is(arg, given, bindings, sizes, inner) for arg, given in pairs):
                region |= inner | {number}
                return True
        return False

    def _made(self, term: Term, bindings: Mapping[str, int], sizes: Mapping[str, Poly]) -> int:
        values: dict[Term, int] = {Var(name): number for name, number in bindings.items()}
        try:
            for inner in subterms((term,)):
                if isinstance(inner, Apply):
                    args = [values[arg] for arg in inner.args]
                    values[inner] = self.store.apply(inner.op, args, _numbers(inner, sizes))
        except NoShapesError as error:
            raise _WrongError(str(error)) from error
        return values[term]

    def _replace(self, instead: Mapping[int, int]) -> None:
        """Puts nodes in the place of others, wherever these are read."""
        after: dict[int, int] = dict(instead)
        for number in self._behind(self.places.values()):
            if number not in after:
                node = self.store[number]
                args = [after[arg] for arg in node.args]
                now = number if tuple(args) == node.args else self.store.again(node, args)
                after[number] = now
                if now != number:
                    self.owners.setdefault(now, set()).update(self.owners.get(number, ()))
                    if number in self.given:
                        self.given.setdefault(now, set()).update(self.given[number])
        self.places = {place: after[number] for place, number in self.places.items()}

    def _behind(self, roots: object) -> list[int]:
        """Nodes that some need, operands first."""
        seen: set[int] = set()
        order: list[int] = []
        stack = [(number, False) for number in roots]  # type: ignore[attr-defined]  # any collection of numbers
        while stack:
            number, done = stack.pop()
            if done:
                order.append(number)
            elif number not in seen:
                seen.add(number)
                stack.append((number, True))
                stack += [(arg, False) for arg in self.store[number].args]
        return order

    def _reaches(self, roots: object, wanted: set[int]) -> bool:
        return not wanted.isdisjoint(self._behind(roots))

    def _compared(self) -> Iterator[Counterexample]:
        """What the steps lead to, and what was compiled."""
        lineage = self.lineage
        parts = [lineage.parts[index] for index in sorted(lineage.parts)]
        compiled = values_of(self.store, parts, lineage.results)
        if len(self.done.results) != len(lineage.results):
            yield self._example(f"the model returns {len(self.done.results)} values, not {len(lineage.results)}")
            return
        for index, (said, result) in enumerate(zip(self.done.results, lineage.results, strict=True)):
            if self.places[_place(*said)] != compiled.nodes[result]:
                what = self.subject.words.operand(result)
                yield self._example(f"the steps do not lead to {what}, which the compiled graph returns as {index}")
        yield from self._owned(compiled)

    def _owned(self, compiled: Values) -> Iterator[Counterexample]:
        """Of which actions the parts are said to do the work."""
        before = {(part.name, part.op): part.action for part in self.done.parts}
        rewritten = {action for step in self.done.steps for action in step.actions}
        for index, part in sorted(self.lineage.parts.items()):
            number = compiled.nodes["p", index]
            if (part.name, part.op) in before:
                known = {before[part.name, part.op]}
            elif number in self.given:
                known = self.given[number]
            else:  # on the way to what a rule gives
                known = set(part.owners) & rewritten or {-1}
            if set(part.owners) != known:
                why = f"{self.subject.words.part(index)} is said to do the work of other actions than it does"
                yield self.subject.example(PHASE, why, parts=(index,))

    def _example(self, why: str, step: Rewrite | None = None) -> Counterexample:
        actions = self.lineage.actions
        names = [actions[action].name for action in (step.actions if step is not None else ()) if action < len(actions)]
        return Counterexample(PHASE, why, None, tuple(names))


def _place(kind: str, name: int | str) -> str:
    return f"w:{name}" if kind == "w" else f"{kind}{name}"


def _weight_path(place: str, places: Mapping[str, int]) -> list[str]:
    """Names of weights may have any character: the longest that is known."""
    name, path = place, list[str]()
    while name not in places and "/" in name:
        name, _, last = name.rpartition("/")
        path.insert(0, last)
    return [name, *path]


def _numbers(term: Apply, sizes: Mapping[str, Poly]) -> Attributes:
    given = []
    for name, value in term.attributes:
        known = [size.substitute(sizes).constant for size in value]
        if any(number is None or int(number) != number for number in known):
            raise _WrongError(f"nothing says {', '.join(map(str, value))}")
        given.append((name, tuple(int(number or 0) for number in known)))
    return tuple(given)
