"""Actions: the call nodes of the exported graph."""

from __future__ import annotations

import logging
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from covan_mlir.frontend import frames
from covan_mlir.frontend.dtypes import NAMES
from covan_mlir.frontend.sources import ROLE, SourceNode, place, sources
from covan_mlir.provenance.model import Action

log = logging.getLogger(__name__)

_WHILE = torch.ops.higher_order.while_loop
_ITERATING = tuple(getattr(torch.ops.higher_order, name) for name in ("while_loop", "scan", "map_impl"))
"""Operators whose functions are given something else at each call."""


def op_name(node: Node) -> str:
    """``aten.softmax.int``, ``operator.getitem``, ``higher_order.while_loop``."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return str(node.args[1]) if str(target) == "with_effects" else f"higher_order.{target}"
    module = getattr(target, "__module__", "") or ""
    return f"{module.lstrip('_')}.{getattr(target, '__name__', target)}"


def type_strings(value: Any) -> tuple[str, ...]:
    """Types of a node's value: ``f32[8, 64]`` per tensor; Python scalars by their type's name."""
    if isinstance(value, torch.Tensor):
        return (f"{NAMES.get(value.dtype, str(value.dtype))}[{', '.join(str(d) for d in value.shape)}]",)
    if isinstance(value, list | tuple):
        return tuple(text for item in value for text in type_strings(item))
    return () if value is None else (type(value).__name__.removeprefix("Sym").lower(),)


def module_path(node: Node) -> str:
    """Path of the module instance whose forward made the call; a module called again keeps its path."""
    stack = node.meta.get("nn_module_stack")
    return str(list(stack.values())[-1][0]).split("@")[0] if stack else ""


def calls(graph: torch.fx.Graph) -> Iterator[Node]:
    """The call nodes of a graph, those of bodies before the operator that takes them.

    Whether a loop goes on is asked of what its body gives.
    """
    for node in graph.nodes:
        if node.op in ("call_function", "call_module", "call_method"):
            taken = bodies(node)
            for body in reversed(taken) if node.target is _WHILE else taken:
                yield from calls(body)
            yield node


def modules(node: Node) -> list[torch.fx.GraphModule]:
    """The functions that an operator takes: branches of ``cond``, bodies of loops, regions."""
    owner = node.graph.owning_module
    taken = [n for n in node.all_input_nodes if n.op == "get_attr"] if owner is not None else []
    values = [operator.attrgetter(str(n.target))(owner) for n in taken]
    return [value for value in values if isinstance(value, torch.fx.GraphModule)]


def bodies(node: Node) -> list[torch.fx.Graph]:
    """The graphs of these."""
    return [module.graph for module in modules(node)]


def constant_operands(node: Node) -> dict[Node, Node]:
    """Of an operator that takes functions: placeholders of these, and what each stands for in every call of them."""
    taken = bodies(node)
    functions = [n for n in node.all_input_nodes if n.op == "get_attr"]
    if not taken:
        return {}
    behind = node.args[max(index for index, arg in enumerate(node.args) if arg in functions) + 1 :]
    changing = len(pytree.tree_leaves(behind[:-1])) if node.target in _ITERATING else 0
    given = pytree.tree_leaves(behind)
    return {
        placeholder: value
        for body in taken
        for placeholder, value in list(zip(body.find_nodes(op="placeholder"), given, strict=False))[changing:]
        if isinstance(value, Node)
    }


def graphs(graph: torch.fx.Graph, path: str = "") -> Iterator[tuple[str, torch.fx.Graph]]:
    """A graph, and those of the bodies in it, each with what goes before its nodes' names."""
    yield path, graph
    owner = graph.owning_module
    for node in graph.nodes:
        if node.op == "get_attr" and owner is not None:
            value = operator.attrgetter(str(node.target))(owner)
            if isinstance(value, torch.fx.GraphModule):
                yield from graphs(value.graph, f"{path}{node.target}.")


def source_actions(graph: torch.fx.Graph) -> dict[str, Action]:
    """The action of each call node of the exported graph and of bodies in it, by the node's name, in order.

    Of a model that was exported as it is, each call is an action. Of one that was translated, the calls of one of its
    operations are one action, and operations without calls are actions, too, under names that no call has
    (`covan_mlir.frontend.sources`).
    """
    listed = list(calls(graph))
    order = _Order(listed, sources(graph))
    needed = _needed(graph)
    paths = {id(inner): path for path, inner in graphs(graph)}
    outside = {inner: value for node in listed for inner, value in constant_operands(node).items()}
    asked = {inner: values for node in listed for inner, values in _asked(node).items()}
    by_call: dict[str, Action] = {}
    for index, (source, own) in enumerate(order.actions):
        if source is not None and not own:
            by_call[f"<{source.name}>"] = _without_calls(index, source, order.places)  # no call is called so
            continue
        last = own[-1]
        name = last.name if source is None else source.name
        read = {order.ids[n] for node in own for n in _read(node, outside, asked) if n in order.ids} - {index}
        action = Action(
            id=index,
            name=paths[id(last.graph)] + name,
            op=op_name(last) if source is None else source.op,
            module=module_path(last) if source is None else source.module,
            frames=frames.parse(last.meta.get("stack_trace")) if source is None else source.frames,
            types=type_strings(last.meta.get("val")),
            inputs=tuple(sorted(read)),
            view=all(map(is_view, own)),
            live=not needed.isdisjoint(own),
            role=str(last.meta.get(ROLE, "")),
        )
        by_call |= {paths[id(node.graph)] + node.name: action for node in own}
    return by_call


