"""Chains written by hand, as they come from models, with what torch computes for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from covan_mlir.fred.chain import Axis, Chain, Combine, Input, Map, Reduce
from covan_mlir.fred.expression import Apply, Const, Expr, Index, Read


class Floats:
    """Expressions of one floating-point element type."""

    def __init__(self, dtype: str = "f32") -> None:
        self.dtype = dtype

    def __getattr__(self, name: str) -> Read:
        return Read(name, self.dtype)

    def c(self, value: float) -> Const:
        """A constant."""
        return Const(value, self.dtype)

    def op(self, name: str, *args: Expr) -> Apply:
        """An operation, of the arith dialect or, if it has one operand, the math dialect."""
        dialect = "math" if len(args) == 1 and name != "negf" else "arith"
        return Apply(f"{dialect}.{name}", args, self.dtype)

    def reduce(self, name: str, axes: Sequence[str], over: str, how: Combine, expr: Expr) -> Reduce:
        """A reduction from its neutral element."""
        first = -math.inf if how == "max" else 0.0
        return Reduce(name, tuple(axes), (over,), how, expr, Const(first, self.dtype), self.dtype)

    def map(self, name: str, axes: Sequence[str], expr: Expr) -> Map:
        """An element-wise step."""
        return Map(name, tuple(axes), expr, self.dtype)


def position(axis: str) -> Apply:
    """A position as an i64."""
    return Apply("arith.index_cast", (Index(axis),), "i64")


def integer(op: str, a: Expr, b: Expr) -> Apply:
    """An i64 operation, or a comparison."""
    return Apply(f"arith.{op}", (a, b), "i1" if op.startswith("cmpi") else "i64")


RowCase = tuple[Chain, Callable[..., Tensor]]


def _row(rows: int, length: int, steps: Sequence[Map | Reduce], output: str, dtype: str, *extra: Input) -> Chain:
    axes = (Axis("i", rows), Axis("j", length))
    return Chain(axes, (Input("x", ("i", "j"), dtype), *extra), tuple(steps), (output,))


def _moments(f: Floats, size: float) -> list[Map | Reduce]:
    # The variance as torch-mlir makes it: in f64, whatever the input is.
    w, x = Floats("f64"), f.x
    wide: Expr = x if f.dtype == "f64" else Apply("arith.extf", (x,), "f64")
    variance: Expr = w.op("divf", w.wq, w.c(size))
    return [
        w.map("wx", "ij", wide),
        w.reduce("ws", "i", "j", "add", w.wx),
        w.map("wmu", "i", w.op("divf", w.ws, w.c(size))),
        w.map("wd", "ij", w.op("subf", w.wx, w.wmu)),
        w.reduce("wq", "i", "j", "add", w.op("mulf", w.wd, w.wd)),
        f.map("v", "i", variance if f.dtype == "f64" else Apply("arith.truncf", (variance,), f.dtype)),
    ]


def row_cases(rows: int, n: int, dtype: str = "f32") -> dict[str, RowCase]:
    """Row reductions by name, with torch's function of the same inputs."""
    f = Floats(dtype)
    x = f.x
    peak = f.reduce("m", "i", "j", "max", x)
    shifted = f.map("d", "ij", f.op("subf", x, f.m))
    total = f.reduce("l", "i", "j", "add", f.op("exp", f.d))
    log = [f.map("ll", "i", f.op("log", f.l)), f.map("lp", "ij", f.op("subf", f.d, f.ll))]
    exps = [peak, f.map("e", "ij", f.op("exp", f.op("subf", x, f.m))), f.reduce("l", "i", "j", "add", f.e)]
    size = f.c(float(n))
    mean = [f.reduce("s", "i", "j", "add", x), f.map("mu", "i", f.op("divf", f.s, size))]
    squares = [f.map("d", "ij", f.op("subf", x, f.mu)), f.reduce("q", "i", "j", "add", f.op("mulf", f.d, f.d))]
    power = f.reduce("q", "i", "j", "add", f.op("mulf", x, x))
    root = f.map("r", "i", f.op("rsqrt", f.op("addf", f.op("divf", f.q, size), f.c(1e-5))))
    moments = _moments(f, float(n))
    normal = f.op("rsqrt", f.op("addf", f.v, f.c(1e-5)))
    gain, bias = Input("g", ("j",), dtype), Input("b", ("j",), dtype)
    infinite = Apply("arith.cmpf:oeq", (f.op("absf", f.m), f.c(math.inf)), "i1")
    safe = f.map("ms", "i", Apply("arith.select", (infinite, f.c(0.0), f.m), dtype))
    picked = Apply("arith.cmpi:eq", (position("j"), Read("t", "i64")), "i1")
    loss = f.reduce("n", "i", "j", "add", Apply("arith.select", (picked, f.lp, f.c(0.0)), dtype))
    weighted = f.op("mulf", f.op("divf", f.e, f.l), f.lp)
    normed = f.op("divf", f.d, f.op("sqrt", f.op("divf", f.q, size)))
    return {
        "softmax": (
            _row(rows, n, [*exps, f.map("y", "ij", f.op("divf", f.e, f.l))], "y", dtype),
            lambda x: torch.softmax(x, -1),
        ),
        "log_softmax": (_row(rows, n, [peak, shifted, total, *log], "lp", dtype), lambda x: torch.log_softmax(x, -1)),
        "logsumexp": (
            _row(
                rows,
                n,
                [
                    peak,
                    safe,
                    f.reduce("l", "i", "j", "add", f.op("exp", f.op("subf", x, f.ms))),
                    f.map("y", "i", f.op("addf", f.op("log", f.l), f.ms)),
                ],
                "y",
                dtype,
            ),
            lambda x: torch.logsumexp(x, -1),
        ),
        "layer_norm": (
            _row(
                rows,
                n,
                [
                    *moments,
                    *mean,
                    f.map("r", "i", normal),
                    f.map("d", "ij", f.op("subf", x, f.mu)),
                    f.map("y", "ij", f.op("addf", f.op("mulf", f.op("mulf", f.d, f.r), f.g), f.b)),
                ],
                "y",
                dtype,
                gain,
                bias,
            ),
            lambda x, g, b: torch.nn.functional.layer_norm(x, (n,), g, b),
        ),
        "rms_norm": (
            _row(rows, n, [power, root, f.map("y", "ij", f.op("mulf", f.op("mulf", x, f.r), f.g))], "y", dtype, gain),
            lambda x, g: torch.nn.functional.rms_norm(x, (n,), g, 1e-5),
        ),
        "var": (
            _row(rows, n, moments, "v", dtype),
            lambda x: torch.var(x, -1, correction=0),
        ),
        "cross_entropy": (
            _row(
                rows,
                n,
                [peak, shifted, total, *log, loss, f.map("y", "i", f.op("negf", f.n))],
                "y",
                dtype,
                Input("t", ("i",), "i64"),
            ),
            lambda x, t: torch.nn.functional.cross_entropy(x, t, reduction="none"),
        ),
        "entropy": (
            _row(
                rows,
                n,
                [
                    peak,
                    shifted,
                    f.map("e", "ij", f.op("exp", f.d)),
                    f.reduce("l", "i", "j", "add", f.e),
                    *log,
                    f.reduce("h", "i", "j", "add", weighted),
                    f.map("y", "i", f.op("negf", f.h)),
                ],
                "y",
                dtype,
            ),
            lambda x: -(torch.softmax(x, -1) * torch.log_softmax(x, -1)).sum(-1),
        ),
        "norm_of_normalised": (
            _row(
                rows,
                n,
                [
                    *mean,
                    *squares,
                    f.map("z", "ij", normed),
                    f.reduce("a", "i", "j", "add", f.op("absf", f.z)),
                    f.map("y", "i", f.a),
                ],
                "y",
                dtype,
            ),
            lambda x: ((x - x.mean(-1, True)) / x.var(-1, correction=0, keepdim=True).sqrt()).abs().sum(-1),
        ),
    }


