"""Attached operators in the graph of an exported program."""

from __future__ import annotations

import hashlib
import inspect
import operator
import textwrap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument
from torch.fx import Node
from torch.utils import _pytree as pytree

from covan_mlir.artifacts.attachment import Attachment, MlirFunction, plain_name
from covan_mlir.attaching import mlir
from covan_mlir.errors import ExportError, InputError
from covan_mlir.frontend.actions import type_strings, writes
from covan_mlir.frontend.capture import Capture, capture
from covan_mlir.frontend.groups import ATTACHED
from covan_mlir.frontend.rebuild import copied, mutates, observable, program_of, varying
from covan_mlir.provenance.attached import FOLDER

_STATEFUL = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


@dataclass(frozen=True)
class Goal:
    """An attachment and the node of the exported program that it is for.

    Attributes:
        action: name of the action that the node is of.
        again: nodes to be computed anew for it, so that the kernel that computes them for the model stays as it is;
            empty: it reads the model's own tensor.
    """

    key: str | int
    attachment: Attachment
    node: str
    action: str
    again: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Inserted:
    """What was inserted for one attachment.

    Attributes:
        nodes: names, in order.
        copies: those of nodes of the model that are computed once more; shared by attachments.
        results: names of the nodes whose values are the results.
        types: of the results.
        source: text of the function, if there is one.
        constants: SHA-256 by name.
    """

    nodes: tuple[str, ...]
    copies: frozenset[str]
    results: tuple[str, ...]
    types: tuple[str, ...]
    source: str
    constants: Mapping[str, str]


@dataclass(frozen=True)
class Insertion:
    """A program with attached operators.

    Attributes:
        captured: it returns the model's own results and the taps' by name, if there are taps.
        inserted: per goal, in order.
    """

    captured: Capture
    inserted: tuple[Inserted, ...]


def insert(captured: Capture, goals: Sequence[Goal]) -> Insertion:
    """Insert the operators; the captured program is left as it is.

    A tap reads the tensor as the model makes it, also where another attachment replaces it.

    Raises:
        InputError: a function does not fit its tensor: says which and why.
    """
    return _Inserter(captured, goals).run()


