"""Values with more elements than what they come from are computed again for the gradients, and not kept.

The weights of attention are such: of a product of queries and keys, one by one, and only products along their rows and
their columns read them. To keep them takes memory and time; a kernel that computes a tile of them, uses and forgets it,
takes neither (Dao et al., FlashAttention, 2022, section 3.1). So a graph of a function and its gradients is prepared:

- softmax of such a value becomes its parts, of which the statistics of each row are kept: its maximum, its sum;
- the sum over a row that softmax's gradient takes, of ``p[i, j] * (add over e: g[i, e] * v[j, e])`` over ``j``, is that
  of ``g[i, e] * (add over j: p[i, j] * v[j, e])`` over ``e``, by the order of the sums: what is in brackets is the
  result of the product behind softmax, which is there;
- all else that leads to the value is marked to be computed again.

Where a value is needed in memory for another reason, or the sums do not turn so, the graph stays as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.utils.checkpoint import CheckpointPolicy

aten = torch.ops.aten

_SAME_ORDER = frozenset(
    {
        aten.view.default,
        aten._unsafe_view.default,
        aten.reshape.default,
        aten.expand.default,
        aten.unsqueeze.default,
        aten.squeeze.dim,
        aten.detach.default,
        aten.alias.default,
        aten.clone.default,
    }
)
"""Views whose elements are in the order of what they are views of."""
_VIEWS = _SAME_ORDER | {aten.transpose.int, aten.permute.default}
_SOFTMAX = (aten._softmax.default, aten._safe_softmax.default)
_DROPOUT = aten.native_dropout.default
_PRODUCT = aten.bmm.default
_COMPUTED = (torch.float32, torch.float64)


def recompute_wide_values(graph: Graph) -> None:
    """Prepare a graph of a function and its gradients for being taken apart into both.

    Args:
        graph: of AOTAutograd, before the cut; changed in place.
    """
    backward = _behind(graph.find_nodes(op="placeholder", sort=False))
    for node in list(graph.nodes):
        if node.target == _PRODUCT and node not in backward and "recompute" not in node.meta and _is_wide(node):
            value = _WideValue.around(node, backward)
            if value is not None and (sums := value.row_sums()) is not None:
                value.prepare(graph, sums)
    graph.eliminate_dead_code()


def _behind(placeholders: Sequence[Node]) -> set[Node]:
    """What depends on gradients of results."""
    waiting = [node for node in placeholders if "tangents" in node.name]
    behind = set(waiting)
    while waiting:
        for user in waiting.pop().users:
            if user not in behind:
                behind.add(user)
                waiting.append(user)
    return behind


def _shape(node: Node) -> tuple[int, ...] | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not all(isinstance(size, int) for size in value.shape):
        return None
    return tuple(value.shape)


def _count(node: Node) -> int:
    shape = _shape(node)
    return -1 if shape is None else torch.Size(shape).numel()


def _is_wide(node: Node) -> bool:
    factors = [_count(arg) for arg in node.args if isinstance(arg, Node)]
    wide = len(factors) == 2 and min(factors) > 0 and _count(node) > sum(factors)
    return wide and node.meta["val"].dtype in _COMPUTED


def _is_element_wise(node: Node) -> bool:
    tags = getattr(node.target, "tags", ())
    return torch.Tag.pointwise in tags and torch.Tag.nondeterministic_seeded not in tags


def _through_views(node: Node) -> Node:
    """What a value is a view of, with its elements in the same order."""
    while node.op == "call_function" and node.target in _SAME_ORDER:
        (node, *_) = node.all_input_nodes
    return node


Factor = tuple[str, Any]
"""What a value is multiplied with, element by element."""


@dataclass
class _WideValue:
    """A product with more elements than its factors, and what is made of it one by one.

    Attributes:
        members: of the forward graph, the product first.
        products: that read them there.
    """

    members: dict[Node, None]
    backward: set[Node]
    products: list[Node] = field(default_factory=list)

    @staticmethod
    def around(product: Node, backward: set[Node]) -> _WideValue | None:
        """A product's; None if it is needed in memory."""
        value = _WideValue({product: None}, backward)
        waiting = [product]
        while waiting:
            node = waiting.pop()
            for user in node.users:
                if user in value.members or user in value.products:
                    continue
                if user.target == _PRODUCT:
                    if user not in backward:
                        value.products.append(user)
                elif user in backward:
                    if not value._may_read(user):
                        return None
                elif value._belongs(user, node):
                    value.members[user] = None
                    waiting.append(user)
                else:
                    return None
        return value if value.products and any(n in backward for m in value.members for n in m.users) else None

    @property
    def count(self) -> int:
        """Its elements."""
        return _count(next(iter(self.members)))

    def _belongs(self, user: Node, node: Node) -> bool:
        """Whether a reader of the forward graph makes elements of the value."""
        if user.target == _DROPOUT:
            return user.args[2] is not False
        if node.target == _DROPOUT:
            return user.op == "call_function"  # that takes the result or the mask
        if user.target in _SOFTMAX:
            shape = _shape(user)
            last = shape is not None and user.args[1] in (-1, len(shape) - 1)
            return last and user.meta["val"].dtype == node.meta["val"].dtype
        if user.op != "call_function" or _count(user) != self.count:
            return False
        return (user.target in _VIEWS or _is_element_wise(user)) and user.meta["val"].dtype in _COMPUTED

    def _may_read(self, user: Node) -> bool:
        """Whether a reader of the backward graph can do with elements that are computed again."""
        if user.op != "call_function" or _count(user) != self.count:
            return False
        names = (aten._softmax_backward_data.default, aten.native_dropout_backward.default)
        return user.target in _VIEWS or user.target in names or _is_element_wise(user)

    # Sums over rows

    def row_sums(self) -> dict[Node, tuple[Node, Node]] | None:
        """For each gradient of softmax: the two values, of the same shape, whose products' sums over their last axis
        are what it sums of each row. None if there is one that has none."""
        sums: dict[Node, tuple[Node, Node]] = {}
        for softmax in [node for node in self.members if node.target in _SOFTMAX]:
            for gradient in self._gradients(softmax):
                pair = self._turned(softmax, gradient)
                if pair is None or not self._only_multiplied(gradient):
                    return None
                sums[gradient] = pair
        return sums

    def _gradients(self, softmax: Node) -> list[Node]:
        waiting, gradients = [softmax], []
        while waiting:
            for user in waiting.pop().users:
                if user.target == aten._softmax_backward_data.default:
                    result = user.args[1]
                    if isinstance(result, Node) and _through_views(result) is softmax:
                        gradients += [user] if _shape(result) == _shape(softmax) else []
                elif user.target in _VIEWS:
                    waiting.append(user)
        return gradients

    def _only_multiplied(self, node: Node) -> bool:
        """Whether products alone read what is made of a value one by one: of a bias, a gradient is a sum of it."""
        waiting = [node]
        while waiting:
            for user in waiting.pop().users:
                if user.target == _PRODUCT:
                    continue
                if user.op != "call_function" or _count(user) != self.count:
                    return False
                if user.target not in _VIEWS and not _is_element_wise(user):
                    return False
                waiting.append(user)
        return True

    def _turned(self, softmax: Node, gradient: Node) -> tuple[Node, Node] | None:
        """The slope and the result of the product behind softmax, if what is summed is their product."""
        slope, factors = self._back(gradient.args[0])
        if slope is None:
            return None
        given, turned = slope.args
        value = _transposed(turned)
        for product in self.products:
            weights = product.args[0]
            source, own = self._back(weights, until=softmax)
            if source is softmax and own == factors and value is not None and product.args[1] is value:
                assert isinstance(given, Node)
                assert isinstance(weights, Node)
                # In both, rows are in softmax's order, and as long.
                lengths = {shape[-1] for shape in map(_shape, (slope, weights, softmax)) if shape is not None}
                if len(lengths) == 1 and _shape(given) == _shape(product):
                    return given, product
        return None

    def _back(self, node: Any, until: Node | None = None) -> tuple[Node | None, list[Factor]]:
        """The product, or another node, that a value is, but for what it is multiplied with."""
        factors: list[Factor] = []
        while isinstance(node, Node):
            node = _through_views(node)
            if node is until or (until is None and node.target == _PRODUCT):
                return node, sorted(factors, key=repr)
            if node.target == aten.native_dropout_backward.default:
                mask = node.args[1]
                mask = _through_views(mask) if isinstance(mask, Node) else mask
                if not isinstance(mask, Node) or mask.target is not operator.getitem:
                    return None, []
                factors.append(("dropout", mask.args[0]))
                node = node.args[0]
            elif node.target is operator.getitem and node.args[0].target == _DROPOUT:
                factors.append(("dropout", node.args[0]))
                node = node.args[0].args[0]
            else:
                return None, []
        return None, []

    # The graph

    def prepare(self, graph: Graph, sums: dict[Node, tuple[Node, Node]]) -> None:
        """Write the parts, and mark what is computed again."""
        again = [node for node in self.members if node.target not in (*_SOFTMAX, _DROPOUT)]
        again = [node for node in again if not (node.args and getattr(node.args[0], "target", None) == _DROPOUT)]
        for gradient, (slope, result) in sums.items():
            _write_gradient(graph, gradient, slope, result)
        for node in self.members:
            if node.target in _SOFTMAX:
                again += _write_softmax(graph, node)
            elif node.target == _DROPOUT:
                again += _write_dropout(graph, node)
        read = [other for node in again for other in node.all_input_nodes if other not in again]
        read += [other for slope, _ in sums.values() for user in slope.users for other in user.all_input_nodes]
        read += [other for product in self.products for other in product.all_input_nodes]
        forward = [node for node in read if node not in self.backward and node not in again]
        again += [node for node in _cheap(forward) if node.meta.get("recompute") != CheckpointPolicy.MUST_SAVE]
        for node in again:
            node.meta["recompute"] = CheckpointPolicy.MUST_RECOMPUTE
            node.meta["ac_graph_id"] = 0


