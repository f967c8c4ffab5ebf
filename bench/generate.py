"""GPT-2 (124M) as a generator: greedy tokens per second while the cache grows, contenders side by side.

    python bench/generate.py [1 8] [--contenders covan onnxruntime] [--prompt 16] [--tokens 64]
        [--rounds 3] [--seconds 10] [--json generate.json]

Arguments are numbers of sequences; each gets a process of its own. One program per contender computes one token of
each sequence from the last one and the cache, whose length is known at run time only, and returns the cache grown by
one. All start from the same cache of a prompt. Results stay where a contender can leave them: ONNX Runtime's become its
next inputs, OpenVINO keeps the cache as a state. A contender whose tokens are not eager's is reported; a few may differ
where two are nearly as likely.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import peers
import torch
from torch import Tensor, nn
from torch.nn import functional

CONTENDERS = ("eager", "torch.compile", "onnxruntime", "openvino", peers.COVAN)
LAYERS, HEADS, WIDTH, VOCABULARY, POSITIONS = 12, 12, 768, 50257, 1024
BATCHES = ("1", "8")
SAME = 0.95
"""Part of the tokens that has to be eager's."""

Cache = tuple[Tensor, ...]
"""Keys and values of each layer in turn, each `[batch, heads, length, depth]`."""
Generate = Callable[[], Tensor]
"""-> tokens, `[batch, count]`."""