class _Inserter:
    def __init__(self, captured: Capture, goals: Sequence[Goal]) -> None:
        self._captured = captured
        self._goals = goals
        self._program = captured.program
        self._module = copied(captured.program)
        self._graph = self._module.graph
        self._nodes = {node.name: node for node in self._graph.nodes}
        self._mutates = mutates(self._graph)
        self._varying = varying(captured.program)
        self._inputs: list[InputSpec] = list(captured.program.graph_signature.input_specs)
        self._constants: dict[str, torch.Tensor] = {}
        self._attached: set[Node] = set()
        self._copies: dict[Node, Node] = {}
        self._barriers: dict[Node, Node] = {}

    def run(self) -> Insertion:
        order = {name: index for index, name in enumerate(self._nodes)}
        inserted: dict[int, tuple[Inserted, Any, list[Node]]] = {}
        # In the graph's order, so that what is computed again for one is there for the next.
        for index in sorted(range(len(self._goals)), key=lambda i: order[self._goals[i].node]):
            inserted[index] = self._one(self._goals[index])
        taps: dict[str, tuple[Any, list[Node]]] = {}
        for index, goal in enumerate(self._goals):
            _, spec, results = inserted[index]
            if goal.attachment.mode == "tap":
                taps[goal.attachment.name] = (spec, results)
            else:
                node = self._nodes[goal.node]
                node.replace_all_uses_with(results[0], delete_user_cb=lambda user: user not in self._attached)
        return Insertion(self._rebuilt(taps), tuple(inserted[index][0] for index in range(len(self._goals))))

    def _one(self, goal: Goal) -> tuple[Inserted, Any, list[Node]]:
        """-> (what was inserted, structure of the results, their nodes)."""
        attachment, node = goal.attachment, self._nodes[goal.node]
        at = _Cursor(self._graph, node, attachment.name, self._attached)
        tensor = self._tensor(goal, node, at)
        held: dict[str, str] = {}
        results: list[Any]
        if isinstance(attachment.fn, MlirFunction):
            results, spec = self._call(at, mlir.operator(attachment.fn, node.meta["val"], attachment.name), tensor)
            source = attachment.fn.text
        else:
            results, spec, held = self._traced(goal, tensor, at)
            source = _source(attachment.fn)
        for result in results:
            if not (isinstance(result, Node) and observable(result)):
                raise InputError(f"attach: {attachment.name!r} gives {result}, which is no tensor it computes")
        if not any(tensor in _behind(result) for result in results):
            raise InputError(f"attach: what {attachment.name!r} gives does not depend on {goal.action}")
        if attachment.mode == "replace":
            self._check_replacement(goal, node, results)
        types = tuple(text for result in results for text in type_strings(result.meta["val"]))
        copies = frozenset(new.name for old, new in self._copies.items() if old.name in goal.again)
        nodes = tuple(n.name for n in at.nodes)
        return Inserted(nodes, copies, tuple(n.name for n in results), types, source, held), spec, results

    def _tensor(self, goal: Goal, node: Node, at: _Cursor) -> Node:
        """What the attached operator reads."""
        if goal.again:
            return self._again(goal, node, at)
        if self._mutates and goal.attachment.mode == "tap":
            # What is written to later is read as it was when it was made.
            return at.call(torch.ops.aten.clone.default, (node,))
        return node

    def _again(self, goal: Goal, node: Node, at: _Cursor) -> Node:
        """The tensor computed anew, from what the kernels of the program have in memory; once for all attachments."""

        def read(value: Node) -> Node:
            if value.name in goal.again:
                return self._copies[value]
            if value not in self._barriers and value.name in self._varying and _is_tensor(value):
                self._barriers[value] = at.call(mlir.barrier(), (value,))
            return self._barriers.get(value, value)

        for old in [n for n in self._graph.nodes if n.name in goal.again]:
            if old not in self._copies:
                args, kwargs = torch.fx.map_arg((old.args, old.kwargs), read)
                self._copies[old] = at.call(old.target, args, kwargs, like=old)
        return self._copies[node]

    def _call(self, at: _Cursor, called: Any, tensor: Node) -> tuple[list[Node], Any]:
        whole = at.call(called, (tensor,))
        value = whole.meta["val"]
        if isinstance(value, torch.Tensor):
            return [whole], pytree.tree_structure(0)
        results = [at.call(operator.getitem, (whole, index)) for index in range(len(value))]
        return results, pytree.tree_structure((0,) * len(value))

    def _traced(self, goal: Goal, tensor: Node, at: _Cursor) -> tuple[list[Any], Any, dict[str, str]]:
        """The function's own exported graph, node by node, on the program's tensor."""
        attachment = goal.attachment
        traced = _exported(attachment, tensor.meta["val"])
        new: dict[Node, Any] = {}
        held: dict[str, str] = {}
        specs = {getattr(spec.arg, "name", ""): spec for spec in traced.graph_signature.input_specs}
        results: list[Any] = []
        needed = _behind(traced.graph.output_node())
        for old in traced.graph.nodes:
            if old not in needed:
                continue  # export's own assertions
            if old.op == "placeholder":
                spec = specs[old.name]
                if spec.kind is InputKind.USER_INPUT:
                    new[old] = tensor
                    continue
                value = traced.state_dict.get(spec.target, traced.constants.get(spec.target))
                if not isinstance(value, torch.Tensor):
                    raise InputError(
                        f"attach: {attachment.name!r} holds {spec.target!r}, a {type(value).__name__}, no tensor"
                    )
                held[str(spec.target)] = _digest(value)
                new[old] = self._constant(attachment, str(spec.target), value.detach())
            elif old.op == "get_attr":
                name = f"{FOLDER}_{plain_name(attachment.name)}_{plain_name(str(old.target))}"
                setattr(self._module, name, getattr(traced.graph_module, str(old.target)))
                with self._graph.inserting_before(at.next):
                    new[old] = self._graph.get_attr(name)
                self._attached.add(new[old])
            elif old.op == "output":
                results = [new[n] if isinstance(n, Node) else n for n in old.args[0]]
            else:
                args, kwargs = torch.fx.map_arg((old.args, old.kwargs), lambda n: new[n])
                new[old] = at.call(old.target, args, kwargs, like=old)
        return results, traced.call_spec.out_spec, held

    def _constant(self, attachment: Attachment, name: str, value: torch.Tensor) -> Node:
        """A placeholder for a tensor that the function holds, before the user's own arguments."""
        target = f"{FOLDER}.{plain_name(attachment.name)}.{name}"
        kinds = [spec.kind for spec in self._inputs]
        index = kinds.index(InputKind.USER_INPUT) if InputKind.USER_INPUT in kinds else len(kinds)
        places = [node for node in self._graph.nodes if node.op == "placeholder"]
        first = places[index] if index < len(places) else next(n for n in self._graph.nodes if n.op != "placeholder")
        with self._graph.inserting_before(first):
            node = self._graph.placeholder(f"c_{plain_name(target)}")
        mode = _fake_mode(self._graph)
        node.meta["val"] = mode.from_tensor(value, static_shapes=True) if mode else value
        self._inputs.insert(
            index, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name=node.name), target, persistent=None)
        )
        self._constants[target] = value
        return node

    def _check_replacement(self, goal: Goal, node: Node, results: Sequence[Node]) -> None:
        name = goal.attachment.name
        if len(results) != 1:
            raise InputError(f"attach: {name!r} replaces one tensor and gives {len(results)}")
        old, new = (type_strings(n.meta["val"])[0] for n in (node, results[0]))
        if old != new:
            raise InputError(
                f"attach: {name!r} gives {new} in place of {goal.action}, which is {old}: whoever reads it needs the "
                "same shape and dtype; attach it as a tap, mode='tap', or convert the result"
            )
        for other in self._goals:
            if other is not goal and other.node == goal.node and other.attachment.mode == "replace":
                raise InputError(f"attach: two attachments replace {goal.action}: compose them in one function")
        for user in node.users:
            if user not in self._attached and writes(user, node):
                raise InputError(f"attach: {user.name} writes to {goal.action}: attach to {user.name} instead")

    def _rebuilt(self, taps: Mapping[str, tuple[Any, list[Node]]]) -> Capture:
        """The program around the graph; the taps come after the model's own results."""
        output = self._graph.output_node()
        old = list(self._captured.program.graph_signature.output_specs)
        returned: Any = output.args[0]
        results: list[Any] = list(returned)
        specs = [
            OutputSpec(spec.kind, TensorArgument(name=node.name), spec.target)
            if isinstance(node, Node) and isinstance(spec.arg, TensorArgument)
            else spec
            for spec, node in zip(old, results, strict=True)
        ]
        nodes = [node for _, given in taps.values() for node in given]
        results += nodes
        specs += [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=node.name), None) for node in nodes]
        output.args = (tuple(results),)
        own = self._captured.program.call_spec.out_spec
        spec = own
        if taps:
            blank = {
                name: pytree.tree_unflatten([0] * structure.num_leaves, structure)
                for name, (structure, _) in taps.items()
            }
            leaves = pytree.tree_structure(blank)
            spec = pytree.TreeSpec(tuple, None, [own, leaves])
        program = program_of(self._program, self._module, specs, spec, inputs=self._inputs, constants=self._constants)
        return replace(
            self._captured, program=program, taps=tuple((name, structure) for name, (structure, _) in taps.items())
        )


