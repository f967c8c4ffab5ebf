"""Ways to change one node of a decomposed graph, or one weight, so that everything around it stays as it is.

A mutant keeps shapes, types and, as far as one can tell beforehand, costs: the program should be cut into the same
sites. Numbers are changed where the schema asks for a number (not for a dimension or a size), and never from or to a
neutral element, because the compiler takes ``x * 1`` away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Node

_aten = torch.ops.aten

_SWAPS: dict[Any, Any] = {
    _aten.add.Tensor: _aten.sub.Tensor,
    _aten.sub.Tensor: _aten.add.Tensor,
    _aten.mul.Tensor: _aten.sub.Tensor,
    _aten.div.Tensor: _aten.sub.Tensor,
    _aten.relu.default: _aten.sigmoid.default,
    _aten.sigmoid.default: _aten.tanh.default,
    _aten.tanh.default: _aten.sigmoid.default,
    _aten.gelu.default: _aten.silu.default,
    _aten.silu.default: _aten.sigmoid.default,
    _aten.rsqrt.default: _aten.sqrt.default,
    _aten.sqrt.default: _aten.rsqrt.default,
    _aten.reciprocal.default: _aten.sqrt.default,
    _aten.exp.default: _aten.sin.default,
    _aten.log.default: _aten.sin.default,
    _aten.erf.default: _aten.tanh.default,
    _aten.cos.default: _aten.tanh.default,  # sine and cosine of one angle often stand side by side: twins, if swapped
    _aten.sin.default: _aten.tanh.default,
    _aten.neg.default: _aten.abs.default,
    _aten.abs.default: _aten.neg.default,
    _aten.minimum.default: _aten.maximum.default,
    _aten.maximum.default: _aten.minimum.default,
    _aten.amax.default: _aten.amin.default,
    _aten.amin.default: _aten.amax.default,
    _aten.max.dim: _aten.min.dim,
    _aten.min.dim: _aten.max.dim,
    _aten.argmax.default: _aten.argmin.default,
    _aten.argmin.default: _aten.argmax.default,
    _aten.all.dim: _aten.any.dim,
    _aten.any.dim: _aten.all.dim,
    _aten.le.Tensor: _aten.lt.Tensor,
    _aten.lt.Tensor: _aten.le.Tensor,
    _aten.gt.Tensor: _aten.ge.Tensor,
    _aten.ge.Tensor: _aten.gt.Tensor,
    _aten.bitwise_and.Tensor: _aten.bitwise_or.Tensor,
    _aten.logical_and.default: _aten.logical_or.default,
}
_ARITHMETIC = ("aten::add", "aten::sub", "aten::rsub", "aten::mul", "aten::div", "aten::pow")
_EXCHANGED = {_aten.where.self: (1, 2)}
_HUGE = 1e30


@dataclass(frozen=True)
class Mutant:
    """One change.

    Attributes:
        node: the node that it changes, or that reads the changed weight.
        kind: ``operator``, ``number``, ``operands``, ``piece`` (of a tensor that is taken apart) or ``weight``.
        what: in words.
        change: makes the change and gives back how to undo it.
    """

    node: str
    kind: str
    what: str
    change: Callable[[], Callable[[], None]]

    @contextmanager
    def applied(self) -> Iterator[None]:
        undo = self.change()
        try:
            yield
        finally:
            undo()


def mutants(program: ExportedProgram) -> list[Mutant]:
    """All mutants of a decomposed program, in its order."""
    all_mutants: list[Mutant] = []
    for node in program.graph.nodes:
        if node.op == "call_function":
            all_mutants += _of_node(node)
    names = {item.arg.name: item.target for item in program.graph_signature.input_specs if item.kind in _WEIGHTS}
    for node in program.graph.nodes:
        if node.op == "placeholder" and len(node.users) == 1 and names.get(node.name):
            mutant = _of_weight(program, names[node.name], next(iter(node.users)))
            if mutant is not None:
                all_mutants.append(mutant)
    return all_mutants


_WEIGHTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def _of_node(node: Node) -> Iterator[Mutant]:
    target = node.target
    piece = _other_piece(node)
    if piece is not None:
        yield Mutant(node.name, "piece", f"{piece[1:]} for {node.args[1:]}", partial(_set_args, node, piece))
    if not isinstance(target, torch._ops.OpOverload):
        return
    value = node.meta.get("val")
    first = value[0] if isinstance(value, tuple | list) and value else value
    if not isinstance(first, torch.Tensor) or not first.numel():
        return  # no elements, so nothing that could change (an empty key-value cache)
    swap = _SWAPS.get(target)
    fits = swap is not None and len(node.args) <= len(swap._schema.arguments)
    # x * 1 and x + 0 are what the compiler takes away: to change them adds an operation.
    if fits and not any(isinstance(a, bool | int | float) and a in (0, 1) for a in node.args[1:2]):
        yield Mutant(node.name, "operator", f"{_short(swap)} for {_short(target)}", partial(_set_target, node, swap))
    for index, number in _numbers(node, target):
        other = _other(number)
        yield Mutant(
            node.name,
            "number",
            f"{other:g} for {number:g} in {_short(target)}",
            partial(_set_arg, node, index, other),
        )
    pair = _EXCHANGED.get(target)
    if pair is not None:
        a, b = (node.args[i] for i in pair)
        if isinstance(a, Node) and isinstance(b, Node) and a is not b and _alike(a.meta["val"], b.meta["val"]):
            yield Mutant(node.name, "operands", f"exchanged in {_short(target)}", partial(_exchange, node, *pair))


def _other_piece(node: Node) -> tuple[Any, ...] | None:
    """The arguments that make a node take another piece of the same shape."""
    match node.target, node.args:
        case _aten.select.int, (Node() as whole, int(dim), int(index)):
            size = whole.meta["val"].shape[dim]
            return (whole, dim, (index + 1) % size) if isinstance(size, int) and size > 1 else None
        case _aten.slice.Tensor, (Node() as whole, int(dim), int(start), int(end)):
            size = whole.meta["val"].shape[dim]
            if isinstance(size, int) and 0 <= start < end and not any(map(_feeds_rotation, node.users)):
                end = min(end, size)
                move = 1 if end < size else -1 if start > 0 else 0
                return (whole, dim, start + move, end + move) if move else None
    return None


def _feeds_rotation(user: Node) -> bool:
    """Slices there are taken for halves by IREE, whatever they are: see `covan_mlir.frontend.graph_passes.halves`."""
    negated = user.target is _aten.neg.default and any(u.target is _aten.cat.default for u in user.users)
    return negated or user.target is _aten.cat.default


def _numbers(node: Node, target: Any) -> Iterator[tuple[int, float]]:
    """Arguments that the schema calls numbers, of operators whose result's shape does not depend on them."""
    if not node.all_input_nodes and target not in (_aten.full.default, _aten.scalar_tensor.default):
        return  # arange: its numbers are its shape
    name = target._schema.name
    for index, (argument, value) in enumerate(zip(target._schema.arguments, node.args, strict=False)):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        # Decompositions also leave numbers where tensors are asked for: mul.Tensor(x, 0.125).
        asked = isinstance(argument.type, torch.NumberType | torch.TensorType)
        if isinstance(argument.type, torch.OptionalType):
            asked = isinstance(argument.type.getElementType(), torch.NumberType)
        if number and asked and not (name in _ARITHMETIC and value in (0, 1)):
            yield index, value  # type: ignore[misc]  # a number


