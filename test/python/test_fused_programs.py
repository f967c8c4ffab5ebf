"""Plain PyTorch programs around reductions: fused, they compute what eager does, and their lineage holds together."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from limits import part
from torch import Tensor, nn
from torch.nn import functional as F

import covan_mlir


class Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


def affine(norm: nn.Module) -> nn.Module:
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return norm


def focal(x: Tensor, t: Tensor) -> Tensor:
    logs = torch.log_softmax(x, -1)
    return -(F.one_hot(t, x.shape[-1]) * (1 - logs.exp()) ** 2 * logs).sum(-1)


def divergence(x: Tensor, y: Tensor) -> Tensor:
    return (torch.softmax(x, -1) * (torch.log_softmax(x, -1) - torch.log_softmax(y, -1))).sum(-1)


def statistics(x: Tensor) -> tuple[Tensor, ...]:
    mean, var = x.mean(-1), x.var(-1)
    return mean, var, x.amax(-1), (x - mean[..., None]) / torch.sqrt(var[..., None] + 1e-5)


def spread(x: Tensor) -> Tensor:
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    return (x - low) / (high - low)


def contrastive(a: Tensor, b: Tensor) -> Tensor:
    return F.cross_entropy(F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T / 0.07, torch.arange(a.shape[0]))


def pooled(x: Tensor, w: Tensor) -> Tensor:
    return torch.einsum("bs,bsd->bd", torch.softmax(x @ w, -1), x)


def temperature(x: Tensor, t: Tensor) -> Tensor:
    return torch.softmax(-x / t, -1)


def standardised(x: Tensor) -> Tensor:
    return (x - x.mean((1, 2), keepdim=True)) / x.std((1, 2), keepdim=True)


def normalised_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(F.normalize(q @ k.mT, dim=-1), -1) @ v


def linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q, -1) @ (torch.softmax(k, -2).mT @ v)


def skewness(x: Tensor) -> Tensor:
    deviation = x - x.mean(0, keepdim=True)
    return (deviation / deviation.square().mean(0, keepdim=True).sqrt()).pow(3).mean(0)


sdpa = F.scaled_dot_product_attention
LABELS = torch.tensor([1, 2, 3, -100, 5, 0])


def r(*shape: int) -> Tensor:
    return torch.randn(*shape)


def heads(count: int = 2, length: int = 40, width: int = 8) -> Tensor:
    return r(1, count, length, width)


# name: program, inputs, (kernels of fused reductions, sites of the whole program)
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]], tuple[int, int]]] = {
    # What two sweeps need would be written where the lanes lie apart.
    "softmax of a transposed product": (lambda x: torch.softmax(x.mT * 2, -1), lambda: (r(3, 32, 8),), (1, 1)),
    "norm of a transposed activation": (
        lambda x: F.layer_norm(F.gelu(x.mT), (32,)),
        lambda: (r(3, 32, 8),),
        (1, 1),
    ),
    # What both read is kept in the place of the first result.
    "log-softmax and softmax": (
        lambda x: (torch.log_softmax(x, -1), torch.softmax(x, -1)),
        lambda: (r(5, 40),),
        (1, 1),
    ),
    "group norm": (affine(nn.GroupNorm(2, 4)), lambda: (r(2, 4, 3, 3),), (1, 1)),
    "instance norm": (affine(nn.InstanceNorm2d(4, affine=True)), lambda: (r(2, 4, 5, 5),), (1, 1)),
    "layer norm over two axes": (affine(nn.LayerNorm((5, 7))), lambda: (r(3, 5, 7),), (1, 1)),
    "batch norm in training": (lambda x: F.batch_norm(x, None, None, training=True), lambda: (r(4, 3, 5, 5),), (1, 1)),
    "standardised over two axes": (standardised, lambda: (r(2, 5, 7),), (1, 1)),
    # The maximum is taken over one axis after the other; the axes do not lie side by side.
    "logsumexp over two axes": (lambda x: torch.logsumexp(x, (0, 2)), lambda: (r(4, 5, 7),), (1, 1)),
    "softmax over two axes": (lambda x: torch.softmax(x.flatten(1), -1).view_as(x), lambda: (r(2, 5, 7),), (1, 1)),
    "log-probability of a label": (
        lambda x, t: torch.log_softmax(x, -1).gather(-1, t[:, None]),
        lambda: (r(6, 17), LABELS.abs() % 17),
        (1, 1),
    ),
    "cross-entropy": (lambda x, t: F.cross_entropy(x, t, reduction="none"), lambda: (r(6, 17), LABELS), (1, 1)),
    "cross-entropy of maps": (
        lambda x, t: F.cross_entropy(x, t, reduction="none"),
        lambda: (r(2, 17, 6), torch.randint(0, 17, (2, 6))),
        (1, 1),
    ),
    # The mean, and the number of labels that count, over six rows only.
    "mean cross-entropy": (lambda x, t: F.cross_entropy(x, t), lambda: (r(6, 17), LABELS), (1, 5)),
    "focal loss": (focal, lambda: (r(6, 17), LABELS.abs() % 17), (1, 1)),
    "contrastive loss": (contrastive, lambda: (r(8, 16), r(8, 16)), (2, 5)),
    "cosine similarity": (lambda x, y: F.cosine_similarity(x, y, -1), lambda: (r(5, 7), r(5, 7)), (1, 1)),
    "divergence": (divergence, lambda: (r(5, 7), r(5, 7)), (1, 1)),
    "pooling by attention": (pooled, lambda: (r(2, 50, 7), r(7)), (1, 2)),
    "mean after softmax": (lambda x: torch.softmax(x, -1).mean(1), lambda: (r(2, 5, 7),), (1, 2)),
    "several outputs": (statistics, lambda: (r(5, 7),), (2, 2)),
    "between least and largest": (spread, lambda: (r(5, 40),), (1, 1)),
    "temperature": (temperature, lambda: (r(5, 40), torch.tensor(0.7)), (1, 1)),
    "bf16": (lambda x: torch.softmax(x, -1), lambda: (r(5, 40).bfloat16(),), (1, 1)),
    "skewness, over the first axis": (skewness, lambda: (r(5, 40),), (1, 1)),
    # Scores that two sweeps read, and a product inside of another along one more axis: in parts.
    "attention with normalised scores": (normalised_attention, lambda: (heads(), heads(), heads()), (3, 3)),
    "linear attention": (linear_attention, lambda: (heads(), heads(), heads()), (2, 3)),
    "sdpa": (sdpa, lambda: (heads(), heads(), heads()), (1, 1)),
    "sdpa, causal": (lambda q, k, v: sdpa(q, k, v, is_causal=True), lambda: (heads(), heads(), heads()), (1, 1)),
    "sdpa, rows without a key": (
        lambda q, k, v, m: sdpa(q, k, v, attn_mask=m),
        lambda: (heads(), heads(), heads(), torch.arange(40)[:, None] % 3 > torch.zeros(40)),
        (1, 1),
    ),
    "sdpa, grouped queries": (
        lambda q, k, v: sdpa(q, k, v, enable_gqa=True),
        lambda: (heads(4), heads(), heads()),
        (1, 1),
    ),
}


@pytest.mark.parametrize("name", part(PROGRAMS, kept=list(PROGRAMS)[::3]))
def test_fused_programs_agree_with_eager(name: str, caplog: pytest.LogCaptureFixture) -> None:
    function, inputs, counts = PROGRAMS[name]
    torch.manual_seed(0)
    args = inputs()
    model = function if isinstance(function, nn.Module) else Function(function)
    with caplog.at_level(logging.INFO, "covan_mlir"):
        exe = covan_mlir.compile_module(model, args)
    assert "failed" not in caplog.text
    sites = [site for site in exe.lineage.sites if site.phase == "call"]
    fused = [site for site in sites if site.kernel.startswith("fred_")]
    assert (len(fused), len(sites)) == counts, caplog.text
    recorded = {record.kernel for record in exe.lineage.fusions if record.kernel}
    assert recorded == {site.kernel.removesuffix("_merge") for site in fused}
    with torch.no_grad():
        expected = model(*args)
    got = exe(*args)
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, expected)), strict=True):
        same = {"rtol": 1e-2, "atol": 1e-2} if b.dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
        np.testing.assert_allclose(np.asarray(a.float()), b.float().numpy(), **same)
    assert exe.verify(), exe.verify()


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
def test_products_of_halves_that_share_a_factor(target: str) -> None:
    """Each of them holds it in more bits; it is done once in the program, and by both kernels."""
    torch.manual_seed(0)
    one, other = (nn.Linear(768, 768).half().eval() for _ in range(2))
    exe = covan_mlir.compile_module(
        Function(lambda x: (one(x), other(x))), (torch.randn(1536, 768).half(),), target=target
    )
    assert [site.kernel.startswith("fred_") for site in exe.lineage.sites] == [True, True]
    assert exe.verify(), exe.verify()


class Features(nn.Module):
    """A norm's results as an image, which is returned as a copy, and a convolution that reads the original."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.conv, self.groups = nn.LayerNorm(768), nn.Conv2d(768, 256, 1), nn.GroupNorm(32, 256)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        image = self.norm(x).view(1, 2, 2, 768).permute(0, 3, 1, 2).contiguous()
        return self.groups(self.conv(image)), image


