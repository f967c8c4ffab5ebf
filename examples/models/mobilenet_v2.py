"""MobileNetV2 in plain torch.

Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

STAGES = (
    # expansion t, channels c, repeats n, stride s of the first (Table 2)
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _make_divisible(channels: float, divisor: int = 8) -> int:
    """Round to a multiple of `divisor`, never below it, and never down by more than 10 %."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded


class ConvBN(nn.Sequential):
    """Convolution and BatchNorm, then ReLU6 unless it is a linear bottleneck."""

    def __init__(
        self, inp: int, out: int, kernel: int = 1, stride: int = 1, groups: int = 1, relu: bool = True
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inp, out, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(out)
        if relu:
            self.relu = nn.ReLU6()


class InvertedResidual(nn.Module):
    """Expand, filter each channel, project; add the input where the shapes agree (Table 1, Figure 4d)."""

    def __init__(self, inp: int, out: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inp * expansion
        self.expand = ConvBN(inp, hidden) if expansion != 1 else nn.Identity()
        self.depthwise = ConvBN(hidden, hidden, 3, stride, groups=hidden)
        self.project = ConvBN(hidden, out, relu=False)
        self.residual = stride == 1 and inp == out

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    """`[N, 3, H, W]` images to `[N, classes]` logits."""

    def __init__(self, width: float = 0.25, classes: int = 1000) -> None:
        super().__init__()
        channels = _make_divisible(32 * width)
        self.stem = ConvBN(3, channels, 3, stride=2)
        blocks = []
        for expansion, c, repeats, stride in STAGES:
            out = _make_divisible(c * width)
            for i in range(repeats):
                blocks.append(InvertedResidual(channels, out, stride if i == 0 else 1, expansion))
                channels = out
        self.blocks = nn.Sequential(*blocks)
        # The paper applies multipliers below one to all layers but this one (section 6.1).
        last = _make_divisible(1280 * max(1.0, width))
        self.head = ConvBN(channels, last)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.head(self.blocks(self.stem(x)))).flatten(1)
        logits: Tensor = self.classifier(x)
        return logits


def mobilenet_v2(width: float = 0.25, classes: int = 1000, seed: int = 0) -> MobileNetV2:
    """A MobileNetV2 in eval mode with seeded random weights.

    BatchNorm gets statistics and scales unlike the initial ones, which would make it the identity.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MobileNetV2(width, classes)
        for m in model.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_in")
            elif isinstance(m, nn.BatchNorm2d):
                assert m.running_mean is not None
                assert m.running_var is not None
                nn.init.normal_(m.running_mean, std=0.2)
                nn.init.uniform_(m.running_var, 0.5, 1.5)
                nn.init.uniform_(m.weight, 0.7, 1.3)
                nn.init.normal_(m.bias, std=0.2)
    return model.eval()


def example_inputs(size: int = 224, batch: int = 1, seed: int = 1) -> tuple[Tensor]:
    """`batch` random images of `size` by `size` pixels."""
    return (torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(seed)),)
