"""Decomposition of the calls that differ, each once: the layers of a model repeat the same few.

torch decomposes a program by running it twice over fake tensors, call by call: most of the time that a transformer
takes to be imported. Where no call sees what another writes (`covan_mlir.frontend.in_place`), a call's decomposition
follows from its operation, from the types of what it is given and from its other arguments. So one program of the calls
that differ in these is decomposed, all on arguments of their own, and what comes of each takes the place of every call
like it.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg
from torch.fx.traceback import NodeSource, NodeSourceAction
from torch.utils import _pytree as pytree

from covan_mlir.errors import ExportError
from covan_mlir.frontend.dropouts import written_through
from covan_mlir.frontend.in_place import Written, WrittenElsewhere, functional_calls, writes_nothing

log = logging.getLogger(__name__)

aten = torch.ops.aten

Decompose = Callable[[ExportedProgram], ExportedProgram]

_SETTLED = aten._assert_tensor_metadata.default
"""Says types and devices of a tensor, which are settled, and gives nothing."""

_MOST_DIFFERENT = 0.75
"""Share of calls that differ up to which a program of them is decomposed in less time than the whole: measured."""

_OF_CALL = ("stack_trace", "nn_module_stack", "custom", "torch_fn", "source_fn_stack")
_OF_PART = ("val", "tensor_meta")
"""What a part has of its call, and what it has of its own."""


@dataclass(frozen=True)
class _Parts:
    """What came of a call: the nodes that do it, in order.

    Attributes:
        given: the placeholder of each tensor that the call reads.
        results: the nodes that have the elements of the call's result, None for those that are no tensors.
    """

    nodes: tuple[Node, ...]
    given: tuple[Node, ...]
    results: tuple[Node | None, ...]


def decompose_alike(program: ExportedProgram, decompose: Decompose) -> ExportedProgram | None:
    """``decompose(program)``, by way of a smaller program; None if there is none, or a call does not stand for itself.

    Args:
        decompose: gives the decomposed program, and leaves the given one as it is.
    """
    try:
        calls = _calls(program)
        written = functional_calls(program.graph)
        if written_through(program.graph):
            raise _NotAlone("the program writes to what dropout gives back")
        mode = next((value.fake_mode for value in _values(program.graph) if isinstance(value, FakeTensor)), None)
        if mode is None or not calls:
            raise _NotAlone("the program calls nothing")
        first: dict[Any, Node] = {}
        alike = {call: first.setdefault(_key(call), call) for call in calls}
        if len(first) > _MOST_DIFFERENT * len(calls):
            return None
        parts = _decomposed(tuple(first.values()), written, mode, decompose)
    except (_NotAlone, WrittenElsewhere, ExportError) as reason:  # what is refused alone is refused in the whole, too
        log.info("all calls are decomposed, and not one of each kind: %s", reason)
        return None
    return _assembled(program, {call: parts[like] for call, like in alike.items()}, written)


class _NotAlone(Exception):
    """What a call becomes depends on more than its own arguments."""


def _values(graph: Graph) -> Iterator[Any]:
    for node in graph.nodes:
        yield from pytree.tree_leaves(node.meta.get("val"))


def _calls(program: ExportedProgram) -> list[Node]:
    """The calls of operations, in order.

    Raises:
        _NotAlone: a size is open, an operation takes functions, or the program has a state.
    """
    signature = program.graph_signature
    if signature.backward_signature is not None or any(
        spec.kind is not OutputKind.USER_OUTPUT for spec in signature.output_specs
    ):
        raise _NotAlone("calls change a state")
    calls = []
    for node in program.graph.nodes:
        values = pytree.tree_leaves(node.meta.get("val"))
        if not all(_is_known(value, node) for value in values):
            raise _NotAlone(f"{node.name} has open sizes, or is no tensor")
        if node.op in ("placeholder", "output") or node.target in (operator.getitem, _SETTLED) or writes_nothing(node):
            continue
        if not isinstance(node.target, OpOverload) or not any(isinstance(value, FakeTensor) for value in values):
            raise _NotAlone(f"{node.name} is a call of its own kind")
        if node.target is aten.as_strided.default:
            raise _NotAlone("the program reads by strides")
        calls.append(node)
    return calls


def _is_known(value: Any, node: Node) -> bool:
    """Whether a value is a plain tensor of known sizes, or an argument of the program that is a plain number."""
    if not isinstance(value, FakeTensor):
        return value is None or (node.op == "placeholder" and isinstance(value, bool | int | float | str))
    if value.layout is not torch.strided or value.is_conj() or value.is_neg():
        return False
    known = (*value.shape, *value.stride(), value.storage_offset())
    return all(isinstance(number, int) for number in known)


def _given(call: Node) -> list[Node]:
    """The nodes that a call reads, each once."""
    return list(dict.fromkeys(call.all_input_nodes))


def _key(call: Node) -> Any:
    """What a call's decomposition follows from."""
    position = {node: index for index, node in enumerate(_given(call))}

    def text(value: Any) -> Any:
        if isinstance(value, Node):
            return "node", position[value]
        if isinstance(value, list | tuple):
            return tuple(map(text, value))
        return type(value).__name__, repr(value)  # 1, 1.0 and True are different arguments

    kwargs = tuple((name, text(value)) for name, value in sorted(call.kwargs.items()))
    return call.target, text(call.args), kwargs, tuple(_type(node.meta["val"]) for node in position)


