"""Writes and reads by index.

What IREE does with an index outside a tensor is to read or write there. torch counts negative indices from the end,
so they have to be made positive wherever the lowering does not do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.functional_tensor import mb_unwrap_functional_tensor
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from covan_mlir.frontend.rules.registry import plain, rule, wide

aten = torch.ops.aten


def from_start(index: Tensor, size: Any) -> Tensor:
    """Indices counted from the start."""
    return torch.where(index < 0, index + size, index)


@rule(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(x: Tensor, indices: list[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    masks = [index for _, index in given if index.dtype in (torch.bool, torch.uint8)]
    if len(masks) == 1 and len(given) == 1:
        return _put_where(x, given[0][0], masks[0].to(torch.bool), values, accumulate)
    if masks:
        raise NotImplementedError("a mask among other indices: turn it into indices with nonzero()")
    if any(size == 0 for _, index in given for size in index.shape if isinstance(size, int)):
        return x.clone()
    if accumulate and x.dtype is torch.bool:
        return aten.index_put.default(x.to(torch.int32), indices, values.to(torch.int32), True) != 0
    wrapped = [None if index is None else from_start(index, x.shape[axis]) for axis, index in enumerate(indices)]
    counted = _whole_axes_counted(x, wrapped)
    places = torch.broadcast_shapes(*(index.shape for index in counted))  # type: ignore[no-untyped-call]  # torch's
    values = values.expand([*places, *x.shape[len(counted) :]])
    return plain(aten.index_put.default, x, counted, values, accumulate)


def _whole_axes_counted(x: Tensor, indices: list[Tensor | None]) -> list[Tensor]:
    """Indices with positions for the axes before the last index that are taken as a whole. torch-mlir counts them, too,
    and shares the numbers with those that the user counts by."""
    count = max(axis + 1 for axis, index in enumerate(indices) if index is not None)
    rank = max(index.dim() for index in indices if index is not None)
    whole = [axis for axis in range(count) if indices[axis] is None]
    # Where indices lie side by side, the axes before them come first in what is written; else these follow all indices.
    side_by_side = whole == list(range(len(whole)))
    behind = 0 if side_by_side else len(whole)
    last = len(whole) - 1 + (rank if side_by_side else 0)
    counted = []
    for axis in range(count):
        if (index := indices[axis]) is None:
            place = torch.arange(x.shape[axis])
            counted.append(place.reshape([-1, *[1] * (last - whole.index(axis))]))
        else:
            counted.append(index.reshape([*index.shape, *[1] * behind]) if behind else index)
    return counted


@rule(aten.pad.default)
def pad(x: Tensor, pads: list[int], mode: str = "constant", value: float | None = None) -> Any:
    """Round in a circle, as the other modes are: one gather an axis. torch writes six slices into memory that it never
    filled. Negative padding cuts first: the circle is of what is left."""
    if mode != "circular" or not all(isinstance(number, int) for number in (*pads, *x.shape)):
        return NotImplemented
    for axis, (before, after) in enumerate(zip(pads[::2], pads[1::2], strict=True), start=1):
        size = x.shape[-axis]
        if before or after:
            start, end = max(-before, 0), size - max(-after, 0)
            around = torch.arange(-max(before, 0), end - start + max(after, 0), device=x.device)
            x = torch.index_select(x, -axis, torch.remainder(around, end - start) + start)
    return x.clone() if not any(pads) else x


@rule(aten.empty_permuted.default)
def empty_permuted(size: list[Any], order: list[int], *, dtype: torch.dtype | None = None, **kwargs: Any) -> Tensor:
    """The order is of the memory alone."""
    return torch.empty(size, dtype=dtype)


@rule(aten.empty_strided.default)
def empty_strided(size: list[Any], stride: list[Any], *, dtype: torch.dtype | None = None, **kwargs: Any) -> Tensor:
    return torch.empty(size, dtype=dtype)


@rule(aten.new_empty_strided.default)
def new_empty_strided(
    x: Tensor, size: list[Any], stride: list[Any], *, dtype: torch.dtype | None = None, **kwargs: Any
) -> Tensor:
    return torch.empty(size, dtype=dtype or x.dtype)


@rule(aten.resize.default)
def resize(x: Tensor, size: list[Any], *, memory_format: torch.memory_format | None = None) -> Any:
    """To what it is: more elements would be whatever the memory holds, fewer are those that come first there."""
    return x.clone() if list(x.shape) == list(size) else NotImplemented


@rule(aten.full_like.default)
def full_like(x: Tensor, value: Any, *, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    """Of sizes that are known at run time only: it reads sizes and no elements, so that those of different tensors are
    one value, which is what the compiler makes of them."""
    if all(isinstance(size, int) for size in x.shape) or kwargs.get("memory_format") not in (
        None,
        torch.preserve_format,
        torch.contiguous_format,
    ):
        return NotImplemented
    # `aten.full` itself is taken apart into this.
    return plain(aten.full_like.default, torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device), value)


def _put_where(x: Tensor, axis: int, mask: Tensor, values: Tensor, accumulate: bool) -> Tensor:
    """The n-th place of the mask, in row-major order, takes the n-th of the values, or all places take the same."""
    behind = x.dim() - axis - mask.dim()
    shape = [1] * axis + list(mask.shape) + [1] * behind
    where = mask.reshape(shape)
    if values.dim() <= behind or statically_known_true(values.shape[-behind - 1] == 1):
        lead = list(values.shape[: -behind - 1]) if values.dim() > behind else []
        tail = list(values.shape[values.dim() - behind :]) if values.dim() > behind else list(values.shape)
        spread = values.reshape(lead + [1] * mask.dim() + tail) if values.dim() > behind else values
    elif statically_known_true(values.shape[-behind - 1] == 0):
        return x.clone()  # the mask has no place, or eager would refuse
    else:
        at = values.dim() - behind - 1
        count: Any = values.shape[at]
        # One value alone goes to all places, also where that is known at run time only.
        place = (mask.reshape(-1).to(torch.int64).cumsum(0) - 1).clamp(max=count - 1).clamp(min=0)
        if not isinstance(count, int):  # there may be none to read
            none = torch.zeros([*values.shape[:at], 1, *values.shape[at + 1 :]], dtype=values.dtype)
            values = torch.cat([values, none], at)
        spread = values.index_select(at, place).reshape(
            list(values.shape[:at]) + list(mask.shape) + list(values.shape[at + 1 :])
        )
    added = (x | spread if x.dtype is torch.bool else x + spread) if accumulate else spread
    return torch.where(where, added, x)


@rule(aten.put.default)
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Any:
    flat = torch.ops.aten.index_put.default(x.reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


@rule(aten.take.default)
def take(x: Tensor, index: Tensor) -> Any:
    flat = aten.index.Tensor(x.reshape(-1), [index.reshape(-1)])
    return flat.reshape(index.shape)


@rule(aten.masked_scatter.default)
def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Any:
    shape = torch.broadcast_shapes(x.shape, mask.shape)  # type: ignore[no-untyped-call]  # torch's
    if x.shape == shape:
        return NotImplemented
    return torch.masked_scatter(x.expand(shape), mask, source)


@rule(aten.index_reduce.default)
def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    shape = [1] * source.dim()
    if source.dim():
        shape[dim] = -1
    places = index.reshape(shape).expand(source.shape)
    return torch.scatter_reduce(x, dim, places, source, reduce, include_self=include_self)


@rule(aten.scatter_reduce.two)
def scatter_reduce(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    """Means of whole numbers are rounded down, as in eager; booleans are 0 and 1, as bits they would wrap around."""
    if x.dtype is torch.bool and reduce != "mean":
        low, given = x.to(torch.int32), src.to(torch.int32)
        return torch.scatter_reduce(low, dim, index, given, reduce, include_self=include_self) != 0
    if reduce != "mean" or x.dtype.is_floating_point or x.dtype.is_complex:
        return NotImplemented
    total = torch.scatter_reduce(x, dim, index, src, "sum", include_self=include_self)
    own = torch.ones_like(x) if include_self else torch.zeros_like(x)
    counts = torch.scatter_add(own, dim, index, torch.ones_like(src))
    return torch.div(total, counts.clamp_min(1), rounding_mode="floor")


_REDUCTIONS = {"add": "sum", "multiply": "prod"}


@rule(aten.scatter.reduce)
def scatter_with(x: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str) -> Tensor:
    return torch.scatter_reduce(x, dim, index, src, _REDUCTIONS[reduce])


@rule(aten.scatter.value_reduce)
def scatter_value_with(x: Tensor, dim: int, index: Tensor, value: Any, *, reduce: str) -> Tensor:
    source = torch.full(index.shape, value, dtype=x.dtype)
    return torch.scatter_reduce(x, dim, index, source, _REDUCTIONS[reduce])


@rule(aten.scatter_add.default)
def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    # Booleans add as "or"; as bits they would add as "exclusive or".
    if x.dtype is not torch.bool:
        return NotImplemented
    return torch.scatter_add(x.to(torch.int32), dim, index, src.to(torch.int32)) != 0


@rule(aten.index_add.default)
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Any:
    if x.dtype is not torch.bool:
        return NotImplemented
    added = source if alpha else torch.zeros_like(source)
    return torch.index_add(x.to(torch.int32), dim, index, added.to(torch.int32)) != 0


@rule(aten.diagonal_scatter.default)
def diagonal_scatter(x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    front = torch.movedim(x, (dim1, dim2), (0, 1))
    step = torch.arange(src.shape[-1])
    indices = [step + max(-offset, 0), step + max(offset, 0)]
    written = plain(aten.index_put.default, front, indices, torch.movedim(src, -1, 0))
    return torch.movedim(written, (0, 1), (dim1, dim2))


@rule(aten.constant_pad_nd.default)
def constant_pad(x: Tensor, pad: list[Any], value: Any = 0) -> Any:
    """Negative padding cuts: IREE refuses it inside a pad."""
    if not any(isinstance(width, int) and width < 0 for width in pad):
        return NotImplemented
    for i, width in enumerate(pad):
        axis = x.dim() - 1 - i // 2
        if isinstance(width, int) and width < 0:
            x = x.narrow(axis, 0 if i % 2 else -width, x.shape[axis] + width)
    kept = [max(width, 0) if isinstance(width, int) else width for width in pad]
    return aten.constant_pad_nd.default(x, kept, value)


@rule(aten.roll.default)
def roll(x: Tensor, shifts: list[Any], dims: Sequence[int] = ()) -> Any:
    # A shift of more than the size reads outside.
    if 0 in x.shape:
        return x.clone()
    if not dims:
        flat = roll(x.reshape(-1), shifts, [0])
        return flat if flat is NotImplemented else flat.reshape(x.shape)
    sizes = [x.shape[dim] for dim in dims]
    if not all(isinstance(size, int) for size in sizes):
        return NotImplemented
    moved = {dim: shift % size for dim, shift, size in zip(dims, shifts, sizes, strict=True) if shift % size}
    for dim in [dim for dim in moved if x.shape[dim] == 2]:
        x, _ = x.flip(dim), moved.pop(dim)  # concatenations of single elements in one another do not pass IREE
    return plain(aten.roll.default, x, [*moved.values()], [*moved]) if moved else x.clone()


@rule(aten.as_strided_scatter.default)
def as_strided_scatter(x: Tensor, src: Tensor, size: list[Any], stride: list[Any], storage_offset: Any = None) -> Any:
    """Into the elements that the view of the memory would show."""
    numbers = (*x.shape, *size, *stride)
    if not all(isinstance(number, int) for number in numbers) or not x.is_contiguous() or 0 in numbers[: x.dim()]:
        return NotImplemented
    first: Any = 0 if storage_offset is None else storage_offset - x.storage_offset()
    place = torch.full([1] * max(len(size), 1), first)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        place = place + (torch.arange(count) * step).reshape([-1] + [1] * (len(size) - axis - 1))
    values = src.expand(size).reshape(-1)
    return plain(aten.index_put.default, x.reshape(-1), [place.reshape(-1)], values).reshape(x.shape)


@rule(aten.nonzero_static.default)
def nonzero_static(x: Tensor, *, size: int, fill_value: int = -1) -> Any:
    """The n-th place is where n places that are not zero lie before it."""
    if not all(isinstance(length, int) for length in x.shape):
        return NotImplemented
    if x.dim() == 0 or x.numel() == 0 or size == 0:
        return torch.full((size, x.dim()), fill_value)
    before = (x.reshape(-1) != 0).to(torch.int64).cumsum(0)
    place = torch.arange(size)
    flat = (before <= place.unsqueeze(1)).sum(1)
    columns, factor = [], x.numel()
    for length in x.shape:
        factor //= length
        columns.append(torch.div(flat, factor, rounding_mode="floor") % length)
    return torch.where((place < before[-1]).unsqueeze(1), torch.stack(columns, 1), fill_value)


@rule(aten.index.Tensor)
def index(x: Tensor, indices: list[Tensor | None]) -> Any:
    """A mask of one or more axes, among no other indices: the slices at its places. torch-mlir's lowering does not end
    with masks of several axes. Places of several axes: `_of_places`."""
    given = [(axis, mask) for axis, mask in enumerate(indices) if mask is not None]
    if len(given) > 1:
        return _of_places(x, given)
    if len(given) != 1 or given[0][1].dtype is not torch.bool or given[0][1].dim() == 0:
        return NotImplemented
    axis, mask = given[0]
    shape = (*x.shape[:axis], -1, *x.shape[axis + mask.dim() :])
    return torch.index_select(x.reshape(shape), axis, torch.nonzero(mask.reshape(-1)).squeeze(1))


def _of_places(x: Tensor, given: list[tuple[int, Tensor]]) -> Any:
    """The slices at places of several axes, as many as values say: of one axis, for torch-mlir takes as many along each
    axis for one number only where it is known."""
    axes, places = zip(*given, strict=True)
    counts = [index.shape[0] for index in places if index.dim() == 1 and index.dtype is not torch.bool]
    axis, sizes = axes[0], x.shape[axes[0] : axes[-1] + 1]
    side_by_side = len(sizes) == len(axes)
    if len(counts) < len(axes) or not side_by_side or not all(map(free_unbacked_symbols, counts)):
        return NotImplemented
    flat = from_start(places[0], sizes[0])
    for index, size in zip(places[1:], sizes[1:], strict=True):
        flat = flat * size + from_start(index, size)
    return torch.index_select(x.reshape([*x.shape[:axis], -1, *x.shape[axes[-1] + 1 :]]), axis, flat)


@rule(aten.masked_select.default)
def masked_select(x: Tensor, mask: Tensor) -> Any:
    values, taken = torch.broadcast_tensors(x, mask)  # type: ignore[no-untyped-call]  # torch's
    if values.shape != x.shape:  # torch.export takes the elements of x for all there can be, and calls check that
        return NotImplemented
    places = torch.nonzero(taken.reshape(-1)).squeeze(1)
    return torch.index_select(values.reshape(-1), 0, places)


@rule(aten.repeat_interleave.Tensor)
def repeat_interleave(repeats: Tensor, output_size: int | None = None) -> Any:
    """Whose turn each place is: of the first that ends behind it."""
    if repeats.numel() == 0:
        return NotImplemented
    ends = repeats.cumsum(0)
    total: Any = ends[-1].item() if output_size is None else output_size
    torch._check(total >= 0)  # type: ignore[no-untyped-call]  # torch's
    return torch.searchsorted(ends, torch.arange(total, dtype=ends.dtype), right=True).to(repeats.dtype)


@rule(aten.embedding_renorm.default)
def embedding_renorm(weight: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Rows that are read and longer than the limit, at its length."""
    rows = torch.arange(weight.shape[0])
    read = (indices.reshape(-1, 1) == rows).any(0)
    norm = torch.linalg.vector_norm(wide(weight), norm_type, 1)
    scale = torch.where(read & (norm > max_norm), max_norm / (norm + 1e-7), 1.0)
    return (wide(weight) * scale.unsqueeze(1)).to(weight.dtype)


