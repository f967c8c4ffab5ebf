"""The signature of an exported program, and which of its graph's placeholders are what."""

from __future__ import annotations

import itertools
from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    OutputKind,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Node

from covan_mlir.artifacts import pytree
from covan_mlir.artifacts.schema import MutatedBuffer, ResultKind
from covan_mlir.artifacts.signature import Dim, Leaf, Signature, Tap
from covan_mlir.errors import ExportError
from covan_mlir.frontend.capture import Capture
from covan_mlir.frontend.graph_passes.complex_pairs import COMPLEX
from covan_mlir.frontend.refusals import refused, user_line
from covan_mlir.frontend.size_one import not_one

_SCALARS = {SymIntArgument: "int", SymFloatArgument: "float", SymBoolArgument: "bool"}


@dataclass(frozen=True)
class Description:
    """A decomposed program, sorted by role.

    Attributes:
        parameters: placeholders that become the program's parameters: user inputs, then mutated buffers.
        weights: tensor of each placeholder that is a frozen parameter, buffer or lifted constant.
        results: nodes that the program returns, in the order of ``signature.results``.
    """

    signature: Signature
    parameters: tuple[Node, ...]
    weights: dict[Node, tuple[str, torch.Tensor]]
    results: tuple[Node, ...]


def describe(captured: Capture, decomposed: ExportedProgram) -> Description:
    """Sort the placeholders and outputs of the decomposed program.

    Raises:
        ExportError: an input or output is of a kind that cannot be compiled (complex, custom objects).
    """
    spec = decomposed.graph_signature
    placeholders = {node.name: node for node in decomposed.graph.nodes if node.op == "placeholder"}
    mutated_inputs = set(spec.user_inputs_to_mutate.values())
    mutated_buffers = list(dict.fromkeys(spec.buffers_to_mutate.values()))

    inputs: list[Leaf] = []
    leaf_of: dict[str, int] = {}
    user: list[Node] = []
    buffers: dict[str, Node] = {}
    weights: dict[Node, tuple[str, torch.Tensor]] = {}
    for item in spec.input_specs:
        name = getattr(item.arg, "name", "")
        if item.kind == InputKind.USER_INPUT:
            leaf_of[name] = len(inputs)
            leaf = _leaf(item.arg, placeholders.get(name), mutated=name in mutated_inputs)
            if name in captured.fixed:
                leaf = replace(leaf, fixed=tuple(captured.fixed[name].reshape(-1).tolist()))
            inputs.append(leaf)
            if leaf.kind != "constant":
                user.append(placeholders[name])
        elif item.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
            assert item.target is not None
            if item.target in mutated_buffers:
                buffers[item.target] = placeholders[name]
            else:
                weights[placeholders[name]] = (item.target, _held(decomposed, item.target))
        else:
            raise _effect(decomposed) or ExportError(
                f"the model takes {name!r}, a {item.kind.name.lower().replace('_', ' ')}, which cannot be compiled"
            )

    missing = [name for name in mutated_buffers if name not in buffers]
    if missing:
        raise ExportError(f"the model changes {missing}, which are parameters: only buffers can be changed in a call")
    returned = list(decomposed.graph.output_node().args[0])
    call_spec = captured.program.call_spec  # decomposition flattens the result
    out_spec = call_spec.out_spec.child(0) if captured.taps else call_spec.out_spec
    outputs: list[Leaf] = []
    results: list[tuple[ResultKind, int]] = []
    nodes: list[Node] = []
    states = list(buffers)
    for item, node in zip(spec.output_specs, returned, strict=True):
        if item.kind == OutputKind.BUFFER_MUTATION:
            assert item.target is not None
            results.append(("state", states.index(item.target)))
        elif item.kind == OutputKind.USER_INPUT_MUTATION:
            assert item.target is not None
            results.append(("input", leaf_of[item.target]))
        elif item.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT):
            leaf = _leaf(item.arg, node if isinstance(node, Node) else None)
            outputs.append(leaf)
            if leaf.kind == "constant":
                continue
            index = len(outputs) - 1
            own = index < out_spec.num_leaves
            results.append(("output", index) if own else ("tap", index - out_spec.num_leaves))
        else:
            raise ExportError(
                f"the model returns a {item.kind.name.lower().replace('_', ' ')}, which cannot be compiled"
            )
        nodes.append(node)

    count = out_spec.num_leaves
    taps = iter(outputs[count:])
    signature = Signature(
        in_tree=_tree(call_spec.in_spec, len(inputs)),
        out_tree=_tree(out_spec, count),
        inputs=tuple(inputs),
        outputs=tuple(outputs[:count]),
        taps=tuple(
            Tap(name, _tree(spec, spec.num_leaves), tuple(itertools.islice(taps, spec.num_leaves)))
            for name, spec in captured.taps
        ),
        states=tuple(_state(name, node) for name, node in buffers.items()),
        results=tuple(results),
        parameters=captured.parameters,
        symbols=_symbols(decomposed, not_one(captured.program)),
    )
    return Description(signature, (*user, *buffers.values()), weights, tuple(nodes))


