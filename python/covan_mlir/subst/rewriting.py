"""Rules applied to programs: matching with sizes, an order of terms, and normal forms under rules that go down in
it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from covan_mlir.subst.operators import OPERATORS
from covan_mlir.subst.shaping import NoShapesError, Shaping
from covan_mlir.subst.sizes import Poly, least, poly
from covan_mlir.subst.terms import Apply, Rule, Shape, Term, Var, replace, subterms

Concrete = tuple[int, ...]


class Shapes:
    """Shapes of programs on tensors of known shapes, each looked for once.

    Raises:
        NoShapesError: (on call) an operator does not fit.
    """

    def __init__(self, tensors: Mapping[str, Concrete]) -> None:
        self.tensors = dict(tensors)
        self._known: dict[Term, Concrete] = {}

    def __call__(self, term: Term) -> Concrete:
        if isinstance(term, Var):
            return self.tensors[term.name]
        shape = self._known.get(term)
        if shape is None:
            shaping = Shaping()
            operands: list[Shape] = [tuple(map(poly, self(arg))) for arg in term.args]
            sizes = OPERATORS[term.op].shape(term, operands, shaping)
            shape = tuple(shaping.resolve(size).value({}) for size in sizes)
            for condition in shaping.conditions:
                if shaping.resolve(condition).value({}) < 0:
                    raise NoShapesError(f"a window does not fit: {term}")
            self._known[term] = shape
        return shape


@dataclass(frozen=True)
class Directed:
    """A rule in one direction.

    Attributes:
        pattern: with one result.
        conditions: sizes that have to be at least 0.
        name: of the rule.
    """

    pattern: Apply
    result: Term
    shapes: tuple[tuple[str, Shape], ...]
    conditions: tuple[Poly, ...]
    name: str = ""


@dataclass
class Match:
    """What the names in a pattern stand for."""

    terms: dict[str, Term] = field(default_factory=dict)
    equations: list[tuple[Poly, int]] = field(default_factory=list)


def match(rule: Directed, term: Term, shapes: Shapes) -> Iterator[tuple[dict[str, Term], dict[str, Poly]]]:
    """Each way in which a pattern is a program: terms for its tensors, and its sizes."""
    tensors = dict(rule.shapes)
    for found in _matches(rule.pattern, term, Match()):
        equations = list(found.equations)
        for name, value in found.terms.items():
            shape = shapes(value)
            if len(shape) != len(tensors[name]):
                break
            equations += zip(tensors[name], shape, strict=True)
        else:
            sizes = solve_sizes(equations)
            if sizes is None:
                continue
            values = {name: poly(size) for name, size in sizes.items()}
            if all(_holds(condition, values) for condition in rule.conditions):
                yield found.terms, values


def _holds(condition: Poly, values: Mapping[str, Poly]) -> bool:
    constant = condition.substitute(values).constant
    return constant is not None and constant >= 0


def _matches(pattern: Term, term: Term, so_far: Match) -> Iterator[Match]:
    if isinstance(pattern, Var):
        known = so_far.terms.get(pattern.name)
        if known is None:
            yield Match({**so_far.terms, pattern.name: term}, so_far.equations)
        elif known == term:
            yield so_far
        return
    if not isinstance(term, Apply) or pattern.op != term.op:
        return
    equations = list(so_far.equations)
    for (_, wanted), (_, given) in zip(pattern.attributes, term.attributes, strict=True):
        for size, number in zip(wanted, given, strict=True):
            constant = number.constant
            if constant is None or (size.constant is not None and size.constant != constant):
                return
            equations.append((size, int(constant)))
    orders = [term.args]
    if OPERATORS[term.op].commutes and term.args[0] != term.args[1]:
        orders.append(term.args[::-1])
    for order in orders:
        partial = [Match(so_far.terms, equations)]
        for inner, arg in zip(pattern.args, order, strict=True):
            partial = [further for match_ in partial for further in _matches(inner, arg, match_)]
        yield from partial


def solve_sizes(equations: Iterable[tuple[Poly, int]]) -> dict[str, int] | None:
    """Sizes that the equations give; None where they hold for none. All names have to be given by some equation
    alone."""
    sizes: dict[str, int] = {}
    waiting = list(equations)
    while waiting:
        later = []
        for size, number in waiting:
            names = size.names() - sizes.keys()
            if not names:
                if size.value(sizes) != number:
                    return None
                continue
            known = size.substitute({name: poly(value) for name, value in sizes.items()})
            (name, *others) = names
            parts = None if others else known.linear(name)
            if parts is None or parts[0].constant is None or parts[1].constant is None:
                later.append((size, number))
                continue
            value, rest = divmod(number - int(parts[1].constant), int(parts[0].constant))
            if rest or value < least(name):
                return None
            sizes[name] = value
        if len(later) == len(waiting):
            return None
        waiting = later
    return sizes


def instantiate(rule: Directed, terms: Mapping[str, Term], sizes: Mapping[str, Poly]) -> Term | None:
    """The other side; None where it has a size that nothing gives."""
    result = replace(rule.result, terms, sizes)
    for term in subterms((result,)):
        if isinstance(term, Apply) and any(size.constant is None for _, value in term.attributes for size in value):
            return None
    return result


# An order of terms


def weight(term: Term) -> int:
    """How many operators and tensors it is written with."""
    return 1 + sum(map(weight, term.args)) if isinstance(term, Apply) else 1


def _count(term: Term) -> Counter[str]:
    if isinstance(term, Var):
        return Counter([term.name])
    return sum(map(_count, term.args), Counter())


def _head(term: Term) -> tuple[int, str]:
    """Moving operators outwards or inwards: those that move data go outside, where they cost least."""
    if isinstance(term, Var):
        return -1, term.name
    outward = ("eye", "ones", "zeros", "conv_identity", "pool_constant", "head", "tail", "concat", "transpose")
    place = outward.index(term.op) if term.op in outward else len(outward)
    return place, f"{term.op}{term.attributes}"


def greater(left: Term, right: Term) -> bool:
    """Whether a term is greater in the order of Knuth and Bendix (1970): stable under what stands for its tensors."""
    counts = _count(left)
    counts.subtract(_count(right))
    if min(counts.values(), default=0) < 0:
        return False
    return _greater(left, right)


def _greater(left: Term, right: Term) -> bool:
    if weight(left) != weight(right):
        return weight(left) > weight(right)
    if isinstance(left, Var) or isinstance(right, Var):
        return False
    if _head(left) != _head(right):
        return _head(left) > _head(right)
    for a, b in zip(left.args, right.args, strict=True):
        if a != b:
            return greater(a, b)
    return False


def _order(term: Term) -> tuple[int, str]:
    return weight(term), str(term)


def _operands(term: Term, op: str) -> list[Term]:
    """Of an operator applied to what it gave, and so on."""
    if isinstance(term, Apply) and term.op == op:
        return [operand for arg in term.args for operand in _operands(arg, op)]
    return [term]


def _is_commutativity(rule: Rule) -> bool:
    left, right = rule.source[0], rule.target[0]
    return (
        isinstance(left, Apply)
        and isinstance(right, Apply)
        and (left.op, left.attributes) == (right.op, right.attributes)
        and len(left.args) == 2
        and all(isinstance(arg, Var) for arg in left.args)
        and left.args == right.args[::-1] != right.args
    )


def _is_associativity(rule: Rule) -> bool:
    left, right = rule.source[0], rule.target[0]
    if not (isinstance(left, Apply) and isinstance(right, Apply)) or left.op != right.op or left.attributes:
        return False
    leaves = [_operands(side, left.op) for side in (left, right)]
    return (
        all(isinstance(leaf, Var) for leaf in leaves[0] + leaves[1])
        and len(set(leaves[0])) == len(leaves[0]) == 3
        and set(leaves[0]) == set(leaves[1])
    )


# Normal forms


class Rewriting:
    """Rules that go down in the order, and what programs are when none applies any more.

    Attributes:
        rules: by the operator of their pattern.
    """

    LIMIT = 200

    def __init__(self, shapes: Shapes) -> None:
        self.shapes = shapes
        self.rules: dict[str, list[Directed]] = defaultdict(list)
        self.commutative: set[str] = set()
        self.associative: set[str] = set()
        self._normal: dict[Term, Term] = {}

    def add(self, rule: Rule, conditions: tuple[Poly, ...], name: str = "") -> bool:
        """Whether a rule goes down in one direction, or says that an order of operands is none, and is one of the
        system's from now on."""
        if len(rule.source) != 1:
            return False
        if _is_commutativity(rule):
            self.commutative.add(rule.source[0].op)  # type: ignore[union-attr]  # it is no variable
            self._normal.clear()
            return True
        if _is_associativity(rule) and rule.source[0].op in self.commutative:  # type: ignore[union-attr]  # it is no variable
            self.associative.add(rule.source[0].op)  # type: ignore[union-attr]  # it is no variable
            self._normal.clear()
            return True
        for source, target in ((rule.source[0], rule.target[0]), (rule.target[0], rule.source[0])):
            if isinstance(source, Apply) and greater(source, target):
                self.rules[source.op].append(Directed(source, target, rule.shapes, conditions, name))
                self._normal.clear()
                return True
        return False

    def normal(self, term: Term) -> Term:
        """A program when no rule applies to it."""
        steps = 0
        while steps < self.LIMIT:
            changed = self._inner(term)
            if changed == term:
                break
            term, steps = changed, steps + 1
        return term

    def _inner(self, term: Term) -> Term:
        if isinstance(term, Var):
            return term
        known = self._normal.get(term)
        if known is not None:
            return known
        args = tuple(map(self.normal, term.args))
        result: Term = Apply(term.op, args, term.attributes)
        if term.op in self.associative:
            *rest, last = sorted(_operands(result, term.op), key=_order)
            result = last
            for operand in reversed(rest):
                result = Apply(term.op, (operand, result), term.attributes)
        elif term.op in self.commutative:
            result = Apply(term.op, tuple(sorted(args, key=_order)), term.attributes)
        step = self.step(result)
        if step is not None:
            result = step
        self._normal[term] = result
        return result

    def step(self, term: Term) -> Term | None:
        """What a rule makes of a program at its last operator."""
        if isinstance(term, Apply):
            for rule in self.rules[term.op]:
                for terms, sizes in match(rule, term, self.shapes):
                    result = instantiate(rule, terms, sizes)
                    if result is not None:
                        return result
        return None