def _other(number: float) -> float:
    if isinstance(number, int):
        return number + 1 if abs(number) < _HUGE else 7
    if not math.isfinite(number) or abs(number) > _HUGE:
        return math.copysign(12345.0, number)
    return number * 1.25 + 0.25


def _of_weight(program: ExportedProgram, name: str, user: Node) -> Mutant | None:
    """Two rows of a weight exchanged; a weight whose rows are all the same has no such mutant."""
    held = program.state_dict if name in program.state_dict else program.constants
    own = held.get(name)
    if user.op != "call_function" or not isinstance(own, torch.Tensor):
        return None
    tensor = own.detach()
    for dim in range(tensor.dim()):
        other = next((i for i in range(1, tensor.shape[dim]) if not _same(tensor, dim, i)), None)
        if other is not None:
            order = torch.arange(tensor.shape[dim])
            order[0], order[other] = other, 0
            change = partial(_put, held, name, tensor.index_select(dim, order))
            return Mutant(user.name, "weight", f"rows of {name}", change)
    return None


def _same(tensor: torch.Tensor, dim: int, index: int) -> bool:
    return torch.equal(tensor.select(dim, 0), tensor.select(dim, index))


def _alike(a: Any, b: Any) -> bool:
    return isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape and a.dtype == b.dtype


def _set_target(node: Node, target: Any) -> Callable[[], None]:
    own, node.target = node.target, target
    return lambda: setattr(node, "target", own)


def _set_arg(node: Node, index: int, value: Any) -> Callable[[], None]:
    own = node.args[index]
    node.update_arg(index, value)
    return lambda: node.update_arg(index, own)


def _set_args(node: Node, changed: tuple[Any, ...]) -> Callable[[], None]:
    own, node.args = node.args, changed
    return lambda: setattr(node, "args", own)


def _exchange(node: Node, i: int, j: int) -> Callable[[], None]:
    changed = list(node.args)
    changed[i], changed[j] = changed[j], changed[i]
    return _set_args(node, tuple(changed))


def _put(held: dict[str, Any], name: str, value: torch.Tensor) -> Callable[[], None]:
    own = held[name]
    held[name] = value
    return lambda: held.__setitem__(name, own)


def _short(target: Any) -> str:
    return str(target).removeprefix("aten.").removesuffix(".default")
