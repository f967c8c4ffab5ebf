"""Chains that tests share, as plain code would write them."""

from __future__ import annotations

import math
from collections.abc import Callable

from covan_mlir.fred.algebra import compare, f, select
from covan_mlir.fred.chain import Axis, Chain, Combine, Input, Map, Reduce, Step
from covan_mlir.fred.expression import Apply, Const, Expr, Extent, Index, Read

NEUTRAL = {
    "add": 0.0,
    "max": -math.inf,
    "min": math.inf,
    "maxnum": -math.inf,
    "minnum": math.inf,
    "and": True,
    "or": False,
}


class Writer:
    """Writes a chain step by step; steps are named after what they are called with."""

    def __init__(self, dtype: str = "f32", **sizes: int | None) -> None:
        self.dtype = dtype
        self.axes = tuple(Axis(name, size) for name, size in sizes.items())
        self.inputs: list[Input] = []
        self.steps: list[Step] = []

    def read(self, name: str) -> Expr:
        value = next(v for v in (*self.inputs, *self.steps) if v.name == name)
        return Read(name, value.dtype)

    def input(self, name: str, axes: str, dtype: str | None = None) -> Expr:
        self.inputs.append(Input(name, tuple(axes), dtype or self.dtype))
        return self.read(name)

    def map(self, name: str, axes: str, expr: Expr) -> Expr:
        self.steps.append(Map(name, tuple(axes), expr, expr.dtype))
        return self.read(name)

    def reduce(self, name: str, axes: str, combine: Combine, over: str, expr: Expr) -> Expr:
        initial = Const(NEUTRAL[combine], expr.dtype)
        self.steps.append(Reduce(name, tuple(axes), tuple(over), combine, expr, initial, expr.dtype))
        return self.read(name)

    def number(self, value: float) -> Const:
        return Const(value, self.dtype)

    def size(self, axis: str) -> Expr:
        """The size of an axis as torch's import writes it."""
        known = next(a.size for a in self.axes if a.name == axis)
        if known is not None:
            return self.number(float(known))
        return Apply("arith.sitofp", (Apply("arith.index_cast", (Extent(axis),), "i64"),), self.dtype)

    def chain(self, *outputs: str) -> Chain:
        return Chain(self.axes, tuple(self.inputs), tuple(self.steps), outputs)


def add(a: Expr, b: Expr) -> Expr:
    return f("addf", a, b)


def sub(a: Expr, b: Expr) -> Expr:
    return f("subf", a, b)


def mul(a: Expr, b: Expr) -> Expr:
    return f("mulf", a, b)


def div(a: Expr, b: Expr) -> Expr:
    return f("divf", a, b)


def exp(a: Expr) -> Expr:
    return f("exp", a)


def square(a: Expr) -> Expr:
    return mul(a, a)


def _softmax(w: Writer, x: Expr, axes: str = "i", over: str = "j") -> Expr:
    """Plain code for softmax, every value in full."""
    m = w.reduce("m", axes, "max", over, x)
    e = w.map("e", axes + over, sub(x, m))
    p = w.map("p", axes + over, exp(e))
    total = w.reduce("l", axes, "add", over, p)
    return w.map("y", axes + over, div(p, total))


def softmax(n: int | None = 40) -> Chain:
    w = Writer(i=None, j=n)
    _softmax(w, w.input("x", "ij"))
    return w.chain("y")


def logsumexp(n: int | None = 40) -> Chain:
    """As torch decomposes it: an infinite maximum is not subtracted."""
    w = Writer(i=None, j=n)
    x = w.input("x", "ij")
    m = w.reduce("m", "i", "max", "j", x)
    infinite = Apply("arith.cmpf:oeq", (f("absf", m), w.number(math.inf)), "i1")
    safe = w.map("safe", "i", select(infinite, w.number(0.0), m))
    total = w.reduce("l", "i", "add", "j", exp(sub(x, safe)))
    w.map("y", "i", add(f("log", total), safe))
    return w.chain("y")


def _log_softmax(w: Writer, x: Expr) -> Expr:
    m = w.reduce("m", "i", "max", "j", x)
    e = w.map("e", "ij", sub(x, m))
    total = w.reduce("l", "i", "add", "j", exp(e))
    return w.map("y", "ij", sub(e, w.map("g", "i", f("log", total))))


def log_softmax(n: int | None = 40) -> Chain:
    w = Writer(i=None, j=n)
    _log_softmax(w, w.input("x", "ij"))
    return w.chain("y")


def cross_entropy(n: int | None = 40) -> Chain:
    w = Writer(i=None, j=n)
    y = _log_softmax(w, w.input("x", "ij"))
    at = Apply("arith.index_cast", (Index("j"),), "i64")
    hit = Apply("arith.cmpi:eq", (at, w.input("t", "i", "i64")), "i1")
    w.map("loss", "i", f("negf", w.reduce("picked", "i", "add", "j", select(hit, y, w.number(0.0)))))
    return w.chain("loss")


