"""Chains that read and give steps, as torch's quantised graphs are lowered."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from plain_chains import Writer
from torch import Tensor
from torch.ao.quantization.fx import _decomposed  # noqa: F401 - declares the operators

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Affine, Apply, Const, Expr, Index, Window

quantized_decomposed = torch.ops.quantized_decomposed
RANGES = {torch.uint8: (0, 255), torch.int8: (-128, 127)}


def f32(number: float) -> Const:
    return Const(number, "f32")


def apply(op: str, *args: Expr, dtype: str = "f32") -> Apply:
    return Apply(op, args, dtype)


@dataclass(frozen=True)
class Grid:
    """What steps stand for."""

    scale: float
    zero: int
    dtype: torch.dtype = torch.uint8

    @property
    def arguments(self) -> tuple[float, int, int, int, torch.dtype]:
        """Of torch's operators."""
        return (self.scale, self.zero, *RANGES[self.dtype], self.dtype)

    def quantize(self, x: Tensor) -> Tensor:
        """Numbers as steps, by torch."""
        steps: Tensor = quantized_decomposed.quantize_per_tensor(x, *self.arguments)
        return steps

    def dequantize(self, x: Tensor) -> Tensor:
        """Steps as numbers, by torch."""
        numbers: Tensor = quantized_decomposed.dequantize_per_tensor(x, *self.arguments)
        return numbers

    def steps(self, shape: tuple[int, ...], seed: int) -> Tensor:
        """Any."""
        least, largest = RANGES[self.dtype]
        generator = torch.Generator().manual_seed(seed)
        return torch.randint(least, largest + 1, shape, generator=generator).to(self.dtype)

    def read(self, steps: Expr, scale: Expr | None = None) -> Expr:
        """Steps as numbers, in expressions."""
        cast = "arith.uitofp" if self.dtype is torch.uint8 else "arith.sitofp"
        taken = apply("arith.subf", apply(cast, steps), f32(float(self.zero)))
        return apply("arith.mulf", taken, scale or f32(self.scale))

    def write(self, real: Expr) -> Expr:
        """Numbers as steps, in expressions: torch multiplies with the reciprocal."""
        scaled = apply("arith.mulf", real, f32(1 / self.scale))
        steps: Expr = apply("arith.addf", apply("math.roundeven", scaled), f32(float(self.zero)))
        least, largest = RANGES[self.dtype]
        for bound, side in ((least, "olt"), (largest, "ogt")):
            edge = f32(float(bound))
            steps = apply("arith.select", apply(f"arith.cmpf:{side}", steps, edge, dtype="i1"), edge, steps)
        return apply("arith.trunci", apply("arith.fptosi", steps, dtype="i32"), dtype="i8")


class StepWriter(Writer):
    """Writes chains of numbers, some of which stand for steps."""

    def __init__(self, **sizes: int | None) -> None:
        super().__init__("f32", **sizes)

    def numbers(self, name: str, axes: str, grid: Grid) -> Expr:
        """An input in steps, as numbers."""
        return self.map(f"{name} as numbers", axes, grid.read(self.input(name, axes, "i8")))

    def result(self, axes: str, real: Expr, grid: Grid) -> Chain:
        """Numbers as steps, which is all that the chain gives."""
        self.map("real", axes, real)
        self.map("y", axes, grid.write(self.read("real")))
        return self.chain("y")


def joined(op: str, left: Grid, right: Grid, given: Grid, size: int) -> Chain:
    """Two tensors added or multiplied."""
    w = StepWriter(i=size)
    return w.result("i", apply(op, w.numbers("a", "i", left), w.numbers("b", "i", right)), given)


def concatenated(first: Grid, second: Grid, given: Grid, sizes: tuple[int, int]) -> Chain:
    """Two tensors one behind the other, along their second axis; beyond an end, nothing is read."""
    w = StepWriter(i=3, j=sum(sizes), k=sizes[0], l=sizes[1])
    w.input("a", "ik", "i8")
    w.input("b", "il", "i8")
    row = Affine.of([("i", 1)])
    at = Affine.of([("j", 1)]), Affine.of([("j", 1)], -sizes[0])
    one, other = (Window(name, "i8", (row, place), Const(0, "i8")) for name, place in zip("ab", at, strict=True))
    ahead = Apply("arith.cmpi:ult", (Index("j"), Const(sizes[0], "index")), "i1")
    return w.result("ij", apply("arith.select", ahead, first.read(one), second.read(other)), given)


def pooled(combine: str, grid: Grid, given: Grid, stride: int) -> Chain:
    """Windows of 3 x 2 over images of 7 x 6: the largest number of each, or their average."""
    height, width = (7 - 3) // stride + 1, (6 - 2) // stride + 1
    w = StepWriter(c=2, p=7, q=6, h=height, v=width, r=3, s=2)
    w.input("x", "cpq", "i8")
    places = [Affine.of([(axis, stride), (tap, 1)]) for axis, tap in ("hr", "vs")]
    x = grid.read(Window("x", "i8", (Affine.of([("c", 1)]), *places), Const(0, "i8")))
    total = w.reduce("total", "chv", "max" if combine == "max" else "add", "rs", x)
    return w.result("chv", total if combine == "max" else apply("arith.divf", total, f32(6.0)), given)


def plane(op: str, grid: Grid, given: Grid | None) -> Chain:
    """A function of one tensor: its name, or none."""
    w = StepWriter(i=256)
    x = w.numbers("x", "i", grid)
    y: Expr = x
    if op == "silu":
        y = apply(
            "arith.mulf",
            x,
            apply("arith.divf", f32(1.0), apply("arith.addf", apply("math.exp", apply("arith.negf", x)), f32(1.0))),
        )
    elif op == "relu":
        y = apply("arith.maximumf", x, f32(0.0))
    if given is None:
        w.map("y", "i", y)
        return w.chain("y")
    return w.result("i", y, given)


def quantized(given: Grid) -> Chain:
    """Numbers as steps."""
    w = StepWriter(i=50)
    return w.result("i", w.input("x", "i"), given)


def per_channel(dtype: torch.dtype) -> Chain:
    """Steps as numbers, each row by a scale of its own."""
    w = StepWriter(i=5, j=7)
    x = w.input("x", "ij", "i8")
    scales = w.input("scales", "i")
    w.map("y", "ij", Grid(1.0, 0, dtype).read(x, scales))
    return w.chain("y")
