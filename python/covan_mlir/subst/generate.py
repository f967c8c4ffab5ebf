"""All programs of up to so many operators, and which of them compute the same.

Programs are enumerated by their number of different operator nodes. Of those that have one fingerprint (their results on
random numbers modulo a prime) the first stands for all; only it is an operand of larger ones, for what is equal by a smaller
rule is that rule's affair. Every other program and the one that stands for it are a candidate of a rule.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from covan_mlir.subst.evaluate import Array, Numbers, apply, draw
from covan_mlir.subst.families import Family, Numbered
from covan_mlir.subst.operators import OPERATORS
from covan_mlir.subst.sizes import poly
from covan_mlir.subst.terms import Apply, Attribute, Rule, Shape, Term, Var, variables

ELEMENTS = 48
"""A fingerprint is of as many elements at least: programs that differ by the sign of an operand differ in one of them."""

CHUNK = 4096

Attributes = tuple[tuple[str, Attribute], ...]


@dataclass
class _Group:
    """Programs whose results have one shape; numbers of all of them, and their values."""

    numbers: list[int] = field(default_factory=list)
    blocks: list[Numbers] = field(default_factory=list)

    def values(self) -> Numbers:
        if len(self.blocks) > 1:
            parts = [[block.field for block in self.blocks], [block.real for block in self.blocks]]
            self.blocks = [Numbers(*map(np.concatenate, parts))]
        return self.blocks[0]


@dataclass
class Enumeration:
    """What was enumerated.

    Attributes:
        candidates: pairs of programs with one fingerprint.
        programs: how many were looked at, by their number of operators.
        kept: how many stand for what they compute, by their number of operators.
    """

    family: Family
    candidates: list[Rule] = field(default_factory=list)
    programs: list[int] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)


class _Enumerator:
    def __init__(self, family: Family, seed: int) -> None:
        self.family = family
        rng = np.random.default_rng(seed)
        self.rounds = max(1, -(-ELEMENTS // int(np.prod(family.base))))
        self.factors = rng.integers(0, 2**63, 4096, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self.terms: list[Term] = []
        self.shapes: list[Numbered] = []
        self.nodes: list[frozenset[int]] = []
        self.local: list[int] = []  # a program's place within the group of its shape
        self.groups: dict[Numbered, _Group] = defaultdict(_Group)
        self.by_cost: dict[tuple[int, Numbered], list[int]] = defaultdict(list)
        self.known: dict[int, int] = {}
        self.fresh: list[tuple[Term, Numbers, frozenset[int]]] = []
        self.result = Enumeration(family)
        for name, shape in family.tensors:
            self._add(Var(name), draw((1, self.rounds, *shape), rng), ())
        for constant in family.constants:
            attributes = {name: tuple(size.value({}) for size in value) for name, value in constant.attributes}
            values = apply(constant.op, attributes, [], 0)
            self._add(constant, values.map(lambda a: np.repeat(a[None, None], self.rounds, 1)), ())

    def _add(self, term: Term, values: Numbers, nodes: tuple[int, ...] | frozenset[int], operator: bool = False) -> int:
        number = len(self.terms)
        shape = tuple(values.shape[2:])
        self.terms.append(term)
        self.shapes.append(shape)
        self.nodes.append(frozenset(nodes) | ({number} if operator else set()))
        group = self.groups[shape]
        self.local.append(len(group.numbers))
        group.numbers.append(number)
        group.blocks.append(values)
        self.by_cost[len(self.nodes[number]), shape].append(number)
        self.known.setdefault(int(self._fingerprints(values)[0]), number)
        return number

    def _fingerprints(self, values: Numbers) -> Array:
        flat = values.field.reshape(len(values.field), -1).astype(np.uint64)
        salt = np.uint64(hash(values.shape[2:]) & (2**63 - 1))
        prints: Array = (flat * self.factors[: flat.shape[1]]).sum(axis=1, dtype=np.uint64) + salt
        return prints

    def _operands(self, cost: int, shape: Numbered) -> list[int]:
        return self.by_cost.get((cost, shape), [])

    def _pairs(self, count: int, left: Numbered, right: Numbered, commutes: bool) -> Iterator[tuple[int, int]]:
        """Operands that have one node less together than the program is to have."""

        def wanted(a: int, b: int) -> bool:
            return not commutes or count == 1 or a <= b

        for cost in range(count):
            for a, b in itertools.product(self._operands(cost, left), self._operands(count - 1 - cost, right)):
                if wanted(a, b) and not self.nodes[a] & self.nodes[b]:
                    yield a, b
        for a, b in self._sharing(count, left, right):
            if wanted(a, b):
                yield a, b

    def _sharing(self, count: int, left: Numbered, right: Numbered) -> Iterator[tuple[int, int]]:
        for cost in range(1, count):
            for a in self._operands(cost, left):
                near: set[int] = set()
                for other in range(max(count - cost, 1), count):
                    if cost == count - 1:
                        near |= {b for b in self.nodes[a] if len(self.nodes[b]) == other}
                    elif other == count - 1:
                        continue  # the other way round, below
                    else:
                        near |= {
                            b for b in self._operands(other, right) if len(self.nodes[a] | self.nodes[b]) == count - 1
                        }
                for b in sorted(near):
                    if self.shapes[b] == right and self.nodes[a] & self.nodes[b]:
                        yield a, b
        for b in self._operands(count - 1, right):
            for a in sorted(self.nodes[b]):
                if len(self.nodes[a]) < count - 1 and self.shapes[a] == left:
                    yield a, b

    def applications(self, count: int) -> Iterator[tuple[str, Attributes, list[tuple[int, ...]]]]:
        """Programs of so many operators: the last one, its attributes and its operands."""
        shapes = sorted({shape for cost, shape in self.by_cost if cost < count})
        for op in self.family.operators:
            if OPERATORS[op].arity == 1:
                for shape in shapes:
                    operands = [(number,) for number in self._operands(count - 1, shape)]
                    for attributes in self.family.unary(op, shape):
                        yield op, attributes, operands  # type: ignore[misc]  # tuples of one
            else:
                for left, right in itertools.product(shapes, repeat=2):
                    choices = list(self.family.binary(op, left, right))
                    if choices:
                        operands2 = list(self._pairs(count, left, right, OPERATORS[op].commutes))
                        for attributes in choices:
                            yield op, attributes, operands2  # type: ignore[misc]  # tuples of two

    def level(self, count: int) -> None:
        """All programs of so many operators."""
        self.fresh = []
        programs = 0
        for op, attributes, operands in list(self.applications(count)):
            for start in range(0, len(operands), CHUNK):
                self._chunk(op, attributes, operands[start : start + CHUNK])
            programs += len(operands)
        self.result.programs.append(programs)
        self.result.kept.append(len(self.fresh))
        for term, values, nodes in self.fresh:
            self._add(term, values, nodes, operator=True)

    def _chunk(self, op: str, attributes: Attributes, chunk: list[tuple[int, ...]]) -> None:
        numbers = {name: tuple(size.value({}) for size in value) for name, value in attributes}
        args = []
        for position, number in enumerate(chunk[0]):
            places = [self.local[item[position]] for item in chunk]
            args.append(self.groups[self.shapes[number]].values().map(lambda a, at=places: a[at]))  # type: ignore[misc]  # a default binds the loop's value
        values = apply(op, numbers, args, len(self.shapes[chunk[0][0]]))
        for at, fingerprint in enumerate(self._fingerprints(values).tolist()):
            term = Apply(op, tuple(self.terms[number] for number in chunk[at]), attributes)
            other = self.known.get(fingerprint)
            if other is not None:
                self._candidate(term, other)
                continue
            self.known[fingerprint] = len(self.terms) + len(self.fresh)
            nodes = frozenset().union(*(self.nodes[number] for number in chunk[at]))
            self.fresh.append((term, values.map(lambda a, at=at: a[at : at + 1]), nodes))  # type: ignore[misc]  # a default binds the loop's value

    def _candidate(self, term: Term, other: int) -> None:
        known = len(self.terms)
        same = self.terms[other] if other < known else self.fresh[other - known][0]
        self.result.candidates.append(rule_of(self.family, (term,), (same,)))


def rule_of(family: Family, source: tuple[Term, ...], target: tuple[Term, ...]) -> Rule:
    """With the shapes that a family gives its tensors."""
    shapes = dict(family.tensors)
    given: list[tuple[str, Shape]] = [
        (name, tuple(map(poly, shapes[name]))) for name in variables(source + target)
    ]
    return Rule(source, target, tuple(given))


def enumerate_programs(family: Family, operators: int, seed: int = 0) -> Enumeration:
    """All programs of a family with up to so many operators.

    Args:
        seed: of the numbers that they are tried on.
    """
    enumerator = _Enumerator(family, seed)
    for count in range(1, operators + 1):
        enumerator.level(count)
    return enumerator.result