def entropy(n: int | None = 40) -> Chain:
    """Of a softmax, by its logarithm."""
    w = Writer(i=None, j=n)
    y = _log_softmax(w, w.input("x", "ij"))
    w.map("h", "i", f("negf", w.reduce("s", "i", "add", "j", mul(exp(y), y))))
    return w.chain("h")


def entropy_plain(n: int | None = 40) -> Chain:
    """Of a softmax, by p log p."""
    w = Writer(i=None, j=n)
    y = _softmax(w, w.input("x", "ij"))
    w.map("h", "i", f("negf", w.reduce("s", "i", "add", "j", mul(y, f("log", y)))))
    return w.chain("h")


def weighted_variance(n: int | None = 40) -> Chain:
    """Variance of ``v`` under the weights softmax(x)."""
    w = Writer(i=None, j=n)
    x, v = w.input("x", "ij"), w.input("v", "ij")
    y = _softmax(w, x)
    mean = w.reduce("mean", "i", "add", "j", mul(y, v))
    w.reduce("var", "i", "add", "j", mul(y, square(sub(v, mean))))
    return w.chain("var", "mean")


def _mean(w: Writer, x: Expr) -> Expr:
    return w.map("mean", "i", div(w.reduce("s", "i", "add", "j", x), w.size("j")))


def _variance(w: Writer, x: Expr, mean: Expr) -> Expr:
    return w.map("var", "i", div(w.reduce("m2", "i", "add", "j", square(sub(x, mean))), w.size("j")))


def variance(n: int | None = 40) -> Chain:
    w = Writer(i=None, j=n)
    x = w.input("x", "ij")
    _variance(w, x, _mean(w, x))
    return w.chain("var", "mean")


def variance_by_import(n: int = 40) -> Chain:
    """Through f64, as torch-mlir writes it, unbiased."""
    w = Writer("f64", i=None, j=n)
    x = w.map("wide", "ij", Apply("arith.extf", (w.input("x", "ij", "f32"),), "f64"))
    mean = _mean(w, x)
    m2 = w.reduce("m2", "i", "add", "j", square(sub(x, mean)))
    w.map("var", "i", Apply("arith.truncf", (div(m2, w.number(n - 1.0)),), "f32"))
    return w.chain("var")


def standard_deviation(n: int | None = 40) -> Chain:
    w = Writer(i=None, j=n)
    x = w.input("x", "ij")
    w.map("std", "i", f("sqrt", _variance(w, x, _mean(w, x))))
    return w.chain("std")


def skewness(n: int | None = 40) -> Chain:
    w = Writer(i=None, j=n)
    x = w.input("x", "ij")
    mean = _mean(w, x)
    deviation = f("sqrt", _variance(w, x, mean))
    z = w.map("z", "ij", div(sub(x, mean), deviation))
    w.map("skew", "i", div(w.reduce("s3", "i", "add", "j", mul(square(z), z)), w.size("j")))
    return w.chain("skew")


def _normalised(w: Writer, x: Expr) -> Expr:
    mean = _mean(w, x)
    rstd = w.map("rstd", "i", f("rsqrt", add(_variance(w, x, mean), w.number(1e-5))))
    return w.map("z", "ij", mul(sub(x, mean), rstd))


def layer_norm(n: int | None = 40) -> Chain:
    w = Writer(i=None, j=n)
    z = _normalised(w, w.input("x", "ij"))
    w.map("y", "ij", add(mul(z, w.input("g", "j")), w.input("b", "j")))
    return w.chain("y")


def norm_of_normalised(n: int | None = 40) -> Chain:
    w = Writer(i=None, j=n)
    z = _normalised(w, w.input("x", "ij"))
    w.map("y", "i", f("sqrt", w.reduce("q", "i", "add", "j", square(z))))
    return w.chain("y")


def largest_normalised(n: int | None = 40) -> Chain:
    w = Writer(i=None, j=n)
    z = _normalised(w, w.input("x", "ij"))
    w.reduce("y", "i", "max", "j", f("absf", z))
    return w.chain("y")


def rms_norm(n: int | None = 40) -> Chain:
    w = Writer(i=None, j=n)
    x = w.input("x", "ij")
    mean = w.map("mean", "i", div(w.reduce("s", "i", "add", "j", square(x)), w.size("j")))
    rstd = w.map("rstd", "i", f("rsqrt", add(mean, w.number(1e-6))))
    w.map("y", "ij", mul(mul(x, rstd), w.input("g", "j")))
    return w.chain("y")


