"""Chains of products that meet in tiles of an intermediate value: gradients of attention with given statistics."""

from __future__ import annotations

import torch
from torch import Tensor

from covan_mlir.fred.chain import Axis, Chain, Input, Map, Reduce
from covan_mlir.fred.expression import Apply, Const, Expr, Index, Read

INPUTS = {"q": "bid", "k": "bjd", "v": "bje", "o": "bie", "norm": "bi", "sums": "bi"}


def attention_gradients(
    batch: int = 2,
    rows: int = 40,
    columns: int = 33,
    depth: int = 20,
    features: int = 24,
    *,
    causal: bool = False,
    masked: bool = False,
    dtype: str = "f32",
    layouts: dict[str, str] | None = None,
    outputs: tuple[str, ...] = ("dq", "dk", "dv"),
) -> Chain:
    """With queries, keys, values, slopes of the result, and of each row the logarithm of its sum of powers and its sum
    of weights times slopes.

    Args:
        masked: the weights are multiplied by a mask, ``m[b, i, j]``, of which there are bits.
        layouts: axes of inputs in another order.
    """
    tile = ("b", "i", "j")

    def op(name: str, *args: Expr) -> Expr:
        return Apply(name, args, dtype)

    def read(name: str) -> Expr:
        return Read(name, dtype)

    def mul(one: Expr, other: Expr) -> Expr:
        return op("arith.mulf", one, other)

    zero, scale = Const(0.0, dtype), Const(0.25, dtype)
    score = mul(read("s"), scale)
    if causal:
        positions = tuple(Apply("arith.index_cast", (Index(axis),), "i64") for axis in "ij")
        score = op("arith.select", Apply("arith.cmpi:sge", positions, "i1"), score, Const(float("-inf"), dtype))
    weight = op("math.exp", op("arith.subf", score, read("norm")))
    if masked:
        weight = op("arith.select", Read("m", "i1"), weight, zero)
    steps = (
        Reduce("s", tile, ("d",), "add", mul(read("q"), read("k")), zero, dtype),
        Map("p", tile, weight, dtype),
        Reduce("t", tile, ("e",), "add", mul(read("o"), read("v")), zero, dtype),
        Map("u", tile, mul(read("p"), op("arith.subf", read("t"), read("sums"))), dtype),
        Reduce("dv", ("b", "j", "e"), ("i",), "add", mul(read("p"), read("o")), zero, dtype),
        Reduce("dk_sum", ("b", "j", "d"), ("i",), "add", mul(read("u"), read("q")), zero, dtype),
        Map("dk", ("b", "j", "d"), mul(read("dk_sum"), scale), dtype),
        Reduce("dq_sum", ("b", "i", "d"), ("j",), "add", mul(read("u"), read("k")), zero, dtype),
        Map("dq", ("b", "i", "d"), mul(read("dq_sum"), scale), dtype),
    )
    axes = tuple(Axis(*each) for each in zip("bijde", (batch, rows, columns, depth, features), strict=True))
    given = [(name, (layouts or {}).get(name, own), dtype) for name, own in INPUTS.items()]
    given += [("m", "bij", "i1")] if masked else []
    whole = Chain(axes, tuple(Input(name, tuple(own), kind) for name, own, kind in given), steps, outputs)
    needed = frozenset(outputs).union(*(whole.depends(name) for name in outputs))
    return Chain(
        axes,
        tuple(value for value in whole.inputs if value.name in needed),
        tuple(step for step in steps if step.name in needed),
        outputs,
    )


def values_of(chain: Chain, seed: int = 0) -> dict[str, Tensor]:
    """Of its inputs, in float64, with axes in the order of `INPUTS`: the statistics are those of the others."""
    generator = torch.Generator().manual_seed(seed)
    sizes = chain.known_sizes
    values = {
        name: torch.randn([sizes[axis] for axis in own], generator=generator, dtype=torch.float64)
        for name, own in INPUTS.items()
    }
    values["m"] = torch.rand([sizes[axis] for axis in "bij"], generator=generator) > 0.3
    values["norm"] = torch.logsumexp(values["q"] @ values["k"].mT * 0.25, -1)
    return values


def expected(values: dict[str, Tensor], *, causal: bool = False, masked: bool = False) -> dict[str, Tensor]:
    """What the chain gives, by torch, in the type of the values."""
    q, k, v, o, norm, sums = (values[name] for name in INPUTS)
    scores = q @ k.mT * 0.25
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).tril() == 0, float("-inf"))
    weights = torch.exp(scores - norm[..., None])
    if masked:
        weights = torch.where(values["m"], weights, torch.zeros((), dtype=weights.dtype))
    slopes = weights * (o @ v.mT - sums[..., None])
    return {"dq": slopes @ k * 0.25, "dk": slopes.mT @ q * 0.25, "dv": weights.mT @ o}
