"""Architectures of `transformers` and `timm` by name: built with random weights, small or at their real size.

A name alone says little of how a model is built and called. So recipes are tried in order, from the smallest
configuration to the library's own, and inputs from the most to the fewest: the first that eager PyTorch runs is taken.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

LIBRARIES = ("transformers", "timm")
LARGEST = 100_000_000
"""Parameters: larger models are left out."""

_LAYERS: dict[str, int] = {
    "num_hidden_layers": 2,
    "num_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "depth": 2,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "num_decoder_layers": 1,
}
_WIDTHS: dict[str, int] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "d_model": 32,
    "n_embd": 32,
    "dim": 32,
    "embed_dim": 32,
    "embedding_size": 32,
    "emb_dim": 32,
    "intermediate_size": 48,
    "ffn_dim": 48,
    "n_inner": 48,
    "d_ff": 48,
    "hidden_dim": 48,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "dim_feedforward": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "head_dim": 8,
    "d_kv": 8,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "image_size": 32,
    "patch_size": 8,
    "num_channels": 3,
    "moe_intermediate_size": 16,
}
_EXPERTS: dict[str, int] = {
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "moe_k": 2,
    "moe_top_k": 2,
    "top_k_experts": 2,
    "n_group": 1,
    "topk_group": 1,
}
_TOKENS: dict[str, int] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}
_RECIPES: tuple[Mapping[str, int], ...] = (
    _LAYERS | _WIDTHS | _EXPERTS | _TOKENS,
    _LAYERS | _EXPERTS | _TOKENS,
    _TOKENS,
)
"""What configurations of transformers are given, where they know the name: the smallest first."""
_SIDES = (64, 224, 256, 384)


@dataclass(frozen=True)
class Built:
    """A model and arguments for it by name.

    Attributes:
        random: the model draws random numbers: two calls under different seeds differ.
    """

    model: nn.Module
    args: dict[str, Tensor]
    random: bool


@cache
def timm_models() -> tuple[str, ...]:
    """Names of timm's models; none, with a word in the log, where it cannot be imported."""
    try:
        timm = _timm()
    except ImportError as error:
        logging.getLogger(__name__).warning("timm is left out: %s", error)
        return ()
    return tuple(timm.list_models())


def _timm() -> Any:
    """The module `timm`.

    It imports torchvision, for its images alone. Where torchvision is there and was built for another torch, its
    operators do not exist, and to register shapes for them is an error: those registrations are passed over.
    """
    register = torch.library.register_fake

    def tolerant(op: Any, *args: Any, **options: Any) -> Callable[[Any], Any]:
        def decorator(function: Any) -> Any:
            try:
                return register(op, *args, **options)(function)
            except RuntimeError:
                return function

        return decorator

    with mock.patch.object(torch.library, "register_fake", tolerant):
        import timm
    return timm


def known() -> list[str]:
    """Names of all architectures: model types of transformers, ``timm:`` and a name of timm's."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return sorted(MODEL_MAPPING_NAMES) + [f"timm:{name}" for name in timm_models()]


def built(name: str, *, real: bool = False) -> Built:
    """A model with random weights, and arguments for it.

    Args:
        name: one of `known`.
        real: with the widths and the inputs of the library's own configuration; of transformers as many layers as
            stay below `LARGEST`.

    Raises:
        ValueError: the name is not known, or no recipe gives a model that eager PyTorch runs; with what the
            last one met.
    """
    if name not in known():  # also loads timm, and with it a torchvision that transformers could not load by itself
        raise ValueError(f"{name!r} is none of {' or '.join(LIBRARIES)}")
    last: Exception | None = None
    for recipe in (_timm_recipes if name.startswith("timm:") else _transformers_recipes)(name, real=real):
        try:
            model, choices = recipe()
        except Exception as error:
            last = error
            continue
        for args in choices:
            try:
                return Built(model, args, _draws(model, args))
            except Exception as error:
                last = error
    raise ValueError(f"{type(last).__name__}: {last}") from last


def tensors(result: Any) -> list[Tensor]:
    """The tensors of a model's result, in order."""
    return [value for value in pytree.tree_leaves(result) if isinstance(value, Tensor)]


def _draws(model: nn.Module, args: dict[str, Tensor]) -> bool:
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        with torch.no_grad():
            results.append([value.nan_to_num() for value in tensors(model(**args))])
    return not all(torch.equal(first, second) for first, second in zip(*results, strict=True))


Recipe = Callable[[], tuple[nn.Module, Iterable[dict[str, Tensor]]]]


