"""Fourier transforms and what prepares them."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.registry import operator
from covan_mlir.frontend.translation.refused import Refused


@operator("DFT", since=17)
def dft(call: Call) -> Tensor:
    """Of real or complex numbers, which are pairs on the last axis."""
    value = call.tensor(0)
    axis = int(call.number(2, -2)) if call.opset >= 20 else call.integer("axis", 1)
    axis %= value.dim()
    inverse, onesided = bool(call.integer("inverse")), bool(call.integer("onesided"))
    length = int(call.number(1, value.shape[axis])) if call.has(1) else value.shape[axis]
    if inverse and onesided:
        signal = torch.view_as_complex(value.contiguous())
        return torch.fft.irfft(signal, length if call.has(1) else None, axis).unsqueeze(-1)
    if value.shape[-1] == 1:
        real = value.squeeze(-1)
        if onesided:
            return torch.view_as_real(torch.fft.rfft(real, length, axis))
        signal = torch.complex(real, torch.zeros_like(real))
    else:
        signal = torch.view_as_complex(value.contiguous())
    function = torch.fft.ifft if inverse else torch.fft.fft
    result = torch.view_as_real(function(signal, length, axis))
    return result.narrow(axis, 0, length // 2 + 1) if onesided else result


@operator("STFT", since=17)
def stft(call: Call) -> Tensor:
    """Fourier transforms of overlapping frames."""
    value, step = call.tensor(0), int(call.number(1, 1))
    window = call.optional(2)
    length = int(call.number(3, 0)) if call.has(3) else 0
    if not length:
        if window is None:
            raise Refused("neither a window nor a frame length is given")
        length = window.shape[0]
    onesided = bool(call.integer("onesided", 1))
    if value.dim() == 3 and value.shape[-1] == 2:
        frames = value.unfold(1, length, step).movedim(-1, 2)  # [batch, frames, length, 2]
        frames = frames if window is None else frames * window.reshape(1, 1, -1, 1)
        result = torch.fft.fft(torch.view_as_complex(frames.contiguous()), dim=2)
        if onesided:
            result = result.narrow(2, 0, length // 2 + 1)
        return torch.view_as_real(result)
    frames = value.reshape(value.shape[0], -1).unfold(1, length, step)
    frames = frames if window is None else frames * window
    if onesided:
        return torch.view_as_real(torch.fft.rfft(frames))
    return torch.view_as_real(torch.fft.fft(torch.complex(frames, torch.zeros_like(frames))))


@operator("HannWindow", "HammingWindow", "BlackmanWindow", since=17)
def window(call: Call) -> Tensor:
    """A sum of cosines over a number of steps."""
    size = int(call.number(0, 1))
    periods = size if call.integer("periodic", 1) else size - 1
    dtype = call.dtype("output_datatype")
    x = torch.arange(size).to(torch.float64) * (2 * math.pi / periods)
    kind = call.node.op_type
    if kind == "BlackmanWindow":
        return (0.42 - 0.5 * torch.cos(x) + 0.08 * torch.cos(2 * x)).to(dtype)
    alpha = 0.5 if kind == "HannWindow" else 25.0 / 46.0
    return (alpha - (1 - alpha) * torch.cos(x)).to(dtype)


@operator("MelWeightMatrix", since=17)
def mel_weight_matrix(call: Call) -> Tensor:
    """Weights of frequencies in bands that are equally far apart on the mel scale."""
    bands, length, rate = (int(call.number(index, 0)) for index in range(3))
    low, high = float(call.number(3, 0.0)), float(call.number(4, 0.0))
    bins = np.arange(bands + 2)
    mel_low, mel_high = (2595.0 * math.log10(1.0 + f / 700.0) for f in (low, high))
    mels = bins * ((mel_high - mel_low) / bins.shape[0]) + mel_low
    edges = ((length + 1) * (700.0 * (10.0 ** (mels / 2595.0) - 1.0)) // rate).astype(int)
    matrix = np.zeros((length // 2 + 1, bands), np.float32)
    for band in range(bands):
        left, middle, right = (int(edges[band + k]) for k in range(3))
        if middle == left:
            matrix[middle, band] = 1.0
        else:
            for place in range(left, middle + 1):
                matrix[place, band] = (place - left) / (middle - left)
        for place in range(middle, right):
            matrix[place, band] = (right - place) / (right - middle)
    return torch.from_numpy(matrix).to(call.dtype("output_datatype"))
