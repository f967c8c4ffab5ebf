"""Architectures that nobody prepared covan for: chosen at random, compiled with tiny configurations, checked.

Of the configurations that `transformers` knows, and of the models that `timm` does (where they are installed), a seeded
sample is instantiated with random weights and made small. Per architecture: does it compile, do the numbers agree with
eager, what does `verify()` say, and why.

    python bench/unprepared.py --seed 0 --count 20
    python bench/unprepared.py --only gemma2 clip_vision_model

`ARCHITECTURES` lists those that have been tried, with the seed that chose them. Models that draw random numbers
(`vit_mae`) cannot agree with eager.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

import covan_mlir

TOLERANCE = 1e-3
"""Of the largest difference from eager, relative to the largest value."""
LIMIT = 150
"""Seconds per architecture."""
ARCHITECTURES: dict[int, tuple[str, ...]] = {
    0: (
        "owlv2",
        "pp_ocrv5_mobile_rec",
        "canine",
        "kyutai_speech_to_text",
        "starcoder2",
        "sam3_vision_model",
        "persimmon",
        "mimi_decoder",
        "sam2_hiera_det_model",
        "nanochat",
        "xlstm",
        "higgs_audio_v2_tokenizer",
        "smolvlm_vision",
        "flint",
        "llava_next_video",
        "florence2",
        "diffusion_gemma",
        "janus",
        "tipsv2_vision_model",
        "fuyu",
        "minicpmv4_7",
        "dinov3_convnext",
        "dac",
        "mobilevit",
        "rt_detr",
        "vit_mae",
        "distilbert",
        "musicflamingo",
    ),
}
"""By seed, those that were tried: with timm left out."""

_SMALL = {
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
    "num_hidden_layers": 2,
    "num_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "num_decoder_layers": 1,
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
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_intermediate_size": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}


@dataclass(frozen=True)
class Outcome:
    """What became of one architecture.

    Attributes:
        compiles: an empty string, or why not.
        error: largest difference from eager, relative to the largest value.
        verdict: of `verify`; empty where it does not compile.
        reasons: why it is no ``yes``.
    """

    name: str
    compiles: str = ""
    error: float = 0.0
    verdict: str = ""
    reasons: tuple[str, ...] = ()
    actions: int = 0
    sites: int = 0
    seconds: float = 0.0


def known() -> list[str]:
    """Names of all architectures: model types of transformers, ``timm:`` and a name of timm's."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    names: list[str] = sorted(MODEL_MAPPING_NAMES)
    try:
        import timm
    except ImportError as error:
        logging.getLogger(__name__).info("timm is left out: %s", error)
        return names
    return names + [f"timm:{name}" for name in timm.list_models()]


