"""Products over operands that are laid out anew, and convolutions as products: right, traced, checked, and to be had
otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import iree.compiler.ir as ir
import pytest
import torch
from oracle import assert_same
from torch import Tensor, nn

import covan_mlir
from covan_mlir import CompileOptions
from covan_mlir.checking.verify import verify
from covan_mlir.lineage import Lineage
from covan_mlir.lowering import data_tiling
from covan_mlir.provenance.model import LineageData, Site

THEIRS = CompileOptions(fuse_reductions=False)
"""Products and convolutions are IREE's."""


class Shared(nn.Module):
    """A convolution, and two products that read one value: it is laid out once, and asked for by two."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(16, 128, 3, padding=1)
        self.norm = nn.BatchNorm2d(128)
        self.query = nn.Linear(128, 160)
        self.key = nn.Linear(128, 160)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = torch.tanh(self.norm(self.conv(x)).relu().flatten(2).transpose(1, 2).contiguous().cumsum(1))
        return torch.sigmoid(self.query(rows)), torch.tanh(self.key(rows))


@pytest.fixture(scope="module")
def shared() -> tuple[nn.Module, Tensor, covan_mlir.Executable]:
    torch.manual_seed(0)
    module, x = Shared().eval(), torch.randn(1, 16, 16, 16)
    return module, x, covan_mlir.compile_module(module, (x,), options=THEIRS)


def layouts(lineage: LineageData) -> list[Site]:
    """Sites that lay out what they are given."""
    nodes = lineage.phases[-1].graph.nodes
    return [s for s in lineage.sites if s.kind == "dispatch" and s.node is not None and nodes[s.node].hands_on_pieces]


def performing(lineage: Lineage, site: Site, parts: tuple[int, ...]) -> Lineage:
    """The lineage with another claim of what a site performs."""
    trace = tuple(sorted({lineage.parts[part].action for part in parts}))
    lie = replace(site, parts=parts, trace=trace)
    fields = ("actions", "commands", "fates", "part_fates", "history", "results", "phases", "bodies")
    sites = [lie if other.id == site.id else other for other in lineage.sites]
    return Lineage(sites=sites, **{name: getattr(lineage, name) for name in fields})


def test_products_and_convolutions_agree_and_hold(shared: tuple[nn.Module, Tensor, Any]) -> None:
    module, x, exe = shared
    with torch.no_grad():
        assert_same(exe(x), module(x), depth=12)
    assert exe.verify(), str(exe.verify())


def test_sites_that_lay_out_perform_nothing(shared: tuple[nn.Module, Tensor, Any]) -> None:
    lineage = shared[2].lineage
    sites = layouts(lineage)
    assert {site.phase for site in sites} == {"init", "call"}  # of weights, and of a value
    assert not [site for site in sites if site.trace or site.parts or site.views or site.folds]
    for name in ("linear", "linear_1", "sigmoid", "tanh_1"):
        fate = lineage.fate(name)
        assert fate.kind == "dispatched"
        assert not {site.id for site in sites}.intersection(fate.sites)


def test_a_value_laid_out_once_reaches_all_who_read_it(shared: tuple[nn.Module, Tensor, Any]) -> None:
    lineage = shared[2].lineage
    (once,) = [site.id for site in layouts(lineage) if site.phase == "call"]
    for name in ("sigmoid", "tanh_1"):
        (site,) = lineage.fate(name).sites
        assert once in lineage.site(site).inputs


def test_a_site_that_lays_out_and_claims_work(shared: tuple[nn.Module, Tensor, Any]) -> None:
    lineage = shared[2].lineage
    work = lineage.site(lineage.fate("sigmoid").sites[0])
    for site in layouts(lineage):
        verdict = verify(performing(lineage, site, work.parts))
        assert verdict.outcome == "no"
        assert site.id in {example.site for example in verdict.counterexamples}


def test_swapped_claims_of_two_who_read_one_layout(shared: tuple[nn.Module, Tensor, Any]) -> None:
    lineage = shared[2].lineage
    first, second = (lineage.site(lineage.fate(name).sites[0]) for name in ("sigmoid", "tanh_1"))
    swapped = performing(performing(lineage, first, second.parts), second, first.parts)
    assert verify(swapped).outcome == "no"


@pytest.mark.parametrize("flag", ["--iree-opt-data-tiling=false", "--iree-global-opt-use-im2col-for-convs=false"])
def test_a_users_flag_counts(shared: tuple[nn.Module, Tensor, Any], flag: str) -> None:
    module, x, default = shared
    exe = covan_mlir.compile_module(module, (x,), options=replace(THEIRS, iree_flags=(flag,)))
    with torch.no_grad():
        assert_same(exe(x), module(x), depth=12)
    assert exe.verify()
    if "tiling" in flag:
        assert not layouts(exe.lineage)
    assert [site.kernel for site in exe.lineage.sites] != [site.kernel for site in default.lineage.sites]


class Squeeze(nn.Module):
    """Squeeze-and-excitation: products of a matrix and a vector, with element-wise ops behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(32, 8, 1), nn.Conv2d(8, 32, 1)

    def forward(self, x: Tensor) -> Tensor:
        narrow = nn.functional.silu(self.reduce(nn.functional.adaptive_avg_pool2d(x, 1)))
        return x * torch.sigmoid(self.expand(narrow))