def column_softmax(rows: int, n: int, *, transposed: bool = False) -> RowCase:
    """Softmax over the axis that is not contiguous; the result may be transposed, so that it is there."""
    f, axes_of_values = Floats(), "ji" if transposed else "ij"
    steps = (
        f.reduce("m", "j", "i", "max", f.x),
        f.map("e", axes_of_values, f.op("exp", f.op("subf", f.x, f.m))),
        f.reduce("l", "j", "i", "add", f.e),
        f.map("y", axes_of_values, f.op("divf", f.e, f.l)),
    )
    chain = Chain((Axis("i", rows), Axis("j", n)), (Input("x", ("i", "j"), "f32"),), steps, ("y",))
    return chain, lambda x: torch.softmax(x, 0).T if transposed else torch.softmax(x, 0)


def cosine_similarity(rows: int, n: int) -> RowCase:
    """Cosine of the angle between two rows."""
    f = Floats()
    steps = (
        f.reduce("xy", "i", "j", "add", f.op("mulf", f.x, f.z)),
        f.reduce("xx", "i", "j", "add", f.op("mulf", f.x, f.x)),
        f.reduce("zz", "i", "j", "add", f.op("mulf", f.z, f.z)),
        f.map("y", "i", f.op("divf", f.xy, f.op("sqrt", f.op("mulf", f.xx, f.zz)))),
    )
    axes = (Axis("i", rows), Axis("j", n))
    inputs = (Input("x", ("i", "j"), "f32"), Input("z", ("i", "j"), "f32"))
    return Chain(axes, inputs, steps, ("y",)), lambda x, z: torch.cosine_similarity(x, z, -1)


VARIANTS = ("global", "causal", "alibi", "softcap", "bias", "bool", "window")
WINDOW, CAP = 40, 20.0


