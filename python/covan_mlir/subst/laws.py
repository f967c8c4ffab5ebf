"""Rules that are written down and not enumerated: about operators, and with more tensors, than an enumeration of three
operators meets. They are proved as all others are, for all sizes that their terms allow.

A bias is a vector that is broadcast; what is broadcast along several axes is so along the first one first.
"""

from __future__ import annotations

from covan_mlir.subst.prove import Proved, prove
from covan_mlir.subst.terms import Rule, parse_size, parse_term

_CONV = "stride=(stride0, stride1), pad=(pad0, pad1), dilation=(dilation0, dilation1)"


def _bias(name: str) -> str:
    return f"broadcast(broadcast(broadcast({name}, axis=0, size=n), axis=2, size=h), axis=3, size=w)"


def _scales(name: str) -> str:
    return f"broadcast(broadcast(broadcast({name}, axis=1, size=c), axis=2, size=k), axis=3, size=l)"


def _conv(image: str, kernel: str) -> str:
    return f"conv({image}, {kernel}, {_CONV}, groups=1)"


_IMAGE = "x[n, c, i, j]"
_KERNELS = (_IMAGE, "v[o, c, k, l]", "u[p, c, k, l]")

_LINEAR = "add(matmul(a, concat(b, c, axis=1)), broadcast(concat(d, e, axis=0), axis=0, size=m))"
_PADDED = "pad=(pad0 + border0*dilation0, pad1 + border1*dilation1)"
_SIZES = "stride=(stride0, stride1), {pad}, dilation=(dilation0, dilation1), groups=1"
_ENLARGED = (_IMAGE, "v[o, c, k, l]", "u[p, c, k + 2*border0, l + 2*border1]")
_SMALL = _conv("x", "v")
_LARGE = f"conv(x, u, {_SIZES.format(pad=_PADDED)})"
_BOTH = f"conv(x, concat(enlarge(v, border=(border0, border1)), u, axis=0), {_SIZES.format(pad=_PADDED)})"