def _effect(program: ExportedProgram) -> ExportError | None:
    """The error for an operator that does something beside giving a value, such as raising an error of its own."""
    node = next((node for node in program.graph.nodes if str(node.target) == "with_effects"), None)
    return node and refused(
        node, "it does something beside giving a value, such as raising an error for a singular matrix"
    )


def _held(program: ExportedProgram, name: str) -> torch.Tensor:
    # Non-persistent buffers and lifted constants are in `constants`; everything else in `state_dict`.
    held = program.state_dict.get(name, program.constants.get(name))
    if not isinstance(held, torch.Tensor):
        raise ExportError(f"the model uses {name!r}, a {type(held).__name__}: only tensors can be compiled in")
    return held.detach()


def _leaf(arg: Any, node: Node | None, *, mutated: bool = False) -> Leaf:
    if isinstance(arg, TensorArgument):
        assert node is not None
        value = node.meta["val"]
        if value.dtype.is_complex:
            raise ExportError(
                f"{user_line(node)}{arg.name} is {value.dtype}, which cannot be compiled: use torch.complex64 or "
                "torch.complex128"
            )
        if (pairs_of := node.meta.get(COMPLEX)) is not None:
            return Leaf("tensor", _name(pairs_of), _shape(value)[:-1], name=arg.name, mutated=mutated)
        if value.layout is not torch.strided:
            raise ExportError(
                f"{arg.name} has the layout {value.layout}: only dense tensors are supported; call to_dense()"
            )
        return Leaf("tensor", _dtype(value), _shape(value), name=arg.name, mutated=mutated)
    if isinstance(arg, ConstantArgument):
        if not isinstance(arg.value, int | float | bool | str | None):
            raise ExportError(f"{arg.name} is a {type(arg.value).__name__}, which cannot be compiled")
        return Leaf("constant", value=arg.value, name=arg.name)
    if type(arg) in _SCALARS:
        number: Any = node.meta["val"] if node is not None else None
        symbol = str(number.node.expr) if hasattr(number, "node") else ""
        return Leaf("scalar", _SCALARS[type(arg)], symbol=symbol, name=arg.name)
    raise ExportError(f"{getattr(arg, 'name', arg)} is a {type(arg).__name__}, which cannot be compiled")


def _dtype(value: torch.Tensor) -> str:
    return _name(value.dtype)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _shape(value: torch.Tensor) -> tuple[Dim, ...]:
    return tuple(d if isinstance(d, int) else str(d.node.expr) for d in value.shape)


def _state(name: str, node: Node) -> MutatedBuffer:
    value = node.meta["val"]
    return MutatedBuffer(name, _dtype(value), tuple(int(d) for d in value.shape))


def _symbols(program: ExportedProgram, greater: Container[str]) -> dict[str, tuple[int | None, int | None]]:
    """Least and greatest sizes, by symbol; of some, sizes are at least 2."""

    def bound(value: Any) -> int | None:
        # sympy infinities (int_oo among them) stand for "no bound"
        return int(value) if getattr(value, "is_Integer", False) and value.is_finite is not False else None

    return {
        str(symbol): (2 if str(symbol) in greater else bound(limits.lower), bound(limits.upper))
        for symbol, limits in program.range_constraints.items()
        if getattr(symbol, "is_Symbol", False)
    }


def _tree(spec: Any, leaves: int) -> pytree.Tree:
    """Our structure of torch's, by building a value of it: torch alone knows how its registered types unflatten."""
    # Tensors stand for the leaves: some registered types look at what they are given.
    tree = pytree.flatten(torch.utils._pytree.tree_unflatten([torch.empty(0)] * leaves, spec))[1]
    if tree.leaf_count != leaves:
        raise ExportError(f"the structure {spec} has {leaves} leaves for torch but {tree.leaf_count} here")
    return tree
