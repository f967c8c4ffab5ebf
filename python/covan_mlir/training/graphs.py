"""A graph of AOTAutograd as a program: what it takes, what it gives, and what it is of the model."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor
from torch._functorch._aot_autograd.descriptors import AOTOutput, SavedForBackwardsAOTOutput
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
from torch.utils import _pytree as pytree

from covan_mlir.errors import ExportError
from covan_mlir.training.draws import Draw, taken_out
from covan_mlir.training.outside import is_outside, take_tensors_for_numbers, taken_apart


class Source(NamedTuple):
    """Where a result of a graph is.

    Attributes:
        kind: among a program's results, or among what is given.
        position: there.
        strides: those that PyTorch's result has, where a program's are others.
    """

    kind: Literal["result", "given"]
    position: int
    strides: tuple[int, ...] | None = None

    def of(self, results: Sequence[Any], given: Sequence[Any]) -> Any:
        """The result."""
        value = (results if self.kind == "result" else given)[self.position]
        return value if self.strides is None else _laid_out(value, self.strides)


class Piece(NamedTuple):
    """A result that torch computes when the program has run: a number, or a view (`outside`).

    Attributes:
        graph: of it.
        takes: where its arguments are.
    """

    graph: GraphModule
    takes: tuple[Source, ...]

    def of(self, results: Sequence[Any], given: Sequence[Any]) -> Any:
        """The result."""
        return self.graph(*(source.of(results, given) for source in self.takes))


class Check(NamedTuple):
    """A call that raises an error or does nothing: torch's own, after the program has run.

    Attributes:
        structure: of its arguments.
        leaves: of its arguments, with what gives it for each tensor.
    """

    target: Callable[..., None]
    structure: pytree.TreeSpec
    leaves: tuple[Any, ...]

    def run(self, results: Sequence[Any], given: Sequence[Any]) -> None:
        """Raise the error, if there is one."""
        leaves = [leaf.of(results, given) if isinstance(leaf, Source | Piece) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        self.target(*args, **kwargs)


@dataclass(frozen=True)
class GraphProgram:
    """A graph, its program, and how to call the one for the other.

    What is *given* is the graph's arguments, then the random numbers that torch draws for it, then its constants.

    Attributes:
        program: takes and returns tensors, each once; it draws no random numbers.
        draws: what draws the graph's random numbers, in its order.
        constants: tensors that the graph holds.
        takes: for each argument of the program, its position among what is given.
        gives: for each result of the graph that is no new value of a state, where it is; None: it is None.
        checks: of what the program computes.
    """

    program: ExportedProgram
    draws: tuple[Draw, ...]
    constants: tuple[Tensor, ...]
    takes: tuple[int, ...]
    gives: tuple[Source | Piece | None, ...]
    checks: tuple[Check, ...] = ()

    def call(self, run: Callable[..., Sequence[Any]], arguments: Sequence[Any]) -> list[Any]:
        """The graph's results, where ``run`` is its program compiled.

        Args:
            arguments: the graph's; anything in the places of what the program holds itself.
        """
        with torch.no_grad():
            given = [*arguments, *(draw(arguments) for draw in self.draws), *self.constants]
            taken = [x if isinstance(x := given[k], Tensor) else torch.tensor(x) for k in self.takes]
            results = run(*taken) if self.program.graph_signature.output_specs else ()
            for check in self.checks:
                check.run(results, given)
            return [None if what is None else what.of(results, given) for what in self.gives]


def program_of(
    module: GraphModule, held: Mapping[int, tuple[str, Tensor]] | None = None, updates: Mapping[int, str] | None = None
) -> GraphProgram:
    """The program of a graph whose calls are functions of tensors.

    Args:
        module: as AOTAutograd hands it over; left as it is.
        held: positions of arguments that the program holds itself, and the name and value of each.
        updates: positions of results that are new values of these, and their names.

    Raises:
        ExportError: the graph takes or gives what is no tensor, or its random numbers depend on what it computes.
    """
    held, updates = held or {}, updates or {}
    module = copy.deepcopy(module)
    graph = module.graph
    take_tensors_for_numbers(graph)
    given = graph.find_nodes(op="placeholder")
    names = {given[position]: name for position, (name, _) in held.items()}
    checking = _checks_taken_out(graph)
    drawn = taken_out(graph)
    attributes = graph.find_nodes(op="get_attr")
    given += [node for node, _ in drawn] + [_argument(node) for node in attributes]
    constants = tuple(_plain(operator.attrgetter(str(node.target))(module)) for node in attributes)
    for node in attributes:
        graph.erase_node(node)
    results = results_of(graph)
    changed = {updates[position]: node for position, node in enumerate(results) if position in updates}
    returned: dict[Node, int] = {}
    seen = [not isinstance(told, SavedForBackwardsAOTOutput) for told in described(graph)]
    gives = tuple(_given(results[k], given, returned, seen[k]) for k in range(len(results)) if k not in updates)
    checks = tuple(_check(node, given, returned) for node in checking)
    for node in reversed(checking):
        graph.erase_node(node)
    graph.output_node().args = ((*changed.values(), *returned),)
    graph.eliminate_dead_code()
    for node in graph.find_nodes(op="placeholder"):
        if not node.users:
            graph.erase_node(node)
        elif not isinstance(value := node.meta.get("val"), Tensor):
            raise ExportError(f"argument {node.name} of a graph of derivatives is no tensor")
        elif value.is_conj() or value.is_neg():  # what torch reads another way than it is in memory: not what is given
            node.meta = {**node.meta, "val": torch.empty_like(value)}
    taken = graph.find_nodes(op="placeholder")
    program = _exported(module, names, changed, list(returned), dict(held.values()))
    takes = tuple(given.index(node) for node in taken if node not in names)
    return GraphProgram(program, tuple(draw for _, draw in drawn), constants, takes, gives, checks)


def described(graph: Graph) -> list[AOTOutput | None]:
    """What AOTAutograd says of each result of a graph."""
    told: Sequence[AOTOutput | None] | None = graph.output_node().meta.get("desc")
    return list(told or [None] * len(results_of(graph)))


def results_of(graph: Graph) -> list[Any]:
    """The results of a graph of functions."""
    results = graph.output_node().args[0]
    assert isinstance(results, list | tuple)
    return list(results)


def _checks_taken_out(graph: Graph) -> list[Node]:
    """The calls that only raise errors, such as that a matrix has no inverse: taken out of the graph, but not erased.

    AOTAutograd keeps their order by a token that each takes and gives on.

    Raises:
        ExportError: a call with an effect gives values, too.
    """
    checks = graph.find_nodes(op="call_function", target=torch.ops.higher_order.with_effects)
    for node in checks:
        token, target = node.args[:2]
        if target._schema.returns:
            raise ExportError(f"{node.name} ({target}) has an effect beside its values, and cannot be compiled")
        for user in list(node.users):  # the first of the results, the token
            user.replace_all_uses_with(token)
            graph.erase_node(user)
    return list(checks)


def _check(node: Node, given: list[Node], returned: dict[Node, int]) -> Check:
    _, target, *args = node.args
    leaves, structure = pytree.tree_flatten((args, dict(node.kwargs)))
    sources = tuple(_given(leaf, given, returned, False) if isinstance(leaf, Node) else leaf for leaf in leaves)
    return Check(cast(Callable[..., None], target), structure, sources)


def _given(node: Any, given: Sequence[Node], returned: dict[Node, int], seen: bool) -> Source | Piece | None:
    """What gives a result; users see it, or it is only kept for the backward graph."""
    if node is None:
        return None
    if not isinstance(node, Node):
        raise ExportError(f"a graph of derivatives returns {node!r}, which is no tensor")
    if node not in given and is_outside(node):
        piece, tensors = taken_apart(node)
        return Piece(piece, tuple(_source(tensor, given, returned, True) for tensor in tensors))
    return _source(node, given, returned, seen)


def _source(node: Node, given: Sequence[Node], returned: dict[Node, int], seen: bool) -> Source:
    """Where a tensor is."""
    if node in given:
        return Source("given", given.index(node))
    value = node.meta["val"]
    strides = tuple(value.stride()) if seen and not value.is_contiguous() else None
    return Source("result", returned.setdefault(node, len(returned)), strides)


def _laid_out(value: Tensor, strides: tuple[int, ...]) -> Tensor:
    """A copy with these strides. Elements that share memory, as those of an expanded tensor, have one value."""
    empty = torch.empty_strided(value.shape, strides, dtype=value.dtype)
    if torch._debug_has_internal_overlap(empty) == 0:
        return empty.copy_(value)
    memory = empty.as_strided([empty.untyped_storage().nbytes() // empty.element_size()], [1], 0)
    places = torch.arange(memory.numel()).as_strided(value.shape, strides)
    memory[places] = value
    return empty


def _plain(constant: Tensor) -> Tensor:
    """A tensor with memory: that of zeros, as derivatives that are none are, has none."""
    zeros: Tensor = torch.zeros(constant.shape, dtype=constant.dtype)
    return zeros if torch._is_zerotensor(constant) else constant


def _argument(node: Node) -> Node:
    """A tensor that a graph holds, as an argument of it."""
    graph = node.graph
    with graph.inserting_before(next(iter(graph.nodes))):
        placeholder = graph.placeholder(f"held_{node.name}")
    placeholder.meta = dict(node.meta)
    node.replace_all_uses_with(placeholder)
    return placeholder


def _exported(
    module: GraphModule,
    names: Mapping[Node, str],
    changed: Mapping[str, Node],
    results: Sequence[Node],
    state: dict[str, Tensor],
) -> ExportedProgram:
    """A graph as torch.export would give it."""
    module.recompile()
    placeholders = module.graph.find_nodes(op="placeholder")
    inputs = [
        InputSpec(InputKind.BUFFER, TensorArgument(node.name), names[node], persistent=True)
        if node in names
        else InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None)
        for node in placeholders
    ]
    outputs = [
        OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(node.name), name) for name, node in changed.items()
    ]
    outputs += [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None) for node in results]
    examples = tuple(node.meta["val"] for node in placeholders if node not in names)
    signature = ModuleCallSignature(
        inputs=[],
        outputs=[],
        in_spec=pytree.tree_structure((examples, {})),
        out_spec=pytree.tree_structure(tuple(range(len(results)))),
    )
    kept = {names[node] for node in placeholders if node in names}
    return ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=ExportGraphSignature(inputs, outputs),
        state_dict={name: value for name, value in state.items() if name in kept},
        range_constraints={},
        module_call_graph=[ModuleCallEntry("", signature)],
        example_inputs=(examples, {}),
    )
