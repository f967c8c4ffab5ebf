"""The most general shapes under which terms make sense: equations between sizes, solved."""

from __future__ import annotations

from dataclasses import dataclass, field

from covan_mlir.subst.sizes import ONE, Floor, Poly, is_nonnegative, least, of, quotient


class NoShapesError(ValueError):
    """There are no sizes for which the equations hold."""


@dataclass
class Shaping:
    """Equations and conditions, solved as they come.

    Attributes:
        solution: sizes by names that other names give; no name on the left is in any value.
        conditions: polynomials that have to be at least 0 besides.
    """

    solution: dict[str, Poly] = field(default_factory=dict)
    conditions: list[Poly] = field(default_factory=list)
    _count: int = 0

    def fresh(self, prefix: str) -> Poly:
        """A size that nothing else is called."""
        self._count += 1
        return of(f"{prefix}_{self._count}")

    def resolve(self, size: Poly) -> Poly:
        """A size, as far as it is known."""
        return size.substitute(self.solution)

    def require(self, size: Poly) -> None:
        """It is at least 0."""
        self.conditions.append(size)

    def equal(self, left: Poly, right: Poly) -> None:
        """Both are the same size.

        Raises:
            NoShapesError: they cannot be, or it is not known how.
        """
        difference = self.resolve(left - right)
        if not difference:
            return
        if difference.constant is not None:
            raise NoShapesError(f"{self.resolve(left)} is not {self.resolve(right)}")
        difference = _primitive(difference)
        for preferred in (True, False):
            for symbol in sorted((s for s in difference.symbols() if isinstance(s, str)), key=_preference):
                parts = difference.linear(symbol)
                if parts is None or parts[0].constant not in (1, -1):
                    continue
                value = parts[1] if parts[0].constant == -1 else -parts[1]
                if symbol in value.names():
                    continue
                if preferred and not is_nonnegative(value - least(symbol)):
                    continue
                if not preferred and any(isinstance(other, Floor) for other in value.symbols()):
                    continue  # no size that anybody would ask for
                self._set(symbol, value)
                return
        floors = [symbol for symbol in difference.symbols() if isinstance(symbol, Floor)]
        if len(floors) == 2 and difference in (of(floors[0]) - of(floors[1]), of(floors[1]) - of(floors[0])):
            # Enough, and needed where windows go on to the end of the axis.
            self.equal(floors[0].denominator, floors[1].denominator)
            self.equal(floors[0].numerator, floors[1].numerator)
            return
        raise NoShapesError(f"nothing says when {self.resolve(left)} is {self.resolve(right)}")

    def _set(self, symbol: str, value: Poly) -> None:
        if not is_nonnegative(value - least(symbol)):
            self.conditions.append(value - least(symbol))
        self.solution = {name: size.substitute({symbol: value}) for name, size in self.solution.items()}
        self.solution[symbol] = value

    def unmet(self) -> list[Poly]:
        """Conditions that do not hold of all sizes.

        Raises:
            NoShapesError: one holds of none.
        """
        unmet: dict[Poly, None] = {}
        for condition in self.conditions:
            size = self.resolve(condition)
            if is_nonnegative(-size - 1):
                raise NoShapesError(f"{size} is negative")
            if not is_nonnegative(size):
                unmet[size] = None
        return list(unmet)


def _preference(symbol: str) -> tuple[bool, int, str]:
    """Names that came up on the way go first, then the later ones."""
    stem, _, number = symbol.rpartition("_")
    derived = bool(stem) and number.isdigit()
    return not derived, -int(number) if derived else 0, symbol


def _primitive(size: Poly) -> Poly:
    """Without factors that no size can make 0."""
    number = 0
    for factor in size.terms.values():
        number = _gcd(number, int(factor))
    if number > 1:
        size = Poly({monomial: int(factor) // number for monomial, factor in size.terms.items()})
    for symbol in sorted(size.symbols(), key=str):
        while isinstance(symbol, str) and least(symbol) == 1:
            smaller = quotient(size, of(symbol))
            if smaller is None or smaller == ONE:
                break
            size = smaller
    return size


def _gcd(a: int, b: int) -> int:
    while b:
        a, b = b, a % b
    return abs(a)
