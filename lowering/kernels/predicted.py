"""What a program is predicted to take, as covan would compile it: kernels as `select` predicts them or as they were
measured, and of all else what it moves.

Products and convolutions are a kernel each, if there is one that pays, or a dispatch of the compiler's. What is done
element by element to a result that nobody else reads is done in the kernel that gives it; each other group of such
operations is a dispatch that reads and writes memory once. What is constant costs nothing: it is computed when the
program is compiled or loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from covan_mlir.fred.chain import Axis, Chain, Input, Reduce
from covan_mlir.fred.expression import Affine, Apply, Const, Expr, Read, Window
from covan_mlir.lowering.kernels.choice import Chooser
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.recorded import workload
from covan_mlir.lowering.kernels.reductions.profitability import Rates, compiled
from covan_mlir.lowering.kernels.select import choices
from covan_mlir.passes.substitution.reading import SHAPED
from covan_mlir.subst.operators import FUNCTIONS
from covan_mlir.subst.program import Node, Store

_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8}
_DENSE = frozenset({"matmul", "conv"})
_VIEWS = frozenset({"head", "tail", "merge", "divide", "broadcast", "transpose"})
"""What is read of others in another order: in place where who reads it can, which kernels and dispatches do."""
_PIECES = frozenset({"head", "tail"})
_ELEMENTWISE = frozenset(
    {"add", "sub", "mul", "div", "neg", "relu", "scale", "exp", "tanh", "sigmoid", "gelu", "silu", "sqrt", "rsqrt"}
)
_FUNCTION = 12
"""Instructions of a function such as the exponential, roughly."""
_ANY_ORDER = _ELEMENTWISE - {"scale"}
"""Scaling goes into the kernel that reads what is scaled, attention above all, which wants it as it lies in memory."""
_NOMINAL = Chain((Axis("i", 16),), (Input("a", ("i",), "f32"),), (), ("a",))


@dataclass
class PredictedCost:
    """Seconds of programs for one target; what was asked of a node is remembered.

    Attributes:
        chooser: who knows the target, and the schedules that were measured on it.
    """

    chooser: Chooser
    _known: dict[Chain, float] = field(default_factory=dict)

    def __call__(self, store: Store, order: Sequence[int], roots: Sequence[int]) -> float:
        """Seconds of one call of a program, or of a part of it.

        Args:
            order: its nodes, operands first.
            roots: of these, those that are read from elsewhere.
        """
        elsewhere = store.outside("elsewhere", (), "")
        readers: dict[int, list[int]] = {root: [elsewhere] for root in roots}
        for number in order:
            for arg in store[number].args:
                readers.setdefault(arg, []).append(number)
        return sum(self._node(store, number, readers) for number in order)

    def _node(self, store: Store, number: int, readers: Mapping[int, Sequence[int]]) -> float:
        node = store[number]
        if node.constant or not node.known:  # what rules are not about is the same in all programs that they make
            return 0.0
        if node.op in _DENSE:
            return self._dense(node, store)
        if node.op in _VIEWS:
            return self._view(store, number, readers)
        if node.op in _ELEMENTWISE:
            return self._elementwise(store, number, readers)
        moved = _bytes(node) + sum(_bytes(store[arg]) for arg in node.args)
        return self._rates.dispatch + moved / self._rates.bandwidth

    @property
    def _rates(self) -> Rates:
        return self.chooser.target.rates(_NOMINAL)

    def _view(self, store: Store, number: int, readers: Mapping[int, Sequence[int]]) -> float:
        """What does not lie in memory as it is read is copied, but for element-wise operations, which read anything:
        a piece of rows, a transposition."""
        node = store[number]
        axis = node.attribute("axis")[0] if node.op in ("head", "tail") else 0
        if node.op in ("merge", "divide", "broadcast") or (node.op in _PIECES and prod(node.shape[:axis]) == 1):
            return 0.0
        following = _readers_behind_views(store, number, readers)
        if node.op == "transpose" and all(store[reader].op == "matmul" for reader in following) and following:
            return 0.0  # products read either order
        if following and all(store[reader].known and store[reader].op in _ANY_ORDER for reader in following):
            return 0.0
        return self._rates.dispatch + 2 * _bytes(node) / self._rates.bandwidth

    def _elementwise(self, store: Store, number: int, readers: Mapping[int, Sequence[int]]) -> float:
        """What is read and written beside the kernel, or the group of such operations, that it is part of."""
        node = store[number]
        moved, joined = 0, False
        for arg in dict.fromkeys(node.args):
            given = _behind_views(store, arg)
            other = store[given]
            only = len(_readers_behind_views(store, given, readers)) == 1
            if not joined and only and other.known and not other.constant and other.op in _DENSE | _ELEMENTWISE:
                joined = True  # it is in its registers
            elif store[arg].shape:
                moved += min(_bytes(other), _bytes(store[arg]))
        following = _readers_behind_views(store, number, readers)
        kept = len(following) == 1 and store[following[0]].op in _ELEMENTWISE
        dense = joined and any(store[_behind_views(store, arg)].op in _DENSE for arg in node.args)
        if not kept and not dense:
            moved += _bytes(node)
        computed = prod(node.shape) * (_FUNCTION if node.op in FUNCTIONS else 1) / self._rates.instructions
        return moved / self._rates.bandwidth + computed + (0.0 if joined else self._rates.dispatch)

    def _dense(self, node: Node, store: Store) -> float:
        chain = _chain(node, [store[arg] for arg in node.args])
        if chain not in self._known:
            self._known[chain] = self._seconds(chain)
        return self._known[chain]

    def _seconds(self, chain: Chain) -> float:
        plain = self.chooser.computed(chain)
        rates = self.chooser.target.rates(plain)
        theirs = compiled(plain, rates)
        recorded = self.chooser.records.get(workload(plain)) if self.chooser.records else None
        if recorded is not None:
            return min(theirs, rates.dispatch + recorded.seconds)
        listed = choices(plain, self.chooser.target)
        if isinstance(listed, Refusal):
            return theirs
        return min(theirs, rates.dispatch + listed.candidates[0].seconds)


def _bytes(node: Node) -> int:
    return prod(node.shape) * _BYTES.get(node.element, 4)


def _is_view(node: Node) -> bool:
    """Whether a node is what it reads, elsewhere or in another shape."""
    return (node.known and node.op in _VIEWS) or node.op.partition(" ")[0] in SHAPED


def _behind_views(store: Store, number: int) -> int:
    while _is_view(store[number]):
        number = store[number].args[0]
    return number


def _readers_behind_views(store: Store, number: int, readers: Mapping[int, Sequence[int]]) -> list[int]:
    """Who reads a node, where that is a view, who reads that."""
    last: list[int] = []
    stack = list(readers.get(number, ()))
    while stack:
        reader = stack.pop()
        if _is_view(store[reader]) and readers.get(reader):
            stack += readers[reader]
        else:
            last.append(reader)
    return last


def _chain(node: Node, operands: Sequence[Node]) -> Chain:
    """A product or convolution alone."""
    return _product(node, operands) if node.op == "matmul" else _convolution(node, operands)


def _product(node: Node, operands: Sequence[Node]) -> Chain:
    left, right = operands
    batch = tuple(f"b{i}" for i in range(len(node.shape) - 2))
    rows, columns = node.shape[-2:]
    sizes = {**dict(zip(batch, node.shape, strict=False)), "m": rows, "n": columns, "k": left.shape[-1]}
    inputs = (
        Input("a", (*batch, "m", "k"), node.element, weight=left.constant),
        Input("b", (*batch, "k", "n"), node.element, weight=right.constant),
    )
    kept = (*batch, *(("m",) if rows > 1 else ()), "n")
    if rows == 1:
        inputs = (Input("a", (*batch, "k"), node.element, weight=left.constant), inputs[1])
        del sizes["m"]
    term = _times(Read("a", node.element), Read("b", node.element))
    return _of_sum(sizes, inputs, kept, ("k",), term, node.element)


def _convolution(node: Node, operands: Sequence[Node]) -> Chain:
    image, kernel = operands
    groups = node.attribute("groups")[0]
    batch, _, height, width = image.shape
    outputs, inner, *window = kernel.shape
    deep = groups == outputs and inner == 1
    sizes = {"n": batch} if batch > 1 else {}
    sizes |= {"g": groups} if groups > 1 else {}
    sizes |= {} if deep else {"k": outputs // groups, "c": inner}
    sizes |= {"H": height, "W": width, "h": node.shape[2], "w": node.shape[3], "r": window[0], "s": window[1]}
    lead = tuple(axis for axis in ("n", "g") if axis in sizes)
    channels = () if deep else ("c",)
    own = (*(("g",) if groups > 1 else ()), *(() if deep else ("k",)))
    x = Input("x", (*lead, *channels, "H", "W"), node.element)
    f = Input("f", (*own, *channels, "r", "s"), node.element, weight=kernel.constant)
    at = [Affine.of([(axis, 1)]) for axis in (*lead, *channels)]
    for axis, tap, stride, step, pad in zip(
        "hw", "rs", node.attribute("stride"), node.attribute("dilation"), node.attribute("pad"), strict=True
    ):
        at.append(Affine.of([(axis, stride), (tap, step)], -pad))
    window_read = Window("x", node.element, tuple(at), Const(0.0, node.element))
    kept = (*(("n",) if batch > 1 else ()), *own, "h", "w")
    term = _times(window_read, Read("f", node.element))
    return _of_sum(sizes, (x, f), kept, (*channels, "r", "s"), term, node.element)


def _times(left: Expr, right: Expr) -> Expr:
    return Apply("arith.mulf", (left, right), left.dtype)


def _of_sum(
    sizes: Mapping[str, int],
    inputs: tuple[Input, ...],
    kept: tuple[str, ...],
    over: tuple[str, ...],
    term: Expr,
    kind: str,
) -> Chain:
    step = Reduce("s", kept, over, "add", term, Const(0.0, kind), kind)
    return Chain(tuple(Axis(name, size) for name, size in sizes.items()), inputs, (step,), ("s",))
