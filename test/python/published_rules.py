"""Rules of TASO (Jia et al., SOSP 2019) and Tensat (Yang et al., MLSys 2021), in the words of `covan_mlir.subst`.

The first list has the properties of operators that TASO's verifier takes for granted (table 2 of the paper), the
second the substitutions of its figures, the third the patterns of several results that Tensat adds. Convolutions with
an activation are convolutions and activations here; a convolution's groups are what shapes say.
"""

from __future__ import annotations

from covan_mlir.subst.sizes import ONE
from covan_mlir.subst.terms import Rule, parse_term, variables

_RANKS = {**dict.fromkeys("xyzwvu", 4), **dict.fromkeys("abcd", 2), **dict.fromkeys("st", 0)}


def conv(image: str, kernel: str, pad: int = 1, groups: int = 1) -> str:
    """A convolution; parameters are such as are met with, and become names."""
    options = f"stride=(1, 1), pad=({pad}, {pad}), dilation=(1, 1), groups={groups}"
    return f"conv({image}, {kernel}, {options})"


def pool(kind: str, image: str) -> str:
    """A pooling."""
    return f"{kind}_pool({image}, window=(3, 3), stride=(1, 1), pad=(1, 1))"


def turned(matrix: str) -> str:
    """A matrix, transposed."""
    return f"transpose({matrix}, axes=(1, 0))"


def join(axis: int, first: str, second: str) -> str:
    """Tensors, concatenated."""
    return f"concat({first}, {second}, axis={axis})"


def _rule(source: list[str], target: list[str]) -> Rule:
    sides = tuple(map(parse_term, source)), tuple(map(parse_term, target))
    return Rule(*sides, tuple((name, (ONE,) * _RANKS[name]) for name in variables(sides[0] + sides[1])))


_PROPERTIES = [
    ("add(a, add(b, c))", "add(add(a, b), c)"),
    ("add(a, b)", "add(b, a)"),
    ("mul(a, mul(b, c))", "mul(mul(a, b), c)"),
    ("mul(a, b)", "mul(b, a)"),
    ("mul(add(a, b), c)", "add(mul(a, c), mul(b, c))"),
    ("scale(scale(a, s), t)", "scale(a, mul(s, t))"),
    ("scale(add(a, b), s)", "add(scale(a, s), scale(b, s))"),
    ("scale(mul(a, b), s)", "mul(a, scale(b, s))"),
    (turned(turned("a")), "a"),
    (turned("add(a, b)"), f"add({turned('a')}, {turned('b')})"),
    (turned("mul(a, b)"), f"mul({turned('a')}, {turned('b')})"),
    (f"scale({turned('a')}, s)", turned("scale(a, s)")),
    ("matmul(a, matmul(b, c))", "matmul(matmul(a, b), c)"),
    ("scale(matmul(a, b), s)", "matmul(a, scale(b, s))"),
    ("matmul(a, add(b, c))", "add(matmul(a, b), matmul(a, c))"),
    (turned("matmul(a, b)"), f"matmul({turned('b')}, {turned('a')})"),
    (conv("scale(x, s)", "v"), conv("x", "scale(v, s)")),
    (f"scale({conv('x', 'v')}, s)", conv("scale(x, s)", "v")),
    (conv("x", "add(v, w)"), f"add({conv('x', 'v')}, {conv('x', 'w')})"),
    (conv("add(x, y)", "v"), f"add({conv('x', 'v')}, {conv('y', 'v')})"),
    (conv("x", "v", pad=0), conv("x", "enlarge(v, border=(1, 1))", pad=1)),
    (f"relu({turned('a')})", turned("relu(a)")),
    (conv("x", "pool_constant(size=(2, 3, 3))", groups=2), pool("avg", "x")),
    (pool("avg", "x"), conv("x", pool("avg", "conv_identity(size=(2, 1, 1))"))),
    (conv("x", "conv_identity(size=(2, 1, 1))"), "x"),
    ("matmul(a, eye(size=3))", "a"),
    ("mul(a, ones(size=(3, 3)))", "a"),
    (f"head({join(0, 'a', 'b')}, axis=0, size=3)", "a"),
    (f"tail({join(0, 'a', 'b')}, axis=0, size=3)", "b"),
    (f"head({join(1, 'a', 'b')}, axis=1, size=3)", "a"),
    (f"tail({join(1, 'a', 'b')}, axis=1, size=3)", "b"),
    (join(0, join(1, "a", "b"), join(1, "c", "d")), join(1, join(0, "a", "c"), join(0, "b", "d"))),
    (join(1, "scale(a, s)", "scale(b, s)"), f"scale({join(1, 'a', 'b')}, s)"),
    (join(1, "add(a, b)", "add(c, d)"), f"add({join(1, 'a', 'c')}, {join(1, 'b', 'd')})"),
    (join(1, "mul(a, b)", "mul(c, d)"), f"mul({join(1, 'a', 'c')}, {join(1, 'b', 'd')})"),
    (join(1, "relu(a)", "relu(b)"), f"relu({join(1, 'a', 'b')})"),
    (join(1, turned("a"), turned("b")), turned(join(0, "a", "b"))),
    (join(1, "matmul(a, b)", "matmul(a, c)"), f"matmul(a, {join(1, 'b', 'c')})"),
    (f"matmul({join(1, 'a', 'c')}, {join(0, 'b', 'd')})", "add(matmul(a, b), matmul(c, d))"),
    (join(0, conv("x", "v"), conv("y", "v")), conv(join(0, "x", "y"), "v")),
    (join(1, conv("x", "v"), conv("x", "w")), conv("x", join(0, "v", "w"))),
    (conv(join(1, "x", "y"), join(1, "v", "w")), f"add({conv('x', 'v')}, {conv('y', 'w')})"),
    (join(1, pool("avg", "x"), pool("avg", "y")), pool("avg", join(1, "x", "y"))),
    (join(0, pool("max", "x"), pool("max", "y")), pool("max", join(0, "x", "y"))),
    (join(1, pool("max", "x"), pool("max", "y")), pool("max", join(1, "x", "y"))),
]