def built(name: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """A small model with random weights, and arguments for it by name.

    Raises:
        Exception: whatever the library raises when the model cannot be made small.
    """
    torch.manual_seed(0)
    if name.startswith("timm:"):
        import timm

        model: Any = timm.create_model(name.removeprefix("timm:"), pretrained=False, num_classes=5)
        size = model.default_cfg.get("input_size", (3, 64, 64))
        return settled(model), {"x": torch.randn(1, *size)}
    from transformers import AutoConfig, AutoModel

    config: Any = AutoConfig.for_model(name)
    parts: list[Any] = [config, *(getattr(config, sub, None) for sub in config.sub_configs)]
    for part in parts:
        for key, value in _SMALL.items():
            if isinstance(getattr(part, key, None), int):
                setattr(part, key, value)
        types = getattr(part, "layer_types", None)
        if types:
            part.layer_types = types[: getattr(part, "num_hidden_layers", len(types))]
    transformer: nn.Module = AutoModel.from_config(config)
    return settled(transformer), dict(_arguments(transformer, config))


def settled(model: nn.Module) -> nn.Module:
    """The model in evaluation mode, with weights that a trained one could have: norms are not exactly one."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return model.eval()


def _arguments(model: Any, config: Any) -> Iterator[tuple[str, torch.Tensor]]:
    names = inspect.signature(model.forward).parameters
    shapes: dict[str, Callable[[], torch.Tensor]] = {
        "input_ids": lambda: torch.randint(3, 60, (1, 8)),
        "decoder_input_ids": lambda: torch.randint(3, 60, (1, 6)),
        "pixel_values": lambda: torch.randn(1, 3, _side(config), _side(config)),
        "input_values": lambda: torch.randn(1, 4000),
        "input_features": lambda: torch.randn(1, getattr(config, "num_mel_bins", 80), 100),
        "past_values": lambda: torch.randn(1, getattr(config, "context_length", 32), 1),
    }
    main = getattr(model, "main_input_name", "input_ids")
    chosen = {name for name in (main, "pixel_values", "input_ids") if name in names and name in shapes}
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in names:
        chosen.add("decoder_input_ids")
    yield from ((name, shapes[name]()) for name in sorted(chosen))


def _side(config: Any) -> int:
    size = getattr(getattr(config, "vision_config", config), "image_size", 64)
    return size if isinstance(size, int) else 64


def tried(name: str) -> Outcome:
    """Compile one architecture, run it beside eager, and verify it."""
    start = time.perf_counter()
    try:
        model, args = built(name)
        with torch.no_grad():
            expected = _tensors(model(**args))
    except Exception as error:
        return Outcome(name, f"not built: {_told(error)}", seconds=time.perf_counter() - start)
    try:
        exe = covan_mlir.compile_module(model, (), args)
    except Exception as error:
        return Outcome(name, _told(error), seconds=time.perf_counter() - start)
    worst = _difference(expected, _tensors(exe(**args)))
    verdict = exe.verify()
    reasons = [str(example) for example in verdict.counterexamples]
    reasons += [reason for check in verdict.checks for reason in check.missing]
    lineage = exe.lineage
    return Outcome(
        name,
        error=worst,
        verdict=verdict.outcome,
        reasons=tuple(dict.fromkeys(reasons)),
        actions=len(lineage.actions),
        sites=len(lineage.sites),
        seconds=time.perf_counter() - start,
    )


def _tensors(result: Any) -> list[torch.Tensor]:
    return [value for value in pytree.tree_leaves(result) if isinstance(value, torch.Tensor)]


def _difference(expected: list[torch.Tensor], given: list[torch.Tensor]) -> float:
    worst = 0.0 if len(expected) == len(given) else float("inf")
    for left, right in zip(expected, given, strict=False):
        if left.numel() and left.shape == right.shape:
            scale = max(1.0, float(left.double().abs().max()))
            worst = max(worst, float((left.double() - right.double()).abs().max()) / scale)
    return worst


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def _child(name: str, queue: Any) -> None:
    torch.set_num_threads(1)
    queue.put(tried(name))


def _apart(name: str) -> Outcome:
    """`tried` in a process of its own, which may crash or hang."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=_child, args=(name, queue))
    child.start()
    try:
        outcome: Outcome = queue.get(timeout=LIMIT)
    except Exception:
        outcome = Outcome(name, f"no answer within {LIMIT} s", seconds=LIMIT)
    child.kill()
    child.join()
    return outcome


def main() -> None:
    """Print the table, one row per architecture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--only", nargs="+", help="names, instead of a sample")
    options = parser.parse_args()
    names = options.only or random.Random(options.seed).sample(known(), options.count)
    print("| architecture | compiles | numbers | verify | actions | sites | s | why |")
    print("|---|---|---|---|---|---|---|---|")
    for name in names:
        outcome = _apart(name)
        compiles = outcome.compiles.split(":")[0] if outcome.compiles else "yes"
        numbers = "" if outcome.compiles else "agree" if outcome.error <= TOLERANCE else f"**{outcome.error:.1e}**"
        why = outcome.compiles or "; ".join(outcome.reasons[:2])
        print(
            f"| {name} | {compiles} | {numbers} | {outcome.verdict} | {outcome.actions} | {outcome.sites}"
            f" | {outcome.seconds:.0f} | {why} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
