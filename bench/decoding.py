"""GPT-2's next token with weights of fewer bits, side by side.

    python bench/decoding.py [--past 512] [--rounds 15] [--seconds 4]

One token behind `past` others, whose keys and values are arguments, at the real size (124 M numbers, random). covan
multiplies by weights in f32, in 8 bits (a scale for each column) and in 4 (groups of 128); ONNX Runtime in f32 and in 4
bits (its own quantiser, blocks of 128); eager, `torch.compile` and OpenVINO in f32. *Weights* are what a token reads of
them, in MB, and *of copy* is that rate over what the machine copies.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import common
import peers
import torch
import transformers as hf
from quantised import onnxruntime_call, openvino_call
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

import covan_mlir
from covan_mlir.quantizing.scheme import Mode

BITS = {"covan": 32, "covan int8": 8, "covan int4": 4}
MODES: dict[str, Mode] = {"covan int8": "weights-int8", "covan int4": "weights-int4"}


class NextToken(nn.Module):
    """A language model's call for one token: logits, and the token's keys and values."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, token: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        cache = DynamicCache()
        for layer in range(keys.shape[0]):
            cache.update(keys[layer], values[layer], layer)
        given = self.model(token, past_key_values=cache, use_cache=True)
        layers = given.past_key_values.layers
        new = [torch.stack([getattr(one, kind)[:, :, -1:] for one in layers]) for kind in ("keys", "values")]
        return given.logits, *new


def workload(past: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The model, and arguments with so many tokens before this one."""
    torch.manual_seed(0)
    config = hf.GPT2Config(attn_implementation="sdpa")
    shape = (config.n_layer, 1, config.n_head, past, config.n_embd // config.n_head)
    args = (torch.randint(0, config.vocab_size, (1, 1)), torch.randn(shape), torch.randn(shape))
    return NextToken(hf.GPT2LMHeadModel(config)).eval(), args


def onnx_files(model: nn.Module, args: tuple[Tensor, ...], folder: Path) -> dict[str, Path]:
    """The model in f32, and as ONNX Runtime's quantiser has it with weights of 4 bits."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    files = {"f32": folder / "plain.onnx", "int4": folder / "four.onnx"}
    program = peers.onnx_program(torch.export.export(model, args))
    program.save(files["f32"])
    quantizer = MatMulNBitsQuantizer(program.model_proto, block_size=128, is_symmetric=True)
    quantizer.process()
    quantizer.model.save_model_to_file(str(files["int4"]), use_external_data_format=True)
    return files


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--past", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    model, args = workload(options.past)
    plain: peers.Model = (model, args, {})
    calls: dict[str, Callable[[], Any]] = {
        name: peers.prepare(name, plain) for name in ("eager", "torch.compile", "covan")
    }
    off = {}
    with torch.no_grad():
        exact = model(*args)[0]
    for name, mode in MODES.items():
        quantised = covan_mlir.quantize(model, args=args, mode=mode)
        exe = quantised.compile()
        calls[name] = partial(exe, *args)
        with torch.no_grad():
            want = quantised.exported.module()(*args)[0]
        off[name] = peers.relative_error(exe(*args)[0], want), peers.relative_error(want, exact)
    with tempfile.TemporaryDirectory() as folder:
        files = onnx_files(model, args, Path(folder))
        feed = {name: one.numpy() for name, one in zip(("token", "keys", "values"), args, strict=True)}
        for bits, file in files.items():
            calls[f"onnxruntime {bits}"] = onnxruntime_call(file, feed)
        calls["openvino f32"] = openvino_call(files["f32"], feed)
        times = common.interleave(
            calls, rounds=options.rounds, seconds=options.seconds, warmup=3, settle=common.SETTLE, pause=common.REST
        )
    numbers = sum(one.numel() for name, one in model.named_parameters() if "wpe" not in name)
    host = common.machine()
    rows: list[common.Row] = []
    for name, timing in times.items():
        size = numbers * BITS[name] / 8e6 if name in BITS else None
        rows.append(
            {
                "who": name,
                "ms": timing.median * 1e3,
                "covan f32 / it": times["covan"].over(timing),
                "weights": size,
                "GB/s": size / timing.median / 1e3 if size else None,
                "apart": off[name][0] if name in off else None,
                "quantised": off[name][1] if name in off else None,
            }
        )
    print(common.report("Milliseconds per token (medians)", host, [*rows[0]], rows, 130))


if __name__ == "__main__":
    main()
