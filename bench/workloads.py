"""The models that are timed: two blocks each of common architectures, and models at their real size."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import transformers as hf
from peers import Model
from real_models import MODELS
from torch import nn
from transformers.integrations.executorch import register_dynamic_cache_export_support

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "models"))
from mobilenet_v2 import example_inputs as mobilenet_inputs
from mobilenet_v2 import mobilenet_v2
from transformer import example_inputs as transformer_inputs
from transformer import transformer

register_dynamic_cache_export_support()  # GPT-2 and Llama return a cache, which torch.export has to know


def ids(length: int, vocabulary: int = 1000) -> torch.Tensor:
    return torch.randint(3, vocabulary, (1, length))


def tiny() -> Model:
    """So little work that what is left is the cost of a call."""
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU()), (torch.randn(1, 4),), {}


def mobilenet() -> Model:
    return mobilenet_v2(0.25), mobilenet_inputs(224), {}


def blocks() -> Model:
    return transformer(), transformer_inputs(), {}


def gpt2(use_cache: bool = True) -> Model:
    config = hf.GPT2Config(
        vocab_size=1000,
        n_positions=128,
        n_embd=256,
        n_layer=2,
        n_head=4,
        use_cache=use_cache,
        bos_token_id=1,
        eos_token_id=2,
    )
    return hf.GPT2LMHeadModel(config), (ids(64),), {}


def gpt2_no_cache() -> Model:
    """Without the returned cache the stock path can import it: a comparison that all contenders can enter."""
    return gpt2(use_cache=False)


def llama() -> Model:
    config = hf.LlamaConfig(
        vocab_size=1000,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    return hf.LlamaForCausalLM(config), (ids(64),), {}


def bert() -> Model:
    config = hf.BertConfig(
        vocab_size=1000,
        hidden_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=1024,
        max_position_embeddings=128,
    )
    return hf.BertModel(config), (ids(128),), {}


def distilbert() -> Model:
    config = hf.DistilBertConfig(
        vocab_size=1000, dim=256, n_layers=2, n_heads=4, hidden_dim=1024, max_position_embeddings=128
    )
    return hf.DistilBertModel(config), (ids(128),), {}


def t5_encoder() -> Model:
    config = hf.T5Config(vocab_size=1000, d_model=256, d_kv=64, d_ff=1024, num_layers=2, num_heads=4)
    return hf.T5EncoderModel(config), (ids(64),), {}


def vit() -> Model:
    config = hf.ViTConfig(
        image_size=96,
        patch_size=16,
        hidden_size=192,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=768,
    )
    return hf.ViTForImageClassification(config), (torch.randn(1, 3, 96, 96),), {}


def convnext() -> Model:
    config = hf.ConvNextConfig(hidden_sizes=[24, 48, 96, 192], depths=[1, 1, 2, 1])
    return hf.ConvNextForImageClassification(config), (torch.randn(1, 3, 96, 96),), {}


def resnet() -> Model:
    config = hf.ResNetConfig(
        embedding_size=32, hidden_sizes=[32, 64, 128, 256], depths=[1, 1, 2, 1], layer_type="basic"
    )
    return hf.ResNetForImageClassification(config), (torch.randn(1, 3, 128, 128),), {}


def whisper_encoder() -> Model:
    config = hf.WhisperConfig(
        vocab_size=1000,
        num_mel_bins=80,
        d_model=256,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=1024,
        decoder_layers=1,
        decoder_attention_heads=4,
        max_source_positions=150,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    return hf.WhisperModel(config).get_encoder(), (torch.randn(1, 80, 300),), {}


def mnist_cnn() -> Model:
    """Digits of 28 by 28."""
    layers: list[nn.Module] = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10), nn.LogSoftmax(1)]
    return nn.Sequential(*layers), (torch.rand(1, 1, 28, 28),), {}


def kws_cnn() -> Model:
    """Words of a second of speech, by ten features of each 20 ms: DS-CNN (Zhang et al. 2017, "Hello Edge", small)."""

    def normed(conv: nn.Conv2d) -> list[nn.Module]:
        return [conv, nn.BatchNorm2d(conv.out_channels), nn.ReLU()]

    layers = normed(nn.Conv2d(1, 64, (10, 4), stride=2, padding=(5, 1)))
    for _ in range(4):
        layers += normed(nn.Conv2d(64, 64, 3, padding=1, groups=64)) + normed(nn.Conv2d(64, 64, 1))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12)]
    return nn.Sequential(*layers), (torch.randn(1, 1, 49, 10),), {}


_SMALL = (
    tiny,
    mobilenet,
    blocks,
    gpt2,
    gpt2_no_cache,
    llama,
    bert,
    distilbert,
    t5_encoder,
    vit,
    convnext,
    resnet,
    whisper_encoder,
)

_EMBEDDED = (mnist_cnn, kws_cnn)

WORKLOADS: dict[str, Callable[[], Model]] = {f.__name__: f for f in (*_SMALL, *_EMBEDDED, *MODELS)}
GROUPS: dict[str, tuple[str, ...]] = {
    "small": tuple(f.__name__ for f in _SMALL),
    "embedded": tuple(f.__name__ for f in _EMBEDDED),
    "real": ("mobilenet", *(f.__name__ for f in MODELS)),  # MobileNetV2-0.25 is small as it is
}


def build(name: str) -> Model:
    """A workload in eval mode; the weights depend on its name only."""
    torch.manual_seed(0)
    model, args, kwargs = WORKLOADS[name]()
    return model.eval(), args, kwargs
