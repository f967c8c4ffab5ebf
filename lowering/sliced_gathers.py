"""Elements that are taken by index from a slice at strides: from the tensor that it is a slice of.

IREE's vectorizer makes a gather of such an operation, and has no code for one from memory at strides that is of unknown
size: the compilation ends in LLVM. The index of an element goes through the slice instead, which nobody has to copy::

    %s = tensor.extract_slice %x[0, 1] [4, %n] [1, 2]         %1 = linalg.generic ... {
    %1 = linalg.generic ... {                                    %k = arith.muli %j, %c2
      %e = tensor.extract %s[%i, %j]                      =>     %l = arith.addi %k, %c1
      linalg.yield %e                                            %e = tensor.extract %x[%i, %l]
    }                                                            linalg.yield %e
                                                              }
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import iree.compiler.ir as ir
from iree.compiler.dialects import arith, tensor

from covan_mlir.lowering import marks
from covan_mlir.lowering.pipeline import PipelineState

_DYNAMIC = ir.ShapedType.get_dynamic_size()


def through(state: PipelineState) -> None:
    """The step, after IREE's global optimization, that takes slices at strides from under elements."""
    with state.session.context:
        for op in marks.walk(state.module.operation, "tensor.extract"):
            element = op.opview
            while isinstance(element, tensor.ExtractOp) and (views := _to_slice_at_strides(element.tensor)):
                element = _behind(element, views)


def _to_slice_at_strides(value: Any) -> list[Any]:
    """The views through which a value is elements of another between which some are left out: axes that were split, and
    last the slice; none for any other value."""
    views: list[Any] = []
    while not isinstance(value.owner, ir.Block):
        view = value.owner.opview
        views.append(view)
        match view:
            case tensor.ExpandShapeOp():
                value = view.src
            case tensor.ExtractSliceOp():
                return views if any(stride != 1 for stride in view.static_strides) or _is_column(view) else []
            case _:
                break
    return []


def _is_column(cut: Any) -> bool:
    """Whether a slice has lost inner axes, so that its elements stand apart."""
    kept = list(_kept(cut))
    inner = kept[::-1].index(True) if True in kept else 0
    return any(size != 1 for size in cut.source.type.shape[len(kept) - inner :])


def _behind(element: Any, views: list[Any]) -> Any:
    """Takes an element from what is behind some views."""
    places = list(element.indices)
    with ir.InsertionPoint(element), element.location:
        for view in views:
            places = _joined(view, places) if isinstance(view, tensor.ExpandShapeOp) else _in_whole(view, places)
        whole = tensor.ExtractOp(views[-1].source, places)
    element.result.replace_all_uses_with(whole.result)
    element.erase()
    for view in views:
        if not list(view.result.uses):
            view.erase()
    return whole


def _in_whole(cut: Any, places: list[Any]) -> list[Any]:
    """Where an element of a slice is in what it was cut from."""
    indices = iter(places)
    offsets = _numbers(cut.static_offsets, cut.offsets)
    strides = _numbers(cut.static_strides, cut.strides)
    return [
        _sum(_product(next(indices), stride) if kept else 0, offset)
        for kept, offset, stride in zip(_kept(cut), offsets, strides, strict=True)
    ]


def _joined(split: Any, places: list[Any]) -> list[Any]:
    """Where an element is before axes were split."""
    sizes = _numbers(split.static_output_shape, split.output_shape)
    joined: list[Any] = []
    for group in split.reassociation:
        place: Any = 0
        for axis in (ir.IntegerAttr(each).value for each in group):
            place = _sum(_product(place, sizes[axis]), places[axis])
        joined.append(_value(place))
    return joined


def _kept(cut: Any) -> Iterator[bool]:
    """Of each axis of what a slice is cut from, whether it is one of the slice: one of a single element may be gone."""
    shape = list(cut.result.type.shape)
    for size in cut.static_sizes:
        kept = bool(shape) and size == shape[0]
        if kept:
            del shape[0]
        yield kept


def _numbers(static: Iterable[int], dynamic: Iterable[Any]) -> list[Any]:
    """Numbers, and values for those that are known at run time only."""
    values = iter(dynamic)
    return [next(values) if number == _DYNAMIC else number for number in static]


def _product(place: Any, factor: Any) -> Any:
    if isinstance(place, int):  # zero
        return place
    return place if _is(factor, 1) else arith.MulIOp(place, _value(factor)).result


def _sum(place: Any, offset: Any) -> Any:
    if _is(offset, 0):
        return _value(place)
    return _value(offset) if _is(place, 0) else arith.AddIOp(place, _value(offset)).result


def _is(value: Any, number: int) -> bool:
    """Whether something is that number, known now."""
    return isinstance(value, int) and value == number


def _value(number: Any) -> Any:
    """A number as a value; a value as it is."""
    return arith.ConstantOp(ir.IndexType.get(), number).result if isinstance(number, int) else number