@pytest.mark.parametrize("options", [THEIRS, CompileOptions()], ids=["theirs", "ours"])
def test_products_with_a_vector_compile(options: CompileOptions) -> None:
    torch.manual_seed(0)
    module, x = Squeeze().eval(), torch.randn(1, 32, 28, 28)
    exe = covan_mlir.compile_module(module, (x,), options=options)
    with torch.no_grad():
        assert_same(exe(x), module(x), depth=4)
    assert exe.verify()


def test_weights_that_stay_outside_stay_where_they_are(shared: tuple[nn.Module, Tensor, Any]) -> None:
    module, x, _ = shared
    exe = covan_mlir.compile_module(module, (x,), options=replace(THEIRS, external_weight_bytes=128 * 160 * 4))
    with torch.no_grad():
        assert_same(exe(x), module(x), depth=12)
    assert exe.verify()
    assert [site for site in layouts(shared[2].lineage) if "160" in site.kernel]
    assert not [site for site in layouts(exe.lineage) if "160" in site.kernel]


PRODUCTS = """
func.func @products(%a: tensor<{m}x{k}xf32>, %b: tensor<{k}x{n}xf32>, %c: tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32> {{
  %w = {weight}
  %0 = linalg.matmul ins(%a, %w : tensor<{m}x{k}xf32>, tensor<{k}x{n}xf32>)
                     outs(%c : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %0 : tensor<{m}x{n}xf32>
}}
"""
GIVEN = "tensor.cast %b : tensor<{k}x{n}xf32> to tensor<{k}x{n}xf32>"
STORED = "arith.constant dense<1.0> : tensor<{k}x{n}xf32>"
OUTSIDE = 'flow.tensor.constant #flow.parameter.named<"covan"::"w"> : tensor<{k}x{n}xf32>'


@pytest.mark.parametrize(
    ("sizes", "weight", "pays"),
    [
        # Multiply-adds per element that is laid out: k·n / (k + n), and with the weights k·m·n / (k·m + k·n + m·n).
        ((512, 128, 128), STORED, True),  # 64
        ((512, 127, 128), STORED, False),
        ((512, 16, 16), STORED, False),
        ((1, 128, 128), STORED, True),
        ((192, 192, 192), GIVEN, True),  # 64
        ((191, 192, 192), GIVEN, False),
        ((512, 1024, 1024), OUTSIDE, False),
        (("?", 256, 256), STORED, True),
        (("?", 16, 16), STORED, False),
    ],
)
def test_what_pays(sizes: tuple[int | str, int, int], weight: str, pays: bool) -> None:
    from iree.compiler.api import Session

    extents = dict(zip("mkn", sizes, strict=True))
    with Session().context, ir.Location.unknown():
        module = ir.Module.parse(PRODUCTS.format(weight=weight.format(**extents), **extents))
        operations = [view.operation for view in module.body.operations[0].regions[0].blocks[0]]
        assert [op.name for op in operations if data_tiling.pays(op)] == ["linalg.matmul"] * pays
