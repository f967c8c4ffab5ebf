"""Dense layers as data: those of well-known models, and odd ones.

Sizes are of one call in inference, batch 1 unless the layer says otherwise. Layers of one model that differ in nothing
stand here once; those that another model has with the same epilogue stand there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

Step = Literal[
    "bias", "bn", "scale", "residual", "relu", "relu6", "silu", "gelu", "gelu_tanh", "tanh", "sigmoid", "gate"
]
"""What follows in the same layer: a bias, BatchNorm, a factor per channel, another input added, an activation, or the
silu of the product times a second product of the same input (SwiGLU)."""
Epilogue = tuple[Step, ...]


@dataclass(frozen=True)
class Conv:
    """A convolution; 1-d to 3-d, as the image is.

    Attributes:
        inputs, outputs: channels.
        window: its size, equal along all axes or along each.
        image: of the input, equal or along each.
        padding: None: half of an odd window, none for an even one.
    """

    inputs: int
    outputs: int
    window: tuple[int, ...]
    image: tuple[int, ...]
    epilogue: Epilogue = ()
    stride: int = 1
    padding: int | None = None
    groups: int = 1
    dilation: int = 1
    transposed: bool = False
    batch: int = 1

    @property
    def paddings(self) -> tuple[int, ...]:
        if self.padding is not None:
            return (self.padding,) * len(self.window)
        return tuple((w // 2) * self.dilation if w % 2 else 0 for w in self.window)

    @property
    def result(self) -> tuple[int, ...]:
        """Size of the resulting image."""
        sizes = zip(self.image, self.window, self.paddings, strict=True)
        if self.transposed:
            return tuple((n - 1) * self.stride - 2 * p + w for n, w, p in sizes)
        return tuple((n + 2 * p - self.dilation * (w - 1) - 1) // self.stride + 1 for n, w, p in sizes)

    @property
    def name(self) -> str:
        kind = f"{_by(self.window)}" + (f"s{self.stride}" if self.stride > 1 else "")
        kind += (f"d{self.dilation}" if self.dilation > 1 else "") + ("t" if self.transposed else "")
        kind += "dw" if 1 < self.groups == self.inputs else f"g{self.groups}" if self.groups > 1 else ""
        channels = f"{self.inputs}" if kind.endswith("dw") else f"{self.inputs}-{self.outputs}"
        batch = f"{self.batch}x" if self.batch > 1 else ""
        return "-".join([f"conv{kind}", batch + channels, f"at{_by(self.image)}", *self.epilogue])

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each weight under each window, those in the padding counted."""
        windows = math.prod(self.image if self.transposed else self.result)
        return 2 * self.batch * windows * math.prod(self.window) * self.inputs * self.outputs // self.groups

    @property
    def elements(self) -> int:
        """Of weights, inputs and results, each once."""
        weights = math.prod(self.window) * self.inputs * self.outputs // self.groups
        result = self.outputs * math.prod(self.result)
        read = self.inputs * math.prod(self.image) + ("residual" in self.epilogue) * result
        return weights + self.batch * (read + result)


@dataclass(frozen=True)
class Linear:
    """`x @ weights` of `rows` rows."""

    rows: int
    inputs: int
    outputs: int
    epilogue: Epilogue = ("bias",)

    @property
    def name(self) -> str:
        return "-".join([f"linear{self.rows}x{self.inputs}x{self.outputs}", *self.epilogue])

    @property
    def products(self) -> int:
        return 2 if "gate" in self.epilogue else 1

    @property
    def flops(self) -> int:
        return 2 * self.products * self.rows * self.inputs * self.outputs

    @property
    def elements(self) -> int:
        result = self.rows * self.outputs
        read = self.rows * self.inputs + ("residual" in self.epilogue) * result
        return self.products * self.inputs * self.outputs + read + result


