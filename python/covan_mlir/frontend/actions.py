"""The ledger: actions of the exported graph, and the parts that decompositions made of them."""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from covan_mlir.frontend import frames
from covan_mlir.frontend.dtypes import NAMES
from covan_mlir.frontend.identity import fingerprint
from covan_mlir.provenance import arguments as arguments_text
from covan_mlir.provenance.model import ALIASES, Action, Part

log = logging.getLogger(__name__)

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
    """The call nodes of a graph, those of bodies before the operator that takes them."""
    for node in graph.nodes:
        if node.op in ("call_function", "call_module", "call_method"):
            for body in bodies(node):
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
    if not taken or node.target in _ITERATING:
        return {}
    behind = node.args[max(index for index, arg in enumerate(node.args) if arg in functions) + 1 :]
    given = pytree.tree_leaves(behind)
    return {
        placeholder: value
        for body in taken
        for placeholder, value in zip(body.find_nodes(op="placeholder"), given, strict=False)
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
    """One action per call node of the exported graph and of bodies in it, by name, in order."""
    ids = {node: index for index, node in enumerate(calls(graph))}
    needed = _needed(graph)
    paths = {id(inner): path for path, inner in graphs(graph)}
    names = {node: paths[id(node.graph)] + node.name for node in ids}
    outside = {inner: value for node in ids for inner, value in constant_operands(node).items()}
    return {
        names[node]: Action(
            id=index,
            name=names[node],
            op=op_name(node),
            module=module_path(node),
            frames=frames.parse(node.meta.get("stack_trace")),
            types=type_strings(node.meta.get("val")),
            inputs=tuple(sorted({ids[n] for n in _read(node, outside) if n in ids})),
            view=is_view(node),
            live=node in needed,
        )
        for node, index in ids.items()
    }


def _read(node: Node, outside: Mapping[Node, Node]) -> Iterator[Node]:
    """What a node reads: for a body's operands what they stand for, and of a function what it returns."""
    for value in node.all_input_nodes:
        while value in outside:
            value = outside[value]
        yield value
    for body in bodies(node):
        yield from body.output_node().all_input_nodes


def _needed(graph: torch.fx.Graph) -> set[Node]:
    """Nodes that the results need. One that writes to its input, or to a view of it, is needed as far as that is."""
    needed: set[Node] = set()
    stack = [graph.output_node()]
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


def ledger(
    exported: torch.fx.Graph,
    decomposed: torch.fx.Graph,
    arguments: Sequence[Node] = (),
    weights: Mapping[Node, str] | None = None,
) -> tuple[tuple[Action, ...], Mapping[Node, Part]]:
    """-> (actions with their parts, part of each call node of the decomposed graph).

    Args:
        arguments: placeholders that are the program's arguments, in order.
        weights: placeholders that are frozen in the program, and what the model calls them.
    """
    actions = source_actions(exported)
    known = {id(graph): path for path, graph in graphs(exported)}
    paths = {id(graph): path for path, graph in graphs(decomposed)}
    origin = {node: _origin(node, known, actions) for node in calls(decomposed)}
    _adopt(origin, actions)
    parts: dict[Node, Part] = {}
    position = {node: index for index, node in enumerate(arguments)}
    held = weights or {}
    numbers = _ValueNumbers()
    outside = {inner: value for node in origin for inner, value in constant_operands(node).items()}

    def meant(value: Node) -> Node:
        while value in outside:
            value = outside[value]
        return value

    def plain(value: Any) -> Any:
        if not isinstance(value, Node):
            return _plain(value)
        value = meant(value)
        if value in parts:
            return {"p": parts[value].id}
        own = paths[id(value.graph)] + value.name  # what a body is given is not known
        kind = {"a": position[value]} if value in position else {"w": held.get(value, own)}
        return kind | {"of": ", ".join(type_strings(value.meta.get("val")))}

    for index, (node, name) in enumerate(origin.items(), start=len(actions)):
        read = [] if reads_sizes_only(node) else list(dict.fromkeys(map(meant, node.all_input_nodes)))
        reads = sorted({parts[n].id for n in read if n in parts})
        if name is None:
            continue  # a graph without a single tie: the warning above says so
        args = arguments_text.encode(node.args, node.kwargs, _plain if reads_sizes_only(node) else plain)
        parts[node] = Part(
            id=index,
            action=actions[name].id,
            name=paths[id(node.graph)] + node.name,
            op=op_name(node),
            inputs=tuple(reads),
            types=type_strings(node.meta.get("val")),
            arguments=tuple(sorted(position[n] for n in read if n in position)),
            view=is_view(node),
            twin=numbers.first(node, index, op_name(node), args),
            args=args,
        )
    by_action: dict[int, list[Part]] = {}
    for part in parts.values():
        by_action.setdefault(part.action, []).append(part)
    whole = tuple(replace(action, parts=tuple(by_action.get(action.id, ()))) for action in actions.values())
    return whole, parts


def _plain(value: Any) -> Any:
    """The JSON form of an argument (`covan_mlir.provenance.arguments`) that JSON lacks; of a tensor, its type."""
    if isinstance(value, Node):
        return {"r": ", ".join(type_strings(value.meta.get("val")))}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"f": str(value)}
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return {"t": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"d": str(value)}
    if isinstance(value, slice):
        bounds = (value.start, value.stop, value.step)
        if all(bound is None or isinstance(bound, int) for bound in bounds):
            return {"s": list(bounds)}
    return {"r": repr(value)}


