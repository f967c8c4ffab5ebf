"""Dimensions that ``dynamic_shapes`` leaves open, by the names that the user gave them, and examples of other sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.export import Dim, ShapesCollection
from torch.export import dynamic_shapes as shapes

from covan_mlir.errors import InputError
from covan_mlir.frontend.capture import Model, apart

Wanted = tuple[int, int | None]
"""Sizes from one to another, both included; None: no bound."""

LEAST = 2
"""Of the sizes that a program of open sizes is right for: torch.export takes open sizes to be neither 0 nor 1."""


@dataclass(frozen=True)
class OpenDimension:
    """A dimension with a name.

    Attributes:
        low, high: the sizes that the user allows, both included; None: no bound.
        size: of the example.
    """

    name: str
    low: int
    high: int | None
    size: int


@dataclass(frozen=True, eq=False)
class Example:
    """What a model is exported with: example arguments, and which of their sizes are open.

    Attributes:
        model: whose parameters ``dynamic_shapes`` names.
    """

    model: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    dynamic_shapes: Any

    @staticmethod
    def of(model: Model, args: Any, kwargs: Mapping[str, Any] | None, dynamic_shapes: Any) -> Example:
        """The example of a torch model.

        Raises:
            InputError: sizes of such a model are not open by names.
        """
        if not callable(model) or isinstance(model, torch.export.ExportedProgram | type):
            what = "an exported program" if isinstance(model, torch.export.ExportedProgram) else type(model).__name__
            raise InputError(
                f"specialise: {what} has no dimensions by name: pass the nn.Module or the function, and dynamic_shapes "
                "with torch.export.Dim"
            )
        example_args, example_kwargs = torch.utils._pytree.tree_map_only(
            np.ndarray, torch.from_numpy, (tuple(args), dict(kwargs or {}))
        )
        if isinstance(dynamic_shapes, ShapesCollection):
            dynamic_shapes = ShapesCollection.dynamic_shapes(  # type: ignore[no-untyped-call]  # torch's own
                dynamic_shapes, model, example_args, example_kwargs
            )
        # One that is given twice may have two sizes.
        example_args, example_kwargs = apart((example_args, example_kwargs), set())
        return Example(model, example_args, example_kwargs, dynamic_shapes)

    @property
    def dimensions(self) -> dict[str, OpenDimension]:
        """The open dimensions by name."""
        named: dict[str, OpenDimension] = {}

        def visit(value: torch.Tensor, spec: Mapping[int, Any]) -> None:
            for axis, dim in spec.items():
                root = getattr(dim, "root", dim)
                if isinstance(dim, Dim):
                    size = _solved(dim, value.shape[axis])
                    each = OpenDimension(root.__name__, int(root.min), _bound(root.max), size)
                    named.setdefault(each.name, each)

        self._walk(visit)
        return named

    @property
    def places(self) -> dict[str, tuple[int, int]]:
        """Of each open dimension, by name, an argument that has it, counted flat, and the axis."""
        numbers = {
            id(leaf): n for n, leaf in enumerate(torch.utils._pytree.tree_leaves((self.args, dict(self.kwargs))))
        }
        places: dict[str, tuple[int, int]] = {}

        def visit(value: torch.Tensor, spec: Mapping[int, Any]) -> None:
            for axis, dim in spec.items():
                if isinstance(dim, Dim) and not hasattr(dim, "root"):
                    places.setdefault(dim.__name__, (numbers[id(value)], axis))

        self._walk(visit)
        return places

    def with_sizes(self, sizes: Mapping[str, Wanted]) -> Example:
        """The example with sizes of some open dimensions, by name: fixed, or open within bounds.

        What its tensors hold is repeated or cut off.
        """
        roots: dict[str, Any] = {}
        chosen: dict[str, int] = {}
        for name, dimension in self.dimensions.items():
            low, high = sizes.get(name, (dimension.low, dimension.high))
            least = low if low == high else max(low, LEAST)
            chosen[name] = max(least, dimension.size if high is None else min(dimension.size, high))
            if name in sizes:
                roots[name] = low if low == high else Dim(name, min=low, max=high)
        resized: dict[int, torch.Tensor] = {}

        def visit(value: torch.Tensor, spec: Mapping[int, Any]) -> None:
            new = value
            for axis, dim in spec.items():
                if isinstance(dim, Dim):
                    new = _resized(new, axis, _applied(dim, chosen[getattr(dim, "root", dim).__name__]))
            resized[id(value)] = new

        self._walk(visit)
        args, kwargs = torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda value: resized.get(id(value), value), (self.args, dict(self.kwargs))
        )
        return Example(self.model, args, kwargs, _replaced(self.dynamic_shapes, roots))

    def _walk(self, visit: Callable[[torch.Tensor, Mapping[int, Any]], object]) -> None:
        """Every tensor that has open sizes, with what is said of them by axis."""
        given: Any = shapes._combine_args(self.model, self.args, dict(self.kwargs))
        if isinstance(self.dynamic_shapes, list | tuple):
            given = type(self.dynamic_shapes)(given.values())

        def one(path: Any, value: Any, spec: Any = None) -> None:
            if isinstance(value, torch.Tensor) and spec:
                visit(value, spec if isinstance(spec, Mapping) else dict(enumerate(spec)))

        if self.dynamic_shapes:
            shapes._tree_map_with_path(one, given, self.dynamic_shapes, tree_name="inputs")


def _resized(value: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    """A tensor of another size along an axis, of the elements that are there, over and over."""
    if value.shape[axis] == size:
        return value
    if not value.shape[axis]:
        return value.new_zeros([*value.shape[:axis], size, *value.shape[axis + 1 :]])
    places = torch.arange(size, device=value.device) % value.shape[axis]
    return value.detach().index_select(axis, places).requires_grad_(value.requires_grad)


def _applied(dim: Any, size: int) -> int:
    """The size of a dimension that is computed of another, from the size of that."""
    return int(dim.fn(size)) if hasattr(dim, "fn") else size


def _solved(dim: Any, size: int) -> int:
    """The inverse of `_applied`; such a dimension is linear."""
    if not hasattr(dim, "fn"):
        return size
    start = int(dim.fn(0))
    return (size - start) // (int(dim.fn(1)) - start)


def _bound(limit: Any) -> int | None:
    """torch's own infinity stands for none."""
    return limit if isinstance(limit, int) else None


def _replaced(spec: Any, roots: Mapping[str, Any]) -> Any:
    """``dynamic_shapes`` with other dimensions, or numbers, in the place of some."""
    if isinstance(spec, Dim):
        root = getattr(spec, "root", spec)
        new = roots.get(root.__name__, root)
        if root is spec or new is root:
            return spec if new is root else new
        derived: Any = spec
        return int(derived.fn(new)) if isinstance(new, int) else shapes._DerivedDim(spec.__name__, new, derived.fn)
    if isinstance(spec, Mapping):
        return type(spec)({key: _replaced(inner, roots) for key, inner in spec.items()})  # type: ignore[call-arg]  # dicts
    if isinstance(spec, tuple) and hasattr(spec, "_fields"):
        return type(spec)(*(_replaced(inner, roots) for inner in spec))
    if isinstance(spec, list | tuple):
        return type(spec)(_replaced(inner, roots) for inner in spec)
    return spec
