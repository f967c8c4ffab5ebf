"""Architectures that nobody prepared covan for: chosen at random, compiled with tiny configurations, checked.

Of the configurations that `transformers` knows, and of the models that `timm` does (where they are installed), a seeded
sample is instantiated with random weights, small or at its real size (`architectures.py`). Per architecture: does it
compile, do the numbers agree with eager, what does `verify()` say, and why.

    python bench/unprepared.py --seed 0 --count 20 --library transformers
    python bench/unprepared.py --only gemma2 clip_vision_model
    python bench/unprepared.py --only timm:mobilevit_xxs --real --times

`ARCHITECTURES` lists those that have been tried, with the seed that chose them. Models that draw random numbers
(`vit_mae`) cannot agree with eager and are told as such.
"""

from __future__ import annotations

import argparse
import copy
import math
import multiprocessing
import queue as queues
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from statistics import median
from typing import Any

import torch
from architectures import LIBRARIES, Built, built, known, tensors
from torch import Tensor

import covan_mlir

TOLERANCE = 1e-3
"""Of the largest difference from eager, relative to the largest value."""
LIMIT = 280
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
    1: (
        "aimv2_vision_model",
        "aria_text",
        "beit",
        "bigbird_pegasus",
        "bitnet",
        "blenderbot-small",
        "bloom",
        "chinese_clip_vision_model",
        "cosmos3_edge",
        "deepseek_vl",
        "diffllama",
        "dinov3_vit",
        "doge",
        "dpt",
        "encodec",
        "ernie4_5_moe",
        "fastspeech2_conformer",
        "glm4",
        "glm5_next",
        "gpt2",
        "hiera",
        "hrm_text",
        "hyperclovax_vision_v2",
        "idefics3",
        "kimi_linear",
        "led",
        "m2m_100",
        "maskformer-swin",
        "mistral",
        "modernbert",
        "mt5",
        "nemotron_asr_streaming",
        "olmo",
        "openai-gpt",
        "parakeet_encoder",
        "patchtsmixer",
        "pocket_tts_audio_tokenizer",
        "pocket_tts_audio_tokenizer_encoder",
        "qwen2_moe",
        "qwen3_5_text",
        "qwen3_moe",
        "qwen4_exp_text",
        "roberta-prelayernorm",
        "rt_detr",
        "sam_hq",
        "sam_vision_model",
        "solar_open",
        "ultrabert",
        "voxtral_realtime_encoder",
        "xglm",
        "yolos",
        "timm:beit_base_patch16_384",
        "timm:coat_mini",
        "timm:coatnet_2_224",
        "timm:coatnet_bn_0_rw_224",
        "timm:coatnet_rmlp_0_rw_224",
        "timm:cs3darknet_focus_m",
        "timm:dla46x_c",
        "timm:dpn48b",
        "timm:efficientformer_l1",
        "timm:lcnet_075",
        "timm:maxvit_tiny_tf_512",
        "timm:nest_small_jx",
        "timm:repvgg_b2",
        "timm:res2next50",
        "timm:resnext26ts",
        "timm:sebotnet33ts_256",
        "timm:semnasnet_050",
        "timm:swiftformer_l3",
        "timm:swinv2_cr_tiny_ns_224",
        "timm:test_efficientnet_gn",
        "timm:vit_base_patch16_clip_384",
        "timm:vit_giant_patch16_radio_v3",
        "timm:vit_large_patch16_siglip_256",
        "timm:vit_pe_spatial_tiny_patch16_512",
    ),
    2: (
        "bit",
        "gemma4_unified",
        "groupvit",
        "jetmoe",
        "lfm2",
        "minicpm_ocr_vision",
        "mistral3",
        "nemotron3_5_asr",
        "nllb-moe",
        "qwen2",
        "rembert",
        "smollm3",
        "squeezebert",
        "xlm-roberta-xl",
        "xlnet",
        "timm:convformer_s36",
        "timm:cpubone_s0",
        "timm:deit3_medium_patch16_224",
        "timm:densenet201",
        "timm:eva02_large_patch14_clip_224",
        "timm:hieradet_small",
        "timm:mambaout_base_tall_rw",
        "timm:mvitv2_tiny",
        "timm:regnety_016",
        "timm:regnetz_d32",
        "timm:resnest50d",
        "timm:resnetv2_152",
        "timm:tf_efficientnet_lite1",
        "timm:vit_large_patch14_224",
        "timm:vit_pe_spatial_base_patch16_512",
        "timm:vit_pe_spatial_large_patch14_448",
        "timm:vit_tiny_r_s16_p8_384",
    ),
    7: (
        "mlcd",
        "gemma3_text",
        "clipseg",
        "ultrabert",
        "diffllama",
        "nemotron3_diarization_audio",
        "xlnet",
        "helium",
        "deepseek_vl",
        "pp_doclayout_v3",
        "cvt",
        "deit",
        "video_llava",
        "pp_ocrv6_small_rec",
    ),
    11: (
        "qwen3_vl",
        "vit_mae",
        "rembert",
        "qwen3_omni_moe_thinker",
        "splinter",
        "gpt2",
        "glmasr_encoder",
        "diffllama",
        "focalnet",
        "deit",
        "unispeech",
        "pe_audio_encoder",
        "zaya",
        "cosmos3_edge",
    ),
    13: (
        "mamba",
        "fuyu",
        "glpn",
        "falcon",
        "cwm",
        "tipsv2_text_model",
        "helium",
        "mask2former",
        "blenderbot",
        "qwen2",
        "exaone4",
        "lilt",
        "timm:mobilenetv4_conv_aa_medium",
        "timm:gcvit_tiny",
        "timm:vovnet57a",
        "timm:lcnetv2_large",
        "timm:xcit_tiny_12_p8_384",
        "timm:efficientvit_b3",
        "timm:inception_v4",
        "timm:vitamin_large2_256",
        "timm:gemma4_vit_167m",
        "timm:efficientnet_cc_b0_4e",
    ),
    19: (
        "glm5_next_text",
        "granite_docling",
        "gemma",
        "laguna",
        "pixtral",
        "mobilebert",
        "timm:convnext_nano",
        "timm:tiny_vit_21m_224",
        "timm:efficientformerv2_s2",
        "timm:tf_efficientnetv2_b1",
        "timm:halonet_h1",
        "timm:qwen3_vit_306m_merge",
        "timm:twins_svt_base",
        "timm:mobilenetv3_small_075",
    ),
    29: ("pp_doclayout_v4",),
    31: (
        "roberta-prelayernorm",
        "efficientnet",
        "patchtsmixer",
        "fnet",
        "chinese_clip_vision_model",
        "flint",
        "zamba",
        "ultrabert",
        "timm:botnet50ts_256",
        "timm:starnet_s3",
        "timm:ecaresnet101d_pruned",
        "timm:resnest26d",
        "timm:efficientnetv2_s",
    ),
    47: (
        "muse_spark_text",
        "cosmos3_edge",
        "qianfan_ocr_vision",
        "qwen3_vl_moe",
        "wav2vec2",
        "mpt",
        "owlvit",
        "parakeet_tdt",
        "canine",
        "pp_doclayout_v3",
        "bert-generation",
        "doge",
        "afmoe",
        "sam3_lite_text_text_model",
        "aria_text",
        "pvt",
        "ibert",
        "inkling2",
        "tapas",
        "swin",
    ),
    61: (
        "segformer",
        "glm_ocr_text",
        "vision-text-dual-encoder",
        "hiera",
        "markuplm",
        "yoso",
        "bit",
        "sam3_vision_model",
        "nanochat",
        "phi",
        "radio",
        "mobilenet_v2",
        "modernvbert",
        "apertus",
        "smollm3",
        "glm5_next_text",
        "moonshine",
        "biogpt",
        "fun_asr_nano",
        "exaone4_5",
    ),
    62: (
        "timm:vit_huge_patch14_clip_378",
        "timm:fbnetc_100",
        "timm:cs3darknet_m",
        "timm:levit_256",
        "timm:shvit_s3",
        "timm:naflexvit_base_patch16_par_gap",
        "timm:regnetx_040",
        "timm:fastvit_sa24",
        "timm:gemma4_vit_167m",
        "timm:eva_giant_patch14_224",
        "timm:beit3_giant_patch14_336",
        "timm:maxvit_rmlp_pico_rw_256",
        "timm:vit_tiny_patch16_384",
        "timm:fastvit_sa36",
        "timm:efficientnet_b0_gn",
        "timm:coatnet_pico_rw_224",
    ),
    63: (
        "qwen3_5_moe_text",
        "mask2former",
        "deepseek_vl_hybrid",
        "owlvit",
        "deberta",
        "data2vec-text",
        "granite_speech",
        "mamba",
        "dac",
        "minicpm_ocr",
        "timm:samvit_large_patch16",
        "timm:samvit_base_patch16_224",
        "timm:mobilenetv4_hybrid_large",
        "timm:mambaout_kobe",
        "timm:xcit_nano_12_p8_224",
        "timm:deit_base_patch16_224",
        "timm:res2net50_26w_4s",
        "timm:darknet21",
        "timm:xcit_medium_24_p16_384",
        "timm:hardcorenas_e",
    ),
}
"""By seed, those that were tried: of seed 0 with timm left out, of seeds 1 and 2 those that could be built. Verdicts
stand in docs/benchmarks.md."""