class Block(nn.Module):
    """A layer of GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate="tanh"), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch = x.shape[0]
        q, k, v = (
            part.reshape(batch, 1, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(self.before(x)).split(WIDTH, dim=-1)
        )
        keys, values = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
        attended = functional.scaled_dot_product_attention(q, keys, values)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, 1, WIDTH))
        x = x + self.mlp(self.between(x))
        return x, keys, values


class Step(nn.Module):
    """One token of each sequence: `[batch, 1]` last tokens and the cache to the next tokens and the cache.

    Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, in plain torch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.words.weight

    def forward(self, token: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        length = cache[0].shape[2]
        x = self.words(token) + self.places(torch.full((1, 1), length, dtype=torch.int64))
        grown: list[Tensor] = []
        for block, keys, values in zip(self.blocks, cache[::2], cache[1::2], strict=True):
            x, keys, values = block(x, keys, values)
            grown += [keys, values]
        return self.head(self.norm(x)).argmax(dim=-1), tuple(grown)


def _loop(step: Callable[[Tensor, Cache], tuple[Tensor, Cache]], token: Tensor, cache: Cache, count: int) -> Generate:
    def generate() -> Tensor:
        last, grown, tokens = token, cache, []
        for _ in range(count):
            last, grown = step(last, grown)
            tokens.append(last)
        return torch.cat(tokens, dim=1)

    return generate


def _lengths(cache: Cache) -> tuple[None, tuple[dict[int, Any], ...]]:
    """The cache's length is one size, known at run time only."""
    length = torch.export.Dim("length", min=2, max=POSITIONS - 1)
    return None, tuple({2: length} for _ in cache)


def _eager(model: Step, token: Tensor, cache: Cache, count: int) -> Generate:
    return _loop(model, token, cache, count)


def _torch_compile(model: Step, token: Tensor, cache: Cache, count: int) -> Generate:
    return _loop(torch.compile(model, dynamic=True, options={"freezing": True}), token, cache, count)


def _onnxruntime(model: Step, token: Tensor, cache: Cache, count: int) -> Generate:
    import onnxruntime

    session = peers.onnx_session(torch.export.export(model, (token, cache), dynamic_shapes=_lengths(cache)))
    binding = session.io_binding()
    inputs, outputs = ([value.name for value in values] for values in (session.get_inputs(), session.get_outputs()))
    first = [onnxruntime.OrtValue.ortvalue_from_numpy(x.numpy()) for x in (token, *cache)]

    def generate() -> Tensor:
        values, tokens = first, []
        for _ in range(count):
            for name, value in zip(inputs, values, strict=True):
                binding.bind_ortvalue_input(name, value)
            for name in outputs:  # of new sizes
                binding.bind_output(name, "cpu")
            session.run_with_iobinding(binding)
            values = binding.get_outputs()
            tokens.append(torch.from_numpy(values[0].numpy()))
        return torch.cat(tokens, dim=1)

    return generate


def _openvino(model: Step, token: Tensor, cache: Cache, count: int) -> Generate:
    import openvino
    from openvino._offline_transformations import apply_make_stateful_transformation

    exported = torch.export.export(model, (token, cache), dynamic_shapes=_lengths(cache))
    converted = openvino.convert_model(exported)
    names = []
    for at in range(len(cache)):
        before, after = converted.inputs[1 + at], converted.outputs[1 + at]
        before.get_tensor().set_names({f"before{at}"})
        after.get_tensor().set_names({f"after{at}"})
        names.append((f"before{at}", f"after{at}"))
    apply_make_stateful_transformation(converted, dict(names))
    request = peers.openvino_request(converted)
    states = {state.name: state for state in request.query_state()}
    first = {before + after: openvino.Tensor(x.numpy()) for (before, after), x in zip(names, cache, strict=True)}

    def generate() -> Tensor:
        last, tokens = openvino.Tensor(token.numpy()), []
        for name, value in first.items():
            states[name].state = value
        for _ in range(count):
            request.set_input_tensor(0, last)
            request.infer(share_outputs=True)
            array = request.get_output_tensor(0).data.copy()  # the next call writes there
            last = openvino.Tensor(array, shared_memory=True)
            tokens.append(torch.from_numpy(array))
        return torch.cat(tokens, dim=1)

    return generate


def _covan(model: Step, token: Tensor, cache: Cache, count: int) -> Generate:
    import covan_mlir

    exe = covan_mlir.compile_module(model, (token, cache), dynamic_shapes=_lengths(cache))
    return _loop(exe, token, cache, count)


_WAYS: dict[str, Callable[[Step, Tensor, Cache, int], Generate]] = {
    "eager": _eager,
    "torch.compile": _torch_compile,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    peers.COVAN: _covan,
}


def measure(batch: int, options: argparse.Namespace) -> common.Row:
    """All contenders on so many sequences, in this process."""
    torch.manual_seed(0)
    model = Step().eval()
    nn.init.normal_(model.words.weight, std=0.02)
    token = torch.randint(0, VOCABULARY, (batch, 1))
    cache: Cache = tuple(torch.randn(batch, HEADS, options.prompt, WIDTH // HEADS) for _ in range(2 * LAYERS))
    row: common.Row = {"batch": f"{batch}", "compile_s": {}, "fails": {}}
    expected = _eager(model, token, cache, options.tokens)()
    calls: dict[str, Generate] = {}
    for contender in options.contenders:

        def first(way: Callable[[Step, Tensor, Cache, int], Generate] = _WAYS[contender]) -> tuple[Generate, Tensor]:
            generate = way(model, token, cache, options.tokens)
            return generate, generate()

        try:
            (generate, tokens), seconds = common.once(first)
            same = float((tokens == expected).double().mean())
        except Exception as failure:  # a contender may fail in any way: that is a result
            row["fails"][contender] = common.short(failure)
            continue
        if same < SAME:
            row["fails"][contender] = f"wrong result: {same:.0%} of the tokens are eager's"
            continue
        calls[contender] = generate
        row["compile_s"][contender] = seconds
    times = common.interleave(calls, rounds=options.rounds, seconds=options.seconds, pause=common.REST)
    for contender, timing in times.items():
        row[contender] = batch * options.tokens / timing.median
    row |= {"best": peers.best(times), "ratio": peers.gain(times)}
    row["samples_s"] = {contender: list(timing.samples) for contender, timing in times.items()}
    return row


def main() -> None:
    assert __doc__
    parser = common.arguments(
        __doc__.splitlines()[0], rounds=3, seconds=10.0, what="batches", chosen="numbers of sequences"
    )
    parser.add_argument("--contenders", nargs="+", default=CONTENDERS, choices=CONTENDERS)
    parser.add_argument("--prompt", type=int, default=16, help="length of the cache at the start")
    parser.add_argument("--tokens", type=int, default=64, help="to generate in one sample")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    if options.child:
        with torch.no_grad():
            row = measure(int(options.batches[0]), options)
        options.child.write_text(json.dumps(row))
        return

    flags = ["--rounds", str(options.rounds), "--seconds", str(options.seconds), "--prompt", str(options.prompt)]
    flags += ["--tokens", str(options.tokens), "--contenders", *options.contenders]
    rows = []
    for batch in options.batches or BATCHES:
        print(f"batch {batch} ...", file=sys.stderr, flush=True)
        rows.append(common.in_child(__file__, "batch", batch, flags))
    machine = common.machine()
    print(common.report("Tokens per second", machine, ["batch", *options.contenders, "best", "ratio"], rows))
    for row in rows:
        for contender, reason in row["fails"].items():
            print(f"batch {row['batch']}: {contender} fails: {reason}")
    print(peers.summary({f"batch {row['batch']}": row.get("ratio") for row in rows}))
    if options.json:
        common.write_json(options.json, "generate", machine, rows)


if __name__ == "__main__":
    main()