def _timm_recipes(name: str, *, real: bool) -> Iterator[Recipe]:
    create = partial(_timm().create_model, name.removeprefix("timm:"), pretrained=False)

    def recipe(**options: Any) -> tuple[nn.Module, Iterable[dict[str, Tensor]]]:
        _refuse_large(partial(create, **options))
        torch.manual_seed(0)
        model = create(**options)
        own = model.default_cfg.get("input_size", (3, 224, 224))
        sides = (own[-1],) if real else (*(side for side in _SIDES if side < own[-1]), own[-1])
        return settled(model), ({"x": torch.randn(1, own[0], side, side)} for side in sides)

    if not real:
        yield partial(recipe, num_classes=5, img_size=_SIDES[0], depth=2)
        yield partial(recipe, num_classes=5, img_size=_SIDES[0])
        yield partial(recipe, num_classes=5)
    yield recipe


def _transformers_recipes(name: str, *, real: bool) -> Iterator[Recipe]:
    from transformers import AutoConfig, AutoModel

    def recipe(numbers: Mapping[str, int]) -> tuple[nn.Module, Iterable[dict[str, Tensor]]]:
        config: Any = AutoConfig.for_model(name)
        for part in (config, *(getattr(config, sub, None) for sub in config.sub_configs)):
            _change(part, numbers)
        create = partial(AutoModel.from_config, config)
        _refuse_large(create)
        torch.manual_seed(0)
        model: nn.Module = create()
        return settled(model), _arguments(model, config)

    yield from (partial(recipe, numbers) for numbers in (_RECIPES[::-1][:2] if real else _RECIPES))


def _change(config: Any, numbers: Mapping[str, int]) -> None:
    """Set those of the numbers that the configuration has, as far as it lets itself be set."""
    for key, value in numbers.items():
        # Some are properties of others, some belong to each layer: both raise errors of all kinds.
        with contextlib.suppress(Exception):
            if isinstance(getattr(config, key, None), int):
                setattr(config, key, value)
    with contextlib.suppress(Exception):
        config.layer_types = config.layer_types[: config.num_hidden_layers]


def _refuse_large(create: Callable[[], nn.Module]) -> None:
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in create().parameters())
    if count > LARGEST:
        raise ValueError(f"{count} parameters")


def settled(model: nn.Module) -> nn.Module:
    """The model in evaluation mode, with what training leaves: norms that are not exactly one, nothing that is zero.

    Variances of what layers compute stay what they were.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                inputs = parameter.numel() // parameter.shape[0] if parameter.dim() > 1 else 1
                scale = 0.05 if parameter.dim() < 2 else 0.2 / max(1, inputs) ** 0.5
                parameter.add_(torch.randn_like(parameter), alpha=scale)
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                if module.running_mean is not None:
                    module.running_mean.normal_(std=0.2)
                if module.running_var is not None:
                    module.running_var.uniform_(0.5, 1.5)
    return model.eval()


def _arguments(model: Any, config: Any) -> Iterator[dict[str, Tensor]]:
    """Choices of arguments, those with the most inputs first."""
    names = inspect.signature(model.forward).parameters
    audio = getattr(config, "audio_config", config)
    bins = next((size for key in ("num_mel_bins", "num_mel_bands", "n_mels") if (size := getattr(audio, key, 0))), 80)
    shapes: dict[str, Callable[[], Tensor]] = {
        "input_ids": lambda: torch.randint(3, 60, (1, 8)),
        "decoder_input_ids": lambda: torch.randint(3, 60, (1, 6)),
        "input_values": lambda: torch.randn(1, 4000),
        "past_values": lambda: torch.randn(1, getattr(config, "context_length", 32), 1),
    }
    main = getattr(model, "main_input_name", "input_ids")
    wanted = [name for name in dict.fromkeys((main, "pixel_values", "input_ids")) if name in names]
    always = ["decoder_input_ids"] if getattr(config, "is_encoder_decoder", False) else []
    side = _side(config)
    images = [torch.Size((1, 3, size, size)) for size in dict.fromkeys((side, *_SIDES))]
    spectra = [torch.Size(shape) for shape in ((1, bins, 100), (1, 100, bins), (1, bins, 3000))]
    for count in range(len(wanted), 0, -1):
        for some in itertools.combinations(wanted, count):
            for image, spectrum in itertools.product(images, spectra):
                if "pixel_values" not in some and image != images[0]:
                    continue
                if "input_features" not in some and spectrum != spectra[0]:
                    continue
                shapes["pixel_values"] = partial(torch.randn, image)
                shapes["input_features"] = partial(torch.randn, spectrum)
                args = {name: shapes[name]() for name in (*some, *always) if name in shapes and name in names}
                if args:
                    yield args
                if main == "input_values":
                    yield args | {main: torch.randn(1, 1, 4000)}


def _side(config: Any) -> int:
    size = getattr(getattr(config, "vision_config", config), "image_size", 64)
    return size if isinstance(size, int) else 64
