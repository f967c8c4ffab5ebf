"""Products that share a factor, in one kernel: against float64, where it is chosen, and what lineages say of it."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from dense_chains import MACHINE, arrays_of, f, kernel, near
from plain_chains import Writer
from torch import Tensor, nn

import covan_mlir
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.dense.apart import apart, siblings_of
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.select import choices, select
from covan_mlir.lowering.kernels.standalone import Standalone


def siblings(*products: tuple[str, str], shared: str = "ik", unknown: str = "", **sizes: int) -> Chain:
    """Sums over ``k`` of ``x`` times a factor, by axes of the factor and of the result; but the last have a bias."""
    w = Writer("f32", **{axis: None if axis in unknown else size for axis, size in sizes.items()})
    x, outputs = w.input("x", shared), []
    for n, (factor, result) in enumerate(products):
        total = w.reduce(f"s{n}", result, "add", "k", f("arith.mulf", x, w.input(f"w{n}", factor)))
        if n + 1 < len(products):
            w.map(f"y{n}", result, f("arith.addf", total, w.input(f"bias{n}", result[-1])))
        outputs.append(f"y{n}" if n + 1 < len(products) else f"s{n}")
    return w.chain(*outputs)


def gate(products: int = 2, factor: str = "kj", result: str = "ij", unknown: str = "", **sizes: int) -> Chain:
    """The product of some sums, the first of which is a result, too."""
    w = Writer("f32", **{axis: None if axis in unknown else size for axis, size in sizes.items()})
    x = w.input("x", "ik")
    sums = [
        w.reduce(f"s{n}", result, "add", "k", f("arith.mulf", x, w.input(f"w{n}", factor))) for n in range(products)
    ]
    w.map("y", result, functools.reduce(lambda one, other: f("arith.mulf", one, other), sums))
    return w.chain("s0", "y")


def test_each_product_has_its_own_axes() -> None:
    """Sizes around those of tiles, a factor transposed, sums of blocks, a size known at run time only, results in
    another order, the shared factor as the one that is read as vectors."""
    turned = (("kj", "ij"), ("hk", "ih"), ("kg", "ig"))
    cases = {
        "plain": siblings(*turned, i=21, k=37, j=50, h=50, g=17),
        "long": siblings(*turned, i=21, k=1100, j=50, h=130, g=17),
        "unknown": siblings(*turned, unknown="i", i=21, k=37, j=50, h=50, g=17),
        "heads": siblings(("hjk", "hij"), ("gjk", "gij"), i=21, k=37, j=16, h=4, g=2),
        "vectors": siblings(("jk", "ji"), ("hk", "hi"), i=50, k=37, j=21, h=8),
    }
    alone = Standalone([kernel(chain, name, "siblings") for name, chain in cases.items()])
    for name, chain in cases.items():
        arrays = arrays_of(chain, 1, **({"i": 21} if name == "unknown" else {}))
        results = alone[name](*(alone.buffer(arrays[value.name]) for value in chain.inputs))
        want = interpret(chain, arrays, "f64")
        for output, result in zip(chain.outputs, results, strict=True):
            near(np.asarray(result.to_host()), want[output], arrays["x"].shape[1], "f32")


def test_none_is_computed_again_for_each_result_of_another() -> None:
    """Products of one row have no axis in common but the one that is summed over: a nest over the others of all of them
    has as many positions as their product."""
    chain = siblings(("jk", "j"), ("hk", "h"), shared="k", j=64, k=96, h=32)
    listed = choices(chain, CpuTarget(MACHINE))
    assert isinstance(listed, Refusal) or "rows" not in {one.template.name for one in listed.candidates}


def test_gates() -> None:
    """Sums of one block and of several, factors transposed and not, results that end in an axis of the shared factor,
    one product that is a result itself, sizes known at run time only, more than two products."""
    cases = {
        "plain": gate(i=21, k=37, j=50),
        "blocks": gate(i=21, k=1100, j=50),
        "rows": gate(i=300, k=37, j=16),
        "unknown": gate(unknown="i", i=21, k=37, j=50),
        "three": gate(products=3, i=21, k=37, j=50),
        "vectors": gate(factor="jk", result="ji", i=50, k=37, j=21),
    }
    alone = Standalone([kernel(chain, name, "gated") for name, chain in cases.items()])
    for name, chain in cases.items():
        arrays = arrays_of(chain, 1, **({"i": 21} if name == "unknown" else {}))
        results = alone[name](*(alone.buffer(arrays[value.name]) for value in chain.inputs))
        want = interpret(chain, arrays, "f64")
        for output, result in zip(chain.outputs, results, strict=True):
            near(np.asarray(result.to_host()), want[output], 3 * arrays["x"].shape[1], "f32")


def test_the_same_in_kernels_of_their_own() -> None:
    chain = siblings(("kj", "ij"), ("hk", "ih"), i=5, k=7, j=3, h=4)
    assert apart(chain) == siblings_of(chain)
    gated = gate(i=5, k=7, j=3)
    with pytest.raises(UnsupportedError, match="y is made of 2 reductions"):
        siblings_of(gated)
    for whole in (chain, gated):
        arrays = arrays_of(whole, 2)
        known = dict(arrays)
        for part in apart(whole):
            known |= interpret(part, {value.name: known[value.name] for value in part.inputs}, "f64")
        want = interpret(whole, arrays, "f64")
        for name in whole.outputs:
            np.testing.assert_array_equal(known[name], want[name])


def test_one_kernel_where_it_is_not_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule that is good for one product only makes it slower."""
    chain, other = (siblings(("kj", "ij"), ("hk", "ih"), i=rows, k=256, j=256, h=256) for rows in (128, 96))
    target = CpuTarget(MACHINE)
    assert not isinstance(select(chain, "together", target), Refusal)
    listed = choices(chain, target)
    assert not isinstance(listed, Refusal)
    slow = type(listed.candidates[0].match)
    monkeypatch.setattr(slow, "predict", lambda self, schedule: 1.0)
    refusal = select(other, "apart", target)  # what was thought of the first is remembered
    assert isinstance(refusal, Refusal)
    assert "does not pay" in refusal.reason or "as one kernel" in refusal.reason


