"""Branches and loops that decide nothing, as the values that they give.

    cond of a constant                                              →  the function that it takes
    cond, a result that both functions compute alike                →  that, in front
    cond, a result that both functions hand on, or a constant       →  where(condition, one, other)
    while_loop, scan: what an iteration hands on as it was          →  what it is at first
    while_loop: a result that each iteration sets to the same       →  where(first condition, that, what it is at first)
    scan, map: an element that an iteration hands on                →  what is looped over
    scan, map over one element                                      →  the body, once

Compilers do all of this, each in its own way, and what is carried is gone then. Functions that operators in functions
take are done first; an operator that gives nothing any more is dropped.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils import _pytree as pytree

from covan_mlir.frontend.actions import bodies, modules
from covan_mlir.frontend.graph_passes.rotate import inlined
from covan_mlir.frontend.index_operands import call_of

aten = torch.ops.aten
_COND, _WHILE, _SCAN, _MAP = (
    getattr(torch.ops.higher_order, name) for name in ("cond", "while_loop", "scan", "map_impl")
)
_COPIES = frozenset({aten.clone.default, aten.alias.default, aten.detach.default, aten.lift_fresh_copy.default})
_ORIGINS = ("from_node", "nn_module_stack", "stack_trace")


def straighten(graph: Graph, constants: Mapping[str, torch.Tensor]) -> None:
    """All branches and loops of a graph, loops as `rotate` leaves them.

    Args:
        constants: values of placeholders that are constants of the program, by name.
    """
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        for body in bodies(node):
            straighten(body, {})
        if _shares_functions(node):
            continue
        if node.target is _COND:
            _choose(node, constants)
        elif node.target is _WHILE:
            _keep_unchanged(node)
            _set_once(node)
        elif node.target in (_SCAN, _MAP):
            _straighten_iterations(node)


def _choose(node: Node, constants: Mapping[str, torch.Tensor]) -> None:
    """Results that are the same in both functions, or that neither computes of what it is given; all of them if the
    condition is a constant."""
    condition, _, _, operands = node.args
    functions = modules(node)
    outside = pytree.tree_leaves(operands)
    if (truth := _truth(condition, constants)) is not None:
        with node.graph.inserting_before(node):
            taken = inlined(functions[0 if truth else 1], node.graph, outside)
        _give(node, dict(enumerate(taken)), functions)
        return
    numbers: dict[Hashable, int] = {}
    then, otherwise = (_Results(function, outside, numbers) for function in functions)
    chosen: dict[int, Any] = {}
    for index in range(len(node.meta["val"])):
        if then.number(index) is not None and then.number(index) == otherwise.number(index):
            chosen[index] = then.made(index, node)
        elif _is_number(condition) and then.is_no_work(index) and otherwise.is_no_work(index):
            one, other = (way.made(index, node) for way in (then, otherwise))
            with node.graph.inserting_before(node):
                chosen[index] = call_of(node, aten.where.self, condition, one, other, value=node.meta["val"][index])
    _give(node, chosen, functions)


def _shares_functions(node: Node) -> bool:
    """Whether a function of an operator is another's as well, or twice its own."""
    names = [str(read.target) for read in node.graph.find_nodes(op="get_attr") for _ in read.users]
    own = [str(read.target) for read in node.all_input_nodes if read.op == "get_attr"]
    return any(names.count(name) > 1 for name in own) or (node.target is _COND and len(modules(node)) < 2)


def _is_number(condition: Any) -> bool:
    """Whether a condition is a tensor without dimensions, and no size."""
    value = condition.meta.get("val") if isinstance(condition, Node) else None
    return isinstance(value, torch.Tensor) and value.dim() == 0


def _truth(condition: Any, constants: Mapping[str, torch.Tensor]) -> bool | None:
    """What a condition is, if that is known."""
    condition = _behind_copies(condition)
    if not isinstance(condition, Node):
        return bool(condition)
    held = constants.get(condition.name) if condition.op == "placeholder" else None
    return bool(held.item()) if held is not None and held.numel() == 1 else None


@dataclass(frozen=True)
class _Number:
    """In the place of a node that has it."""

    number: int | None