def reads_sizes_only(node: Node) -> bool:
    """Whether a node reads the shape of its tensors, and none of their elements."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    name = node.target._schema.name.removeprefix("aten::")
    return name.startswith(("sym_", "new_")) or name.endswith("_like")


def is_view(node: Node) -> bool:
    """Whether the node's result is memory of its inputs, by its schema, or no tensor at all."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    if node.target._schema.name.startswith("aten::sym_"):
        return True
    returns = node.target._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


class _ValueNumbers:
    """Which nodes compute the same from the same: value numbering over a graph without side effects."""

    def __init__(self) -> None:
        self._number: dict[Node, int] = {}
        self._first: dict[Any, int] = {}
        self._aliased: dict[Node, Node] = {}

    def first(self, node: Node, index: int, op: str, args: str) -> int:
        """The index under which the node's value was first seen; ``op`` and ``args`` as in its part."""
        key: Any = index
        if op in ALIASES and isinstance(node.args[0], Node):
            self._aliased[node] = self._aliased.get(node.args[0], node.args[0])
        if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
            constant = None if node.all_input_nodes else fingerprint(op, args)
            key = constant or (node.target, self._key(node.args), self._key(node.kwargs))
        self._number[node] = self._first.setdefault(key, index)
        return self._number[node]

    def _key(self, value: Any) -> Any:
        if isinstance(value, Node):
            value = self._aliased.get(value, value)
            return ("node", self._number.get(value, value))
        if isinstance(value, list | tuple):
            return tuple(self._key(item) for item in value)
        if isinstance(value, dict):
            return tuple((key, self._key(item)) for key, item in sorted(value.items()))
        return (type(value).__name__, repr(value))  # 1, 1.0 and True are different arguments


def _origin(node: Node, known: Mapping[int, str], actions: Mapping[str, Action]) -> str | None:
    """Name of the action that ``node`` is a part of, from torch's ``from_node`` chain.

    Args:
        known: ids of the exported graph and of bodies in it, with what goes before names in them.
    """
    sources = node.meta.get("from_node") or []
    while sources:
        source = sources[-1]
        if source.graph_id in known and (name := f"{known[source.graph_id]}{source.name}") in actions:
            return name
        sources = source.from_node
    return None


def _adopt(origin: dict[Node, str | None], actions: Mapping[str, Action]) -> None:
    """Nodes without a tie: torch makes such nodes of constants, and in some decompositions.

    One that kept its name and operation is its action's; any other belongs to the action that uses it first.
    """
    for node in reversed(origin):
        if origin[node] is None and node.name in actions and actions[node.name].op == op_name(node):
            origin[node] = node.name
        if origin[node] is None:
            origin[node] = next((origin[user] for user in node.users if origin.get(user)), None)
    for node, name in origin.items():
        if name is None:
            origin[node] = next((origin[n] for n in node.all_input_nodes if origin.get(n)), None)
            if origin[node] is None:
                log.warning("torch does not say which call %s (%s) comes from", node.name, op_name(node))
