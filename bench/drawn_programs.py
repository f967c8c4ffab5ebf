"""Small functions of tensors, drawn at random: operations one by one, each given values that it takes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

Kind = Literal["float", "int", "bool"]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """A tensor of a program: its name, sizes and kind of elements; of integers the bound that they are below."""

    name: str
    shape: Shape
    kind: Kind = "float"
    below: int = 0

    @property
    def rank(self) -> int:
        """Number of its axes."""
        return len(self.shape)


class Unfit(Exception):
    """No value of the program fits an operation."""


@dataclass
class Writer:
    """Writes a program.

    Attributes:
        values: that there are so far.
        lines: of its body.
    """

    rng: random.Random
    values: list[Value] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def pick(self, fits: Callable[[Value], bool] = lambda value: True, kind: Kind = "float") -> Value:
        """A value that fits, a later one more often."""
        fitting = [value for value in self.values if value.kind == kind and fits(value)]
        if not fitting:
            raise Unfit
        return self.rng.choice(fitting[-4:] if self.rng.random() < 0.6 else fitting)

    def axis(self, value: Value, fits: Callable[[int], bool] = lambda size: True) -> int:
        """An axis of a value whose size fits."""
        axes = [axis for axis, size in enumerate(value.shape) if fits(size)]
        if not axes:
            raise Unfit
        return self.rng.choice(axes)

    def add(self, text: str, shape: Shape, kind: Kind = "float", below: int = 0) -> None:
        """Another value, as an expression gives it."""
        name = f"v{len(self.values)}"
        self.lines.append(f"{name} = {text}")
        self.values.append(Value(name, shape, kind, below))


def _without(shape: Shape, axis: int, size: int | None = None) -> Shape:
    return (*shape[:axis], *(() if size is None else (size,)), *shape[axis + 1 :])


def _broadcast(first: Shape, second: Shape) -> Shape | None:
    try:
        return np.broadcast_shapes(first, second)
    except ValueError:
        return None


def _unary(w: Writer) -> None:
    x = w.pick()
    names: tuple[str, ...] = (
        "relu()",
        "tanh()",
        "sigmoid()",
        "sin()",
        "abs()",
        "neg()",
        "square()",
        "abs().sqrt()",
        "clamp(-1, 2)",
    )
    names += ("mul(0.5)", "add(1)", "clamp(max=1).exp()", "abs().add(1).log()", "erf()", "sign()", "floor()")
    w.add(f"{x.name}.{w.rng.choice(names)}", x.shape)


def _function(w: Writer) -> None:
    x = w.pick()
    w.add(f"F.{w.rng.choice(('gelu', 'silu', 'softplus', 'elu', 'hardswish', 'relu6'))}({x.name})", x.shape)


def _binary(w: Writer) -> None:
    x = w.pick()
    y = w.pick(lambda other: _broadcast(x.shape, other.shape) is not None)
    name = w.rng.choice(("{} + {}", "{} - {}", "{} * {}", "torch.maximum({}, {})", "torch.minimum({}, {})"))
    shape = _broadcast(x.shape, y.shape)
    assert shape is not None
    w.add(name.format(x.name, y.name), shape)


def _quotient(w: Writer) -> None:
    x = w.pick()
    y = w.pick(lambda other: _broadcast(x.shape, other.shape) is not None)
    shape = _broadcast(x.shape, y.shape)
    assert shape is not None
    w.add(f"{x.name} / ({y.name}.abs() + 1)", shape)


def _compared(w: Writer) -> None:
    x = w.pick()
    w.add(f"{x.name} {w.rng.choice(('>', '<', '>='))} {w.rng.choice((0, 0.5, -0.25))}", x.shape, "bool")


def _logic(w: Writer) -> None:
    x = w.pick(kind="bool")
    w.add(w.rng.choice(("~{}", "{}.logical_not()")).format(x.name), x.shape, "bool")


def _where(w: Writer) -> None:
    x = w.pick()
    mask = w.pick(lambda other: _broadcast(x.shape, other.shape) == x.shape, kind="bool")
    how = w.rng.choice(("torch.where({m}, {x}, 0.5)", "{x}.masked_fill({m}, -1.0)", "{x} * {m}"))
    w.add(how.format(m=mask.name, x=x.name), x.shape)


def _to_float(w: Writer) -> None:
    kind: Kind = w.rng.choice(("bool", "int"))
    x = w.pick(kind=kind)
    w.add(f"{x.name}.float()", x.shape)


def _reduced(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 0)
    axis, keep = w.axis(x), w.rng.random() < 0.5
    name = w.rng.choice(("sum", "mean", "amax", "amin", "logsumexp", "var", "norm"))
    if name == "var" and x.shape[axis] < 2:
        raise Unfit
    first = "2, " if name == "norm" else ""
    w.add(f"{x.name}.{name}({first}dim={axis}, keepdim={keep})", _without(x.shape, axis, 1 if keep else None))


def _counted(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 0)
    axis = w.axis(x)
    w.add(f"{x.name}.argmax({axis})", _without(x.shape, axis), "int", x.shape[axis])


def _scanned(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 0)
    w.add(f"{x.name}.cumsum({w.axis(x)})", x.shape)


def _normalized(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 0)
    axis = w.axis(x, lambda size: size > 1)
    how = w.rng.choice(("softmax", "log_softmax", "layer_norm", "rms", "standard", "normalize"))
    n, last = x.name, x.rank - 1
    texts = {
        "softmax": f"{n}.softmax({axis})",
        "log_softmax": f"{n}.log_softmax({axis})",
        "layer_norm": f"F.layer_norm({n}, ({x.shape[last]},))",
        "rms": f"{n} * torch.rsqrt({n}.square().mean({axis}, keepdim=True) + 0.1)",
        "standard": f"({n} - {n}.mean({axis}, keepdim=True)) / ({n}.var({axis}, keepdim=True) + 0.1).sqrt()",
        "normalize": f"F.normalize({n}, dim={axis}, eps=0.1)",
    }
    w.add(texts[how], x.shape)


def _product(w: Writer) -> None:
    x = w.pick(lambda value: value.rank >= 2)
    y = w.pick(lambda value: value.rank >= 2 and x.shape[-1] in value.shape[-2:])
    transposed = y.shape[-2] != x.shape[-1]
    columns = y.shape[-2] if transposed else y.shape[-1]
    batch = _broadcast(x.shape[:-2], y.shape[:-2])
    if batch is None:
        raise Unfit
    w.add(f"{x.name} @ {y.name}{'.mT' if transposed else ''}", (*batch, x.shape[-2], columns))


def _convolved(w: Writer) -> None:
    x = w.pick(lambda value: value.rank == 3 and value.shape[-1] >= 3)
    channels = x.shape[1]
    y = w.pick(lambda value: value.rank == 3 and value.shape[1] == channels and value.shape[2] <= x.shape[2])
    w.add(f"F.conv1d({x.name}, {y.name})", (x.shape[0], y.shape[0], x.shape[2] - y.shape[2] + 1))


def _pooled(w: Writer) -> None:
    x = w.pick(lambda value: value.rank == 3 and value.shape[-1] >= 2)
    name = w.rng.choice(("max_pool1d", "avg_pool1d"))
    w.add(f"F.{name}({x.name}, 2)", (*x.shape[:-1], x.shape[-1] // 2))


def _sliced(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 0)
    axis = w.axis(x, lambda size: size > 1)
    size = x.shape[axis]
    first = w.rng.randrange(size)
    last = w.rng.randint(first + 1, size)
    step = w.rng.choice((1, 1, 2))
    index = ", ".join([":"] * axis + [f"{first}:{last}" + (f":{step}" if step > 1 else "")])
    w.add(f"{x.name}[{index}]", _without(x.shape, axis, len(range(first, last, step))))


def _selected(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 1)
    axis = w.axis(x)
    w.add(f"{x.name}.select({axis}, {w.rng.randrange(x.shape[axis])})", _without(x.shape, axis))


def _turned(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 0)
    axis = w.axis(x)
    how = w.rng.choice((f"flip({axis})", f"roll({w.rng.randint(1, 3)}, {axis})"))
    w.add(f"{x.name}.{how}", x.shape)


def _permuted(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 1)
    axes = w.rng.sample(range(x.rank), x.rank)
    w.add(f"{x.name}.permute{tuple(axes)}", tuple(x.shape[axis] for axis in axes))


def _reshaped(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 0)
    if x.rank > 1 and w.rng.random() < 0.5:
        axis = w.rng.randrange(x.rank - 1)
        shape = (*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :])
    else:
        axis = w.axis(x, lambda size: size % 2 == 0)
        shape = (*x.shape[:axis], 2, x.shape[axis] // 2, *x.shape[axis + 1 :])
    if len(shape) > 4:
        raise Unfit
    w.add(f"{x.name}.reshape({', '.join(map(str, shape))})", shape)


def _unsqueezed(w: Writer) -> None:
    x = w.pick(lambda value: value.rank < 4)
    axis = w.rng.randint(0, x.rank)
    w.add(f"{x.name}.unsqueeze({axis})", (*x.shape[:axis], 1, *x.shape[axis:]))


def _expanded(w: Writer) -> None:
    x = w.pick(lambda value: 1 in value.shape)
    axis = w.axis(x, lambda size: size == 1)
    shape = _without(x.shape, axis, w.rng.randint(2, 5))
    w.add(f"{x.name}.expand({', '.join(map(str, shape))})", shape)


def _repeated(w: Writer) -> None:
    x = w.pick(lambda value: 0 < value.rank < 4)
    axis = w.axis(x, lambda size: size < 9)
    w.add(f"{x.name}.repeat_interleave(2, {axis})", _without(x.shape, axis, 2 * x.shape[axis]))


def _padded(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 1 and value.shape[-1] > 2)
    before, behind = w.rng.randint(0, 2), w.rng.randint(0, 2)
    mode = w.rng.choice(("constant", "reflect", "replicate", "circular")) if x.rank == 3 else "constant"
    w.add(f"F.pad({x.name}, ({before}, {behind}), '{mode}')", (*x.shape[:-1], x.shape[-1] + before + behind))


def _joined(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 0)
    axis = w.axis(x)
    y = w.pick(lambda other: other.rank == x.rank and _without(other.shape, axis) == _without(x.shape, axis))
    w.add(f"torch.cat([{x.name}, {y.name}], {axis})", _without(x.shape, axis, x.shape[axis] + y.shape[axis]))


def _stacked(w: Writer) -> None:
    x = w.pick(lambda value: value.rank < 4)
    y = w.pick(lambda other: other.shape == x.shape)
    axis = w.rng.randint(0, x.rank)
    w.add(f"torch.stack([{x.name}, {y.name}], {axis})", (*x.shape[:axis], 2, *x.shape[axis:]))


def _split(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 0)
    axis = w.axis(x, lambda size: size % 2 == 0)
    which = w.rng.randrange(2)
    w.add(f"{x.name}.chunk(2, {axis})[{which}]", _without(x.shape, axis, x.shape[axis] // 2))


def _indexed(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 0)
    index = w.pick(lambda other: 0 < other.below <= x.shape[0] and other.rank + x.rank <= 5, "int")
    w.add(f"{x.name}[{index.name}]", (*index.shape, *x.shape[1:]))


def _gathered(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 0)
    axis = w.axis(x)
    order = f"{x.name}.argsort(dim={axis}, stable=True)"
    w.add(f"{x.name}.gather({axis}, {order})", x.shape)


def _scattered(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 0)
    index = w.pick(lambda other: other.shape == x.shape[:1], "int")
    how = w.rng.choice(("torch.zeros({s}).index_add(0, {i}, {x})", "torch.ones({s}).index_add(0, {i}, {x})"))
    shape = (index.below, *x.shape[1:])
    w.add(how.format(s=", ".join(map(str, shape)), i=index.name, x=x.name), shape)


def _triangle(w: Writer) -> None:
    x = w.pick(lambda value: value.rank >= 2)
    w.add(f"{x.name}.{w.rng.choice(('tril', 'triu'))}({w.rng.randint(-1, 1)})", x.shape)


def _assigned(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 0)
    axis = w.axis(x, lambda size: size > 1)
    first = w.rng.randrange(x.shape[axis] - 1)
    index = ", ".join([":"] * axis + [f"{first}:{first + 1}"])
    y = w.pick(lambda other: _broadcast(other.shape, _without(x.shape, axis, 1)) == _without(x.shape, axis, 1))
    w.add(f"{x.name}.clone()", x.shape)
    w.lines.append(f"{w.values[-1].name}[{index}] {w.rng.choice(('=', '+=', '*='))} {y.name}")


def _largest(w: Writer) -> None:
    x = w.pick(lambda value: value.rank > 0)
    axis = w.axis(x, lambda size: size > 1)
    count = w.rng.randint(1, x.shape[axis])
    w.add(f"{x.name}.topk({count}, {axis})[0]", _without(x.shape, axis, count))


def _constant(w: Writer) -> None:
    size = w.rng.randint(1, 8)
    w.add(f"torch.{w.rng.choice(('arange', 'ones', 'zeros'))}({size}).float()", (size,))


def _position(w: Writer) -> None:
    size, below = w.rng.randint(2, 6), w.rng.randint(1, 4)
    w.add(f"torch.arange({size}) % {below}", (size,), "int", below)


OPERATIONS: tuple[tuple[Callable[[Writer], None], float], ...] = (
    (_unary, 3), (_function, 1), (_binary, 4), (_quotient, 1), (_compared, 1), (_logic, 0.3), (_where, 1.5),
    (_to_float, 0.5), (_reduced, 3), (_counted, 0.7), (_scanned, 0.5), (_normalized, 3), (_product, 3), (_convolved, 1),
    (_pooled, 0.7), (_sliced, 3), (_selected, 1.5), (_turned, 1), (_permuted, 1.5), (_reshaped, 2), (_unsqueezed, 1),
    (_expanded, 1), (_repeated, 0.7), (_padded, 1), (_joined, 2), (_stacked, 1), (_split, 1.5), (_indexed, 1),
    (_gathered, 0.5), (_scattered, 0.7), (_triangle, 0.7), (_assigned, 1), (_largest, 0.5), (_constant, 0.5),
    (_position, 0.3),
)  # fmt: skip
"""What writes an operation, and how often relative to the others."""


@dataclass(frozen=True)
class Program:
    """A program at random.

    Attributes:
        source: a function ``program``.
        results: names of what it returns.
        planned: sizes of each value.
    """

    seed: int
    shapes: tuple[Shape, ...]
    lines: tuple[str, ...]
    results: tuple[str, ...]
    planned: Mapping[str, Shape]

    @property
    def source(self) -> str:
        """A function ``program``, without lines that nothing it returns needs."""
        needed, kept = set(self.results), []
        for line in reversed(self.lines):
            if target(line) in needed:
                kept.append(line)
                needed |= set(re.findall(r"\bv\d+\b", line))
        names = ", ".join(f"v{number}" for number in range(len(self.shapes)))
        body = "".join(f"    {line}\n" for line in [*reversed(kept), f"return {', '.join(self.results)}"])
        return f"import torch\nimport torch.nn.functional as F\n\n\ndef program({names}):\n{body}"

    def arguments(self) -> tuple[Tensor, ...]:
        """Of its kind."""
        generator = torch.Generator().manual_seed(self.seed)
        return tuple(torch.randn(shape, generator=generator) for shape in self.shapes)

    def alone(self, name: str) -> Program:
        """The same that returns one value."""
        return replace(self, results=(name,))


def target(line: str) -> str:
    """The value that a line gives, or writes into."""
    return re.split(r"\W", line, maxsplit=1)[0]


def write(seed: int) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    sizes = [rng.randint(1, 8) for _ in range(3)]
    shapes = tuple(tuple(rng.choice(sizes) for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(1, 3)))
    writer = Writer(rng, [Value(f"v{number}", shape) for number, shape in enumerate(shapes)])
    steps, weights = zip(*OPERATIONS, strict=True)
    count = rng.randint(3, 14)
    while count:
        try:
            rng.choices(steps, weights)[0](writer)
            count -= 1
        except Unfit:
            pass
    own = writer.values[len(shapes) :]
    results = {own[-1].name, *(value.name for value in rng.sample(own, min(len(own), rng.randint(0, 2))))}
    planned = {value.name: value.shape for value in writer.values}
    return Program(seed, shapes, tuple(writer.lines), tuple(sorted(results, key=lambda name: int(name[1:]))), planned)