class _Results:
    """What a function returns, in terms of what is around it.

    Args:
        numbers: of values, by how they are computed; grows.
    """

    def __init__(self, function: GraphModule, outside: Sequence[Any], numbers: dict[Hashable, int]) -> None:
        self._given = dict(zip(function.graph.find_nodes(op="placeholder"), outside, strict=True))
        self._returned = _returned(function.graph)
        self._numbers: dict[Node, int | None] = {}
        for node in function.graph.nodes:
            computed = self._computed(node)
            self._numbers[node] = None if computed is None else numbers.setdefault(computed, len(numbers))

    def number(self, index: int) -> int | None:
        """Equal for results that are computed alike; None of those that are not known to be."""
        value = _behind_copies(self._returned[index])
        return self._numbers[value] if isinstance(value, Node) and _is_tensor(value) else None

    def is_no_work(self, index: int) -> bool:
        """Whether a result is handed on, or a constant."""
        value = _behind_copies(self._returned[index])
        if self.number(index) is None:
            return False
        return value in self._given or not self._given.keys() & set(_behind(value))

    def made(self, index: int, before: Node) -> Any:
        """A result, computed in front of a node."""
        value = _behind_copies(self._returned[index])
        values = dict(self._given)
        with before.graph.inserting_before(before):
            for node in _behind(value):
                if node not in values:
                    values[node] = before.graph.node_copy(node, values.__getitem__)
        return values[value]

    def _computed(self, node: Node) -> Hashable:
        if node in self._given:
            held = self._given[node]
            return ("given", held) if isinstance(held, Node) and _is_tensor(held) else None
        if node.op != "call_function" or _is_random(node) or bodies(node):
            return None
        if any(self._numbers[read] is None for read in node.all_input_nodes):
            return None
        args, kwargs = pytree.tree_map(
            lambda item: _Number(self._numbers[item]) if isinstance(item, Node) else item,
            (node.args, dict(node.kwargs)),
        )
        return node.target, repr(args), repr(sorted(kwargs.items()))


def _behind(value: Node) -> list[Node]:
    """A node and those that it is computed of, in order."""
    seen, stack = {value}, [value]
    while stack:
        new = set(stack.pop().all_input_nodes) - seen
        seen |= new
        stack += new
    return sorted(seen)


def _straighten_iterations(node: Node) -> None:
    """What `_keep_unchanged` does, and elements that are handed on; one iteration is done where it stands."""
    whole = _sequences(node)
    length = whole[0].meta["val"].shape[0] if whole else None
    if isinstance(length, int) and length == 1:
        _do_once(node, whole)
        return
    (function,) = modules(node)
    first, placeholders = len(_start(node)), function.graph.find_nodes(op="placeholder")
    elements = dict(zip(placeholders[first : first + len(whole)], whole, strict=True))
    chosen: dict[int, Any] = {}
    for index, value in enumerate(_returned(function.graph)[first:], start=first):
        if (behind := _behind_copies(value)) in elements:
            chosen[index] = elements[behind]
    _give(node, chosen, [function])
    _keep_unchanged(node)


def _do_once(node: Node, whole: Sequence[Node]) -> None:
    """``y = body(x[0])[None]``."""
    (function,) = modules(node)
    start, outside = _start(node), list(pytree.tree_leaves(node.args[-1]))
    placeholders = function.graph.find_nodes(op="placeholder")
    for placeholder, one in zip(placeholders[len(start) :], whole, strict=False):
        _select_first(node, placeholder, one.meta["val"])
    with node.graph.inserting_before(node):
        results = inlined(function, node.graph, [*start, *whole, *outside])
        values = results[: len(start)]
        for one in results[len(start) :]:
            values.append(call_of(node, aten.unsqueeze.default, one, 0, value=one.meta["val"].unsqueeze(0)))
    _give(node, dict(enumerate(values)), [function])


def _select_first(node: Node, placeholder: Node, whole: torch.Tensor) -> None:
    """Have a function take its element of what is looped over. It belongs to each that reads it: they are called before
    the operator is."""
    for user in list(placeholder.users):
        with placeholder.graph.inserting_before(user):
            reader = user if user.op == "call_function" else node
            element = placeholder.graph.call_function(aten.select.int, (placeholder, 0, 0))
            element.meta = {key: reader.meta[key] for key in _ORIGINS if key in reader.meta}
            element.meta["val"] = placeholder.meta["val"]
        user.replace_input_with(placeholder, element)
    placeholder.meta["val"] = whole


