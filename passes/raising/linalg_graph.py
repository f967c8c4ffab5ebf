"""A block of linalg on tensors as plain data: what the search for chains looks at.

Each op is a node. What is not understood is opaque: it is neither wrong nor interesting, it stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from covan_mlir.fred.chain import Combine
from covan_mlir.fred.expression import Affine, Apply, Const, Expr, Extent, Read, walk
from covan_mlir.passes.raising.sizes import Sum

Dims = tuple[int | None, ...]
"""For each dimension of a tensor the loop that indexes it; None where it has size 1."""

_CHEAP_DIALECT = "arith."
_EXPENSIVE = frozenset({"arith.divf", "arith.remf"})


@dataclass(frozen=True)
class LinalgResult:
    """What one result of a node is: an expression, combined over the loops that do not index it.

    Expressions read operand ``k`` of the node as ``Read("#k")``, the position of loop ``l`` as ``Index("@l")``, and
    sizes that are known at run time only as `LinalgGraph.extents` names them.

    Attributes:
        picked: of a gather, which is a sum over the last loop: the only position on it that counts.
        added: what is added to each sum: an operand.
    """

    value: int
    dims: Dims
    expr: Expr
    combine: Combine | None = None
    operation: str = ""
    initial: Const | None = None
    picked: Expr | None = None
    added: Read | None = None


@dataclass(frozen=True)
class WindowPiece:
    """A piece of a dimension that is read at the position ``at``, over loops ``@l``.

    Attributes:
        loops: those whose positions together are just those of the piece, outermost first; none if it is read at
            others.
    """

    at: Affine
    size: int | None
    loops: tuple[int, ...]


@dataclass(frozen=True)
class OperandWindow:
    """The window through which an operand is read.

    Attributes:
        value: what is read, without the padding and the reshapes that give the operand.
        pieces: of each dimension of the value, outermost first; none for one of size 1.
        outside: what is read where a position lies outside.
        through: nodes of the padding and the reshapes.
    """

    value: int
    pieces: tuple[tuple[WindowPiece, ...], ...]
    outside: Const
    through: frozenset[int]


@dataclass(frozen=True)
class NodeOperand:
    """A value that a node reads, and how it is indexed: by loops, or through a window."""

    value: int
    dims: Dims
    window: OperandWindow | None = None


@dataclass(frozen=True)
class LinalgNode:
    """One op.

    Attributes:
        kind: ``compute``; ``view``: the same elements in another shape; ``opaque``.
        loops: sizes of the loops of a compute node; None where dynamic.
        operands: what a compute node reads.
        parts: its results; None for one that is not understood, which is then never read.
        groups: of a view, dimensions of its source and of its result that hold the same elements.
        source, result: values of a view, and of padding.
    """

    index: int
    op: Any
    kind: str
    loops: tuple[int | None, ...] = ()
    operands: tuple[NodeOperand, ...] = ()
    parts: tuple[LinalgResult | None, ...] = ()
    groups: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    source: int = -1
    result: int = -1

    @property
    def results(self) -> list[int]:
        """Values that it gives; of an opaque node, those of padding only."""
        return [self.result] if self.result >= 0 else [part.value for part in self.parts if part is not None]

    @property
    def windowed(self) -> bool:
        """Whether it reads through windows: a convolution, a pooling."""
        return any(operand.window is not None for operand in self.operands)

    @property
    def reduces(self) -> bool:
        """Whether it is a reduction."""
        return any(part is not None and part.combine is not None for part in self.parts)

    @property
    def gathers(self) -> bool:
        """Whether it picks elements by positions that the data tell."""
        return any(part is not None and part.picked is not None for part in self.parts)

    @property
    def copies(self) -> bool:
        """Whether it computes nothing: a broadcast, a transposition."""
        return self.kind == "view" or (
            len(self.parts) == len(self.operands) == 1
            and self.parts[0] is not None
            and self.parts[0].combine is None
            and isinstance(self.parts[0].expr, Read)
        )

    @property
    def widens(self) -> bool:
        """Whether it only holds what it reads in more bits: who reads it may as well do so."""
        if len(self.parts) != 1 or self.parts[0] is None or self.parts[0].combine is not None:
            return False
        expr = self.parts[0].expr
        return isinstance(expr, Apply) and expr.op == "arith.extf" and isinstance(expr.args[0], Read)

    @property
    def multiplies(self) -> bool:
        """Whether it multiplies two values, element by element."""
        if len(self.parts) != 1 or self.parts[0] is None or self.parts[0].combine is not None:
            return False
        expr = self.parts[0].expr
        return isinstance(expr, Apply) and expr.op == "arith.mulf" and all(isinstance(arg, Read) for arg in expr.args)

    @property
    def over(self) -> frozenset[int]:
        """The loops that it reduces."""
        kept = {loop for part in self.parts if part is not None for loop in part.dims}
        return frozenset(range(len(self.loops))) - kept

    @property
    def contracts(self) -> bool:
        """Whether it combines, over loops that they have in common, values with different positions: a product of
        matrices, or of a matrix and a vector. What reads through windows is not asked."""
        if not self.reduces or self.windowed:
            return False
        summed = [frozenset(operand.dims) for operand in self.operands if self.over & frozenset(operand.dims)]
        return len(set(summed)) > 1


@dataclass
class LinalgGraph:
    """A block.

    Attributes:
        values: by number.
        shapes, dtypes: of values, where they are tensors.
        definition: number of the node that gives a value; absent for arguments.
        users: nodes that read a value.
        needs: of each node, those whose results its op takes: also as memory to write into, as numbers in its body, and
            as sizes.
        constants: values whose elements are all one number.
        closed: values that depend on positions only, and cheaply: expressions over ``Index("@k")``, k a dimension.
        weights: values that come from constant tensors, from arguments that hold weights, or from nothing at all.
        parameters: those of them that come from arguments: they stay in memory as they are.
        sources: nodes that a closed value was made by.
        extents: sizes of tensors' dimensions, by value (`covan_mlir.passes.raising.sizes.SizeReader`).
        sums: sizes that are sums of others.
    """

    nodes: list[LinalgNode] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    shapes: list[tuple[int | None, ...]] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    definition: dict[int, int] = field(default_factory=dict)
    users: dict[int, list[int]] = field(default_factory=dict)
    needs: list[set[int]] = field(default_factory=list)
    constants: dict[int, Const] = field(default_factory=dict)
    closed: dict[int, Expr] = field(default_factory=dict)
    weights: set[int] = field(default_factory=set)
    parameters: set[int] = field(default_factory=set)
    sources: dict[int, frozenset[int]] = field(default_factory=dict)
    extents: dict[int, tuple[Expr, ...]] = field(default_factory=dict)
    sums: dict[Extent, Sum] = field(default_factory=dict)

    def only_multiplied(self, value: int) -> bool:
        """Whether nothing but products of matrices and convolutions reads a value, or what it is a view of; of halves
        what they are in more bits, too."""
        waiting = [self._origin(value)]
        while waiting:
            for user in map(self.nodes.__getitem__, self.users.get(waiting.pop(), [])):
                if user.copies or user.widens:
                    waiting += user.results
                elif not (user.contracts or user.windowed) and user.op.name != "tensor.dim":
                    return False
        return True

    def only_scales(self, value: int) -> bool:
        """Whether nothing but the results of products of matrices and convolutions is multiplied with a vector, and
        nothing else reads it."""
        waiting = [self._origin(value)]
        if sum(size != 1 for size in self.shapes[waiting[0]]) != 1:
            return False
        while waiting:
            scale = waiting.pop()
            for user in map(self.nodes.__getitem__, self.users.get(scale, [])):
                if user.copies:
                    waiting += user.results
                elif not (
                    user.multiplies and any(self._is_product(o.value) for o in user.operands if o.value != scale)
                ):
                    return False
        return True

    def _origin(self, value: int) -> int:
        """What a value is a view or a broadcast of."""
        while (node := self._definition(value)) is not None and node.copies:
            value = node.source if node.kind == "view" else node.operands[0].value
        return value

    def _is_product(self, value: int) -> bool:
        node = self._definition(self._origin(value))
        return node is not None and node.reduces and (node.contracts or node.windowed)

    def _definition(self, value: int) -> LinalgNode | None:
        return self.nodes[self.definition[value]] if value in self.definition else None


def is_cheap(expr: Expr) -> bool:
    """Whether computing it again costs next to nothing."""
    return all(
        not isinstance(node, Apply) or (node.op.startswith(_CHEAP_DIALECT) and node.op not in _EXPENSIVE)
        for node in walk(expr)
    )