def distinct(by_call: Mapping[str, Action]) -> tuple[Action, ...]:
    """The actions, each once, by id."""
    actions = {action.id: action for action in by_call.values()}
    return tuple(actions[index] for index in sorted(actions))


def action_of(graph: torch.fx.Graph) -> dict[Node, int]:
    """The id of each call's action."""
    return _Order(list(calls(graph)), sources(graph)).ids


class _Order:
    """Which calls are one action: those of an operation of the source, or each by itself.

    Attributes:
        actions: operation, if it is known, and calls of each action, in order.
        ids: of each call, its action's.
        places: of each operation, its action's.
    """

    def __init__(self, listed: Sequence[Node], known: Sequence[SourceNode]) -> None:
        own: list[list[Node]] = [[] for _ in known]
        strange: dict[int, list[Node]] = {}  # calls that export added, by the operation that they stand before
        at = [place(node) for node in listed]
        following = len(known)
        for node, index in zip(reversed(listed), reversed(at), strict=True):
            if index is None or index >= len(known):
                strange.setdefault(following, []).append(node)
            else:
                own[index].append(node)
                following = min(following, index)
        self.actions: list[tuple[SourceNode | None, list[Node]]] = []
        self.places: list[int] = []
        for index in range(len(known) + 1):
            self.actions += [(None, [node]) for node in reversed(strange.get(index, []))]
            if index < len(known):
                self.places.append(len(self.actions))
                self.actions.append((known[index], own[index][::-1]))
        self.ids = {node: index for index, (_, calls) in enumerate(self.actions) for node in calls}


def _without_calls(index: int, source: SourceNode, places: Sequence[int]) -> Action:
    """Of an operation that gives back what it is given, or whose value was computed by translation."""
    return Action(
        id=index,
        name=source.name,
        op=source.op,
        module=source.module,
        frames=source.frames,
        types=(),
        inputs=tuple(places[read] for read in source.inputs),
        view=source.view,
        live=True,
    )


def _asked(node: Node) -> dict[Node, list[Node]]:
    """Of the condition of a loop: placeholders, and what each stands for at first and later."""
    if node.target is not _WHILE or len(bodies(node)) < 2:
        return {}
    condition, body = bodies(node)
    start = pytree.tree_leaves(node.args[2])
    pairs = zip(start, pytree.tree_leaves(body.output_node().args[0]), strict=True)
    placeholders = condition.find_nodes(op="placeholder")
    return {
        placeholder: [value for value in pair if isinstance(value, Node)]
        for placeholder, pair in zip(placeholders, pairs, strict=False)
    }


def _read(node: Node, outside: Mapping[Node, Node], asked: Mapping[Node, Sequence[Node]]) -> Iterator[Node]:
    """What a node reads: for a body's operands what they stand for, and of a function what it returns."""
    stack = list(node.all_input_nodes)
    while stack:
        value = stack.pop()
        if value in outside:
            stack.append(outside[value])
        elif value in asked:
            stack += asked[value]
        else:
            yield value
    for body in bodies(node):
        yield from body.output_node().all_input_nodes


def _needed(graph: torch.fx.Graph) -> set[Node]:
    """Nodes that the results need. One that writes to its input, or to a view of it, is needed as far as that is:
    arguments and buffers outlive the call."""
    needed: set[Node] = set()
    stack = [graph.output_node(), *graph.find_nodes(op="placeholder"), *graph.find_nodes(op="get_attr")]
    while stack:
        node = stack.pop()
        if node in needed:
            continue
        needed.add(node)
        stack += node.all_input_nodes
        stack += [body.output_node() for body in bodies(node)]
        stack += _writers(node)
    return needed


def _writers(node: Node) -> list[Node]:
    """Calls that write to a value, or to a view of it."""
    writers: list[Node] = []
    stack, seen = [node], {node}
    while stack:
        value = stack.pop()
        for user in value.users:
            if writes(user, value):
                writers.append(user)
            elif user not in seen and is_view(user):
                seen.add(user)
                stack.append(user)
    return writers


def writes(node: Node, to: Node) -> bool:
    """Whether a call writes to a value that it is given."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return False
    arguments = node.target._schema.arguments
    return any(
        value is to and argument.alias_info is not None and argument.alias_info.is_write
        for argument, value in zip(arguments, node.args, strict=False)
    )


def is_view(node: Node) -> bool:
    """Whether the node's result is memory of its inputs, by its schema, or no tensor at all."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    if node.target._schema.name.startswith("aten::sym_"):
        return True
    returns = node.target._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def values_read(node: Node) -> list[Node]:
    """The nodes of which a node reads more than the shape; each once. Numbers that are read from tensors are values."""
    read = list(dict.fromkeys(node.all_input_nodes))
    return [n for n in read if _is_read_number(n)] if reads_sizes_only(node) else read


def _is_read_number(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool) and bool(free_unbacked_symbols(value))


def reads_sizes_only(node: Node) -> bool:
    """Whether a node reads the shape of its tensors, and none of their elements."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    name = node.target._schema.name.removeprefix("aten::")
    return name.startswith(("sym_", "new_")) or name.endswith("_like")
