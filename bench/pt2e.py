"""Models as torch's exporter quantises them (PT2E, of torchao)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def exported_steps(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> nn.Module:
    """A model quantised for x86: weights by channels, what they multiply as a whole, calibrated with the arguments."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer().set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(torch.export.export(model, args, kwargs).module(), quantizer)
    with torch.no_grad():
        prepared(*args, **(kwargs or {}))
    quantised: nn.Module = convert_pt2e(prepared)
    return quantised
