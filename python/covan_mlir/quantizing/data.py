"""Calibration data: calls that a model is observed in, each checked before it is made."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from covan_mlir.errors import InputError
from covan_mlir.frontend.actions import type_strings

log = logging.getLogger(__name__)

Calibration: TypeAlias = "Iterable[Any] | Mapping[str, Any] | str | os.PathLike[str]"
"""Calls (tuples of arguments by place, dicts by name, or single tensors); or arrays of many calls by their arguments'
names, or the ``.npz`` file that has them."""

_PLACED = re.compile(r"arr_(\d+)")
"""What `numpy.savez` calls arrays without a name."""


@dataclass(frozen=True)
class Call:
    """Arguments of one call, by place and by name."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def calls(calibration: Calibration, example: Call | None = None, names: Sequence[str] = ()) -> Iterator[Call]:
    """The calls that calibration data stands for.

    Args:
        example: arguments that the model was exported with. Of arrays, the first axis counts calls where what is left
            has the example's shape; or their first axis is the example's, which is cut into pieces as long as its.
        names: of the model's arguments, in order.

    Raises:
        InputError: the file cannot be read, arrays do not fit the arguments, or an element is no call.
    """
    if isinstance(calibration, str | os.PathLike):
        calibration = read(Path(calibration))
    if isinstance(calibration, torch.Tensor | np.ndarray):
        calibration = {"arr_0": calibration}
    if isinstance(calibration, Mapping):
        return _recorded({str(name): _tensor(value) for name, value in calibration.items()}, example, names)
    if not isinstance(calibration, Iterable):
        raise InputError(f"calibration data is an iterable of calls, not a {type(calibration).__name__}: {_HOW}")
    return map(_call, calibration)


_HOW = "give tuples of arguments, as in calibration=[(x,) for x in batches], a dict of arrays, or a .npz file"


def read(path: Path) -> dict[str, Any]:
    """The arrays of an ``.npz`` file.

    Raises:
        InputError: it cannot be read.
    """
    hint = "write one with numpy.savez(path, argument=array)"
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"arr_0": loaded}
        with loaded:
            return dict(loaded)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file\n{hint}") from error
    except (OSError, ValueError, EOFError) as error:
        raise InputError(
            f"{path} is no .npz file of numbers: {next(iter(str(error).splitlines()), '')}\n{hint}"
        ) from error


def _call(given: Any) -> Call:
    if isinstance(given, Mapping):
        return Call((), {str(name): _tensor(value) for name, value in given.items()})
    if isinstance(given, torch.Tensor | np.ndarray):
        return Call((_tensor(given),))
    if not isinstance(given, tuple | list):
        raise InputError(f"a {type(given).__name__} in the calibration data is no call: {_HOW}")
    return Call(tuple(pytree.tree_map(_tensor, tuple(given))))


def _tensor(value: Any) -> Any:
    if not isinstance(value, np.ndarray):
        return value
    try:
        return torch.from_numpy(np.ascontiguousarray(value).reshape(value.shape))
    except TypeError as error:
        raise InputError(f"an array of {value.dtype} is no calibration data: give numbers that torch has") from error


def _recorded(arrays: Mapping[str, Any], example: Call | None, names: Sequence[str]) -> Iterator[Call]:
    if not arrays:
        return iter(())
    placed = {name: _placed(name, example, names) for name in arrays}
    cut = {name: _cut(name, value, example and _argument(example, placed[name])) for name, value in arrays.items()}
    counts = {name: len(pieces) for name, pieces in cut.items()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count} of {name}" for name, count in counts.items())
        raise InputError(f"the calibration data holds arguments of unequally many calls: {told}")
    return (_together({placed[name]: cut[name][index] for name in arrays}) for index in range(min(counts.values())))