class _Cursor:
    """Makes the nodes of one attachment, one after the other behind a tensor."""

    def __init__(self, graph: torch.fx.Graph, node: Node, name: str, attached: set[Node]) -> None:
        self._graph = graph
        self._name = name
        self.next = node.next
        while self.next in attached:  # behind what is attached to the same tensor
            self.next = self.next.next
        self.nodes: list[Node] = []
        self._attached = attached

    def call(
        self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None, like: Node | None = None
    ) -> Node:
        """A call; its value is computed on the values of its arguments, as the program has them."""
        stem = like.name if like is not None else getattr(target, "__name__", str(target)).split(".")[0]
        with self._graph.inserting_before(self.next):
            node = self._graph.create_node(
                "call_function", target, args, dict(kwargs or {}), f"{plain_name(self._name)}_{stem}"
            )
        node.meta["val"] = _value(node, like)
        inner = list((like.meta.get("nn_module_stack") or {}).values())[-1:] if like is not None else []
        path = ".".join(filter(None, [f"{FOLDER}.{plain_name(self._name)}", *(str(at) for at, _ in inner)]))
        node.meta["nn_module_stack"] = {path: (path, inner[0][1] if inner else "torch.nn.Module")}
        node.meta[ATTACHED] = self._name
        if like is not None and "stack_trace" in like.meta:
            node.meta["stack_trace"] = like.meta["stack_trace"]
        self.nodes.append(node)
        self._attached.add(node)
        return node


