"""Programs of known shapes as graphs: nodes by number, equal ones once.

A model is larger than a rule and shares most of what it computes, so it is no tree of terms. A node is an operator of
`covan_mlir.subst.operators`, or anything else that rules look at from outside alone: an argument, a weight, an
operation that no rule is about. Numbers grow from operands to readers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from covan_mlir.subst.operators import OPERATORS
from covan_mlir.subst.shaping import NoShapesError, Shaping
from covan_mlir.subst.sizes import poly
from covan_mlir.subst.terms import Apply, Var

Sizes = tuple[int, ...]
Attributes = tuple[tuple[str, Sizes], ...]


@dataclass(frozen=True)
class Node:
    """A value.

    Attributes:
        op: an operator's name; of all else what tells it from others.
        args: numbers of the nodes that it reads.
        shape: sizes of its axes.
        element: type of its elements (``f32``), empty where it is no tensor that rules are about.
        constant: it is the same at every call.
    """

    op: str
    args: tuple[int, ...]
    attributes: Attributes
    shape: Sizes
    element: str
    constant: bool

    @property
    def known(self) -> bool:
        """Whether rules know what it is."""
        return bool(self.element) and self.op in OPERATORS

    def attribute(self, name: str) -> Sizes:
        """What an attribute says."""
        return dict(self.attributes)[name]


class Store:
    """All nodes that programs are made of; those that are equal are one."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._numbers: dict[Node, int] = {}

    def __getitem__(self, number: int) -> Node:
        return self.nodes[number]

    def outside(
        self, op: str, shape: Sequence[int], element: str, args: Sequence[int] = (), *, constant: bool = False
    ) -> int:
        """A node that is no operator of rules; equal ones are told apart by ``op`` alone."""
        return self._add(Node(op, tuple(args), (), tuple(shape), element, constant))

    def apply(self, op: str, args: Sequence[int], attributes: Attributes = ()) -> int:
        """An operator on nodes.

        Raises:
            NoShapesError: it does not fit their shapes, or they have elements of several types.
        """
        given = [self.nodes[arg] for arg in args]
        elements = {node.element for node in given}
        if len(elements) != 1 or "" in elements:
            raise NoShapesError(f"{op} on elements of types {sorted(elements)}")
        shape = shape_of(op, [node.shape for node in given], attributes)
        return self._add(Node(op, tuple(args), attributes, shape, elements.pop(), all(node.constant for node in given)))

    def again(self, node: Node, args: Sequence[int]) -> int:
        """The same on other operands, which have the same shapes."""
        constant = all(self.nodes[arg].constant for arg in args) if node.known and args else node.constant
        return self._add(Node(node.op, tuple(args), node.attributes, node.shape, node.element, constant))

    def _add(self, node: Node) -> int:
        number = self._numbers.setdefault(node, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
        return number


def shape_of(op: str, shapes: Sequence[Sizes], attributes: Attributes) -> Sizes:
    """The shape of an operator's result.

    Raises:
        NoShapesError: it does not fit.
    """
    operator = OPERATORS[op]
    if len(shapes) != operator.arity:
        raise NoShapesError(f"{op} takes {operator.arity} operands, not {len(shapes)}")
    shaping = Shaping()
    values = tuple((name, tuple(map(poly, value))) for name, value in attributes)
    node = Apply(op, tuple(Var(f"x{i}") for i in range(len(shapes))), values)
    result = operator.shape(node, [tuple(map(poly, shape)) for shape in shapes], shaping)
    for condition in shaping.conditions:
        if shaping.resolve(condition).value({}) < 0:
            raise NoShapesError(f"{op} does not fit {', '.join(map(str, shapes))}")
    return tuple(shaping.resolve(size).value({}) for size in result)


def behind(store: Store, roots: Iterable[int], ends: Iterable[int] = ()) -> list[int]:
    """All nodes that some need, themselves among them, operands first.

    Args:
        ends: nodes that are not looked behind, and are none of them.
    """
    seen: set[int] = set(ends)
    order: list[int] = []
    stack = [(root, False) for root in roots if root not in seen][::-1]
    while stack:
        number, done = stack.pop()
        if done:
            order.append(number)
        elif number not in seen:
            seen.add(number)
            stack.append((number, True))
            stack += [(arg, False) for arg in reversed(store[number].args) if arg not in seen]
    return order


def depends(store: Store, roots: Iterable[int], on: Iterable[int]) -> bool:
    """Whether some nodes need others."""
    wanted = set(on)
    first = min(wanted, default=0)
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        number = stack.pop()
        if number in wanted:
            return True
        if number > first and number not in seen:  # numbers grow from operands to readers
            seen.add(number)
            stack += store[number].args
    return False


def replaced(store: Store, order: Sequence[int], instead: Mapping[int, int]) -> dict[int, int]:
    """What each node is when others stand for some of them; of nodes that nothing changes, themselves.

    Args:
        order: operands first. What stands for a node stays as it is.
    """
    after: dict[int, int] = {}
    for number in order:
        if number in instead:
            after[number] = instead[number]
            continue
        node = store[number]
        args = [after.get(arg, arg) for arg in node.args]
        after[number] = number if tuple(args) == node.args else store.again(node, args)
    return after


Cost = Callable[[Store, Sequence[int], Sequence[int]], float]
"""Seconds that some nodes take, operands first, of which others are read from elsewhere, too."""
