"""All programs of up to so many operators, and which of them compute the same.

Programs are enumerated by their number of different operator nodes. Of those that have one fingerprint (their results
on random numbers modulo a prime) the first stands for all; only it is an operand of larger ones, for what is equal by
a smaller rule is that rule's affair. Every other program and the one that stands for it are a candidate of a rule.
For the same reason, a program of which rules that are known already make a smaller one at its last operator is not
looked at.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from covan_mlir.subst.evaluate import Array, Numbers, apply, draw
from covan_mlir.subst.families import Family, Numbered
from covan_mlir.subst.operators import OPERATORS
from covan_mlir.subst.sizes import poly
from covan_mlir.subst.terms import Apply, Attribute, Rule, Shape, Term, Var, variables

ELEMENTS = 48
"""A fingerprint is of as many elements at least: programs that differ by the sign of an operand differ in one of
them."""

CHUNK = 4096

Attributes = tuple[tuple[str, Attribute], ...]
Kind = tuple[Apply | None, Numbered, tuple[Numbered, ...]]
"""Of programs: the last operator (on nothing), the shape of what it gives, the shapes of what it takes. None for
tensors."""

Operands = tuple[int, ...]
Reducible = Callable[[str, Attributes, tuple[Kind, ...]], bool]


@dataclass
class _Group:
    """Programs whose results have one shape, and their values."""

    count: int = 0
    blocks: list[Numbers] = field(default_factory=list)

    def values(self) -> Numbers:
        if len(self.blocks) > 1:
            parts = [[block.field for block in self.blocks], [block.real for block in self.blocks]]
            self.blocks = [Numbers(*map(np.concatenate, parts))]
        return self.blocks[0]


class Enumerator:
    """Programs of a family, level by level.

    Attributes:
        reducible: whether known rules make a smaller program of all those with this last operator on operands of these
            kinds. It may change between levels.
        programs: how many were looked at on each level.
        kept: how many of them stand for what they compute.
    """

    def __init__(self, family: Family, reducible: Reducible, seed: int = 0) -> None:
        self.family, self.reducible = family, reducible
        self.programs: list[int] = []
        self.kept: list[int] = []
        self.terms: list[Term] = []
        self._rounds = max(1, -(-ELEMENTS // int(np.prod(family.base))))
        rng = np.random.default_rng(seed)
        self._factors = rng.integers(0, 2**63, 4096, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        self._shapes: list[Numbered] = []
        self._nodes: list[frozenset[int]] = []
        self._operands: list[Operands] = []
        self._kinds: list[Kind] = []
        self._names: list[tuple[str, ...]] = []
        self._places: list[int] = []  # within the group of its shape
        self._groups: dict[Numbered, _Group] = defaultdict(_Group)
        self._by_kind: dict[int, dict[Kind, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._known: dict[int, int] = {}
        for name, shape in family.tensors:
            self._add(Var(name), draw((1, self._rounds, *shape), rng), None)
        for constant in family.constants:
            attributes = {name: tuple(size.value({}) for size in value) for name, value in constant.attributes}
            values = apply(constant.op, attributes, [], 0)
            self._add(constant, values.map(lambda a: np.repeat(a[None, None], self._rounds, 1)), None)

    def _add(self, term: Term, values: Numbers, operands: Operands | None) -> None:
        number, shape = len(self.terms), tuple(values.shape[2:])
        nodes = frozenset[int]()
        if operands is not None:
            nodes = frozenset([number]).union(*(self._nodes[operand] for operand in operands))
        head = Apply(term.op, (), term.attributes) if isinstance(term, Apply) else None
        kind = (head, shape, tuple(self._shapes[operand] for operand in operands or ()))
        self.terms.append(term)
        self._shapes.append(shape)
        self._nodes.append(nodes)
        self._operands.append(operands or ())
        self._kinds.append(kind)
        self._names.append(tuple(variables((term,))))
        group = self._groups[shape]
        self._places.append(group.count)
        group.count += len(values.field)
        group.blocks.append(values)
        self._by_kind[len(nodes)][kind].append(number)
        self._known.setdefault(int(self._fingerprints(values)[0]), number)

    def _fingerprints(self, values: Numbers) -> Array:
        flat = values.field.reshape(len(values.field), -1).astype(np.uint64)
        salt = np.uint64(hash(values.shape[2:]) & (2**63 - 1))
        prints: Array = (flat * self._factors[: flat.shape[1]]).sum(axis=1, dtype=np.uint64) + salt
        return prints

    # Which programs there are

    def _applications(self, count: int, last: bool) -> Iterator[tuple[str, Attributes, list[Operands]]]:
        """Programs of so many operators: the last one, its attributes, its operands."""
        batches: dict[tuple[str, Attributes, tuple[Numbered, ...]], list[Operands]] = defaultdict(list)
        for op in self.family.operators:
            choose = self._unary if OPERATORS[op].arity == 1 else self._binary
            for attributes, shapes, operands in choose(op, count):
                # What is made of constants alone is one, too.
                operands = [item for item in operands if len(item) == 1 or any(self._names[at] for at in item)]
                if last:
                    operands = [item for item in operands if self._in_order(item)]
                batches[op, attributes, shapes] += operands
        for (op, attributes, _), operands in batches.items():
            if operands:
                yield op, attributes, operands

    def _unary(self, op: str, count: int) -> Iterator[tuple[Attributes, tuple[Numbered, ...], list[Operands]]]:
        for kind, numbers in self._by_kind[count - 1].items():
            for attributes in self.family.unary(op, kind[1]):
                if not self.reducible(op, attributes, (kind,)):
                    yield attributes, (kind[1],), [(number,) for number in numbers]

    def _binary(self, op: str, count: int) -> Iterator[tuple[Attributes, tuple[Numbered, ...], list[Operands]]]:
        apart = [(cost, count - 1 - cost) for cost in range(count)]
        for left_cost, right_cost in apart:
            for left, right in itertools.product(self._by_kind[left_cost].items(), self._by_kind[right_cost].items()):
                yield from self._pairs(op, count, left[0], right[0], itertools.product(left[1], right[1]), True)
        for (left_kind, right_kind), pairs in self._sharing(count).items():
            yield from self._pairs(op, count, left_kind, right_kind, iter(pairs), False)

    def _pairs(
        self, op: str, count: int, left: Kind, right: Kind, pairs: Iterator[tuple[int, int]], apart: bool
    ) -> Iterator[tuple[Attributes, tuple[Numbered, ...], list[Operands]]]:
        chosen: list[Operands] | None = None
        for attributes in self.family.binary(op, left[1], right[1]):
            if self.reducible(op, attributes, (left, right)):
                continue
            if chosen is None:
                nodes, commutes = self._nodes, OPERATORS[op].commutes
                chosen = [
                    pair
                    for pair in pairs
                    if (not commutes or count == 1 or self._sorted(op, count, *pair))
                    and (not apart or not nodes[pair[0]] & nodes[pair[1]])
                ]
            yield attributes, (left[1], right[1]), chosen

    def _sorted(self, op: str, count: int, left: int, right: int) -> bool:
        """Whether operands of an operator that is associative and commutative are in the one order that is looked
        at."""
        if left > right:
            return False
        if count < 3:
            return True
        head, inner = self._kinds[right][0], self._kinds[left][0]
        if inner is not None and inner.op == op:
            return False
        return head is None or head.op != op or left <= self._operands[right][0]

    def _sharing(self, count: int) -> dict[tuple[Kind, Kind], list[tuple[int, int]]]:
        """Operands that have operators in common, and one less than the program together."""
        pairs: dict[tuple[Kind, Kind], set[tuple[int, int]]] = defaultdict(set)
        for number in itertools.chain(*self._by_kind[count - 1].values()):
            for other in self._nodes[number]:
                for pair in {(number, other), (other, number)}:
                    pairs[self._kinds[pair[0]], self._kinds[pair[1]]].add(pair)
        users: dict[int, list[int]] = defaultdict(list)
        for cost in range(2, count - 1):
            for number in itertools.chain(*self._by_kind[cost].values()):
                for node in self._nodes[number] - {number}:
                    users[node].append(number)
        for numbers in users.values():
            for left, right in itertools.product(numbers, repeat=2):
                if left != right and len(self._nodes[left] | self._nodes[right]) == count - 1:
                    pairs[self._kinds[left], self._kinds[right]].add((left, right))
        return {kinds: sorted(found) for kinds, found in pairs.items()}

    def _in_order(self, operands: Operands) -> bool:
        """Whether tensors of one shape come up in their order: else another program is the same with other names."""
        return self._names_in_order(tuple(self._names[operand] for operand in operands))

    @functools.cache  # noqa: B019  # as long-lived as the enumerator, of which there are few
    def _names_in_order(self, names: tuple[tuple[str, ...], ...]) -> bool:
        met = list(dict.fromkeys(itertools.chain(*names)))
        for _, group in itertools.groupby(self.family.tensors, key=lambda tensor: tensor[1]):
            all_names = [name for name, _ in group]
            here = [name for name in met if name in all_names]
            if here != all_names[: len(here)]:
                return False
        return True

    # What they compute

    def level(self, count: int, last: bool) -> list[Rule]:
        """All programs of so many operators: pairs that have one fingerprint.

        Args:
            last: nothing will be made of them.
        """
        fresh: list[tuple[str, Attributes, Operands, Numbers | None]] = []
        same: list[tuple[tuple[str, Attributes, Operands], int]] = []
        programs, known = 0, len(self.terms)
        for op, attributes, operands in self._applications(count, last):
            programs += len(operands)
            for start in range(0, len(operands), CHUNK):
                chunk = operands[start : start + CHUNK]
                values = self._values(op, attributes, chunk)
                for at, fingerprint in enumerate(self._fingerprints(values).tolist()):
                    other = self._known.get(fingerprint)
                    if other is not None:
                        same.append(((op, attributes, chunk[at]), other))
                        continue
                    self._known[fingerprint] = known + len(fresh)
                    one = None if last else Numbers(values.field[at : at + 1], values.real[at : at + 1])
                    fresh.append((op, attributes, chunk[at], one))
        self.programs.append(programs)
        self.kept.append(len(fresh))

        def term_of(op: str, attributes: Attributes, operands: Operands) -> Term:
            return Apply(op, tuple(self.terms[operand] for operand in operands), attributes)

        candidates = []
        for program, other in same:
            standing = self.terms[other] if other < known else term_of(*fresh[other - known][:3])
            candidates.append(rule_of(self.family, (term_of(*program),), (standing,)))
        for op, attributes, chosen, one in fresh:
            if one is not None:
                self._add(term_of(op, attributes, chosen), one, chosen)
        return candidates

    def _values(self, op: str, attributes: Attributes, chunk: list[Operands]) -> Numbers:
        numbers = {name: tuple(size.value({}) for size in value) for name, value in attributes}
        args = []
        for position, number in enumerate(chunk[0]):
            group = self._groups[self._shapes[number]].values()
            places = [self._places[item[position]] for item in chunk]
            args.append(Numbers(group.field[places], group.real[places]))
        return apply(op, numbers, args, len(self._shapes[chunk[0][0]]))


def rule_of(family: Family, source: tuple[Term, ...], target: tuple[Term, ...]) -> Rule:
    """With the shapes that a family gives its tensors."""
    shapes = dict(family.tensors)
    given: list[tuple[str, Shape]] = [(name, tuple(map(poly, shapes[name]))) for name in variables(source + target)]
    return Rule(source, target, tuple(given))