@dataclass(frozen=True)
class Outcome:
    """What became of one architecture.

    Attributes:
        failure: why there is no verdict: not built, not compiled, not run; empty otherwise.
        error: largest difference from eager, relative to the largest value.
        rounding: the same of eager in f32 from eager in f64, where `error` is above `TOLERANCE`.
        random: the model draws random numbers, so that numbers need not agree.
        verdict: of `verify`.
        reasons: why it is no ``yes``.
        slowdown: time of a call over eager's; 0 where it is not measured.
        seconds: to build, compile, run and verify it.
    """

    name: str
    failure: str = ""
    error: float = 0.0
    rounding: float = 0.0
    random: bool = False
    verdict: str = ""
    reasons: tuple[str, ...] = ()
    actions: int = 0
    sites: int = 0
    slowdown: float = 0.0
    seconds: float = 0.0


def tried(name: str, *, real: bool, times: bool) -> Outcome:
    """Compile one architecture, run it beside eager, and verify it."""
    start = time.perf_counter()
    outcome = Outcome(name)
    stage = "not built"
    try:
        chosen = built(name, real=real)
        expected = _eager(chosen)
        stage = ""
        exe = covan_mlir.compile_module(chosen.model, (), chosen.args)
        stage = "not run"
        given = tensors(exe(**chosen.args))
        stage = "not verified"
        verdict = exe.verify()
    except Exception as error:
        told = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return replace(outcome, failure=f"{stage}: {told}" if stage else told, seconds=time.perf_counter() - start)
    seconds = time.perf_counter() - start
    apart = difference(expected, given)
    reasons = [str(example) for example in verdict.counterexamples]
    reasons += [reason for check in verdict.checks for reason in check.missing]
    return replace(
        outcome,
        error=apart,
        # What eager itself makes of rounding: deep models with random weights can amplify it.
        rounding=0.0 if apart <= TOLERANCE else difference(_eager(chosen, torch.float64), expected),
        random=chosen.random,
        verdict=verdict.outcome,
        reasons=tuple(dict.fromkeys(reasons)),
        actions=len(exe.lineage.actions),
        sites=len(exe.lineage.sites),
        slowdown=_time(lambda: exe(**chosen.args)) / _time(lambda: _eager(chosen)) if times else 0.0,
        seconds=seconds,
    )


