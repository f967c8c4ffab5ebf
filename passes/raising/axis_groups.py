"""Which dimensions of which tensors are the same axis: unification of dimensions, through reshapes.

A dimension is a list of axes, outermost first: empty for one of size 1, several for one that was collapsed. Putting two
dimensions together may split an axis: 12 against [2, 6] makes one of 12 positions two of 2 and of 6.
"""

from __future__ import annotations

from collections.abc import Sequence

Dim = list[int]


class AxisGroups:
    """Axes by number. A number may turn out to be the same axis as another one, or several."""

    def __init__(self) -> None:
        self._size: list[int | None] = []
        self._is: list[list[int] | None] = []

    def copy(self) -> AxisGroups:
        """An independent copy."""
        new = AxisGroups()
        new._size = self._size.copy()
        new._is = self._is.copy()
        return new

    def new(self, size: int | None) -> Dim:
        """A dimension of that size."""
        return [] if size == 1 else self.own(size)

    def own(self, size: int | None) -> Dim:
        """A dimension of that size that has an axis in any case."""
        self._size.append(size)
        self._is.append(None)
        return [len(self._size) - 1]

    def size(self, axis: int) -> int | None:
        """Of an axis that is not split."""
        return self._size[axis]

    def leaves(self, dim: Sequence[int]) -> tuple[int, ...]:
        """The axes that a dimension is made of."""
        if len(dim) == 1 and self._is[dim[0]] is None:  # most are
            return (dim[0],)
        leaves: list[int] = []
        stack = list(reversed(dim))
        while stack:
            axis = stack.pop()
            parts = self._is[axis]
            if parts is None:
                leaves.append(axis)
            else:
                stack.extend(reversed(parts))
        return tuple(leaves)

    def unify(self, one: Sequence[int], other: Sequence[int]) -> bool:
        """Makes two dimensions the same; False where they cannot be, or where the sizes that are known do not tell."""
        left, right = list(self.leaves(one)), list(self.leaves(other))
        # Known sizes are matched from both ends; what is left between them has at least one unknown size.
        return all(self._match(left, right, end) for end in (0, -1)) and self._rest(left, right)

    def _match(self, left: list[int], right: list[int], end: int) -> bool:
        """Matches axes of known sizes at one end of two dimensions, and takes them away."""
        while left and right:
            a, b = left[end], right[end]
            n, m = self._size[a], self._size[b]
            if a == b:
                del left[end], right[end]
            elif n is None or m is None:
                break
            elif n == m:
                self._join(b, a)
                del left[end], right[end]
            else:
                if n > m:
                    left, right, a, b, n, m = right, left, b, a, m, n
                if m % n:
                    return False
                rest = self.new(m // n)
                self._is[b] = [*rest, a] if end else [a, *rest]
                del left[end]
                right[end] = rest[0]
            if len(set(left)) != len(left) or len(set(right)) != len(right):
                return False
        return True

    def _rest(self, left: list[int], right: list[int]) -> bool:
        """Two dimensions of equal sizes of which one, if there is more than one, can be the other."""
        if len(left) == len(right) == 1:
            self._join(right[0], left[0])
            return True
        if len(left) > len(right):
            left, right = right, left
        if len(left) == 1 and right and self._size[left[0]] is None:
            self._is[left[0]] = list(right)
            return left[0] not in right
        return not left and not right

    def _join(self, axis: int, onto: int) -> None:
        self._is[axis] = [onto]
        if self._size[onto] is None:
            self._size[onto] = self._size[axis]
