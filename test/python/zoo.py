"""The models the tests compile: tiny, seeded, structurally complete.

Every entry is what a user would hand to `covan_mlir.compile_module`: a library model built from its config,
in eval mode, exported as it is. No wrapper pulls a tensor out of an output dataclass and no keyword hides a
cache, because the structures around the tensors are part of what the compiler has to get right. Where an
argument departs from the library's default for another reason than size, a comment beside it says which.

`ZOO` maps a name to a factory that gives `(module, args, kwargs)`; models with attention stand twice, as
`name-sdpa` (the fused operator) and `name-eager` (matmul, softmax, matmul).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from torch import Tensor, nn
from transformers.integrations.executorch import register_dynamic_cache_export_support

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "models"))
from mobilenet_v2 import example_inputs as mobilenet_inputs
from mobilenet_v2 import mobilenet_v2
from transformer import example_inputs as transformer_inputs
from transformer import transformer

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Model = tuple[nn.Module, Args, Kwargs]
Factory = Callable[[], Model]

ATTENTION = ("sdpa", "eager")
VOCAB = 97
"""A prime, so that no tile size divides it."""

ZOO: dict[str, Factory] = {}

# torch.export refuses the key-value caches that GPT-2 and Llama return unless they are pytrees. This is the
# library's own call for that, and it lets use_cache keep its default.
register_dynamic_cache_export_support()


def model(factory: Factory) -> Factory:
    """Register a model without a choice of attention under the name of its function."""
    ZOO[factory.__name__] = factory
    return factory


def with_attention(factory: Callable[[str], Model]) -> Callable[[str], Model]:
    """Register one model per attention implementation."""
    for attention in ATTENTION:
        ZOO[f"{factory.__name__}-{attention}"] = lambda attention=attention: factory(attention)  # type: ignore[misc]
    return factory


def build(name: str) -> Model:
    """Build a model of the zoo.

    The seed is set here, not in the factories, so that the weights do not depend on which models came before.
    """
    torch.manual_seed(0)
    module, args, kwargs = ZOO[name]()
    settle_batch_norms(module)
    return module.eval(), args, kwargs


def settle_batch_norms(module: nn.Module) -> None:
    """Give BatchNorms statistics that a trained network would have.

    The initial mean 0 and variance 1 make normalisation the identity, and wrong folding invisible.
    """
    for m in module.modules():
        if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d) and m.running_mean is not None:
            assert m.running_var is not None
            nn.init.normal_(m.running_mean, std=0.1)
            nn.init.uniform_(m.running_var, 0.5, 1.5)


def tokens(batch: int, length: int) -> Tensor:
    return torch.randint(3, VOCAB, (batch, length))


def image(size: int, batch: int = 1) -> Tensor:
    return torch.randn(batch, 3, size, size)


# Transformers over text ------------------------------------------------------------------------------


@with_attention
def bert(attention: str) -> Model:
    config = hf.BertConfig(
        vocab_size=VOCAB,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=40,
        attn_implementation=attention,
    )
    ids = tokens(2, 12)
    mask = torch.ones_like(ids)
    mask[1, 9:] = 0  # a padded batch: masking is half of BERT's attention
    return hf.BertModel(config), (), {"input_ids": ids, "attention_mask": mask}


@with_attention
def distilbert(attention: str) -> Model:
    config = hf.DistilBertConfig(
        vocab_size=VOCAB,
        dim=48,
        n_layers=2,
        n_heads=4,
        hidden_dim=96,
        max_position_embeddings=40,
        attn_implementation=attention,
    )
    return hf.DistilBertForSequenceClassification(config), (tokens(2, 12),), {}


@with_attention
def gpt2(attention: str) -> Model:
    config = hf.GPT2Config(
        vocab_size=VOCAB,
        n_positions=40,
        n_embd=48,
        n_layer=2,
        n_head=4,
        bos_token_id=1,
        eos_token_id=2,
        attn_implementation=attention,
    )
    return hf.GPT2LMHeadModel(config), (tokens(1, 12),), {}


@with_attention
def llama(attention: str) -> Model:
    config = hf.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        attn_implementation=attention,
    )
    return hf.LlamaForCausalLM(config), (tokens(1, 12),), {}


@with_attention
def t5_encoder(attention: str) -> Model:
    config = hf.T5Config(
        vocab_size=VOCAB,
        d_model=48,
        d_kv=12,
        d_ff=96,
        num_layers=2,
        num_heads=4,
        attn_implementation=attention,
    )
    return hf.T5EncoderModel(config), (tokens(1, 12),), {}


# Vision and speech -----------------------------------------------------------------------------------


@with_attention
def vit(attention: str) -> Model:
    config = hf.ViTConfig(
        image_size=32,
        patch_size=8,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        num_labels=10,
        attn_implementation=attention,
    )
    return hf.ViTForImageClassification(config), (), {"pixel_values": image(32)}


@with_attention
def whisper_encoder(attention: str) -> Model:
    config = hf.WhisperConfig(
        vocab_size=VOCAB,
        num_mel_bins=16,
        d_model=48,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=96,
        decoder_layers=1,
        decoder_attention_heads=4,
        decoder_ffn_dim=96,
        max_source_positions=20,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        attn_implementation=attention,
    )
    mel = torch.randn(1, 16, 40)  # frames = 2 * max_source_positions, checked by the model
    return hf.WhisperModel(config).get_encoder(), (mel,), {}


@model
def convnext() -> Model:
    config = hf.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1], num_labels=10)
    return hf.ConvNextForImageClassification(config), (image(64),), {}


@model
def resnet() -> Model:
    config = hf.ResNetConfig(
        embedding_size=8,
        hidden_sizes=[16, 24, 32, 40],
        depths=[1, 2, 1, 1],
        layer_type="bottleneck",
        num_labels=10,
    )
    return hf.ResNetForImageClassification(config), (image(48),), {}


@model
def mobilenet_v2_hf() -> Model:
    config = hf.MobileNetV2Config(depth_multiplier=0.25, image_size=64, num_labels=10)
    return hf.MobileNetV2ForImageClassification(config), (image(64),), {}


# Plain torch -----------------------------------------------------------------------------------------


@model
def mobilenet() -> Model:
    return mobilenet_v2(0.25, classes=10), mobilenet_inputs(64), {}


@model
def two_blocks() -> Model:
    return transformer(dim=64, heads=4, seq=16), transformer_inputs(dim=64, seq=16), {}


@model
def two_blocks_causal() -> Model:
    return transformer(dim=64, heads=4, seq=16, causal=True), transformer_inputs(dim=64, seq=16), {}


@model
def lstm() -> Model:
    return nn.LSTM(12, 16, num_layers=2, batch_first=True), (torch.randn(2, 5, 12),), {}


@model
def gru() -> Model:
    module = nn.GRU(12, 16, num_layers=2, batch_first=True, bidirectional=True)
    return module, (torch.randn(2, 5, 12),), {}


@model
def cnn() -> Model:
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, stride=2, bias=True),
        nn.BatchNorm2d(12),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(12, 5),
        nn.LogSoftmax(dim=-1),
    )
    return module, (image(20, batch=2),), {}
