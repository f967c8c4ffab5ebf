"""Whole steps of training, side by side.

    python bench/training.py [mlp cnn residual images separable transformer long bert] [--attention | --overhead]

A step is forward, loss, backward and AdamW. *covan step* is `compile_training_step`; *covan* is
``torch.compile(model, backend="covan")`` with torch's optimizer; *torch.compile* compiles the model, and *whole* the
step with the optimizer in it. All start from the same parameters; *apart* is how far a loss is from eager's after some
steps. With ``--attention``, the backward of attention alone, beside SDPA's own; with ``--overhead``, what provenance
costs: a step compiled and made with it over without.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import common
import torch
import torch.nn.functional as F
import transformers as hf
from torch import Tensor, nn

import covan_mlir

STEPS = 5
"""After which losses are compared."""


@dataclass(frozen=True)
class Workload:
    """A model, its loss, and what it learns from."""

    model: nn.Module
    loss: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]
    targets: tuple[Tensor, ...]


class Block(nn.Module):
    """A layer of a transformer, norms first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        result: Tensor = x + self.down(F.gelu(self.up(self.second(x))))
        return result


class LanguageModel(nn.Module):
    """Of characters: two layers."""

    def __init__(self, tokens: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens)

    def forward(self, indices: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(self.blocks(self.embedding(indices) + self.places)))
        return logits.flatten(0, 1)


