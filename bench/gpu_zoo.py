"""Programs that are measured on GPUs: layers and models, their arguments and weights, drawn alike wherever they run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

F = torch.nn.functional
_NAMES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}


@dataclass(frozen=True)
class Program:
    """A program that is measured.

    Attributes:
        build: its model, in float32.
        inputs: shapes of its floating-point arguments, or of integers below a number.
        dtype: that it runs in.
        timed: whether its speed says something; others are only compared.
    """

    build: Callable[[], nn.Module]
    inputs: tuple[tuple[tuple[int, ...], int | None], ...]
    dtype: torch.dtype = torch.float32
    timed: bool = False


class Call(nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        return self.function(*args)


class Stateless(nn.Module):
    """A model whose parameters and buffers are its first argument."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._held = [model]  # not registered: nothing of it is the program's

    def forward(self, state: dict[str, Tensor], *args: Tensor) -> Any:
        return torch.func.functional_call(self._held[0], state, args)


class FirstResult(nn.Module):
    """What a model of transformers gives first: the last hidden states, or features."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.model(x, return_dict=False)[0]
        return result


def _transformer(kind: str, **changes: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import transformers

        config = getattr(transformers, f"{kind}Config")(**changes)
        config._attn_implementation = "eager"
        return FirstResult(getattr(transformers, f"{kind}Model")(config))

    return build


def _conv(inputs: int, outputs: int, window: int, stride: int = 1, groups: int = 1) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Conv2d(inputs, outputs, window, stride, window // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def _encoder_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(768, 12, 3072, 0.0, "gelu", batch_first=True)


def _attend(causal: bool) -> Callable[[], nn.Module]:
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if causal:
            i, j = (torch.arange(n, device=s.device) for n in s.shape[-2:])
            s = s.masked_fill(j[None] > i[:, None] + s.shape[-1] - s.shape[-2], -math.inf)
        return torch.softmax(s, -1) @ v

    return lambda: Call(attention)


def _loop(x: Tensor) -> Tensor:
    from torch._higher_order_ops import while_loop

    loop: Any = while_loop
    y: Tensor = loop(lambda y: y.sum() < 500, lambda y: (torch.relu(y) + 1,), (x,))[0]
    return y


def _product(form: str, a: Tensor, b: Tensor) -> Tensor:
    return torch.relu((a.mT if form[0] == "t" else a) @ (b.mT if form[1] == "t" else b))


def _scatter(x: Tensor, i: Tensor) -> Tensor:
    return torch.zeros(50, x.shape[1], device=x.device, dtype=x.dtype).index_add(0, i, x)


def programs() -> dict[str, Program]:
    """By name; those of one architecture differ in their types."""
    f16, bf16, f32, f64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
    programs: dict[str, Program] = {}
    for dtype, name in _NAMES.items():
        wide = Program(lambda: nn.Sequential(nn.Linear(4096, 4096), nn.GELU()), (((4096, 4096), None),), dtype, True)
        programs |= {
            f"linear 4096 gelu {name}": wide,
            f"linear 1024x768x3072 {name}": Program(
                lambda: nn.Sequential(nn.Linear(768, 3072), nn.GELU()), (((1024, 768), None),), dtype, True
            ),
            f"encoder layer 8x512x768 {name}": Program(_encoder_layer, (((8, 512, 768), None),), dtype, True),
            f"conv 3x3 64 at 56, batch 32 {name}": Program(_conv(64, 64, 3), (((32, 64, 56, 56), None),), dtype, True),
            f"conv 1x1 256-64 at 56, batch 32 {name}": Program(
                _conv(256, 64, 1), (((32, 256, 56, 56), None),), dtype, True
            ),
            f"softmax 16384x1000 {name}": Program(
                lambda: Call(lambda x: torch.softmax(x, -1)), (((16384, 1000), None),), dtype, True
            ),
            f"layer norm 16384x1024 {name}": Program(lambda: nn.LayerNorm(1024), (((16384, 1024), None),), dtype, True),
        }
    for causal in (False, True):
        heads: Any = ((16, 2048, 64), None)
        programs[f"attention 16x2048x64{' causal' if causal else ''} f16"] = Program(
            _attend(causal), (heads,) * 3, f16, True
        )
        programs[f"attention 16x2048x64{' causal' if causal else ''} f32"] = Program(
            _attend(causal), (heads,) * 3, f32, True
        )
    programs["attention 32x1 of 16384x128 f16"] = Program(
        _attend(False), (((32, 1, 128), None),) + (((32, 16384, 128), None),) * 2, f16, True
    )
    tokens: Any = (((4, 384), 1000),)
    small = {"vocab_size": 1000, "num_hidden_layers": 4}
    image: Any = (((4, 3, 224, 224), None),)
    programs |= {
        "BERT-base, 4 layers f32": Program(_transformer("Bert", **small), tokens, timed=True),
        "BERT-base, 4 layers f16": Program(_transformer("Bert", **small), tokens, f16, True),
        "GPT-2, 4 layers f16": Program(
            _transformer("GPT2", vocab_size=1000, n_layer=4, use_cache=False), tokens, f16, True
        ),
        "ViT-base, 4 layers f16": Program(_transformer("ViT", num_hidden_layers=4), image, f16, True),
        "ResNet-50 f32": Program(_transformer("ResNet"), image, timed=True),
        "MobileNetV2 f32": Program(_transformer("MobileNetV2"), image, timed=True),
        "ConvNeXt-T f32": Program(_transformer("ConvNext"), image, timed=True),
    }
    x: Any = ((40, 33), None)
    functions: dict[str, tuple[Callable[..., Any], tuple[Any, ...], torch.dtype]] = {
        "cumsum": (lambda x: torch.cumsum(x, -1), (x,), f32),
        "sort": (lambda x: torch.sort(x, -1), (x,), f32),
        "topk": (lambda x: torch.topk(x, 5), (x,), f32),
        "argmax": (lambda x: torch.argmax(x, -1), (x,), f32),
        "max along columns": (lambda x: torch.max(x, 0), (x,), f32),
        "index_add": (_scatter, (x, ((40,), 50)), f32),
        "embedding": (lambda t, i: F.embedding(i, t), (x, ((7, 9), 40)), f32),
        "gather": (lambda x, i: torch.gather(x, 1, i), (x, ((40, 5), 33)), f32),
        "while_loop": (_loop, (x,), f32),
        "fft": (lambda x: torch.fft.rfft(x).abs(), (x,), f32),
        "double": (lambda x: torch.softmax(x @ x.mT, -1), (x,), f64),
        "integers": (lambda i: (i * 3 + 7) % 11 - i // 4, (((50, 3), 99),), f32),
        "functions": (
            lambda x: torch.log1p(x.abs()) + torch.erf(x) * torch.sin(x) + torch.pow(x.abs(), 1.7),
            (x,),
            f32,
        ),
        "erfc, expm1, atan2": (lambda x: torch.erfc(x) + torch.expm1(x) - torch.atan2(x, x + 1), (x,), f32),
        "variance": (lambda x: torch.var(x, -1), (x,), f32),
        "cross entropy": (lambda x, i: F.cross_entropy(x, i), (x, ((40,), 33)), f32),
        "odd product": (lambda a, b: torch.relu(a @ b), (((77, 131), None), ((131, 53), None)), f32),
        "odd product f16": (lambda a, b: torch.relu(a @ b), (((77, 131), None), ((131, 53), None)), f16),
        "long sum": (lambda a, b: a @ b, (((8, 100000), None), ((100000, 8), None)), f32),
        "cholesky": (lambda x: torch.linalg.cholesky(x @ x.mT + 50 * torch.eye(40, device=x.device)), (x,), f32),
    }
    programs |= {name: Program(partial(Call, f), inputs, dtype) for name, (f, inputs, dtype) in functions.items()}
    for m, n, k, batch in (
        (3136, 64, 256, 0),
        (64, 3136, 256, 4),
        (197, 197, 64, 12),
        (1000, 128, 96, 0),
        (50, 70, 30, 3),
    ):
        for form, dtype in (("nn", f16), ("nt", f16), ("tn", f16), ("nn", bf16), ("nt", f32)):
            lead = (batch,) if batch else ()
            a, b = (m, k) if form[0] == "n" else (k, m), (k, n) if form[1] == "n" else (n, k)
            programs[f"product {form} {'x'.join(map(str, (*lead, m, n, k)))} {_NAMES[dtype]}"] = Program(
                partial(Call, partial(_product, form)), (((*lead, *a), None), ((*lead, *b), None)), dtype
            )
    layers: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
        "conv transpose": (lambda: nn.ConvTranspose2d(6, 5, 4, 2, 1), (2, 6, 9, 11)),
        "depthwise conv": (lambda: nn.Conv2d(24, 24, 3, padding=1, groups=24), (2, 24, 17, 19)),
        "conv 3-d": (lambda: nn.Conv3d(4, 6, 3, padding=1), (1, 4, 7, 9, 8)),
        "max pool": (lambda: nn.MaxPool2d(3, 2, 1), (2, 4, 17, 19)),
        "LSTM": (lambda: nn.LSTM(12, 20, 2, batch_first=True), (3, 8, 12)),
        "group norm": (lambda: nn.GroupNorm(4, 16), (2, 16, 9, 11)),
    }
    programs |= {name: Program(build, ((shape, None),)) for name, (build, shape) in layers.items()}
    return programs


def weights_of(model: nn.Module, dtype: torch.dtype, device: str) -> dict[str, Tensor]:
    """Weights of a size with which no activation grows or dies; those of norms near one, counts as they are."""
    generator = torch.Generator().manual_seed(1)
    weights: dict[str, Tensor] = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        value = tensor.detach()
        if value.is_floating_point():
            fan = float(max(1, math.prod(value.shape[1:])))
            drawn = torch.randn(value.shape, generator=generator)
            value = (1 + 0.1 * drawn.abs() if value.dim() < 2 else drawn / math.sqrt(fan)).to(dtype)
        weights[name] = value.to(device)
    return weights


def arguments(program: Program, device: str) -> list[Tensor]:
    """What a program is called with besides its weights."""
    generator = torch.Generator().manual_seed(2)
    values = []
    for shape, below in program.inputs:
        if below is None:
            values.append(torch.randn(shape, generator=generator).to(program.dtype).to(device))
        else:
            values.append(torch.randint(0, below, shape, generator=generator).to(device))
    return values