def _bag_length(offsets: Tensor, count: Any) -> int | None:
    """How many of so many indices each bag has, if all have as many and the program says so: where bags begin is an
    ``arange``, as `torch.nn.functional.embedding_bag` makes it of indices in two dimensions."""
    mode = get_proxy_mode()
    traced = get_proxy_slot(mb_unwrap_functional_tensor(offsets), mode.tracer, None) if mode is not None else None
    if traced is None or traced.proxy.node.target is not aten.arange.start_step:
        return None
    first, last, *step = (arg.meta.get("val") if isinstance(arg, Node) else arg for arg in traced.proxy.node.args)
    each: Any = step[0] if step else 1
    if first != 0 or not isinstance(each, int) or each < 1:
        return None
    return each if statically_known_true(last == count) and statically_known_true(count % each == 0) else None


@rule(aten._embedding_bag.default)
def embedding_bag_kept(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """The pooled rows, and what their gradients are computed with: of sums eager mostly keeps no bags."""
    padding = padding_idx if padding_idx >= 0 else None
    pooled, bag, *kept = embedding_bag(
        weight,
        indices,
        offsets,
        scale_grad_by_freq,
        mode,
        sparse,
        per_sample_weights,
        include_last_offset,
        padding,
    )
    quick = weight.dtype in (torch.float32, torch.float16) and weight.stride(1) == 1 and padding is None
    if mode == 0 and quick and (per_sample_weights is None or per_sample_weights.stride(0) == 1):
        bag = bag[:0]
    return pooled, bag, *kept


@rule(aten._efficientzerotensor.default)
def zeros(size: list[Any], *, dtype: torch.dtype | None = None, **kwargs: Any) -> Tensor:
    """A gradient that is none: zeros without memory."""
    return torch.zeros(size, dtype=dtype)


@rule(aten.embedding_bag.padding_idx)
def embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int | None,
) -> Any:
    """A row at a time is read and added to its bag; torch-mlir's lowering asks of each row and each bag whether they
    belong together. Bags of one length (of indices in two dimensions) are rows that follow each other."""
    each = _bag_length(offsets, indices.shape[0])
    if each is not None and mode < 2 and per_sample_weights is None and padding_idx is None and not include_last_offset:
        rows = wide(weight.index_select(0, indices.to(torch.int64)))
        summed = rows.reshape(indices.shape[0] // each, each, weight.shape[1]).sum(1)
        pooled = (summed / each if mode == 1 else summed).to(weight.dtype)
        bag = torch.arange(indices.shape[0]) // each
        counts = torch.full((pooled.shape[0],), each)
        return pooled, bag, counts, torch.zeros_like(counts)
    offsets = offsets.to(torch.int64)
    starts = offsets[:-1] if include_last_offset else offsets
    bags, count, width = starts.shape[0], indices.shape[0], weight.shape[1]
    position = torch.arange(count)
    bag = (starts.unsqueeze(0) <= position.unsqueeze(1)).sum(1) - 1
    rows = weight.index_select(0, indices.to(torch.int64))
    kept = torch.ones_like(bag)
    if padding_idx is not None:
        kept = (indices != (padding_idx if padding_idx >= 0 else padding_idx + weight.shape[0])).to(torch.int64)
    if include_last_offset:
        kept = torch.where(position < offsets[-1], kept, 0)
    counts = torch.zeros(bags, dtype=torch.int64).index_add(0, bag, kept)
    here = kept.unsqueeze(1) != 0
    if mode == 2:
        places = bag.unsqueeze(1).expand(count, width)
        low = torch.full((bags, width), -torch.inf, dtype=weight.dtype)
        rows = torch.where(here, rows, -torch.inf)
        pooled = torch.scatter_reduce(low, 0, places, rows, "amax")
        taken = rows == pooled.index_select(0, bag)
        pooled = torch.where(counts.unsqueeze(1) > 0, pooled, 0.0)
        first = torch.full((bags, width), count, dtype=torch.int64)
        first = torch.scatter_reduce(first, 0, places, torch.where(taken, position.unsqueeze(1), count), "amin")
        largest = indices.to(torch.int64).index_select(0, first.clamp(max=count - 1).reshape(-1)).reshape(bags, width)
    else:
        rows = wide(rows)
        if per_sample_weights is not None:
            rows = rows * wide(per_sample_weights).unsqueeze(1)
        total = torch.zeros((bags, width), dtype=wide(weight).dtype)
        pooled = total.index_add(0, bag, torch.where(here, rows, 0.0))
        if mode == 1:
            pooled = pooled / counts.clamp(min=1).unsqueeze(1)
        pooled = pooled.to(weight.dtype)
    return pooled, bag, counts, largest if mode == 2 else torch.zeros_like(counts)