def norm_linear(n: int | None = 40) -> Chain:
    """A layer norm and the matrix product after it."""
    w = Writer(i=None, j=n, k=5)
    z = _normalised(w, w.input("x", "ij"))
    y = w.map("y", "ij", mul(z, w.input("g", "j")))
    w.reduce("out", "ik", "add", "j", mul(y, w.input("w", "jk")))
    return w.chain("out")


def cosine(n: int | None = 40) -> Chain:
    w = Writer(i=None, j=n)
    a, b = w.input("a", "ij"), w.input("b", "ij")
    norms = [
        f("maximumf", f("sqrt", w.reduce(k, "i", "add", "j", square(v))), w.number(1e-8))
        for k, v in (("aa", a), ("bb", b))
    ]
    na, nb = w.map("na", "i", norms[0]), w.map("nb", "i", norms[1])
    w.reduce("y", "i", "add", "j", mul(div(a, na), div(b, nb)))
    return w.chain("y")


def group_norm() -> Chain:
    """Mean and variance over two axes."""
    w = Writer(i=None, c=3, j=8)
    x = w.input("x", "icj")
    mean = w.map("mean", "i", div(w.reduce("s", "i", "add", "cj", x), w.number(24.0)))
    m2 = w.reduce("m2", "i", "add", "cj", square(sub(x, mean)))
    rstd = w.map("rstd", "i", f("rsqrt", add(div(m2, w.number(24.0)), w.number(1e-5))))
    w.map("y", "icj", add(mul(mul(sub(x, mean), rstd), w.input("g", "c")), w.input("b", "c")))
    return w.chain("y")


def pooled_group_norm() -> Chain:
    """The sums of a group norm's results over one of its two axes."""
    w = Writer(i=5, c=3, j=8)
    x = w.input("x", "icj")
    mean = w.map("mean", "i", div(w.reduce("s", "i", "add", "cj", x), w.number(24.0)))
    m2 = w.reduce("m2", "i", "add", "cj", square(sub(x, mean)))
    w.reduce("p", "ic", "add", "j", f("tanh", mul(sub(x, mean), f("rsqrt", m2))))
    return w.chain("p")


def mean_pooling(n: int | None = 40) -> Chain:
    """Mean over the rows of a softmax: a reduction over another axis."""
    w = Writer(i=7, j=n)
    y = _softmax(w, w.input("x", "ij"))
    w.map("pooled", "j", div(w.reduce("s", "j", "add", "i", y), w.size("i")))
    return w.chain("pooled")


def attention(change: Callable[[Writer, Expr], Expr] | None = None, n: int | None = 40, dtype: str = "f32") -> Chain:
    """Plain attention; ``change`` makes other scores of the scaled ones."""
    w = Writer(dtype, h=2, i=6, j=n, d=8, e=5)
    q, k, v = w.input("q", "hid"), w.input("k", "hjd"), w.input("v", "hje")
    s = w.map("scaled", "hij", mul(w.reduce("s", "hij", "add", "d", mul(q, k)), w.number(0.25)))
    s = change(w, s) if change else s
    y = _softmax(w, s, "hi", "j")
    w.reduce("o", "hie", "add", "j", mul(y, v))
    return w.chain("o")


def safe_attention(n: int | None = 40) -> Chain:
    """Attention with a mask that gives zeros where all is masked, as torch decomposes its own operator."""
    w = Writer("f32", h=2, i=6, j=n, d=8, e=5)
    q, k, v = w.input("q", "hid"), w.input("k", "hjd"), w.input("v", "hje")
    s = masked(w, w.map("scaled", "hij", mul(w.reduce("s", "hij", "add", "d", mul(q, k)), w.number(0.25))))
    y = _softmax(w, s, "hi", "j")
    hidden = w.map("hidden", "hij", compare("oeq", s, w.number(-math.inf)))
    w.reduce("o", "hie", "add", "j", mul(select(w.reduce("all", "hi", "and", "j", hidden), w.number(0.0), y), v))
    return w.chain("o")


def masked(w: Writer, s: Expr) -> Expr:
    return w.map("t", "hij", add(s, w.input("mask", "ij")))


def causal(w: Writer, s: Expr) -> Expr:
    visible = Apply("arith.cmpi:sle", (Index("j"), Index("i")), "i1")
    return w.map("t", "hij", select(visible, s, w.number(-math.inf)))


def soft_cap(w: Writer, s: Expr) -> Expr:
    return w.map("t", "hij", mul(f("tanh", div(s, w.number(20.0))), w.number(20.0)))


def alibi(w: Writer, s: Expr) -> Expr:
    distance = Apply("arith.subi", (Index("j"), Index("i")), "index")
    wide = Apply("arith.sitofp", (Apply("arith.index_cast", (distance,), "i64"),), "f32")
    return w.map("t", "hij", add(s, mul(wide, w.input("slope", "h"))))