def _type(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__, repr(value)
    return (
        value.dtype, tuple(value.shape), value.stride(), value.storage_offset(), value.device, value.requires_grad,
        isinstance(value, torch.nn.Parameter),
    )  # fmt: skip


def _decomposed(
    calls: tuple[Node, ...], written: Written, mode: FakeTensorMode, decompose: Decompose
) -> dict[Node, _Parts]:
    """What each call becomes."""
    graph = Graph()
    arguments: dict[Any, Node] = {}
    given: dict[Node, list[Node]] = {}
    for call in calls:
        given[call] = []
        for read in _given(call):
            value = read.meta["val"]
            kind = _type(value)
            # Nothing is written to: calls may have arguments in common, but no call one for two of its own.
            place = sum(_type(other.meta["val"]) == kind for other in _given(call)[: len(given[call])])
            if (kind, place) not in arguments:
                argument = arguments[kind, place] = graph.placeholder(f"given_{len(arguments)}")
                argument.meta["val"] = _own(value, mode) if isinstance(value, torch.Tensor) else value
            given[call].append(arguments[kind, place])
    results: dict[Node, list[Node | None]] = {}
    for call in calls:
        inside = dict(zip(_given(call), given[call], strict=True))
        twin = graph.node_copy(call, inside.__getitem__)
        if call in written:
            twin.target = written[call][0]
        value = call.meta["val"]
        if isinstance(value, torch.Tensor):
            results[call] = [twin]
            continue
        results[call] = []
        for index, element in enumerate(value):
            if not isinstance(element, torch.Tensor):
                results[call].append(None)
                continue
            taken = graph.call_function(operator.getitem, (twin, index))
            taken.meta = {**twin.meta, "val": element}
            results[call].append(taken)
    returned = [node for nodes in results.values() for node in nodes if node is not None]
    graph.output(tuple(returned))
    decomposed = decompose(_program(graph, list(arguments.values()), returned))
    placeholders = decomposed.graph.find_nodes(op="placeholder")
    if len(placeholders) != len(arguments):
        raise _NotAlone("a decomposition makes a constant")
    outside = dict(zip(arguments.values(), placeholders, strict=True))
    outputs = iter(cast("tuple[Node, ...]", decomposed.graph.output_node().args[0]))
    parts = {}
    for call in calls:
        own = tuple(outside[argument] for argument in given[call])
        ends = tuple(None if node is None else next(outputs) for node in results[call])
        parts[call] = _Parts(_between(own, ends), own, ends)
    return parts


def _own(value: Any, mode: FakeTensorMode) -> Any:
    """A tensor like ``value`` that shares its memory with no other."""
    with mode, torch.no_grad():
        size = value.storage_offset() + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)) + 1
        whole = torch.empty(size if value.numel() else 0, dtype=value.dtype, device=value.device)
        return whole.as_strided(value.shape, value.stride(), value.storage_offset())


