"""What is done to a factor before a product, in its kernel: against float64, and what lineages say of it."""

from __future__ import annotations

import numpy as np
import torch
from dense_chains import arrays_of, f, kernel, near
from plain_chains import Writer
from torch import Tensor, nn

import covan_mlir
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.dense.apart import apart
from covan_mlir.lowering.kernels.standalone import Standalone


def activated(factor: str = "kj", unknown: str = "", **sizes: int) -> Chain:
    """``sum over k of w[i, k] * relu(x[k, j] * scale[k] + shift[k])``."""
    w = Writer("f32", **{axis: None if axis in unknown else size for axis, size in sizes.items()})
    weight, x, scale, shift = (w.input(n, axes) for n, axes in zip("wxst", ("ik", factor, "k", "k"), strict=True))
    moved = f("arith.addf", f("arith.mulf", x, scale), shift)
    active = w.map("v", factor, f("arith.maximumf", moved, w.number(0.0)))
    w.reduce("y", "ij", "add", "k", f("arith.mulf", weight, active))
    return w.chain("y")


def test_staged_as_it_is_read() -> None:
    """Panels that are copied and transposed, of one block and of several, of sizes known at run time only."""
    cases = {
        "copied": activated(i=21, k=37, j=50),
        "transposed": activated("jk", i=21, k=37, j=50),
        "blocks": activated(i=9, k=1100, j=50),
        "groups": activated(i=300, k=37, j=16),
        "unknown": activated(unknown="j", i=21, k=37, j=50),
    }
    alone = Standalone([kernel(chain, name, "product") for name, chain in cases.items()])
    for name, chain in cases.items():
        arrays = arrays_of(chain, 1, **({"j": 50} if name == "unknown" else {}))
        got = np.asarray(alone[name](*(alone.buffer(arrays[value.name]) for value in chain.inputs)).to_host())
        near(got, interpret(chain, arrays, "f64")["y"], arrays["w"].shape[1], "f32")


def test_the_same_in_two_steps() -> None:
    chain = activated(i=5, k=7, j=3)
    before, after = apart(chain)
    assert before.outputs == ("v",)
    assert not before.reductions
    arrays = arrays_of(chain, 2)
    known = {**arrays, **interpret(before, {value.name: arrays[value.name] for value in before.inputs}, "f64")}
    result = interpret(after, {value.name: known[value.name] for value in after.inputs}, "f64")
    np.testing.assert_array_equal(result["y"], interpret(chain, arrays, "f64")["y"])
    assert apart(after) == (after,)


class Excited(nn.Module):
    """A convolution by single points behind squeeze and excitation, and one behind BatchNorm of a concatenation."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(16, 96, 1)
        self.squeeze, self.excite = nn.Conv2d(96, 8, 1), nn.Conv2d(8, 96, 1)
        self.narrow = nn.Conv2d(96, 24, 1, bias=False)
        self.norm, self.last = nn.BatchNorm2d(40), nn.Conv2d(40, 16, 1, bias=False)
        nn.init.normal_(self.norm.bias)

    def forward(self, x: Tensor) -> Tensor:
        wide = nn.functional.silu(self.wide(x))
        gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(wide.mean((2, 3), keepdim=True)))))
        both = torch.cat([x, self.narrow(wide * gate)], 1)
        result: Tensor = self.last(torch.relu(self.norm(both)))
        return result


def test_a_site_performs_what_is_before_the_product() -> None:
    torch.manual_seed(0)
    model, x = Excited().eval(), torch.randn(1, 16, 14, 14)
    executable = covan_mlir.compile_module(model, (x,))
    actions = {(action.module, action.op): action.id for action in executable.lineage.actions}
    sites = [s for s in executable.lineage.sites if s.phase == "call" and s.kind == "dispatch"]
    (narrow,) = [s for s in sites if actions["narrow", "aten.conv2d.default"] in s.trace]
    (gated,) = [a.id for a in executable.lineage.actions if a.op == "aten.mul.Tensor"]
    assert gated in narrow.trace
    (last,) = [s for s in sites if actions["last", "aten.conv2d.default"] in s.trace]
    assert actions["norm", "aten.batch_norm.default"] in last.trace
    assert executable.verify()
    with torch.no_grad():
        want = model.double()(x.double())
    assert float((executable(x).double() - want).abs().max()) < 1e-5
