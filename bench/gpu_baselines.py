"""What torch offers for the cases of `gpu_fused_reductions`: plain code, compiled code, attention of its libraries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

ROWS = ("softmax", "log_softmax", "logsumexp", "layer_norm", "rms_norm", "var", "cross_entropy", "entropy")
CAP = 20.0


def plain(variant: str) -> Callable[..., Tensor]:
    """A case in plain torch code."""
    F = torch.nn.functional
    rows: dict[str, Callable[..., Tensor]] = {
        "softmax": lambda x: torch.softmax(x, -1),
        "log_softmax": lambda x: torch.log_softmax(x, -1),
        "logsumexp": lambda x: torch.logsumexp(x, -1),
        "layer_norm": lambda x, g, b: F.layer_norm(x, x.shape[-1:], g, b),
        "rms_norm": lambda x, g: F.rms_norm(x, x.shape[-1:], g, 1e-5),
        "var": lambda x: torch.var(x, -1, correction=0),
        "cross_entropy": lambda x, t: F.cross_entropy(x, t, reduction="none"),
        "entropy": lambda x: -(torch.softmax(x, -1) * torch.log_softmax(x, -1)).sum(-1),
    }
    if variant in rows:
        return rows[variant]

    def attend(q: Tensor, k: Tensor, v: Tensor, slope: Tensor | None = None) -> Tensor:
        if q.dim() > k.dim():
            k, v = k[:, None], v[:, None]
        s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        queries, keys = s.shape[-2:]
        at = torch.arange(queries, device=s.device)[:, None] + keys - queries
        j = torch.arange(keys, device=s.device)[None]
        if variant == "softcap":
            s = torch.tanh(s / CAP) * CAP
        if slope is not None:
            s = s + slope[..., None, None] * (j - at)
        if variant in ("causal", "alibi"):
            s = s.masked_fill(j > at, -math.inf)
        return (torch.softmax(s.float(), -1).to(v.dtype) @ v) if slope is None else torch.softmax(s, -1).to(v.dtype) @ v

    return attend


def _heads(inputs: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values with one batch, as torch's own attention takes them."""
    q, k, v = inputs[:3]
    return q.reshape(1, -1, *q.shape[-2:]), k[None], v[None]


def baselines(variant: str, inputs: list[Tensor]) -> Iterator[tuple[str, Callable[[], Callable[[], Tensor]]]]:
    code = plain(variant)

    def compiled() -> Callable[[], Tensor]:
        torch._dynamo.reset()
        call = torch.compile(code, dynamic=False)
        return lambda: call(*inputs)

    yield "torch.compile", compiled
    if variant in ROWS:
        yield "eager", lambda: lambda: code(*inputs)
        return
    q, k, v = _heads(inputs)
    queries, keys = q.shape[-2], k.shape[-2]
    grouped = variant == "gqa"
    if variant not in ("softcap", "alibi"):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        backends = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "math": SDPBackend.MATH}
        for name, backend in backends.items():

            def attend(backend: Any = backend) -> Callable[[], Tensor]:
                def call() -> Tensor:
                    with sdpa_kernel(backend):
                        return torch.nn.functional.scaled_dot_product_attention(
                            q, k, v, is_causal=variant == "causal" and queries == keys, enable_gqa=grouped
                        )

                return call

            if name != "math" or queries * keys * q.shape[1] < 2**31:
                yield f"sdpa {name}", attend

    def flex() -> Callable[[], Tensor]:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        score: Any = None
        mask: Any = None
        if variant == "softcap":

            def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
                return torch.tanh(s / CAP) * CAP

        if variant == "alibi":

            def score(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
                return s + inputs[3][h] * (j - i - keys + queries)

        if variant in ("causal", "alibi"):

            def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
                return j <= i + keys - queries

            mask = create_block_mask(seen, None, None, queries, keys, device="cuda")
        torch._dynamo.reset()
        call = torch.compile(flex_attention, dynamic=False)
        return lambda: call(q, k, v, score_mod=score, block_mask=mask, enable_gqa=grouped)

    yield "flex", flex
    if variant in ("global", "causal") and queries == keys and queries % 128 == 0:

        def by_hand() -> Callable[[], Tensor]:
            from triton_attention import attention

            return lambda: attention(inputs[0], inputs[1], inputs[2], variant == "causal")

        yield "triton", by_hand
