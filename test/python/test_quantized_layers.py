"""Which layers `covan_mlir.quantize` leaves in float, and that all others are multiplied by kernels of steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from dense_chains import assumed
from test_integer_products import HOST
from torch import nn

from covan_mlir import InputError, quantize

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


@pytest.mark.parametrize("name", LAYERS)
def test_what_stays_in_float_is_told(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what does not is multiplied by a kernel of steps."""
    assumed(HOST, tmp_path, monkeypatch)
    layer, shape, why = LAYERS[name]
    model, x = nn.Sequential(nn.ReLU(), layer, nn.ReLU()).eval(), torch.randn(2, *shape)
    if why:
        with pytest.raises(InputError, match=why):
            quantize(model, [(x,)])
    else:
        operators = quantize(model, [(x,)]).compile().lineage.operators()
        assert [one.operator.contraction is not None for one in operators].count(True) == 1