def _placed(name: str, example: Call | None, names: Sequence[str]) -> int | str:
    """Where an array's argument is: its place, or its name."""
    if match := _PLACED.fullmatch(name):
        return int(match[1])
    if example is None or name in example.kwargs:
        return name
    if name in names and names.index(name) < len(example.args):
        return names.index(name)
    known = ", ".join([*names[: len(example.args)], *example.kwargs])
    raise InputError(f"the calibration data has an array {name!r}: the model takes {known or 'no arguments'}")


def _argument(example: Call, place: int | str) -> Any:
    if isinstance(place, str):
        return example.kwargs[place]
    if place >= len(example.args):
        raise InputError(
            f"the calibration data has an argument {place}: the model takes {len(example.args)} arguments by place"
        )
    return example.args[place]


def _cut(name: str, value: Any, example: Any) -> Sequence[Any]:
    """The values of one argument, call by call."""
    if not isinstance(value, torch.Tensor) or not value.dim():
        raise InputError(f"{name} of the calibration data is no array of many calls: {_HOW}")
    shape = getattr(example, "shape", None)
    if shape is None or value.shape[1:] == shape:
        return value.unbind()
    if len(shape) == value.dim() and value.shape[1:] == shape[1:] and shape[0]:
        if rest := len(value) % shape[0]:
            log.warning(
                "the last %d of %d rows of %s fill no call of %d: they are left out", rest, len(value), name, shape[0]
            )
        return [piece for piece in torch.split(value, shape[0]) if len(piece) == shape[0]]
    raise InputError(
        f"{name} of the calibration data is {list(value.shape)}, where the model takes {list(shape)}: give "
        f"{['N', *shape]}, or {['N', *shape[1:]]} with N a multiple of {shape[0] if shape else 1}"
    )


def _together(values: Mapping[int | str, Any]) -> Call:
    places = sorted(place for place in values if isinstance(place, int))
    if places != list(range(len(places))):
        raise InputError(f"the calibration data has arguments {places} by place: give those before them, too")
    return Call(
        tuple(values[place] for place in places),
        {place: value for place, value in values.items() if isinstance(place, str)},
    )


class Checker:
    """Whether calls fit a graph: their structure, and shapes, types and values of their tensors."""

    def __init__(self, module: GraphModule) -> None:
        self._spec = module._in_spec
        self._places: list[Node] = module.graph.find_nodes(op="placeholder")

    def check(self, call: Call, index: int) -> Call:
        """The call, its named arguments in the order of the model's.

        Raises:
            InputError: names the argument, what it is and what it should be.
        """
        order = list(self._spec.child(1).context)
        if sorted(order) == sorted(call.kwargs):
            call = Call(call.args, {name: call.kwargs[name] for name in order})
        leaves, spec = pytree.tree_flatten((call.args, dict(call.kwargs)))
        takes = ", ".join(f"{node.name}: {self._type(node)}" for node in self._places)
        where = f"call {index} of the calibration data"
        if spec != self._spec:
            raise InputError(f"{where} has other arguments than the model: it takes ({takes})")
        for node, leaf in zip(self._places, leaves, strict=True):
            self._check_leaf(node, leaf, where)
        return call

    def _check_leaf(self, node: Node, leaf: Any, where: str) -> None:
        want = node.meta.get("val")
        if not isinstance(want, torch.Tensor):
            return
        if not isinstance(leaf, torch.Tensor):
            raise InputError(
                f"{node.name} of {where} is a {type(leaf).__name__}, where the model takes {self._type(node)}"
            )
        sizes = [size if isinstance(size, int) else None for size in want.shape]
        fits = len(sizes) == leaf.dim() and all(
            size in (None, given) for size, given in zip(sizes, leaf.shape, strict=True)
        )
        if not fits or leaf.dtype != want.dtype:
            raise InputError(
                f"{node.name} of {where} is {type_strings(leaf)[0]}, where the model takes {self._type(node)}"
            )
        if leaf.dtype.is_floating_point and not bool(leaf.isfinite().all()):
            raise InputError(f"{node.name} of {where} has NaN or infinities: leave this call out")

    def _type(self, node: Node) -> str:
        return "".join(type_strings(node.meta.get("val"))) or "a constant"
