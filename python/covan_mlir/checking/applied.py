"""An operator of torch's applied to tensors whose elements are computed when they are asked for.

Of what is asked of a result, only the operands' elements are computed that it depends on: single ones for operators
that work element by element and for views, rows and columns for products, windows for convolutions, rows for
reductions. Of other operators, and where nearly all is asked for, torch computes all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import torch

from covan_mlir.checking.field import PAIR, constant
from covan_mlir.checking.field_operators import along, pointwise
from covan_mlir.checking.layouts import Order
from covan_mlir.checking.moves import PLACED, moved
from covan_mlir.checking.products import product
from covan_mlir.checking.tensors import Direct, Held, Tensor, UnevaluatedError, spend, splat, typed, wide
from covan_mlir.checking.windows import convolution, pool
from covan_mlir.fred.scalars import Array
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.control import ELEMENT, STACKED
from covan_mlir.provenance.model import Part

Value = Any
"""A `Tensor`, a number, or a list of such."""
Bind = Callable[[Mapping[Operand, Any]], tuple[Sequence[Any], Mapping[str, Any]]]
_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, NotImplementedError, ZeroDivisionError)
_WHOLE = 1 << 23
"""Elements of the operands of what torch computes at once."""
_FILLS = {
    "full": None,
    "full_like": None,
    "new_full": None,
    "zeros": 0,
    "zeros_like": 0,
    "new_zeros": 0,
} | dict.fromkeys(("ones", "ones_like", "new_ones"), 1)
"""Operators whose result is one number, and which; None: their argument ``fill_value``."""
_KEEPING = frozenset({"_softmax", "_log_softmax", "softmax", "log_softmax", "cumsum", "cumprod", "logcumsumexp"})
"""Operators along one dimension, which the result still has."""
_COPYING = frozenset({"clone", "_to_copy", "lift_fresh_copy", "contiguous"})
_MOVING = frozenset(
    {
        *("index", "index_select", "gather", "flip", "roll", "repeat", "stack", "constant_pad_nd", "tril", "triu"),
        *("slice_scatter", "select_scatter", ELEMENT, STACKED),
    }
)
"""Operators that move elements, each from one place, and leave zeros elsewhere, or what they pad with."""
_NUMBERS = frozenset({"scalar_tensor", "eye"})
"""Operators that give numbers as they stand in the code."""
_REDUCING = frozenset(
    {
        *("sum", "mean", "amax", "amin", "prod", "all", "any", "argmax", "argmin", "logsumexp", "var", "std"),
        *("var_mean", "std_mean", "max", "min", "median", "linalg_vector_norm"),
    }
)


def applied(
    part: Part, function: Callable[..., Any], bind: Bind, values: Mapping[Operand, Value], known: dict[Hashable, Any]
) -> Value:
    """The result of a part.

    Args:
        bind: the arguments of the call, given what its operands are.
        known: what is known of results, by what is known of operands; grows.

    Raises:
        UnevaluatedError: torch does not do that; also later, when elements are asked for. The message names the
            operator.
    """
    return _Call(part.id, known, part.op, function, bind, values).results()


def array_of(value: Any) -> Array:
    """A value of torch's as an array.

    Raises:
        UnevaluatedError: it is no tensor and no number.
    """
    if isinstance(value, bool | int | float):
        return np.asarray(value)
    if not isinstance(value, torch.Tensor):
        raise UnevaluatedError("a value that is no tensor")
    array: Array = value.detach().resolve_conj().contiguous().numpy()
    return array


def dtype_of(element: torch.dtype) -> np.dtype[Any]:
    """torch's type as numpy's."""
    return array_of(torch.zeros((), dtype=element)).dtype


@dataclass(frozen=True)
class Shape:
    """What is known of a result before its elements are.

    Attributes:
        order: of a view: which of the operand's elements it has.
    """

    sizes: tuple[int, ...]
    dtype: np.dtype[Any]
    order: Order | None


def _one_hot(places: Tensor, classes: int, flat: Array) -> Array:
    taken: Array = places.at(flat // classes)
    if ((taken < 0) | (taken >= classes)).any():
        raise UnevaluatedError("one_hot of a class that there is not")
    return np.asarray(taken == flat % classes, np.int64)


def _shape(result: Any, source: torch.Tensor | None) -> Any:
    """Of a result of the only operand, without elements; what is no tensor is as it is."""
    if not isinstance(result, torch.Tensor):
        return result
    order = None
    if source is not None and result.dtype == source.dtype:
        same = result.untyped_storage()._cdata == source.untyped_storage()._cdata
        order = Order.strided(result.shape, result.stride(), int(result.storage_offset())) if same else None
    return Shape(tuple(result.shape), dtype_of(result.dtype), order)


@dataclass
class _Call:
    part: int
    known: dict[Hashable, Any]
    name: str
    function: Callable[..., Any]
    bind: Bind
    values: Mapping[Operand, Value]
    _whole: Any = field(default=None, init=False)
    _places: Array | None = field(default=None, init=False)

    def run(self, operands: Mapping[Operand, Any], change: Mapping[str, Any] | None = None) -> Any:
        """The operator, on operands of torch's, with some arguments changed."""
        try:
            args, kwargs = self.bind(operands)
            if change is not None:
                args, kwargs = (), self.named(args, kwargs) | dict(change)
            with torch.no_grad():
                return self.function(*args, **kwargs)
        except _ERRORS as error:
            raise UnevaluatedError(f"{self.name}: {str(error).splitlines()[0] if str(error) else error!r}") from error

    def named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by the names that the operator has for them."""
        if not isinstance(self.function, torch._ops.OpOverload):
            return dict(kwargs)
        names = [argument.name for argument in self.function._schema.arguments]
        return dict(zip(names, args, strict=False)) | dict(kwargs)

    def results(self) -> Value:
        if self.name == "operator.getitem":
            (results, number), _ = self.bind(self.values)
            if isinstance(results, list):
                return results[number]
        key = self._key()
        if key not in self.known:
            self.known[key] = self._results()
        shapes = self.known[key]
        if shapes is None:
            return _held(self.whole())  # what it gives depends on the elements
        if isinstance(shapes, list):
            return [
                self._result(shape, number) if isinstance(shape, Shape) else shape
                for number, shape in enumerate(shapes)
            ]
        return self._result(shapes, None) if isinstance(shapes, Shape) else shapes

    def _key(self) -> Hashable:
        return (self.part, *(_outline(value) for value in self.values.values()))

    def _results(self) -> Any:
        """A `Shape` for each result that is a tensor; None: the elements decide."""
        shadows = {operand: _shadow(value) for operand, value in self.values.items()}
        try:
            results = self.run(shadows)
        except UnevaluatedError:
            return None
        tensors = [shadow for shadow in shadows.values() if isinstance(shadow, torch.Tensor)]
        source = tensors[0] if len(tensors) == 1 == len(shadows) else None
        if isinstance(results, list | tuple):
            return [_shape(result, source) for result in results]
        return _shape(results, source)

    def whole(self) -> Any:
        """The result, computed at once."""
        if self._whole is None:
            tensors = [value for value in _flat(self.values.values()) if isinstance(value, Tensor)]
            results = self.known.get(self._key())
            count = sum(tensor.size for tensor in tensors)
            count += sum(prod(shape.sizes) for shape in _flat([results]) if isinstance(shape, Shape))
            if count > _WHOLE:
                raise UnevaluatedError(f"{self.name} of {count} elements at once")
            spend(count, self.name)
            self._whole = self.run({operand: _full(value) for operand, value in self.values.items()})
        return self._whole

    def _result(self, shape: Shape, number: int | None) -> Tensor:
        """One result."""
        sizes, dtype, order = shape.sizes, _exact(shape.dtype), shape.order
        tensors = {operand: value for operand, value in self.values.items() if isinstance(value, Tensor)}
        word = self.name.split(".")[1] if self.name.startswith(("aten.", "prims.")) else self.name
        if order is not None:
            (source,) = tensors.values()
            return Direct(sizes, dtype, lambda flat: source.at(order.at(flat)))
        if word in _FILLS:
            given = self.named(*self.bind({operand: _shadow(value) for operand, value in self.values.items()}))
            return splat(given["fill_value"] if _FILLS[word] is None else _FILLS[word], sizes, dtype)
        local = self._local(word, tensors, sizes, number)

        def at_once(flat: Array) -> Array:
            if dtype == PAIR:
                return self._moved(flat)
            result = self.whole()
            return array_of(result if number is None else result[number]).reshape(-1)[flat]

        if local is None:
            return Direct(sizes, dtype, at_once)
        fits = sum(tensor.size for tensor in tensors.values()) + prod(sizes) <= _WHOLE
        share = 64 if word == "convolution" else 2
        return _Lazy(sizes, dtype, local, at_once, self.name, share if fits else 1)

    def _local(
        self, word: str, tensors: Mapping[Operand, Tensor], sizes: Sequence[int], number: int | None
    ) -> Callable[[Array], Array] | None:
        """Computes elements at positions from what they depend on; None: there is no such way."""
        if word in _COPYING and len(tensors) == 1:
            (source,) = tensors.values()
            return source.at
        tags = self.function.tags if isinstance(self.function, torch._ops.OpOverload) else ()
        if torch.Tag.pointwise in tags or self.name == "prims.convert_element_type.default":
            shapes = [tensor.shape for tensor in tensors.values()]
            if number is None and shapes and np.broadcast_shapes(*shapes) == tuple(sizes):
                return lambda flat: self._pointwise(word, tensors, sizes, flat)
            return None
        if word in ("mm", "bmm", "addmm", "baddbmm"):
            return product(word, self._operands(), self.name)
        if word == "convolution":
            return convolution(self._operands(), self.name)
        if word in ("max_pool2d_with_indices", "avg_pool2d") and _any_exact(tensors) and not number:
            return pool(word, self._operands(), sizes)
        if word == "embedding":
            return self._embedding()
        if word == "one_hot" and len(tensors) == 1:
            (places,) = tensors.values()
            return lambda flat: _one_hot(places, sizes[-1], flat)
        if word == "cat":
            return self._cat(sizes)
        if word in PLACED:
            return moved(word, self._operands(), sizes)
        if word in _KEEPING | _REDUCING and len(tensors) == 1:
            return self._rows(word, *tensors, keeping=word in _KEEPING, number=number, sizes=sizes)
        return None

    def _operands(self) -> dict[str, Any]:
        """Arguments by name; tensors among them are `Tensor`s."""
        return self.named(*self.bind(self.values))

    def _pointwise(self, word: str, tensors: Mapping[Operand, Tensor], sizes: Sequence[int], flat: Array) -> Array:
        index = np.unravel_index(flat, tuple(sizes)) if sizes else ()
        given: dict[Operand, Any] = dict(self.values)
        for operand, tensor in tensors.items():
            if not tensor.shape:
                given[operand] = tensor.all()
                continue
            own = index[len(sizes) - len(tensor.shape) :]
            places = [
                np.zeros_like(place) if size == 1 else place for place, size in zip(own, tensor.shape, strict=True)
            ]
            given[operand] = tensor.at_index(places)
        if wide("f64") == PAIR and self._gives_floats():
            pairs = pointwise(word, self.named(*self.bind(given)))
            if pairs is None:
                raise UnevaluatedError(self.name)
            return np.broadcast_to(pairs, flat.shape)
        return np.broadcast_to(array_of(self.run({o: _full(value) for o, value in given.items()})), flat.shape)

    def _gives_floats(self) -> bool:
        shape = self.known[self._key()]
        return isinstance(shape, Shape) and shape.dtype.kind == "f"

    def _moved(self, flat: Array) -> Array:
        """Of operators that only move elements: torch moves their positions."""
        word = self.name if self.name in (ELEMENT, STACKED) else self.name.removeprefix("aten.").split(".")[0]
        if word in _NUMBERS and not any(isinstance(value, Tensor) for value in self.values.values()):
            return constant(array_of(self.run(self.values)).reshape(-1)[flat])
        if word not in _MOVING:
            raise UnevaluatedError(self.name)
        pairs = {o: value for o, value in self.values.items() if isinstance(value, Tensor) and value.dtype == PAIR}
        if self._places is None:
            spend(sum(tensor.size for tensor in pairs.values()), self.name)
            given, start = {o: _full(value) for o, value in self.values.items() if o not in pairs}, 1
            for operand, tensor in pairs.items():
                numbers = torch.arange(start, start + tensor.size, dtype=torch.float64)
                given[operand], start = numbers.reshape(tensor.shape), start + tensor.size
            padded = {"value": 0.0} if word == "constant_pad_nd" else None
            self._places = array_of(self.run(given, padded)).reshape(-1).astype(np.int64)
        places, start = self._places[flat], 1
        values = np.broadcast_to(constant(self._operands().get("value", 0)), flat.shape).copy()
        for tensor in pairs.values():
            here = (places >= start) & (places < start + tensor.size)
            values[here] = tensor.at(places[here] - start)
            start += tensor.size
        return values

    def _embedding(self) -> Callable[[Array], Array]:
        given = self._operands()
        weight, indices = given["weight"], given["indices"]
        width = weight.shape[1]

        def at(flat: Array) -> Array:
            where, column = np.divmod(flat, width)
            row = indices.at(where)
            if ((row < 0) | (row >= weight.shape[0])).any():
                raise UnevaluatedError(f"{self.name}: index out of range")
            return np.asarray(weight.at(row * width + column))

        return at

    def _cat(self, sizes: Sequence[int]) -> Callable[[Array], Array] | None:
        given = self._operands()
        pieces = [piece for piece in given["tensors"] if piece.shape != (0,)]
        if len({piece.dtype for piece in pieces}) != 1:
            return None
        dim = int(given.get("dim", 0)) % len(sizes)

        def at(flat: Array) -> Array:
            index = list(np.unravel_index(flat, tuple(sizes)))
            values, start = np.zeros(flat.shape, pieces[0].dtype), 0
            for piece in pieces:
                here = (index[dim] >= start) & (index[dim] < start + piece.shape[dim])
                own = [place[here] - (start if k == dim else 0) for k, place in enumerate(index)]
                values[here] = piece.at_index(own)
                start += piece.shape[dim]
            return values

        return at

    def _rows(
        self, word: str, operand: Operand, *, keeping: bool, number: int | None, sizes: Sequence[int]
    ) -> Callable[[Array], Array] | None:
        given = self._operands()
        source: Tensor = self.values[operand]
        rank = len(source.shape)
        asked = given.get("dim")
        dims = [asked] if isinstance(asked, int) else list(asked or range(rank))
        dims = sorted({int(dim) % rank for dim in dims}) if rank else []
        kept = [k for k in range(rank) if k not in dims]
        if (not kept or "dim" not in given) and source.dtype != PAIR:
            return None
        heights, widths = [source.shape[k] for k in kept], [source.shape[k] for k in dims]
        wide = np.unravel_index(np.arange(prod(widths)), tuple(widths))
        narrow = list(range(1, len(dims) + 1))
        change: dict[str, Any] = {"dim": narrow[0] if isinstance(asked, int) else narrow}
        if given.get("keepdim"):
            change["keepdim"] = False

        def at(flat: Array) -> Array:
            if keeping or given.get("keepdim"):
                index = np.unravel_index(flat, tuple(sizes))
                place = np.ravel_multi_index([index[k] for k in kept], heights) if kept else np.zeros_like(flat)
            else:
                index, place = (), flat
            row, own = np.unique(place, return_inverse=True)
            own = own.reshape(-1)
            where: list[Any] = [None] * rank
            for k, one in zip(kept, np.unravel_index(row, heights) if kept else (), strict=True):
                where[k] = one[:, None]
            for k, one in zip(dims, wide, strict=True):
                where[k] = one
            rows = source.at_index([np.broadcast_to(one, (row.size, wide[0].size)) for one in where])
            computed = self._reduced(word, given, operand, rows, widths, change, number)
            return np.asarray(computed[own, index[dims[0]]] if keeping else computed[own])

        return at

    def _reduced(
        self,
        word: str,
        given: Mapping[str, Any],
        operand: Operand,
        rows: Array,
        widths: Sequence[int],
        change: Mapping[str, Any],
        number: int | None,
    ) -> Array:
        """What is computed of each row."""
        if rows.dtype == PAIR:
            pairs = along(word, given, rows, number)
            if pairs is None:
                raise UnevaluatedError(self.name)
            return pairs
        result = self.run({operand: _torch(rows.reshape(-1, *widths))}, change)
        return array_of(result if number is None else result[number])


class _Lazy(Tensor):
    """Elements by position, or all at once where that is quicker.

    Args:
        share: that part of all from which on it is.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: np.dtype[Any],
        local: Callable[[Array], Array],
        at_once: Callable[[Array], Array],
        name: str,
        share: int,
    ) -> None:
        super().__init__(shape, dtype, lambda index: np.zeros(0), name)
        self._share = share
        self._local = local
        self._at_once = at_once

    def _computed(self, flat: Array) -> Array:
        spend(flat.size, self._name)
        whole = self._share * flat.size > self.size > 1 and self.dtype != PAIR
        compute = self._at_once if whole else self._local
        return typed(np.asarray(compute(flat)), self.dtype)