LAWS: tuple[tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    # Products that share an operand, with their biases: query, key and value; the gates of a cell.
    (
        "linear",
        ("a[m, k]", "b[k, n]", "c[k, p]", "d[n]", "e[p]"),
        (
            "add(matmul(a, b), broadcast(d, axis=0, size=m))",
            "add(matmul(a, c), broadcast(e, axis=0, size=m))",
        ),
        (
            f"head({_LINEAR}, axis=1, size=n)",
            f"tail({_LINEAR}, axis=1, size=p)",
        ),
    ),
    # Two products that are added are one of what stands side by side: input and state of a recurrent cell.
    (
        "matmul-sum",
        ("a[m, k]", "b[k, n]", "c[m, l]", "d[l, n]"),
        ("add(matmul(a, b), matmul(c, d))",),
        ("matmul(concat(a, c, axis=1), concat(b, d, axis=0))",),
    ),
    # Convolutions of one image.
    (
        "conv-kernels",
        _KERNELS,
        (_conv("x", "v"), _conv("x", "u")),
        (
            f"head({_conv('x', 'concat(v, u, axis=0)')}, axis=1, size=o)",
            f"tail({_conv('x', 'concat(v, u, axis=0)')}, axis=1, size=p)",
        ),
    ),
    (
        "conv-bias-kernels",
        (*_KERNELS, "d[o]", "e[p]"),
        (f"add({_conv('x', 'v')}, {_bias('d')})", f"add({_conv('x', 'u')}, {_bias('e')})"),
        (
            f"head(add({_conv('x', 'concat(v, u, axis=0)')}, {_bias('concat(d, e, axis=0)')}), axis=1, size=o)",
            f"tail(add({_conv('x', 'concat(v, u, axis=0)')}, {_bias('concat(d, e, axis=0)')}), axis=1, size=p)",
        ),
    ),
    (
        "concat-conv-kernels",
        _KERNELS,
        (f"concat({_conv('x', 'v')}, {_conv('x', 'u')}, axis=1)",),
        (_conv("x", "concat(v, u, axis=0)"),),
    ),
    (
        "concat-bias",
        ("d[o]", "e[p]"),
        (f"concat({_bias('d')}, {_bias('e')}, axis=1)",),
        (_bias("concat(d, e, axis=0)"),),
    ),
    # A scale of each channel is one of its kernel.
    (
        "conv-channel-scale",
        (_IMAGE, "v[o, c, k, l]", "s[o]"),
        (f"mul({_conv('x', 'v')}, {_bias('s')})",),
        (_conv("x", f"mul(v, {_scales('s')})"),),
    ),
    # A scale of each column is one of the right factor.
    (
        "matmul-column-scale",
        ("a[m, k]", "b[k, n]", "s[n]"),
        ("mul(matmul(a, b), broadcast(s, axis=0, size=m))",),
        ("matmul(a, mul(b, broadcast(s, axis=0, size=k)))",),
    ),
    # What is done to each row before a product is done to the factor after it.
    (
        "matmul-row-scale",
        ("a[m, k]", "b[k, n]", "s[k]"),
        ("matmul(mul(a, broadcast(s, axis=0, size=m)), b)",),
        ("matmul(a, mul(b, broadcast(s, axis=1, size=n)))",),
    ),
    # What was taken apart and is put together again.
    *(
        (
            f"pieces-{len(sizes) + 1}d-{axis}",
            (f"a[{', '.join([*sizes[:axis], 'n + m', *sizes[axis:]])}]",),
            (f"concat(head(a, axis={axis}, size=n), tail(a, axis={axis}, size=m), axis={axis})",),
            ("a",),
        )
        for sizes, axis in ((("k",), 0), (("k",), 1), (("b", "h", "w"), 1))
    ),
    # Biases along the way of two products.
    (
        "matmul-bias",
        ("a[m, k]", "d[k]", "b[k, n]"),
        ("matmul(add(a, broadcast(d, axis=0, size=m)), b)",),
        ("add(matmul(a, b), broadcast(sum(mul(b, broadcast(d, axis=1, size=n)), axis=0), axis=0, size=m))",),
    ),
    (
        "bias-sum",
        ("a[m, n]", "d[n]", "e[n]"),
        ("add(add(a, broadcast(d, axis=0, size=m)), broadcast(e, axis=0, size=m))",),
        ("add(a, broadcast(add(d, e), axis=0, size=m))",),
    ),
    # A small kernel beside a larger one is one of its size with a border of zeros.
    (
        "conv-enlarged-kernels",
        _ENLARGED,
        (_SMALL, _LARGE),
        (f"head({_BOTH}, axis=1, size=o)", f"tail({_BOTH}, axis=1, size=p)"),
    ),
    (
        "conv-bias-enlarged-kernels",
        (*_ENLARGED, "d[o]", "e[p]"),
        (f"add({_SMALL}, {_bias('d')})", f"add({_LARGE}, {_bias('e')})"),
        (
            f"head(add({_BOTH}, {_bias('concat(d, e, axis=0)')}), axis=1, size=o)",
            f"tail(add({_BOTH}, {_bias('concat(d, e, axis=0)')}), axis=1, size=p)",
        ),
    ),
)
"""Name, tensors, what is looked for, what takes its place."""


def laws() -> list[tuple[str, Proved]]:
    """All of them, proved, by name."""
    return [(name, prove(_rule(tensors, source, target))) for name, tensors, source, target in LAWS]


def _rule(tensors: tuple[str, ...], source: tuple[str, ...], target: tuple[str, ...]) -> Rule:
    shapes = []
    for tensor in tensors:
        name, _, sizes = tensor.removesuffix("]").partition("[")
        shapes.append((name, tuple(map(parse_size, sizes.split(",")))))
    return Rule(tuple(map(parse_term, source)), tuple(map(parse_term, target)), tuple(shapes))