def _time(call: Callable[[], Any]) -> float:
    """Seconds, the median of five calls after one."""
    samples = []
    for _ in range(6):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return median(samples[1:])


def _eager(chosen: Built, dtype: torch.dtype | None = None) -> list[Tensor]:
    model, args = chosen.model, chosen.args
    if dtype is not None:
        model = copy.deepcopy(model).to(dtype)
        args = {name: value.to(dtype) if value.is_floating_point() else value for name, value in args.items()}
    with torch.no_grad():
        return [value.clone() for value in tensors(model(**args))]


def difference(expected: list[Tensor], given: list[Tensor]) -> float:
    """The largest difference, relative to the largest value of its tensor; infinite where shapes or NaN differ."""
    if [value.shape for value in expected] != [value.shape for value in given]:
        return math.inf
    worst = 0.0
    for left, right in zip(expected, given, strict=True):
        if left.numel():
            left, right = left.double(), right.double()
            if not torch.equal(left.isfinite(), right.isfinite()):
                return math.inf
            left, right = (value.nan_to_num(0.0, 0.0, 0.0) for value in (left, right))
            worst = max(worst, float((left - right).abs().max()) / (float(left.abs().max()) or 1.0))
    return worst


def _child(name: str, real: bool, times: bool, queue: Any) -> None:
    torch.set_num_threads(2 if times else 1)
    queue.put(tried(name, real=real, times=times))