def _keep_unchanged(node: Node) -> None:
    """What is carried and never changes is what it is at first, and given to each iteration from outside."""
    if not node.users:
        return
    (function,) = modules(node)
    start, returned = _start(node), _returned(function.graph)
    following = returned[1:] if node.target is _WHILE else returned
    placeholders = function.graph.find_nodes(op="placeholder")
    kept = [
        index
        for index, (first, after) in enumerate(zip(start, following, strict=False))
        if _behind_copies(after) is placeholders[index] and isinstance(first, Node)
    ]
    if not kept:
        return
    for last, index in zip([placeholders[-1], *(placeholders[k] for k in kept)], kept, strict=False):
        if placeholders[index] is not last:  # behind all others
            last.append(placeholders[index])
    position = 2 if node.target is _WHILE else 1
    carried = tuple(value for index, value in enumerate(start) if index not in kept)
    outside = (*pytree.tree_leaves(node.args[-1]), *(start[index] for index in kept))
    args = list(node.args)
    args[position], args[-1] = carried if node.target is _WHILE else list(carried), outside
    node.args = tuple(args)
    _give(node, {index: start[index] for index in kept}, [function], shift=int(node.target is _WHILE))


def _set_once(node: Node) -> None:
    """What each iteration sets to a value that depends on nothing carried: what it is behind the loop, the first
    iteration decides. If no iteration reads it, it is carried no more."""
    condition, carried = node.args[0], _start(node)
    if node.op != "call_function" or not node.users or not _is_number(condition):
        return
    (function,) = modules(node)
    _fill(function.graph)
    outside = pytree.tree_leaves(node.args[-1])
    results = _Results(function, [*(None for _ in carried), *outside], {})
    chosen: dict[int, Any] = {}
    for index, first in enumerate(carried):
        if isinstance(first, Node) and results.number(index + 1) is not None:
            value = results.made(index + 1, node)
            with node.graph.inserting_before(node):
                chosen[index] = call_of(node, aten.where.self, condition, value, first, value=node.meta["val"][index])
    placeholders = function.graph.find_nodes(op="placeholder")
    unread = [index for index in chosen if not placeholders[index].users]
    for user in list(node.users):
        if (index := cast(int, user.args[1])) in chosen.keys() - set(unread):
            _stand_for(user, chosen[index])
    for index in unread:
        function.graph.erase_node(placeholders[index])
    args = list(node.args)
    args[2] = tuple(value for index, value in enumerate(carried) if index not in unread)
    node.args = tuple(args)
    _give(node, {index: chosen[index] for index in unread}, [function], shift=1)
    if chosen and not node.users:
        _drop(node)


def _fill(graph: Graph) -> None:
    """What is filled as something of a known size is, reads nothing of that."""
    for node in graph.find_nodes(op="call_function", target=aten.full_like.default):
        value = node.meta["val"]
        if all(isinstance(size, int) for size in value.shape) and value.is_contiguous():
            node.target, node.args = aten.full.default, (list(value.shape), node.args[1])
            node.kwargs = {"dtype": value.dtype, "device": value.device, "pin_memory": False}


def _give(node: Node, chosen: dict[int, Any], functions: Sequence[GraphModule], *, shift: int = 0) -> None:
    """Have some results of an operator be given by others, and its functions return the rest.

    Args:
        shift: how many values the functions return in front of the results.
    """
    if not chosen:
        return
    kept = [index for index in range(len(node.meta["val"])) if index not in chosen]
    for user in list(node.users):
        index = cast(int, user.args[1])
        if index in chosen:
            _stand_for(user, chosen[index])
        else:
            user.args = (node, kept.index(index))
    if not kept:
        _drop(node)
        return
    node.meta["val"] = tuple(node.meta["val"][index] for index in kept)
    for function in dict.fromkeys(functions):
        output, returned = function.graph.output_node(), _returned(function.graph)
        output.args = ((*returned[:shift], *(returned[shift + index] for index in kept)),)
        function.graph.eliminate_dead_code()


def _stand_for(result: Node, value: Node) -> None:
    """Have what takes a result of an operator be a value: a copy of it, for it may be returned."""
    result.target, result.args, result.kwargs = aten.clone.default, (value,), {}


def _drop(node: Node) -> None:
    for user in list(node.users):
        user.graph.erase_node(user)
    node.graph.erase_node(node)


def _behind_copies(value: Any) -> Any:
    while isinstance(value, Node) and value.target in _COPIES and _is_tensor(value):
        value = value.args[0]
    return value


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _is_random(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _returned(body: Graph) -> list[Any]:
    return list(pytree.tree_leaves(body.output_node().args[0]))


def _start(node: Node) -> list[Any]:
    """What is carried into the first iteration."""
    position = {_WHILE: 2, _SCAN: 1}.get(node.target)
    return [] if position is None else list(pytree.tree_leaves(node.args[position]))


def _sequences(node: Node) -> list[Node]:
    """What is looped over."""
    return list(pytree.tree_leaves(node.args[2 if node.target is _SCAN else 1]))
