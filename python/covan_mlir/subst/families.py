"""What is enumerated: tensors to begin with, and operators with their attributes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from covan_mlir.subst.sizes import ONE, poly
from covan_mlir.subst.terms import Apply, Attribute

Numbered = tuple[int, ...]


def _numbers(*numbers: int) -> Attribute:
    return tuple(map(poly, numbers))


@dataclass(frozen=True)
class Family:
    """Tensors of small shapes that stand for those of all shapes, and the operators that go over them.

    Attributes:
        tensors: shapes by name; those of one shape can be exchanged.
        constants: that programs may use for nothing.
        operators: those that are applied.
        base: an axis is split where it is longer than this one, into multiples of it.
        longest: no axis gets longer than this.
    """

    name: str
    tensors: tuple[tuple[str, Numbered], ...]
    constants: tuple[Apply, ...]
    operators: tuple[str, ...]
    base: Numbered
    longest: Numbered

    def unary(self, op: str, shape: Numbered) -> Iterator[tuple[tuple[str, Attribute], ...]]:
        """Attributes with which an operator is applied to a tensor of a shape."""
        match op:
            case "relu" | "neg" | "exp":
                yield ()
            case "transpose" if len(shape) == 2:
                yield (("axes", _numbers(1, 0)),)
            case "enlarge" if len(shape) == 4 and shape[2:] == (1, 1):
                yield (("border", (ONE, ONE)),)
            case "avg_pool" | "max_pool" if len(shape) == 4 and shape[2:] == self.base[2:]:
                yield (("window", _numbers(3, 3)), ("stride", (ONE, ONE)), ("pad", (ONE, ONE)))
            case "sum" | "max" | "softmax":
                for axis in range(len(shape)):
                    yield (("axis", _numbers(axis)),)
            case "head" | "tail" if len(shape) == len(self.base):
                for axis, (size, base) in enumerate(zip(shape, self.base, strict=True)):
                    for part in range(base, size, base):
                        yield (("axis", _numbers(axis)), ("size", _numbers(part)))

    def binary(self, op: str, left: Numbered, right: Numbered) -> Iterator[tuple[tuple[str, Attribute], ...]]:
        """Attributes with which an operator is applied to two tensors of these shapes."""
        match op:
            case "add" | "sub" | "mul" | "div" if left == right and left:
                yield ()
            case "scale" if left and not right:
                yield ()
            case "matmul" if len(left) == len(right) == 2 and left[1] == right[0]:
                yield ()
            case "concat" if len(left) == len(right) and left:
                for axis in range(min(len(left), 2)):
                    sizes = [a + b if at == axis else a for at, (a, b) in enumerate(zip(left, right, strict=True))]
                    fits = all(at == axis or a == b for at, (a, b) in enumerate(zip(left, right, strict=True)))
                    if fits and all(size <= most for size, most in zip(sizes, self.longest, strict=True)):
                        yield (("axis", _numbers(axis)),)
            case "conv" if len(left) == len(right) == 4 and left[2:] == self.base[2:] and right[2:] in ((1, 1), (3, 3)):
                groups, rest = divmod(left[1], right[1])
                if not rest and not right[0] % groups:
                    pad = poly((right[2] - 1) // 2)
                    yield (
                        ("stride", (ONE, ONE)),
                        ("pad", (pad, pad)),
                        ("dilation", (ONE, ONE)),
                        ("groups", (poly(groups),)),
                    )


_MATRIX = (3, 3)
_KERNEL = (2, 2, 3, 3)
_ON_MATRICES = ("add", "mul", "scale", "matmul", "transpose", "relu", "concat", "head", "tail")
_ON_IMAGES = ("add", "mul", "scale", "relu", "conv", "avg_pool", "max_pool", "concat", "head", "tail")

MATRICES = Family(
    "matrices",
    tensors=(("a", _MATRIX), ("b", _MATRIX), ("c", _MATRIX), ("s", ())),
    constants=(),
    operators=_ON_MATRICES,
    base=_MATRIX,
    longest=(6, 6),
)

IDENTITIES = Family(
    "matrices and identities",
    tensors=(("a", _MATRIX), ("b", _MATRIX), ("s", ())),
    constants=(Apply("eye", (), (("size", _numbers(3)),)),),
    operators=("add", "scale", "matmul", "transpose", "relu", "concat"),
    base=_MATRIX,
    longest=(6, 6),
)

ONES = Family(
    "matrices and ones",
    tensors=(("a", _MATRIX), ("b", _MATRIX), ("s", ())),
    constants=(Apply("ones", (), (("size", _numbers(3, 3)),)),),
    operators=("add", "mul", "scale", "transpose", "relu", "concat"),
    base=_MATRIX,
    longest=(6, 6),
)

IMAGES = Family(
    "images",
    tensors=(("x", (1, 2, 4, 4)), ("y", (1, 2, 4, 4)), ("v", _KERNEL), ("w", _KERNEL), ("s", ())),
    constants=(),
    operators=_ON_IMAGES,
    base=(1, 2, 4, 4),
    longest=(2, 4, 4, 4),
)

KERNELS = Family(
    "images and kernels",
    tensors=(("x", (1, 2, 4, 4)), ("v", _KERNEL), ("u", (2, 2, 1, 1)), ("d", (2, 1, 3, 3))),
    constants=(
        Apply("conv_identity", (), (("size", _numbers(2, 1, 1)),)),
        Apply("pool_constant", (), (("size", _numbers(2, 3, 3)),)),
    ),
    operators=("add", "relu", "conv", "enlarge", "avg_pool", "concat"),
    base=(1, 2, 4, 4),
    longest=(2, 4, 4, 4),
)

TASO = (MATRICES, IDENTITIES, ONES, IMAGES, KERNELS)
"""The operators of TASO (Jia et al., SOSP 2019, table 1), in parts: with and without constants."""
