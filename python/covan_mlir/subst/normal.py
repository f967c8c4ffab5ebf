"""A normal form of sums over index expressions: equal texts mean equal tensors, for all sizes.

What it knows: sums are distributive, commutative and associative; bound indices have no names; an index that an
equation gives is gone; a condition on one index alone is its range; conditions that hold anyway are none; the digits
of a number in a mixed base are unique (groups of channels, merged axes); a function of pieces under complementary
conditions is the pieces of the function; the greatest of greatest numbers is one of all.

What it does not know it leaves as it is, so different texts say nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

from covan_mlir.subst import order
from covan_mlir.subst.expressions import (
    Factor,
    Function,
    Greatest,
    Guard,
    Option,
    Piece,
    Read,
    Reciprocal,
    Sum,
    fresh,
    index_name,
    indices,
    map_factor,
    scaled,
    show,
    substitute,
    times,
)
from covan_mlir.subst.guards import Facts, Ranges, excludes, implies, indices_of, involves, negations
from covan_mlir.subst.sizes import ONE, Poly, is_nonnegative, of, poly, quotient

EXPANDED = 4
"""Sums over as many points, where their number is known, are written out."""

OPTION = "option"


class TooManyCasesError(RuntimeError):
    """The normal form is too large to be of use."""


class Normalizer:
    """Normal forms where certain facts hold of sizes.

    Attributes:
        limit: of pieces that one sum may have.
    """

    def __init__(self, facts: Facts, limit: int = 4000) -> None:
        self.facts = facts
        self.limit = limit

    def normal(self, value: Sum, ranges: Ranges) -> str:
        """The text of a sum's normal form.

        Args:
            ranges: of the indices that are not bound in it.

        Raises:
            TooManyCasesError: it is too large.
        """
        return show(canonical(self.simplify(value, ranges)))

    def simplify(self, value: Sum, ranges: Ranges) -> Sum:
        """Everything but the names of bound indices."""
        simple: list[Piece] = []
        waiting = list(value)
        while waiting:
            if len(simple) + len(waiting) > self.limit:
                raise TooManyCasesError(f"more than {self.limit} pieces")
            piece = waiting.pop()
            if not piece.number:
                continue
            changed = self._step(piece, ranges, summed=True)
            if changed is None:
                simple.append(piece)
            else:
                waiting += changed
        return _merged(simple)

    def _step(self, piece: Piece, ranges: Ranges, summed: bool) -> list[Piece] | None:
        """What the piece is, simpler; None where it is as simple as can be."""
        scope = {**ranges, **dict(piece.bound)}
        guards = self.facts.reduce(piece.guards, scope)
        if guards is None:
            return []
        if frozenset(guards) != piece.guards:
            return [Piece(piece.number, piece.factors, piece.bound, frozenset(guards))]
        changed = self._solved(piece) or self._narrowed(piece, scope) or self._fewer(piece, scope, summed)
        if changed is not None:
            return changed
        squared = order.squared(piece)
        if squared is not None:
            return [squared]
        for at, factor in enumerate(piece.factors):
            simpler = self._factor(factor, scope)
            if simpler is not None:
                others = piece.factors[:at] + piece.factors[at + 1 :]
                return list(times((Piece(piece.number, others, piece.bound, piece.guards),), simpler))
        return None

    def _solved(self, piece: Piece) -> list[Piece] | None:
        """Without an index that an equation gives."""
        sizes = dict(piece.bound)
        for kind, size in sorted(piece.guards, key=str):
            if kind != "eq":
                continue
            for index in indices_of(size):
                parts = size.linear(index)
                if index not in sizes or parts is None or parts[0].constant not in (1, -1):
                    continue
                value = parts[1] if parts[0].constant == -1 else -parts[1]
                more: set[Guard] = {("ge", value), ("ge", sizes[index] - 1 - value)}
                return [_substituted(piece, index, value, None, (piece.guards - {(kind, size)}) | more)]
            simpler = _named_once(piece, (kind, size))
            if simpler != piece:
                return [simpler]
        return None

    def _narrowed(self, piece: Piece, scope: Ranges) -> list[Piece] | None:
        """With the range that a condition on one index alone leaves it."""
        sizes = dict(piece.bound)
        for guard in sorted(piece.guards, key=str):
            kind, size = guard
            names = indices_of(size)
            if kind != "ge" or len(names) != 1 or names[0] not in sizes:
                continue
            (index,) = names
            parts = size.linear(index)
            if parts is None or parts[0].constant not in (1, -1):
                continue
            extent, rest = sizes[index], parts[1]
            if parts[0].constant == 1:
                start, left = -rest, extent + rest
                if self.facts.nonnegative(start, {}) and self.facts.nonnegative(left, {}):
                    return [_substituted(piece, index, of(index) + start, left, piece.guards - {guard})]
            elif self.facts.nonnegative(rest + 1, {}) and self.facts.nonnegative(extent - rest - 1, {}):
                return [_substituted(piece, index, of(index), rest + 1, piece.guards - {guard})]
        return None

    def _fewer(self, piece: Piece, scope: Ranges, summed: bool) -> list[Piece] | None:
        """Without an index that nothing reads, or of which all values are known."""
        for index, size in piece.bound:
            if size == poly(0):
                return []
            used = any(index in indices_of(guard[1]) for guard in piece.guards)
            used = used or any(index in indices(factor) for factor in piece.factors)
            if not used and (summed or self.facts.nonnegative(size - 1, {})):
                bound = tuple(item for item in piece.bound if item[0] != index)
                number = piece.number * size if summed else piece.number
                return [Piece(number, piece.factors, bound, piece.guards)]
            if summed:
                counted = self._counted_once(piece, index, scope) or _reflected(piece, index, size)
                if counted is not None:
                    return [counted]
            if size.constant is not None and size.constant <= EXPANDED:
                return [_substituted(piece, index, poly(at), poly(0), piece.guards) for at in range(int(size.constant))]
        return None

    def _counted_once(self, piece: Piece, index: str, scope: Ranges) -> Piece | None:
        """Without an index that only says which block of an axis a position is in."""
        conditions = [guard for guard in piece.guards if index in indices_of(guard[1])]
        if len(conditions) != 2 or any(index in indices(factor) for factor in piece.factors):
            return None
        for (_, low), (_, high) in itertools.permutations(conditions):
            parts = low.linear(index)
            if parts is None or indices_of(parts[0]):
                continue
            block, position = -parts[0], parts[1]
            if low + high != block - 1 or not self.facts.nonnegative(block - 1, {}):
                continue
            last = scope[index] * block - 1
            if self.facts.nonnegative(position, scope) and self.facts.nonnegative(last - position, scope):
                bound = tuple(item for item in piece.bound if item[0] != index)
                return Piece(piece.number, piece.factors, bound, piece.guards - frozenset(conditions))
        return None

    def _factor(self, factor: Factor, scope: Ranges) -> Sum | None:
        """What a factor is, simpler; None where it is as simple as can be."""
        if isinstance(factor, Read):
            return None
        if isinstance(factor, Reciprocal):
            if factor.size.constant is None:
                return None
            inverse = quotient(ONE, factor.size)
            assert inverse is not None
            return (Piece(number=inverse),)
        if isinstance(factor, Function):
            args = tuple(self.simplify(arg, scope) for arg in factor.args)
            cases = _cases(args)
            if cases is None:
                return None if args == factor.args else (Piece(factors=(Function(factor.name, args),)),)
            return tuple(
                Piece(factors=(Function(factor.name, case),), guards=frozenset([guard])) for guard, case in cases
            )
        return self._greatest(factor, scope)

    def _greatest(self, factor: Greatest, scope: Ranges) -> Sum | None:
        options: set[Option] = set()
        waiting = list(factor.options)
        while waiting:
            option = waiting.pop()
            own = {index for index, _ in option.bound}
            if option.inhabited and not any(own & indices(factor) for factor in _factors(option.value)):
                guards = frozenset(guard for guard in option.guards if not involves(guard, own))
                option = Option(option.value, (), guards)
            as_piece = Piece(factors=(Function(OPTION, (option.value,)),), bound=option.bound, guards=option.guards)
            changed = self._step(as_piece, scope, summed=False)
            nested = _nested(option) or order.spread(option) if changed is None else None
            if changed is not None:
                for piece in changed:
                    (value,) = piece.factors
                    assert isinstance(value, Function)
                    more = piece.guards - option.guards
                    whole = len(changed) == 1 or not any(involves(guard, own) for guard in more)
                    inhabited = option.inhabited and whole
                    waiting.append(Option(value.args[0], piece.bound, piece.guards, inhabited))
            elif nested is not None:
                waiting += nested
            else:
                options.add(option)
            if len(waiting) + len(options) > self.limit:
                raise TooManyCasesError(f"more than {self.limit} options")
        for option in sorted(options, key=str):
            own = {index for index, _ in option.bound}
            for guard in sorted(option.guards, key=str):
                if not involves(guard, own):
                    return tuple(
                        Piece(factors=(Greatest(_where(options, case)),), guards=frozenset([case]))
                        for case in (guard, *negations(guard))
                    )
        taken_out = order.common(options) or order.power(options) or order.shift(options)
        if taken_out is not None:
            return taken_out
        options = order.without_least(options)
        if len(options) == 1:
            (option,) = options
            if not option.bound and not option.guards:
                return _renamed(option.value)
        simpler = Greatest(frozenset(options))
        return None if simpler == factor else (Piece(factors=(simpler,)),)


def _reflected(piece: Piece, index: str, size: Poly) -> Piece | None:
    """With an index that goes the other way, where the first tensor that it is read from is read backwards."""
    signs: dict[tuple[str, int], set[int]] = {}
    for factor in piece.factors:
        if isinstance(factor, Read):
            for axis, position in enumerate(factor.at):
                parts = position.linear(index)
                if parts is not None and parts[0]:
                    sign = 1 if is_nonnegative(parts[0]) else -1 if is_nonnegative(-parts[0]) else 0
                    signs.setdefault((factor.name, axis), set()).add(sign)
    if not signs or signs[min(signs)] != {-1}:
        return None
    return _substituted(piece, index, size - 1 - of(index), size, piece.guards)


def _where(options: Iterable[Option], case: Guard) -> frozenset[Option]:
    """The options that there are where a condition holds."""
    there = ((option, _given(option.guards, case)) for option in options)
    return frozenset(
        Option(option.value, option.bound, guards, option.inhabited) for option, guards in there if guards is not None
    )


def _given(guards: frozenset[Guard], case: Guard) -> frozenset[Guard] | None:
    """Conditions where another holds; None where they do not hold then."""
    if any(excludes(case, guard) for guard in guards):
        return None
    return frozenset(guard for guard in guards if not implies(case, guard))


def _nested(option: Option) -> list[Option] | None:
    """Options that an option stands for, where it is the greatest of its own."""
    if len(option.value) != 1:
        return None
    (piece,) = option.value
    if piece.number != ONE or piece.bound or piece.guards or len(piece.factors) != 1:
        return None
    (factor,) = piece.factors
    if not isinstance(factor, Greatest):
        return None
    return [
        Option(
            inner.value,
            option.bound + inner.bound,
            option.guards | inner.guards,
            option.inhabited and (inner.inhabited or not (inner.bound or inner.guards)),
        )
        for inner in map(_renamed_option, factor.options)
    ]


def _cases(args: tuple[Sum, ...]) -> list[tuple[Guard, tuple[Sum, ...]]] | None:
    """A condition on outer indices, and what the sums are where it holds and where it does not."""
    for piece in sorted(itertools.chain(*args), key=str):
        own = {index for index, _ in piece.bound}
        for guard in sorted(piece.guards, key=str):
            if involves(guard, own):
                continue
            cases = []
            for case in (guard, *negations(guard)):
                kept = tuple(
                    tuple(
                        Piece(other.number, other.factors, other.bound, left)
                        for other in arg
                        if (left := _given(other.guards, case)) is not None
                    )
                    for arg in args
                )
                cases.append((case, kept))
            return cases
    return None


def _named_once(piece: Piece, equation: Guard) -> Piece:
    """With one name less for what an equation between outer indices says is the same. The equation is kept, for it is a
    condition."""
    outer = indices_of(equation[1])
    if not outer or not {index for index, _ in piece.bound}.isdisjoint(outer):
        return piece
    index = max(outer)
    parts = equation[1].linear(index)
    if parts is None or parts[0].constant not in (1, -1):
        return piece
    value = parts[1] if parts[0].constant == -1 else -parts[1]
    simpler = _substituted(piece, index, value, None, piece.guards - {equation})
    return Piece(piece.number, simpler.factors, piece.bound, simpler.guards | {equation})


def _substituted(
    piece: Piece, index: str, value: Poly, size: Poly | None, guards: frozenset[Guard] | set[Guard]
) -> Piece:
    """With a value for an index: which has another range, or is gone."""
    values = {index: value}
    bound = [(name, extent) for name, extent in piece.bound if name != index]
    if size is not None and index in value.names():
        bound.append((index, size))
    return Piece(
        piece.number,
        tuple(substitute(factor, values) for factor in piece.factors),
        tuple(bound),
        frozenset((kind, condition.substitute(values)) for kind, condition in guards),
    )


def _renamed(value: Sum) -> Sum:
    """With new names for the indices that its pieces bind."""
    renamed = []
    for piece in value:
        names = {index: fresh() for index, _ in piece.bound}
        renamed.append(
            Piece(
                piece.number,
                tuple(substitute(factor, names) for factor in piece.factors),
                tuple((index_name(names[index]), size) for index, size in piece.bound),
                frozenset((kind, size.substitute(names)) for kind, size in piece.guards),
            )
        )
    return tuple(renamed)


def _renamed_option(option: Option) -> Option:
    (piece,) = _renamed(
        (Piece(factors=(Function(OPTION, (option.value,)),), bound=option.bound, guards=option.guards),)
    )
    (value,) = piece.factors
    assert isinstance(value, Function)
    return Option(value.args[0], piece.bound, piece.guards, option.inhabited)


def _factors(value: Sum) -> Iterator[Factor]:
    for piece in value:
        yield from piece.factors
        yield from (Reciprocal(size) for _, size in piece.guards)  # what is read of indices, whatever the factor


# Names of bound indices


def canonical(value: Sum, depth: int = 0) -> Sum:
    """With names for bound indices that say nothing but where they are bound; pieces that are alike are one."""
    return _merged([_named(piece, depth) for piece in value])


def _inner(factor: Factor, depth: int) -> Factor:
    if isinstance(factor, Function):
        return Function(factor.name, tuple(canonical(arg, depth) for arg in factor.args))
    if isinstance(factor, Greatest):
        options = set()
        for option in factor.options:
            as_piece = Piece(factors=(Function(OPTION, (option.value,)),), bound=option.bound, guards=option.guards)
            piece = _named(as_piece, depth)
            (inner,) = piece.factors
            assert isinstance(inner, Function)
            options.add(Option(inner.args[0], piece.bound, piece.guards))
        return Greatest(frozenset(options))
    return factor


def _named(piece: Piece, depth: int) -> Piece:
    """Of all orders of its indices that are not told apart otherwise, that with the first text."""
    groups: dict[str, list[str]] = {}
    for index, size in piece.bound:
        groups.setdefault(f"{size} {_role(piece, index, depth)}", []).append(index)
    ordered = [groups[key] for key in sorted(groups)]
    best: Piece | None = None
    for arrangement in itertools.islice(itertools.product(*map(itertools.permutations, ordered)), 720):
        names = {index: of(f"%b{depth}_{at}") for at, index in enumerate(itertools.chain(*arrangement))}
        sizes = dict(piece.bound)
        factors = [_inner(substitute(factor, names), depth + 1) for factor in piece.factors]
        trial = Piece(
            piece.number,
            tuple(sorted(factors, key=str)),
            tuple((index_name(names[index]), sizes[index]) for index in itertools.chain(*arrangement)),
            frozenset((kind, size.substitute(names)) for kind, size in piece.guards),
        )
        if best is None or str(trial) < str(best):
            best = trial
    assert best is not None
    return best


def _role(piece: Piece, index: str, depth: int) -> str:
    """Where an index is read, whatever it and others are called."""
    names = {other: of("%other") for other, _ in piece.bound} | {index: of("%this")}
    factors = sorted(str(_inner(substitute(factor, names), depth + 1)) for factor in piece.factors)
    guards = sorted(f"{kind} {size.substitute(names)}" for kind, size in piece.guards)
    return "; ".join(factors + guards)


def _merged(pieces: Iterable[Piece]) -> Sum:
    """Pieces that are alike are one, and so are two under complementary conditions."""
    numbers: dict[Piece, Poly] = {}
    for piece in pieces:
        key = Piece(ONE, tuple(sorted(piece.factors, key=str)), piece.bound, piece.guards)
        numbers[key] = numbers.get(key, poly(0)) + piece.number
    merged = [scaled((piece,), number)[0] for piece, number in numbers.items() if number]
    whole = _without_cases(merged)
    while len(whole) < len(merged):
        merged, whole = whole, _without_cases(whole)
    return tuple(sorted(merged, key=str))


def _where_holds(piece: Piece, rest: frozenset[Guard], case: Guard) -> Piece:
    there = replace(piece, guards=rest | {case})
    if case[0] == "eq":
        there = _named_once(there, case)
        there = replace(there, factors=tuple(sorted(there.factors, key=str)))
    return there


def _without_cases(pieces: list[Piece]) -> list[Piece]:
    """With one piece for those that differ by conditions of which always one holds."""
    there = set(pieces)
    for piece in pieces:
        for guard in piece.guards:
            rest = piece.guards - {guard}
            choices = [(guard, *negations(guard))]
            if guard[0] == "ge":
                equal = guard[1] + 1  # it is above, below, or there
                choices += [(guard, ("ge", -equal - 1), ("eq", sign)) for sign in (equal, -equal)]
            for choice in choices:
                cases = {_where_holds(piece, rest, case) for case in choice}
                if cases <= there:
                    return [other for other in pieces if other not in cases] + [replace(piece, guards=rest)]
    return pieces


__all__ = ["Normalizer", "TooManyCasesError", "canonical", "map_factor"]