def test_a_convolution_that_is_finished_elsewhere_reads_past_a_copy() -> None:
    torch.manual_seed(0)
    exe = covan_mlir.compile_module(Features().half().eval(), (torch.randn(1, 4, 768).half(),))
    assert len(exe.lineage.where("conv")) == 2
    assert exe.verify(), exe.verify()


class Rotary(nn.Module):
    """Rotary embeddings, in float32, of what two products of halves give."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(32, 32), nn.Linear(32, 32)
        self.angles = nn.Parameter(torch.randn(5, 1, 8))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        cos, sin = self.angles.float().cos(), self.angles.float().sin()
        rotated = []
        for layer in (self.one, self.other):
            y = layer(x).view(-1, 5, 4, 8).float()
            turned = torch.cat((-y[..., 4:], y[..., :4]), -1)
            rotated.append((y * cos + turned * sin).to(x.dtype))
        return tuple(rotated)


@pytest.mark.parametrize("open_size", [False, True])
def test_rotary_embeddings_are_no_work_of_the_products_before_them(open_size: bool) -> None:
    torch.manual_seed(0)
    model, x = Rotary().half().eval(), torch.randn(2, 5, 32).half()
    shapes = ({0: torch.export.Dim("batch", max=64)},) if open_size else None
    exe = covan_mlir.compile_module(model, (x,), dynamic_shapes=shapes)
    with torch.no_grad():
        expected = model(x)
    for got, want in zip(exe(x), expected, strict=True):
        np.testing.assert_allclose(got.float().numpy(), want.float().numpy(), rtol=1e-2, atol=1e-2)
    (product,) = {site.id for name in ("one", "other") for site in exe.lineage.where(f"{name}")}
    assert len(exe.lineage.sites) == 3
    assert product == 0
    assert exe.verify(), exe.verify()


def test_positions_that_a_padding_counts_along_are_not_its_work_elsewhere() -> None:
    """The mask of the product reads the positions that the padding's gather counts along: equal ones are one."""

    def padded(x: Tensor) -> tuple[Tensor, Tensor]:
        return F.pad(x, (1, 1), "reflect"), (x @ x).triu(1)

    x = torch.randn(6, 8, 8)
    options = covan_mlir.CompileOptions(fuse_reductions="always")
    exe = covan_mlir.compile_module(padded, (x,), options=options)
    torch.testing.assert_close(exe(x), padded(x))
    assert exe.verify(), str(exe.verify())
    (product,) = (site for site in exe.lineage.sites if site.kernel.startswith("fred_"))
    assert "pad" not in {action.name for action in exe.lineage.why(product)}
