"""The operators that rules are about, as data: shapes, what an element of the result is, what they are in PyTorch.

Positions of axes count from 0. Windows are two-dimensional over the last two axes of ``[batch, channels, height,
width]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from covan_mlir.subst.expressions import (
    Function,
    Greatest,
    Option,
    Piece,
    Read,
    Reciprocal,
    Sum,
    at_least,
    fresh,
    guarded,
    index_name,
    over,
    scaled,
    single,
    times,
    zero,
)
from covan_mlir.subst.registry import (
    OPERATORS,
    Call,
    Element,
    Kind,
    Operator,
    axis_of,
    check_rank,
    register,
    same_shape,
)
from covan_mlir.subst.shaping import NoShapesError, Shaping
from covan_mlir.subst.sizes import ONE, Poly, poly
from covan_mlir.subst.terms import Apply, Attribute, Shape, Term, Var
from covan_mlir.subst.windows import WINDOW_OPERATORS

__all__ = ["FUNCTIONS", "OPERATORS", "Call", "in_torch", "read"]  # those of the registry when all are in it

# Element by element


def _pointwise(node: Apply, shapes: list[Shape], shaping: Shaping) -> Shape:
    for shape in shapes[1:]:
        same_shape(shapes[0], shape, shaping)
    return shapes[0]


def _add(call: Call, at: Sequence[Poly]) -> Sum:
    return call.elements[0](at) + call.elements[1](at)


def _sub(call: Call, at: Sequence[Poly]) -> Sum:
    return call.elements[0](at) + scaled(call.elements[1](at), poly(-1))


def _mul(call: Call, at: Sequence[Poly]) -> Sum:
    return times(call.elements[0](at), call.elements[1](at))


def _div(call: Call, at: Sequence[Poly]) -> Sum:
    return times(call.elements[0](at), single(Function("reciprocal", (call.elements[1](at),))))


def _relu(call: Call, at: Sequence[Poly]) -> Sum:
    return single(Greatest(frozenset([Option(call.elements[0](at)), Option(())])))


register(Operator("add", 2, _pointwise, _add, "{0} + {1}", commutes=True))
register(Operator("sub", 2, _pointwise, _sub, "{0} - {1}"))
register(Operator("mul", 2, _pointwise, _mul, "{0} * {1}", commutes=True))
register(Operator("div", 2, _pointwise, _div, "{0} / {1}"))
register(Operator("neg", 1, _pointwise, lambda call, at: scaled(call.elements[0](at), poly(-1)), "-{0}"))
register(Operator("relu", 1, _pointwise, _relu, "torch.relu({0})"))
FUNCTIONS = {
    "exp": "torch.exp({0})",
    "tanh": "torch.tanh({0})",
    "sigmoid": "torch.sigmoid({0})",
    "gelu": "torch.nn.functional.gelu({0})",
    "silu": "torch.nn.functional.silu({0})",
    "sqrt": "torch.sqrt({0})",
    "rsqrt": "torch.rsqrt({0})",
}
"""Functions of one number of which rules know nothing else."""


def _function(call: Call, at: Sequence[Poly]) -> Sum:
    return single(Function(call.node.op, (call.elements[0](at),)))


for _name, _torch in FUNCTIONS.items():
    register(Operator(_name, 1, _pointwise, _function, _torch))


def _scale_shape(node: Apply, shapes: list[Shape], shaping: Shaping) -> Shape:
    check_rank(shapes[1], 0)
    return shapes[0]


def _scale(call: Call, at: Sequence[Poly]) -> Sum:
    return times(call.elements[0](at), call.elements[1](()))


register(Operator("scale", 2, _scale_shape, _scale, "{0} * {1}"))


# Axes


def _transpose_shape(node: Apply, shapes: list[Shape], shaping: Shaping) -> Shape:
    axes = [int(axis.constant or 0) for axis in dict(node.attributes)["axes"]]
    check_rank(shapes[0], len(axes))
    return tuple(shapes[0][axis] for axis in axes)


def _transpose(call: Call, at: Sequence[Poly]) -> Sum:
    axes = call.numbers("axes")
    return call.elements[0]([at[axes.index(axis)] for axis in range(len(axes))])


register(Operator("transpose", 1, _transpose_shape, _transpose, "{0}.permute({axes})", attributes=(("axes", "axes"),)))


def _concat_shape(node: Apply, shapes: list[Shape], shaping: Shaping) -> Shape:
    axis, (left, right) = axis_of(node), shapes
    check_rank(right, len(left))
    if axis >= len(left):
        raise NoShapesError(f"no axis {axis}")
    for other, (a, b) in enumerate(zip(left, right, strict=True)):
        if other != axis:
            shaping.equal(a, b)
    return (*left[:axis], left[axis] + right[axis], *left[axis + 1 :])


def _concat(call: Call, at: Sequence[Poly]) -> Sum:
    axis = call.number("axis")
    first = call.shapes[0][axis]
    rest = [*at[:axis], at[axis] - first, *at[axis + 1 :]]
    return guarded(call.elements[0](at), [at_least(first - 1 - at[axis])]) + guarded(
        call.elements[1](rest), [at_least(at[axis] - first)]
    )


register(Operator("concat", 2, _concat_shape, _concat, "torch.cat([{0}, {1}], {axis})", attributes=(("axis", "axes"),)))


def _part_shape(node: Apply, shapes: list[Shape], shaping: Shaping) -> Shape:
    axis, (size,) = axis_of(node), dict(node.attributes)["size"]
    if axis >= len(shapes[0]):
        raise NoShapesError(f"no axis {axis}")
    shaping.require(shapes[0][axis] - size)
    return (*shapes[0][:axis], size, *shapes[0][axis + 1 :])


def _head(call: Call, at: Sequence[Poly]) -> Sum:
    return call.elements[0](at)


def _tail(call: Call, at: Sequence[Poly]) -> Sum:
    axis = call.number("axis")
    start = call.shapes[0][axis] - call.attribute("size")[0]
    return call.elements[0]([*at[:axis], at[axis] + start, *at[axis + 1 :]])


for _name, _meaning, _torch in (  # the two results of a split; the last of the first is any slice
    ("head", _head, "{0}.narrow({axis}, 0, {size})"),
    ("tail", _tail, "{0}.narrow({axis}, {0}.shape[{axis}] - {size}, {size})"),
):
    register(Operator(_name, 1, _part_shape, _meaning, _torch, attributes=(("axis", "axes"), ("size", "size"))))


def _merge_shape(node: Apply, shapes: list[Shape], shaping: Shaping) -> Shape:
    axis = axis_of(node)
    if axis + 1 >= len(shapes[0]):
        raise NoShapesError(f"no axes {axis} and {axis + 1}")
    return (*shapes[0][:axis], shapes[0][axis] * shapes[0][axis + 1], *shapes[0][axis + 2 :])


def _merge(call: Call, at: Sequence[Poly]) -> Sum:
    axis = call.number("axis")
    outer, inner = fresh(), fresh()
    sizes = call.shapes[0][axis : axis + 2]
    value = call.elements[0]([*at[:axis], outer, inner, *at[axis + 1 :]])
    return over(guarded(value, [zero(at[axis] - outer * sizes[1] - inner)]), zip((outer, inner), sizes, strict=True))


register(Operator("merge", 1, _merge_shape, _merge, "{0}.flatten({axis}, {axis} + 1)", attributes=(("axis", "axes"),)))


def _divide_shape(node: Apply, shapes: list[Shape], shaping: Shaping) -> Shape:
    axis, (inner,) = axis_of(node), dict(node.attributes)["size"]
    if axis >= len(shapes[0]):
        raise NoShapesError(f"no axis {axis}")
    outer = shaping.fresh("n")
    shaping.equal(shapes[0][axis], outer * inner)
    return (*shapes[0][:axis], outer, inner, *shapes[0][axis + 1 :])


def _divide(call: Call, at: Sequence[Poly]) -> Sum:
    axis = call.number("axis")
    return call.elements[0]([*at[:axis], at[axis] * call.attribute("size")[0] + at[axis + 1], *at[axis + 2 :]])


register(
    Operator(
        "divide",
        1,
        _divide_shape,
        _divide,
        "{0}.unflatten({axis}, (-1, {size}))",
        attributes=(("axis", "axes"), ("size", "size")),
    )
)


def _broadcast_shape(node: Apply, shapes: list[Shape], shaping: Shaping) -> Shape:
    axis, (size,) = axis_of(node), dict(node.attributes)["size"]
    if axis > len(shapes[0]):
        raise NoShapesError(f"no place {axis}")
    return (*shapes[0][:axis], size, *shapes[0][axis:])


def _broadcast(call: Call, at: Sequence[Poly]) -> Sum:
    axis = call.number("axis")
    return call.elements[0]([*at[:axis], *at[axis + 1 :]])


register(
    Operator(
        "broadcast",
        1,
        _broadcast_shape,
        _broadcast,
        "{0}.unsqueeze({axis}).repeat_interleave({size}, {axis})",
        attributes=(("axis", "axes"), ("size", "size")),
    )
)


# Reductions


def _reduce_shape(node: Apply, shapes: list[Shape], shaping: Shaping) -> Shape:
    axis = axis_of(node)
    if axis >= len(shapes[0]):
        raise NoShapesError(f"no axis {axis}")
    return (*shapes[0][:axis], *shapes[0][axis + 1 :])


def _sum(call: Call, at: Sequence[Poly]) -> Sum:
    axis, index = call.number("axis"), fresh()
    return over(call.elements[0]([*at[:axis], index, *at[axis:]]), [(index, call.shapes[0][axis])])


def _max(call: Call, at: Sequence[Poly]) -> Sum:
    axis, index = call.number("axis"), fresh()
    value = call.elements[0]([*at[:axis], index, *at[axis:]])
    bound = ((index_name(index), call.shapes[0][axis]),)
    return single(Greatest(frozenset([Option(value, bound, inhabited=True)])))


def _softmax_shape(node: Apply, shapes: list[Shape], shaping: Shaping) -> Shape:
    _reduce_shape(node, shapes, shaping)
    return shapes[0]


def _softmax(call: Call, at: Sequence[Poly]) -> Sum:
    axis, index = call.number("axis"), fresh()
    here = single(Function("exp", (call.elements[0](at),)))
    there = single(Function("exp", (call.elements[0]([*at[:axis], index, *at[axis + 1 :]]),)))
    return times(here, single(Function("reciprocal", (over(there, [(index, call.shapes[0][axis])]),))))


_along: tuple[tuple[str, Kind], ...] = (("axis", "axes"),)
register(Operator("sum", 1, _reduce_shape, _sum, "{0}.sum({axis})", attributes=_along))
register(Operator("max", 1, _reduce_shape, _max, "{0}.amax({axis})", attributes=_along))
register(Operator("softmax", 1, _softmax_shape, _softmax, "{0}.softmax({axis})", attributes=_along))


def _matmul_shape(node: Apply, shapes: list[Shape], shaping: Shaping) -> Shape:
    left, right = shapes
    check_rank(right, len(left))
    if len(left) < 2:
        raise NoShapesError("vectors have no matrix product")
    same_shape(left[:-2], right[:-2], shaping)
    shaping.equal(left[-1], right[-2])
    return (*left[:-1], right[-1])


def _matmul(call: Call, at: Sequence[Poly]) -> Sum:
    index = fresh()
    product = times(
        call.elements[0]([*at[:-1], index]),
        call.elements[1]([*at[:-2], index, at[-1]]),
    )
    return over(product, [(index, call.shapes[0][-1])])


register(Operator("matmul", 2, _matmul_shape, _matmul, "{0} @ {1}"))

for _operator in WINDOW_OPERATORS:
    register(_operator)


# Constants


def _sizes(node: Apply, name: str = "size") -> Attribute:
    return dict(node.attributes)[name]


def _constant(
    name: str, shape: Callable[[Attribute], Shape], element: Callable[[Attribute, Sequence[Poly]], Sum], torch: str
) -> None:
    register(
        Operator(
            name,
            0,
            lambda node, shapes, shaping: shape(_sizes(node)),
            lambda call, at: element(_sizes(call.node), at),
            torch,
            attributes=(("size", "size"),),
            constant=True,
        )
    )


_one: Sum = (Piece(),)
_constant("zeros", lambda size: size, lambda size, at: (), "torch.zeros({size})")
_constant("ones", lambda size: size, lambda size, at: _one, "torch.ones({size})")
_constant(
    "eye",
    lambda size: (size[0], size[0]),
    lambda size, at: guarded(_one, [zero(at[0] - at[1])]),
    "torch.eye({size})",
)
_constant(
    "conv_identity",  # of kernels with 2 * border + 1 taps
    lambda size: (size[0], size[0], size[1] * 2 + 1, size[2] * 2 + 1),
    lambda size, at: guarded(_one, [zero(at[0] - at[1]), zero(at[2] - size[1]), zero(at[3] - size[2])]),
    "torch.nn.functional.pad(torch.eye({size[0]})[:, :, None, None], ({size[2]}, {size[2]}, {size[1]}, {size[1]}))",
)
_constant(
    "pool_constant",  # a kernel for each channel
    lambda size: (size[0], ONE, size[1], size[2]),
    lambda size, at: (Piece(factors=(Reciprocal(size[1]), Reciprocal(size[2]))),),
    "torch.full(({size[0]}, 1, {size[1]}, {size[2]}), 1 / ({size[1]} * {size[2]}))",
)


def read(name: str) -> Element:
    """The elements of a tensor that is given."""
    return lambda at: single(Read(name, tuple(at)))


def in_torch(term: Term, sizes: Mapping[str, int]) -> str:
    """A term as a Python expression of PyTorch, in its variables.

    Args:
        sizes: by name.
    """
    if isinstance(term, Var):
        return term.name
    values = {name: tuple(size.value(sizes) for size in value) for name, value in term.attributes}
    shown = {name: value[0] if len(value) == 1 else value for name, value in values.items()}
    args = [f"({in_torch(arg, sizes)})" for arg in term.args]
    return OPERATORS[term.op].torch.format(*args, **shown)