class Attention(nn.Module):
    """Four heads, two of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.query, self.key, self.value = nn.Linear(64, 64), nn.Linear(64, 32), nn.Linear(64, 32, bias=False)
        self.out = nn.Linear(64, 64)

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, 16)).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        query, key, value = self.heads(self.query(y)), self.heads(self.key(y)), self.heads(self.value(y))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


def test_a_site_performs_all_of_them() -> None:
    torch.manual_seed(0)
    model, x = Attention().eval(), torch.randn(1, 40, 64)
    executable = covan_mlir.compile_module(model, (x,))
    lineage = executable.lineage
    names = {action.module: action.id for action in lineage.actions if action.op.startswith("aten.linear")}
    (site,) = [s for s in lineage.sites if names["query"] in s.trace and s.phase == "call"]
    assert {names["query"], names["key"], names["value"]} <= {*site.trace}
    assert names["out"] not in site.trace
    assert executable.verify()
    with torch.no_grad():
        want = model.double()(x.double())
    assert float((executable(x).double() - want).abs().max()) < 1e-5


class Gate(nn.Module):
    """A feed-forward layer with a gate (Shazeer, "GLU Variants Improve Transformer", 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(64, 160, bias=False), nn.Linear(64, 160)
        self.down = nn.Linear(160, 64, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        return y


def test_a_gate_is_a_site() -> None:
    torch.manual_seed(0)
    model, x = Gate().eval(), torch.randn(1, 40, 64)
    executable = covan_mlir.compile_module(model, (x,))
    names = {action.module: action.id for action in executable.lineage.actions if action.op.startswith("aten.linear")}
    first, second = (site for site in executable.lineage.sites if site.phase == "call")
    assert {names["gate"], names["up"]} <= {*first.trace}
    assert names["down"] in second.trace
    assert executable.verify()
    with torch.no_grad():
        want = model.double()(x.double())
    assert float((executable(x).double() - want).abs().max()) < 1e-5