class Residual(nn.Module):
    """Two convolutions with BatchNorm beside what they are given: a basic block of ResNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(2):
            layers += [nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
        self.body = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = F.relu(x + self.body(x))
        return result


class Classes(nn.Module):
    """BERT-base with a head, as it is fine-tuned."""

    def __init__(self) -> None:
        super().__init__()
        self.model = hf.BertForSequenceClassification(hf.BertConfig(attn_implementation="sdpa", num_labels=4))

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens).logits
        return logits


def mlp() -> Workload:
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return Workload(model, F.cross_entropy, (torch.randn(128, 784),), (torch.randint(0, 10, (128,)),))


def cnn() -> Workload:
    def stage(channels: int, more: int) -> list[nn.Module]:
        return [nn.Conv2d(channels, more, 3, padding=1, bias=False), nn.BatchNorm2d(more), nn.ReLU(), nn.MaxPool2d(2)]

    layers = [*stage(3, 32), *stage(32, 64), *stage(64, 128), nn.Flatten(), nn.Linear(128 * 16, 10)]
    return Workload(
        nn.Sequential(*layers), F.cross_entropy, (torch.randn(32, 3, 32, 32),), (torch.randint(0, 10, (32,)),)
    )


def _classified(body: list[nn.Module], channels: int, *images: int) -> Workload:
    """Of images, by the means of what the body makes of them."""
    model = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))
    return Workload(model, F.cross_entropy, (torch.randn(*images),), (torch.randint(0, 10, images[:1]),))


def residual() -> Workload:
    return _classified([Residual(64), Residual(64)], 64, 32, 64, 16, 16)


def images() -> Workload:
    return _classified([Residual(64)], 64, 8, 64, 56, 56)


def separable() -> Workload:
    body: list[nn.Module] = []
    for channels, more in ((64, 64), (64, 128)):
        body += [nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False), nn.BatchNorm2d(channels)]
        body += [nn.ReLU(), nn.Conv2d(channels, more, 1, bias=False), nn.BatchNorm2d(more), nn.ReLU()]
    return _classified(body, 128, 16, 64, 28, 28)


def transformer() -> Workload:
    model = LanguageModel(tokens=96, width=256, heads=4, length=128)
    tokens = torch.randint(0, 96, (8, 129))
    return Workload(model, F.cross_entropy, (tokens[:, :-1],), (tokens[:, 1:].flatten(),))


def long() -> Workload:
    model = LanguageModel(tokens=96, width=256, heads=4, length=1024)
    tokens = torch.randint(0, 96, (2, 1025))
    return Workload(model, F.cross_entropy, (tokens[:, :-1],), (tokens[:, 1:].flatten(),))


def bert() -> Workload:
    model = Classes().eval()  # without dropout: its masks take most of the time of a short batch
    return Workload(model, F.cross_entropy, (torch.randint(0, 30000, (4, 32)),), (torch.randint(0, 4, (4,)),))


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "mlp": mlp,
    "cnn": cnn,
    "residual": residual,
    "images": images,
    "separable": separable,
    "transformer": transformer,
    "long": long,
    "bert": bert,
}


def steps(work: Workload) -> dict[str, Callable[[], Tensor]]:
    """Each way of making a step, as a call that makes one and gives its loss."""

    def learning(compiled: Callable[[nn.Module], Any]) -> tuple[Any, Callable[[], Tensor]]:
        model = copy.deepcopy(work.model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        run = compiled(model)

        def step() -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = work.loss(run(*work.inputs), *work.targets)
            torch.autograd.backward(loss)
            optimizer.step()
            return loss.detach()

        return optimizer, step

    _, eager = learning(lambda model: model)
    _, inductor = learning(torch.compile)
    _, whole = learning(lambda model: model)
    _, backend = learning(lambda model: torch.compile(model, backend="covan"))
    step = covan_mlir.compile_training_step(
        work.model, work.loss, lambda p: torch.optim.AdamW(p, lr=1e-4), (work.inputs, work.targets)
    )
    return {
        "eager": eager,
        "torch.compile": inductor,
        "whole": torch.compile(whole),
        "covan": backend,
        "covan step": partial(step, work.inputs, work.targets),
    }


def attention(causal: bool) -> dict[str, Callable[[], Any]]:
    """The backward of attention, 8 heads of 64 numbers, 1,024 places."""
    q, k, v = (torch.randn(1, 8, 1024, 64, requires_grad=True) for _ in range(3))
    weights = torch.randn(1, 8, 1024, 64)

    def attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q @ k.transpose(-2, -1) / 8
        if causal:
            scores = scores + torch.full((1024, 1024), float("-inf")).triu(1)
        return torch.softmax(scores, -1) @ v

    ways = {
        "sdpa": attended,
        "torch.compile": torch.compile(plain, dynamic=False),
        "torch.compile sdpa": torch.compile(attended, dynamic=False),
        "covan": torch.compile(plain, backend="covan", dynamic=False),
        "covan sdpa": torch.compile(attended, backend="covan", dynamic=False),
    }
    results = {name: way(q, k, v) for name, way in ways.items()}
    return {
        name: partial(torch.autograd.grad, result, (q, k, v), weights, retain_graph=True)
        for name, result in results.items()
    }


def overhead(name: str, options: Any) -> common.Row:
    """What provenance costs: compilations and steps with it over without, in turns."""
    work = WORKLOADS[name]()

    def compiled(provenance: bool) -> Callable[[], Tensor]:
        step = covan_mlir.compile_training_step(
            copy.deepcopy(work.model),
            work.loss,
            lambda p: torch.optim.AdamW(p, lr=1e-4),
            (work.inputs, work.targets),
            provenance=provenance,
        )
        return partial(step, work.inputs, work.targets)

    both = {"with": compiled(True), "without": compiled(False)}
    compiles = common.interleave(
        {who: partial(compiled, who == "with") for who in both}, rounds=3, warmup=0, collect=True
    )
    calls = common.interleave(both, rounds=options.rounds, seconds=options.seconds, warmup=3, settle=common.SETTLE)
    return {
        "step": name,
        "compile s": compiles["with"].median,
        "without": compiles["without"].median,
        "compile ratio": compiles["with"].over(compiles["without"]),
        "ms": calls["with"].median * 1e3,
        "ms without": calls["without"].median * 1e3,
        "ratio": calls["with"].over(calls["without"]),
    }


def rows(name: str, calls: dict[str, Callable[[], Any]], apart: dict[str, float], options: Any) -> list[common.Row]:
    times = common.interleave(
        calls, rounds=options.rounds, seconds=options.seconds, warmup=3, settle=common.SETTLE, pause=common.REST
    )
    return [
        {
            "what": name,
            "who": who,
            "ms": timing.median * 1e3,
            "eager / it": next(iter(times.values())).over(timing),
            "apart": apart.get(who),
        }
        for who, timing in times.items()
    ]


def main(names: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(WORKLOADS))
    parser.add_argument("--attention", action="store_true", help="the backward of attention alone")
    parser.add_argument("--overhead", action="store_true", help="what provenance costs")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args(names)
    if unknown := {*options.models} - WORKLOADS.keys():
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    table: list[common.Row] = []
    if options.overhead:
        table = [overhead(name, options) for name in options.models or ("mlp", "cnn", "transformer")]
        print(common.report("What provenance costs a step of training", common.machine(), [*table[0]], table))
        return
    if options.attention:
        for causal in (True, False):
            torch.compiler.reset()
            table += rows("causal" if causal else "full", attention(causal), {}, options)
    for name in [] if options.attention else options.models or WORKLOADS:
        torch.manual_seed(0)
        torch.compiler.reset()
        ways = steps(WORKLOADS[name]())
        losses = {who: [float(way()) for _ in range(STEPS)][-1] for who, way in ways.items()}
        apart = {who: abs(loss - losses["eager"]) / abs(losses["eager"]) for who, loss in losses.items()}
        table += rows(name, ways, apart, options)
    print(common.report("Milliseconds per step (medians)", common.machine(), [*table[0]], table, 130))


if __name__ == "__main__":
    main()