def _program(graph: Graph, arguments: list[Node], returned: list[Node]) -> ExportedProgram:
    """A program of a flat tuple of arguments and a flat tuple of results."""
    inputs = [InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None) for node in arguments]
    outputs = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None) for node in returned]
    # Names of what goes in and out are left out: torch looks for them in the decomposed graph, where some are gone.
    signature = ModuleCallSignature(
        [], [], pytree.tree_structure(((0,) * len(arguments), {})), pytree.tree_structure((0,) * len(returned))
    )
    return ExportedProgram(
        root=GraphModule({}, graph),
        graph=graph,
        graph_signature=ExportGraphSignature(inputs, outputs),
        state_dict={},
        range_constraints={},
        module_call_graph=[ModuleCallEntry("", signature)],
        example_inputs=None,  # torch would write assertions about them, in the square of their number
        constants={},
    )


def _between(given: tuple[Node, ...], ends: tuple[Node | None, ...]) -> tuple[Node, ...]:
    """The nodes that results need, without what is given, in order."""
    needed: set[Node] = set()
    stack = [node for node in ends if node is not None]
    while stack:
        node = stack.pop()
        if node in needed or node in given:
            continue
        if node.op != "call_function":
            raise _NotAlone(f"a decomposition reads {node.name}")
        if node.target is aten.as_strided.default:
            raise _NotAlone("a decomposition reads by strides")
        needed.add(node)
        stack += node.all_input_nodes
    return tuple(sorted(needed))


def _assembled(program: ExportedProgram, parts: Mapping[Node, _Parts], written: Written) -> ExportedProgram:
    """The program, each call replaced by its parts."""
    graph = Graph()
    values: dict[Node, Any] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            values[node] = graph.node_copy(node)
            values[node].name = node.name  # as the signature has it: torch.fx would not take the name of a builtin
        elif node.op == "output":
            graph.output(map_arg(node.args[0], values.__getitem__))
        elif node.target is operator.getitem:
            values[node] = values[node.args[0]][node.args[1]]
        elif writes_nothing(node):
            values[node] = values[node.args[0]]
        elif node.target is not _SETTLED:
            results = _placed(graph, node, parts[node], [values[read] for read in _given(node)])
            values[node] = results[0] if isinstance(node.meta["val"], torch.Tensor) else results
            if node in written:
                values.update(dict.fromkeys(written[node][1], values[node]))
    returned = cast("tuple[Any, ...]", graph.output_node().args[0])
    signature = program.graph_signature
    outputs = [
        OutputSpec(spec.kind, TensorArgument(node.name) if isinstance(node, Node) else spec.arg, spec.target)
        for spec, node in zip(signature.output_specs, returned, strict=True)
    ]
    module = GraphModule(program.graph_module, graph)
    module.meta.update(program.graph_module.meta)
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=ExportGraphSignature(list(signature.input_specs), outputs),
        state_dict=dict(program.state_dict),
        range_constraints=dict(program.range_constraints),
        module_call_graph=list(program.module_call_graph),
        example_inputs=program.example_inputs,
        constants=dict(program.constants),
    )


def _placed(graph: Graph, call: Node, parts: _Parts, given: list[Node]) -> list[Node | None]:
    """Copies of a call's parts behind what the graph has; -> the elements of its result."""
    copies = dict(zip(parts.given, given, strict=True))
    meta = {key: call.meta[key] for key in _OF_CALL if key in call.meta}
    source = [NodeSource(call, "decompose", NodeSourceAction.CREATE)]
    for part in parts.nodes:
        copy = graph.node_copy(part, copies.__getitem__)
        copy.meta = {**meta, **{key: part.meta[key] for key in _OF_PART if key in part.meta}, "from_node": source}
        copies[part] = copy
    return [None if node is None else copies[node] for node in parts.results]