def _value(node: Node, like: Node | None) -> Any:
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    mode = _fake_mode(node.graph)
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        assert like is not None
        return pytree.tree_map_only(torch.Tensor, lambda tensor: _in_mode(tensor, mode), like.meta.get("val"))
    assert callable(node.target)
    with torch.no_grad():
        if mode is None:
            return node.target(*args, **kwargs)
        with mode:
            return node.target(*args, **kwargs)


def _in_mode(value: torch.Tensor, mode: Any) -> torch.Tensor:
    """A fake tensor of the same type in another mode."""
    sizes = [int(size) for size in value.shape]  # torch.cond's branches agree on sizes that are known
    if mode is None:
        return torch.empty(sizes, dtype=value.dtype)
    with mode:
        return torch.empty(sizes, dtype=value.dtype)


def _fake_mode(graph: torch.fx.Graph) -> Any:
    for node in graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is not None:
            return mode
    return None


def _exported(attachment: Attachment, value: torch.Tensor) -> torch.export.ExportedProgram:
    """The function, exported for a tensor of this type; a size that is open stays open."""
    sizes = [size if isinstance(size, int) else max(2, _hint(size)) for size in value.shape]
    example = torch.zeros(sizes, dtype=value.dtype)
    dynamic = {axis: torch.export.Dim.DYNAMIC for axis, size in enumerate(value.shape) if not isinstance(size, int)}
    fn: Any = attachment.fn
    shapes: Any = (dynamic,) if dynamic else None
    if shapes and not _has_signature(fn):  # exported as a function of any arguments
        shapes = (shapes,)
    if isinstance(fn, torch.nn.Module) and fn.training:
        raise InputError(f"attach: {attachment.name!r} is a module in training mode: call eval() on it")
    try:
        with torch.no_grad(), warnings.catch_warnings():
            program = capture(fn, (example,), None, shapes).program
            if not mutates(program.graph):
                return program
            warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own pytree classes
            plain: torch.export.ExportedProgram = program.run_decompositions({})
    except ExportError as error:
        kind = type_strings(value)[0]
        raise InputError(f"attach: {attachment.name!r} cannot be traced on {kind}: {error}") from error
    if any(spec.kind in _STATEFUL for spec in plain.graph_signature.output_specs):
        raise InputError(
            f"attach: {attachment.name!r} writes to its tensor or to its own buffers: an attached function only returns"
        )
    return plain


def _has_signature(fn: Callable[..., Any]) -> bool:
    """Whether a function says what it takes; ``torch.sqrt`` does not."""
    try:
        inspect.signature(fn)
    except (TypeError, ValueError):
        return False
    return True


def _hint(size: Any) -> int:
    try:
        return int(size.node.hint)
    except Exception:  # a size that depends on data has none
        return 8


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _behind(end: Node) -> set[Node]:
    """A node and all that it is computed from."""
    seen, stack = {end}, [end]
    while stack:
        for read in stack.pop().all_input_nodes:
            if read not in seen:
                seen.add(read)
                stack.append(read)
    return seen


def _source(fn: Callable[..., Any]) -> str:
    try:
        return textwrap.dedent(inspect.getsource(type(fn) if isinstance(fn, torch.nn.Module) else fn))
    except (OSError, TypeError):
        return ""


def _digest(value: torch.Tensor) -> str:
    flat = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    kind = f"{value.dtype}{list(value.shape)}".encode()
    return hashlib.sha256(kind + flat.tobytes()).hexdigest()
