"""Which layers `covan_mlir.quantize` leaves in float, and that all others are multiplied by kernels of steps."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from dense_chains import assumed
from limits import part
from test_integer_products import HOST
from torch import nn

from covan_mlir import InputError, TargetError, quantize

LAYERS = {
    "stem": (nn.Conv2d(3, 16, 3, stride=2), (3, 99, 99), ""),
    "depthwise": (nn.Conv2d(24, 24, 5, padding=2, stride=2, groups=24), (24, 50, 50), ""),
    "several filters": (nn.Conv2d(24, 72, 3, padding="same", groups=24), (24, 50, 50), ""),
    "one channel": (nn.Conv2d(1, 64, (10, 4), stride=(2, 1)), (1, 99, 40), ""),
    "groups": (nn.Conv2d(24, 30, 3, groups=6), (24, 50, 50), ""),
    "strided points": (nn.Conv2d(25, 30, 1, stride=2), (25, 90, 90), ""),
    "points": (nn.Conv2d(28, 9, 1), (28, 90, 90), ""),
    "line": (nn.Conv1d(30, 50, 5), (30, 1000), ""),
    "classifier": (nn.Linear(512, 10), (64, 512), ""),
    "long": (nn.Conv2d(24, 24, 9, groups=24), (24, 50, 50), "81 points of a window over one channel"),
    "far": (nn.Conv2d(24, 24, 3, stride=5, groups=24), (24, 90, 90), "windows of one channel, 5 apart"),
    "one filter": (nn.Conv2d(24, 1, 3), (24, 50, 50), "one filter"),
    "points of groups": (nn.Conv2d(24, 36, 1, groups=6), (24, 50, 50), "its channels are in 6 groups of single points"),
    "odd points": (nn.Conv2d(25, 30, 1), (25, 50, 50), "25 channels of single points"),
    "odd terms": (nn.Linear(510, 16), (64, 510), "510 terms"),
}


ELSEWHERE = ("cpu:haswell", "cpu:alderlake", "cpu:aarch64-linux-gnu:neoverse-n1")
FEW = ("depthwise", "points")


@pytest.mark.parametrize(
    ("target", "name"),
    part(product(("cpu", *ELSEWHERE), LAYERS), kept={*product(("cpu",), LAYERS), *product(ELSEWHERE, FEW)}),
)
def test_what_stays_in_float_is_told(target: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what does not is multiplied by a kernel of steps."""
    assumed(HOST, tmp_path, monkeypatch)
    layer, shape, why = LAYERS[name]
    model, x = nn.Sequential(nn.ReLU(), layer, nn.ReLU()).eval(), torch.randn(2, *shape)
    if why:
        with pytest.raises(InputError, match=why):
            quantize(model, [(x,)], target=target)
    else:
        quantized = quantize(model, [(x,)], target=target)
        assert quantized.report.multiplied.by
        operators = quantized.compile(target=target).lineage.operators()
        assert [one.operator.contraction is not None for one in operators].count(True) == 1


def test_what_vectors_show_is_told() -> None:
    """A window's columns far apart, which vectors of 16 words show, and shorter ones do not."""
    layers = nn.Conv2d(24, 24, (2, 7), dilation=9, padding=9, groups=24), nn.ReLU(), nn.Conv2d(24, 24, 3)
    model, x = nn.Sequential(*layers).eval(), torch.randn(2, 24, 50, 90)
    left = {name: quantize(model, [(x,)], target=name).report.left for name in ("cpu:znver4", "cpu:haswell")}
    assert left["cpu:znver4"] == ()
    (one,) = left["cpu:haswell"]
    assert one.name == "0"
    assert "a vector does not show them" in one.why


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("cpu:nehalem", "on cpu:nehalem, steps are multiplied as floats"),
        ("cpu:alderlake", "on cpu:alderlake, steps are multiplied by vpdpbusd"),
        ("cpu:aarch64-linux-gnu:neoverse-v1", "steps are multiplied by sdot and usdot"),
    ],
)
def test_how_a_target_multiplies_is_told(target: str, told: str) -> None:
    model, x = nn.Sequential(nn.Linear(16, 32)).eval(), torch.randn(4, 16)
    report = quantize(model, [(x,)], target=target).report
    assert told in str(report)
    assert report.to_json()["target"] == target


def test_a_target_that_is_none() -> None:
    model, x = nn.Sequential(nn.Linear(16, 32)).eval(), torch.randn(4, 16)
    with pytest.raises(TargetError, match="cpu:nonsense: Unknown CPU"):
        quantize(model, [(x,)], target="cpu:nonsense")