def _flat(values: Any) -> list[Any]:
    return [inner for value in values for inner in (_flat(value) if isinstance(value, list | tuple) else [value])]


def _torch(values: Array) -> torch.Tensor:
    return torch.from_numpy(np.array(values))


def _outline(value: Value) -> Hashable:
    if isinstance(value, list):
        return tuple(map(_outline, value))
    return (value.shape, value.dtype) if isinstance(value, Tensor) else value


def _shadow(value: Value) -> Any:
    """A value without elements."""
    if isinstance(value, list):
        return [_shadow(item) for item in value]
    if not isinstance(value, Tensor):
        return value
    element = torch.float64 if value.dtype == PAIR else _torch(np.zeros(1, value.dtype)).dtype
    return torch.empty(value.shape, dtype=element, device="meta")


def _full(value: Value) -> Any:
    if isinstance(value, list):
        return [_full(item) for item in value]
    if isinstance(value, Tensor):
        value = value.all()
    if not isinstance(value, np.ndarray):
        return value
    return _torch(value["value"] if value.dtype == PAIR else value)


def _any_exact(tensors: Mapping[Operand, Tensor]) -> bool:
    return any(tensor.dtype == PAIR for tensor in tensors.values())


def _exact(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A type of torch's, as floats are computed here."""
    return wide("f64") if dtype == np.float64 else dtype


def _held(value: Any) -> Value:
    if isinstance(value, list | tuple):
        return [_held(item) for item in value]
    if not isinstance(value, torch.Tensor):
        return value
    array = array_of(value)
    if _exact(array.dtype) == PAIR:
        raise UnevaluatedError("an operator without exact arithmetic")
    return Held(array)
