"""Models at their real size, with random weights: what a user would bring. Batch 1 but for `dlrm`."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import torch
import transformers as hf
from peers import Model
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "models"))
from mobilenet_v2 import example_inputs as images
from mobilenet_v2 import mobilenet_v2 as mobilenet


def _ids(length: int, vocabulary: int) -> Tensor:
    return torch.randint(3, vocabulary, (1, length))


def _with_statistics(model: nn.Module) -> nn.Module:
    """BatchNorm gets statistics and factors unlike the initial ones, with which it would be the identity."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            nn.init.normal_(module.running_mean, std=0.2)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.uniform_(module.weight, 0.7, 1.3)
            nn.init.normal_(module.bias, std=0.2)
    return model


def resnet50() -> Model:
    return _with_statistics(hf.ResNetForImageClassification(hf.ResNetConfig(num_labels=1000))), images(224), {}


def mobilenet_v2() -> Model:
    return mobilenet(1.0), images(224), {}


def efficientnet_b0() -> Model:
    config = hf.EfficientNetConfig(
        image_size=224, width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280, num_labels=1000
    )
    model = hf.EfficientNetForImageClassification(config)
    # The same mean: its own is a window of 1280 by 1280 over 7 by 7, which OpenVINO and torch-mlir cannot lower.
    model.efficientnet.pooler = nn.AdaptiveAvgPool2d(1)
    return _with_statistics(model), images(224), {}


def convnext_t() -> Model:
    return hf.ConvNextForImageClassification(hf.ConvNextConfig(num_labels=1000)), images(224), {}


def vit_b16() -> Model:
    return hf.ViTForImageClassification(hf.ViTConfig(num_labels=1000)), images(224), {}


def bert_base() -> Model:
    return hf.BertModel(hf.BertConfig()), (_ids(128, 30522),), {}


def gpt2_124m() -> Model:
    """A prompt of 128 tokens, without a cache: so all contenders can enter."""
    return hf.GPT2LMHeadModel(hf.GPT2Config(use_cache=False)), (_ids(128, 50257),), {}


def whisper_tiny_encoder() -> Model:
    config = hf.WhisperConfig(
        d_model=384,
        encoder_layers=4,
        decoder_layers=1,
        encoder_attention_heads=6,
        decoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_ffn_dim=1536,
    )
    return hf.WhisperModel(config).get_encoder(), (torch.randn(1, 80, 3000),), {}


def _double_conv(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """`[N, 3, H, W]` images to `[N, classes, H, W]` logits, H and W multiples of 16.

    Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015; half as wide, with
    padding and BatchNorm.
    """

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 256, 512), classes: int = 2) -> None:
        super().__init__()
        self.down = nn.ModuleList(_double_conv(i, o) for i, o in itertools.pairwise((3, *widths)))
        falling = widths[::-1]
        steps = list(itertools.pairwise(falling))
        self.up = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, stride=2) for i, o in steps)
        self.merge = nn.ModuleList(_double_conv(2 * o, o) for _, o in steps)
        self.head = nn.Conv2d(widths[0], classes, 1)
        self.pool = nn.MaxPool2d(2)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for at, block in enumerate(self.down):
            x = block(self.pool(x) if at else x)
            kept.append(x)
        for up, merge, skipped in zip(self.up, self.merge, reversed(kept[:-1]), strict=True):
            x = merge(torch.cat([skipped, up(x)], dim=1))
        logits: Tensor = self.head(x)
        return logits


def unet() -> Model:
    return _with_statistics(UNet()), images(256), {}


def _mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class DLRM(nn.Module):
    """13 numbers and one index into each table to a probability of a click.

    Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems", 2019, with the
    widths of its Criteo configuration and small tables.
    """

    def __init__(self, tables: int = 26, entries: int = 10_000, width: int = 64) -> None:
        super().__init__()
        self.bottom = _mlp(13, 512, 256, width)
        self.tables = nn.ModuleList(nn.Embedding(entries, width) for _ in range(tables))
        pairs = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.pairs: Tensor
        self.register_buffer("pairs", pairs[0] * (tables + 1) + pairs[1])
        self.top = _mlp(width + pairs.shape[1], 512, 256, 1)

    def forward(self, numbers: Tensor, indices: Tensor) -> Tensor:
        """`[N, 13]` and `[N, tables]` integers to `[N, 1]`."""
        dense = self.bottom(numbers).relu()
        rows = torch.stack([dense, *(table(indices[:, at]) for at, table in enumerate(self.tables))], dim=1)
        products = (rows @ rows.mT).flatten(1)[:, self.pairs]  # of each pair of features
        click: Tensor = self.top(torch.cat([dense, products], dim=1)).sigmoid()
        return click


def dlrm() -> Model:
    return DLRM(), (torch.randn(128, 13), torch.randint(0, 10_000, (128, 26))), {}


MODELS = (
    resnet50,
    mobilenet_v2,
    efficientnet_b0,
    convnext_t,
    vit_b16,
    bert_base,
    gpt2_124m,
    whisper_tiny_encoder,
    unet,
    dlrm,
)