@dataclass(frozen=True)
class Matmul:
    """A product of two inputs, neither a weight, `batch` of them.

    Attributes:
        left, right: whether that operand lies transposed in memory.
    """

    rows: int
    inner: int
    columns: int
    batch: int = 1
    left: bool = False
    right: bool = False

    @property
    def name(self) -> str:
        batch = f"{self.batch}x" if self.batch > 1 else ""
        turned = "-tn" if self.left else "-nt" if self.right else ""
        return f"matmul{batch}{self.rows}x{self.inner}x{self.columns}{turned}"

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.rows * self.inner * self.columns

    @property
    def elements(self) -> int:
        return self.batch * (self.rows * self.inner + self.inner * self.columns + self.rows * self.columns)


@dataclass(frozen=True)
class Bilinear:
    """`y[n, o] = x1[n, :] @ weights[o] @ x2[n, :] + bias[o]`."""

    rows: int
    left: int
    right: int
    outputs: int

    @property
    def name(self) -> str:
        return f"bilinear{self.rows}x{self.left}x{self.right}x{self.outputs}"

    @property
    def flops(self) -> int:
        """Of the better order: one product with each row of weights, then one with the other input."""
        return 2 * self.rows * self.outputs * self.right * (self.left + 1)

    @property
    def elements(self) -> int:
        return self.left * self.right * self.outputs + self.rows * (self.left + self.right + self.outputs)


Operation = Conv | Linear | Matmul | Bilinear


@dataclass(frozen=True)
class Layer:
    """A layer of a model; `model` may be `odd`."""

    model: str
    operation: Operation
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", f"{self.model}/{self.operation.name}")


def _by(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes)) if len(sizes) > 1 else f"{sizes[0]}"


def _point(inputs: int, outputs: int, image: int, *epilogue: Step, stride: int = 1) -> Conv:
    return Conv(inputs, outputs, (1, 1), (image, image), epilogue, stride)


def _square(inputs: int, outputs: int, window: int, image: int, *epilogue: Step, stride: int = 1) -> Conv:
    return Conv(inputs, outputs, (window, window), (image, image), epilogue, stride)


def _depthwise(channels: int, window: int, image: int, *epilogue: Step, stride: int = 1) -> Conv:
    return Conv(channels, channels, (window, window), (image, image), epilogue, stride, groups=channels)


def _resnet50() -> list[Operation]:
    """He et al. 2016, Table 1, with strides in the 3x3; 224 px."""
    layers: list[Operation] = [_square(3, 64, 7, 224, "bn", "relu", stride=2)]
    inputs, image = 64, 56
    for width in (64, 128, 256, 512):
        stride = 1 if width == 64 else 2
        small = image // stride
        outputs = 4 * width
        layers += [
            _point(inputs, width, image, "bn", "relu"),
            _square(width, width, 3, image, "bn", "relu", stride=stride),
            _point(width, outputs, small, "bn", "residual", "relu"),
            _point(inputs, outputs, image, "bn", stride=stride),  # the shortcut
            _point(outputs, width, small, "bn", "relu"),
        ]
        if stride > 1:
            layers.append(_square(width, width, 3, small, "bn", "relu"))
        inputs, image = outputs, small
    return [*layers, Linear(1, 2048, 1000)]


def _mobilenet_v2() -> list[Operation]:
    """Sandler et al. 2018, Table 2, width 1.0; 224 px."""
    layers: list[Operation] = [
        _square(3, 32, 3, 224, "bn", "relu6", stride=2),
        _depthwise(32, 3, 112, "bn", "relu6"),
        _point(32, 16, 112, "bn"),
    ]
    inputs, image = 16, 112
    for outputs, repeats, stride in ((24, 2, 2), (32, 3, 2), (64, 4, 2), (96, 3, 1), (160, 3, 2), (320, 1, 1)):
        for repeat in range(min(repeats, 2)):
            step = 1 if repeat else stride
            hidden = 6 * inputs
            layers.append(_point(inputs, hidden, image, "bn", "relu6"))
            layers.append(_depthwise(hidden, 3, image, "bn", "relu6", stride=step))
            image //= step
            layers.append(_point(hidden, outputs, image, "bn", *(("residual",) if repeat else ())))
            inputs = outputs
    return [*layers, _point(320, 1280, 7, "bn", "relu6"), Linear(1, 1280, 1000)]