def attention(
    heads: int, queries: int, keys: int, depth: int, variant: str = "global", *, groups: int = 1, dtype: str = "f32"
) -> Chain:
    """Attention; with ``groups``, so many query heads share the keys and values of one of ``heads``."""
    wide = "f64" if dtype == "f64" else "f32"
    f, half = Floats(wide), Floats(dtype)
    batch = ("h", "g") if groups > 1 else ("h",)
    scores = (*batch, "i", "j")
    inputs = [
        Input("q", (*batch, "i", "d"), dtype),
        Input("k", ("h", "j", "d"), dtype),
        Input("v", ("h", "j", "e"), dtype),
    ]
    at = integer("addi", position("i"), Const(keys - queries, "i64"))
    s: Expr = f.op("mulf", f.s, f.c(1 / math.sqrt(depth)))
    if variant == "softcap":
        s = f.op("mulf", f.op("tanh", f.op("divf", s, f.c(CAP))), f.c(CAP))
    if variant == "alibi":
        inputs.append(Input("slope", batch, wide))
        distance = Apply("arith.sitofp", (integer("subi", position("j"), at),), wide)
        s = f.op("addf", s, f.op("mulf", f.slope, distance))
    if variant == "bias":
        inputs.append(Input("bias", scores, wide))
        s = f.op("addf", s, f.bias)
    if variant == "bool":
        inputs.append(Input("mask", ("i", "j"), "i1"))
        s = Apply("arith.select", (Read("mask", "i1"), s, f.c(-math.inf)), wide)
    if variant in ("causal", "alibi", "window"):
        seen: Expr = integer("cmpi:sle", position("j"), at)
        if variant == "window":
            near = integer("cmpi:sgt", position("j"), integer("subi", at, Const(WINDOW, "i64")))
            seen = Apply("arith.andi", (seen, near), "i1")
        s = Apply("arith.select", (seen, s, f.c(-math.inf)), wide)
    rows = (*batch, "i")
    product = f.op("mulf", half.q, half.k)
    steps = (
        f.reduce("s", scores, "d", "add", product),
        f.map("x", scores, s),
        f.reduce("m", rows, "j", "max", f.x),
        f.map("p", scores, f.op("exp", f.op("subf", f.x, f.m))),
        f.reduce("l", rows, "j", "add", f.p),
        f.reduce("o", (*rows, "e"), "j", "add", f.op("mulf", f.p, half.v)),
        Map("y", (*rows, "e"), f.op("divf", f.o, f.l), dtype),
    )
    sizes = {"h": heads, "g": groups, "i": queries, "j": keys, "d": depth, "e": depth}
    axes = tuple(Axis(name, size) for name, size in sizes.items() if name in {*scores, "d", "e"})
    return Chain(axes, tuple(inputs), steps, ("y",))


def plain_attention(variant: str, q: Tensor, k: Tensor, v: Tensor, extra: Tensor | None = None) -> Tensor:
    """The same in plain torch code; ``q`` has one more dimension than ``k`` where heads share keys."""
    if q.dim() > k.dim():
        k, v = k[:, None], v[:, None]
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    queries, keys = s.shape[-2:]
    at, j = torch.arange(queries)[:, None] + keys - queries, torch.arange(keys)[None]
    if variant == "softcap":
        s = torch.tanh(s / CAP) * CAP
    if variant == "alibi":
        assert extra is not None
        s = s + extra[..., None, None] * (j - at)
    if variant == "bias":
        assert extra is not None
        s = s + extra
    if variant == "bool":
        assert extra is not None
        s = s.masked_fill(~extra, -math.inf)
    if variant in ("causal", "alibi"):
        s = s.masked_fill(j > at, -math.inf)
    if variant == "window":
        s = s.masked_fill((j > at) | (j <= at - WINDOW), -math.inf)
    return torch.softmax(s, -1) @ v


def plain_one_query(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """What `one_query` computes, with torch."""
    return (torch.softmax(q[:, None] @ k.transpose(1, 2), -1) @ v)[:, 0]


def one_query(heads: int, keys: int, depth: int) -> Chain:
    """Attention of one query per set of keys, without an axis of queries."""
    f = Floats()
    steps = (
        f.reduce("s", "hj", "d", "add", f.op("mulf", f.q, f.k)),
        f.reduce("m", "h", "j", "max", f.s),
        f.map("p", "hj", f.op("exp", f.op("subf", f.s, f.m))),
        f.reduce("l", "h", "j", "add", f.p),
        f.reduce("o", "he", "j", "add", f.op("mulf", f.p, f.v)),
        f.map("y", "he", f.op("divf", f.o, f.l)),
    )
    inputs = (Input("q", ("h", "d"), "f32"), Input("k", ("h", "j", "d"), "f32"), Input("v", ("h", "j", "e"), "f32"))
    return Chain((Axis("h", heads), Axis("j", keys), Axis("d", depth), Axis("e", depth)), inputs, steps, ("y",))