def _apart(name: str, *, real: bool, times: bool) -> Outcome:
    """`tried` in a process of its own, which may crash or hang."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "transformers"])
    queue = context.Queue()
    child = context.Process(target=_child, args=(name, real, times, queue))
    child.start()
    outcome = Outcome(name, f"no answer within {LIMIT} s", seconds=LIMIT)
    for second in range(LIMIT):
        try:
            outcome = queue.get(timeout=1)
            break
        except queues.Empty:
            if not child.is_alive():
                outcome = Outcome(name, f"the process ended with {child.exitcode}", seconds=second)
                break
    child.kill()
    child.join()
    return outcome


def sample(seed: int, library: str) -> list[str]:
    """All names of a library in the order of a seed."""
    names = [name for name in known() if name.startswith("timm:") == (library == "timm")]
    return random.Random(seed).sample(names, len(names))


def _outcomes(options: argparse.Namespace) -> Iterator[Outcome]:
    apart = partial(_apart, real=options.real, times=options.times)
    if options.only:
        yield from map(apart, options.only)
        return
    for library in options.library:
        outcomes = (apart(name) for name in sample(options.seed, library)[options.skip :])
        yield from islice(
            (outcome for outcome in outcomes if not outcome.failure.startswith("not built")), options.count
        )


def _cells(outcome: Outcome) -> Iterator[object]:
    yield outcome.name
    yield outcome.failure.split(":")[0] or "yes"
    if outcome.failure:
        yield ""
    elif outcome.random:
        yield "random"
    elif outcome.error <= TOLERANCE:
        yield "agree"
    else:
        yield f"**{outcome.error:.1e}**, eager's rounding {outcome.rounding:.1e}"
    yield from (outcome.verdict, outcome.actions, outcome.sites, f"{outcome.seconds:.0f}")
    if outcome.slowdown:
        yield f"{outcome.slowdown:.2f}"
    yield outcome.failure or "; ".join(outcome.reasons[:2])


def main() -> None:
    """Print the table, one row per architecture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20, help="architectures of each library that can be built")
    parser.add_argument("--skip", type=int, default=0, help="names of the sample to leave out")
    parser.add_argument("--library", nargs="+", choices=LIBRARIES, default=LIBRARIES)
    parser.add_argument("--real", action="store_true", help="real widths and inputs")
    parser.add_argument("--times", action="store_true", help="calls beside eager's, too")
    parser.add_argument("--only", nargs="+", help="names, instead of a sample")
    options = parser.parse_args()
    head = ["architecture", "compiles", "numbers", "verify", "actions", "sites", "s", "why"]
    if options.times:
        head.insert(-1, "time / eager's")
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for outcome in _outcomes(options):
        print(f"| {' | '.join(map(str, _cells(outcome)))} |", flush=True)


if __name__ == "__main__":
    main()