def _efficientnet_b0() -> list[Operation]:
    """Tan and Le 2019, Table 1; 224 px. Of squeeze and excitation the largest: the others are the cost of a call."""
    layers: list[Operation] = [
        _square(3, 32, 3, 224, "bn", "silu", stride=2),
        _depthwise(32, 3, 112, "bn", "silu"),
        _point(32, 16, 112, "bn"),
    ]
    inputs, image = 16, 112
    stages = ((24, 3, 2, 2), (40, 5, 2, 2), (80, 3, 3, 2), (112, 5, 3, 1), (192, 5, 4, 2), (320, 3, 1, 1))
    for outputs, window, repeats, stride in stages:
        for repeat in range(min(repeats, 2)):
            step = 1 if repeat else stride
            hidden = 6 * inputs
            layers.append(_point(inputs, hidden, image, "bn", "silu"))
            layers.append(_depthwise(hidden, window, image, "bn", "silu", stride=step))
            image //= step
            layers.append(_point(hidden, outputs, image, "bn", *(("residual",) if repeat else ())))
            inputs = outputs
    return [
        *layers,
        _point(1152, 48, 1, "bias", "silu"),
        _point(48, 1152, 1, "bias", "sigmoid"),
        _point(320, 1280, 7, "bn", "silu"),
    ]