_FIGURES = [
    # Figure 2: two products of one matrix, and sums of products.
    ("add(matmul(a, c), matmul(b, c))", "matmul(add(a, b), c)"),
    # Figure 3: an addition within a convolution of the input with the identity.
    (f"relu(add(x, {conv('x', 'v')}))", f"relu({conv('x', 'add(v, conv_identity(size=(2, 1, 1)))')})"),
    # Kernels of two sizes, and two inputs with kernels of their own: the latter is a convolution in groups.
    (
        join(1, conv("x", "v"), conv("x", "w", pad=0)),
        conv("x", join(0, "v", "enlarge(w, border=(1, 1))")),
    ),
    (join(1, conv("x", "v"), conv("y", "w")), conv(join(1, "x", "y"), join(0, "v", "w"), groups=2)),
    # A pooling beside a convolution: one in as many groups as there are channels.
    (
        f"add({conv('x', 'v', groups=2)}, {pool('avg', 'x')})",
        conv("x", "add(v, pool_constant(size=(2, 3, 3)))", groups=2),
    ),
    ("matmul(matmul(a, b), matmul(c, d))", "matmul(a, matmul(matmul(b, c), d))"),
    (pool("avg", "add(x, y)"), f"add({pool('avg', 'x')}, {pool('avg', 'y')})"),
    (f"scale({pool('avg', 'x')}, s)", pool("avg", "scale(x, s)")),
    ("add(a, matmul(a, b))", "matmul(a, add(b, eye(size=3)))"),
    ("add(a, mul(a, b))", "mul(a, add(b, ones(size=(3, 3))))"),
    (f"relu(relu({conv('x', 'v')}))", f"relu({conv('x', 'v')})"),
    (f"relu({pool('max', 'x')})", pool("max", "relu(x)")),
]

_SEVERAL = [
    (
        ["matmul(a, b)", "matmul(a, c)"],
        [f"{part}(matmul(a, {join(1, 'b', 'c')}), axis=1, size=3)" for part in ("head", "tail")],
    ),
    (
        ["matmul(a, c)", "matmul(b, c)"],
        [f"{part}(matmul({join(0, 'a', 'b')}, c), axis=0, size=3)" for part in ("head", "tail")],
    ),
    (
        [conv("x", "v"), conv("x", "w")],
        [f"{part}({conv('x', join(0, 'v', 'w'))}, axis=1, size=2)" for part in ("head", "tail")],
    ),
    (
        [conv("x", "v"), conv("y", "v")],
        [f"{part}({conv(join(0, 'x', 'y'), 'v')}, axis=0, size=2)" for part in ("head", "tail")],
    ),
    (
        ["relu(x)", "relu(y)"],
        [f"{part}(relu({join(1, 'x', 'y')}), axis=1, size=2)" for part in ("head", "tail")],
    ),
]

PROPERTIES = [_rule([source], [target]) for source, target in _PROPERTIES]
FIGURES = [_rule([source], [target]) for source, target in _FIGURES]
SEVERAL = [_rule(source, target) for source, target in _SEVERAL]
PUBLISHED = PROPERTIES + FIGURES + SEVERAL