def _transposed(node: Any) -> Node | None:
    """The value that another one is the transposition of its last two axes of."""
    if not isinstance(node, Node) or node.target != aten.transpose.int:
        return None
    rank = len(node.meta["val"].shape)
    axes = {int(axis) % rank for axis in node.args[1:]}  # type: ignore[arg-type]  # dimensions are numbers
    return node.all_input_nodes[0] if axes == {rank - 2, rank - 1} else None


def _cheap(nodes: Iterable[Node]) -> list[Node]:
    """What leads to some values of the forward graph and is computed again as well: views, what is made of one value
    by itself, and what depends on no argument."""
    waiting, cheap = list(nodes), dict[Node, None]()
    while waiting:
        node = waiting.pop()
        if node.op != "call_function" or node in cheap or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        alone = node.target in _VIEWS or (_is_element_wise(node) and len(node.all_input_nodes) == 1)
        if alone or not _depends(node):
            cheap[node] = None
            waiting += node.all_input_nodes
    return list(cheap)


def _depends(node: Node) -> bool:
    """Whether a value depends on an argument, or is drawn."""
    waiting, seen = [node], set[Node]()
    while waiting:
        node = waiting.pop()
        if node.op != "call_function" or torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            return True
        waiting += [other for other in node.all_input_nodes if other not in seen]
        seen.update(node.all_input_nodes)
    return False