def _convnext_t() -> list[Operation]:
    """Liu et al. 2022, ConvNeXt-T; 224 px. Pointwise layers are linear, over channels that come last."""
    layers: list[Operation] = [_square(3, 96, 4, 224, "bias", stride=4)]
    image = 56
    for width in (96, 192, 384, 768):
        if width > 96:
            layers.append(_square(width // 2, width, 2, image, "bias", stride=2))
            image //= 2
        layers += [
            _depthwise(width, 7, image, "bias"),
            Linear(image * image, width, 4 * width, ("bias", "gelu")),
            Linear(image * image, 4 * width, width, ("bias", "scale", "residual")),
        ]
    return [*layers, Linear(1, 768, 1000)]


def _encoder(rows: int, width: int, heads: int, activation: Step) -> list[Operation]:
    """The layers of a transformer's block whose projections are separate."""
    depth = width // heads
    return [
        Linear(rows, width, width),
        Matmul(rows, depth, rows, heads, right=True),
        Matmul(rows, rows, depth, heads),
        Linear(rows, width, width, ("bias", "residual")),
        Linear(rows, width, 4 * width, ("bias", activation)),
        Linear(rows, 4 * width, width, ("bias", "residual")),
    ]


def _gpt2() -> list[Operation]:
    """Radford et al. 2019, 124M: a prompt of 128 tokens, and one token each of one and of eight sequences."""
    layers: list[Operation] = []
    for rows in (128, 1, 8):
        layers += [
            Linear(rows, 768, 2304),
            Linear(rows, 768, 768, ("bias", "residual")),
            Linear(rows, 768, 3072, ("bias", "gelu_tanh")),
            Linear(rows, 3072, 768, ("bias", "residual")),
            Linear(rows, 768, 50257, ()),
        ]
    return layers


def _whisper_tiny() -> list[Operation]:
    """Radford et al. 2022, the encoder of `tiny`: 30 s of sound."""
    return [
        Conv(80, 384, (3,), (3000,), ("bias", "gelu")),
        Conv(384, 384, (3,), (3000,), ("bias", "gelu"), stride=2),
        *_encoder(1500, 384, 6, "gelu"),
    ]


def _unet() -> list[Operation]:
    """Ronneberger et al. 2015, half as wide, with padding and BatchNorm; 256 px."""
    layers: list[Operation] = []
    inputs, image = 3, 256
    for width in (32, 64, 128, 256, 512):
        layers += [
            _square(inputs, width, 3, image, "bn", "relu"),
            _square(width, width, 3, image, "bn", "relu"),
        ]
        inputs, image = width, image // 2
    for width in (256, 128, 64, 32):
        image = 256 * 16 // width
        layers += [
            Conv(2 * width, width, (2, 2), (image, image), ("bias",), 2, transposed=True),
            _square(2 * width, width, 3, 2 * image, "bn", "relu"),
        ]
    return [*layers, _point(32, 2, 256, "bias")]


def _odd() -> list[Operation]:
    """What no well-known model above has."""
    return [
        Linear(7, 1000, 777, ("bias", "relu")),
        Linear(1, 4096, 4096),
        Linear(3, 4096, 1024, ("bias", "relu")),
        Linear(16, 16384, 64),
        Linear(20000, 64, 64, ("bias", "relu")),
        Linear(128, 1024, 2816, ("gate",)),
        Linear(2048, 13, 512, ("bias", "relu")),
        Matmul(1024, 1024, 1024),
        Matmul(512, 512, 512, left=True),
        Matmul(16, 65536, 16),
        Matmul(27, 64, 27, 128, right=True),
        Matmul(1000, 1000, 1),
        Bilinear(128, 64, 48, 32),
        _point(256, 512, 56, stride=2),
        Conv(128, 128, (3, 3), (28, 28), ("bn", "relu"), groups=4),
        Conv(256, 256, (3, 3), (14, 14), ("bn", "relu"), groups=32),
        Conv(64, 64, (3, 3), (56, 56), ("bias",), groups=2),
        _depthwise(64, 31, 28, "bias"),
        _depthwise(192, 7, 28),
        Conv(128, 64, (4, 4), (28, 28), ("bias", "relu"), 2, padding=1, transposed=True),
        Conv(64, 64, (3, 3), (14, 14), ("bias",), 2, padding=1, transposed=True),
        Conv(256, 256, (3, 3), (28, 28), ("bias", "relu"), dilation=2),
        Conv(192, 192, (1, 7), (17, 17), ("bn", "relu")),
        Conv(192, 192, (7, 1), (17, 17), ("bn", "relu")),
        Conv(37, 41, (3, 3), (19, 53), ("bias", "relu")),
        Conv(64, 64, (11, 11), (28, 28), ("bias",)),
        Conv(16, 32, (3, 3, 3), (16, 28, 28), ("bias", "relu")),
        Conv(768, 768, (4,), (512,), ("bias", "silu"), padding=3, groups=768),
        Conv(64, 64, (3, 3), (28, 28), ("bn", "relu"), batch=4),
    ]


def _all() -> dict[str, Layer]:
    models: dict[str, list[Operation]] = {
        "resnet50": _resnet50(),
        "mobilenet_v2": _mobilenet_v2(),
        "efficientnet_b0": _efficientnet_b0(),
        "convnext_t": _convnext_t(),
        "vit_b16": [_square(3, 768, 16, 224, "bias", stride=16), *_encoder(197, 768, 12, "gelu")],
        "bert_base": [*_encoder(128, 768, 12, "gelu"), Linear(1, 768, 768, ("bias", "tanh"))],
        "gpt2": _gpt2(),
        "whisper_tiny": _whisper_tiny(),
        "unet": _unet(),
        "odd": _odd(),
    }
    layers: dict[str, Layer] = {}
    seen: set[Operation] = set()
    for model, operations in models.items():
        for operation in operations:
            if operation not in seen:
                seen.add(operation)
                layer = Layer(model, operation)
                layers[layer.name] = layer
    return layers


LAYERS = _all()
"""By name: `resnet50/conv3x3-64-64-at56x56-bn-relu`."""