@dataclass
class _Writer:
    """Writes calls before one of a graph, in its name."""

    graph: Graph
    like: Node
    calls: list[Node] = field(default_factory=list)

    def __call__(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        with self.graph.inserting_before(self.like):
            node = self.graph.call_function(target, args, kwargs)
        values = torch.fx.map_arg((args, kwargs), lambda given: given.meta["val"])
        mode = (
            self.like.meta["val"][0].fake_mode
            if isinstance(self.like.meta["val"], tuple)
            else self.like.meta["val"].fake_mode
        )
        with mode:
            value = target(*values[0], **values[1])
        node.meta = {key: told for key, told in self.like.meta.items() if key != "tensor_meta"} | {"val": value}
        self.calls.append(node)
        return node


def _write_softmax(graph: Graph, node: Node) -> list[Node]:
    """Softmax over the last axis by its parts. -> those that are computed again; statistics are not."""
    write = _Writer(graph, node)
    source: Any = node.args[0]
    peak = write(aten.amax.default, source, [-1], True)
    if node.target == aten._safe_softmax.default:  # a row of minus infinities gives zeros
        nothing = write(aten.eq.Scalar, peak, float("-inf"))
        zero, one = (write(aten.full_like.default, peak, number) for number in (0.0, 1.0))
        peak = write(aten.where.self, nothing, zero, peak)
    powers = write(aten.exp.default, write(aten.sub.Tensor, source, peak))
    total = write(aten.sum.dim_IntList, powers, [-1], True)
    if node.target == aten._safe_softmax.default:
        total = write(aten.where.self, nothing, one, total)
    result = write(aten.div.Tensor, powers, total)
    node.replace_all_uses_with(result)
    for statistic in (peak, total):
        statistic.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    count = _count(result)
    return [call for call in write.calls if _count(call) == count]


def _write_gradient(graph: Graph, node: Node, slope: Node, result: Node) -> None:
    """Softmax's gradient with the sum over each row that is given as that of products of two values."""
    write = _Writer(graph, node)
    given, softmax = node.args[:2]
    sums = write(aten.sum.dim_IntList, write(aten.mul.Tensor, slope, result), [-1], True)
    shape = [*softmax.meta["val"].shape[:-1], 1]  # type: ignore[union-attr]  # a node
    sums = write(aten.view.default, sums, shape)
    node.replace_all_uses_with(write(aten.mul.Tensor, softmax, write(aten.sub.Tensor, given, sums)))
    graph.erase_node(node)


def _write_dropout(graph: Graph, node: Node) -> list[Node]:
    """Dropout as products with its mask, which is drawn by a call that reads no elements.
    -> the products, which are computed again."""
    source, rate = node.args[:2]
    write = _Writer(graph, node)
    assert isinstance(source, Node)
    assert isinstance(rate, int | float)
    shape = list(source.meta["val"].shape)
    nothing = write(aten.full.default, [], 1.0, dtype=source.meta["val"].dtype, device=source.meta["val"].device)
    node.args = (write(aten.expand.default, nothing, shape), *node.args[1:])
    by_index = {user.args[1]: user for user in node.users}
    mask = by_index.get(1)
    if mask is None:
        with graph.inserting_after(node):
            mask = graph.call_function(operator.getitem, (node, 1))
        mask.meta = {**node.meta, "val": node.meta["val"][1]}
    node.append(mask)  # before what reads the result
    mask.meta["recompute"] = CheckpointPolicy.MUST_SAVE
    if 0 not in by_index:
        return []
    write = _Writer(graph, by_index[0])
    kept = write(aten.mul.Tensor, source, mask)
    scaled = write(aten.mul.Scalar, kept, 0.0 if rate == 1 else 1.0 / (1.0 - rate))
    by_index[0].replace_all_uses_with(scaled)
    graph.erase_node(by_index[0])
    return [kept, scaled]
