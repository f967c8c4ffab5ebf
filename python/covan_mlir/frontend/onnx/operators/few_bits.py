"""Products with weights of few bits, in blocks of a column that share a scale, as ONNX Runtime packs them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.registry import MICROSOFT, operator
from covan_mlir.frontend.translation.refused import Refused
from covan_mlir.frontend.translation.value import constant

_BITS = (4, 8)


def _unpacked(bytes_: Tensor, bits: int) -> Tensor:
    """Numbers of few bits of bytes, the last axis of which has the first number in its lowest bits."""
    if bits == 8:
        return bytes_
    return torch.stack((bytes_ & 15, bytes_ >> 4), -1).flatten(-2)


def _zeros(call: Call, bits: int, shape: tuple[int, int]) -> Tensor | None:
    """The zero points of blocks, integers or floats; None: all are the middle of the range."""
    if not call.has(3):
        return None
    given = call.known(3)
    if given.dtype.is_floating_point:
        zeros = given.reshape(shape).to(torch.float32)
    else:
        zeros = _unpacked(given.view(torch.uint8).reshape(shape[0], -1), bits)[:, : shape[1]]
    return None if bool((zeros == 2 ** (bits - 1)).all()) else zeros


@operator("MatMulNBits", domain=MICROSOFT, since=1)
def matmul_nbits(call: Call) -> Tensor:
    """A product with a matrix of 4 or 8 bits: ``a @ ((b - zero) * scale).T``, plus a bias. Its steps are weights of the
    program, a byte each; where the middle of their range stands for 0, they have a sign."""
    bits, block = call.integer("bits", 4), call.integer("block_size")
    columns, depth = call.integer("N"), call.integer("K")
    if bits not in _BITS:
        raise Refused(f"its weight has {bits} bits: {' and '.join(map(str, _BITS))} are translated")
    if call.has(4):
        raise Refused("its blocks are in another order (g_idx)")
    if block < 2 or columns < 1 or depth < 1:
        raise Refused(f"it has blocks of {block}, N={columns} and K={depth}")
    blocks, middle = -(-depth // block), 2 ** (bits - 1)
    with _disable_current_modes():
        packed = call.known(1).view(torch.uint8)
        if packed.numel() * 8 != columns * blocks * block * bits:
            raise Refused(f"its weight has {packed.numel()} bytes, not {columns * blocks * block * bits // 8}")
        if call.tensor(2).numel() != columns * blocks:
            raise Refused(f"it has {call.tensor(2).numel()} scales, not {columns * blocks}")
        held = _unpacked(packed.reshape(columns, -1), bits).reshape(columns, blocks, block)
        zeros = _zeros(call, bits, (columns, blocks))
        if zeros is None:
            held = (held.to(torch.int16) - middle).to(torch.int8)
    steps = constant(held).tensor
    if bits == 4:  # which tells that they are few
        steps = steps.clamp(-8, 7) if zeros is None else steps.clamp(0, 15)
    real = steps.to(torch.float32)
    if zeros is not None:
        real = real - constant(zeros.unsqueeze(-1)).tensor.to(torch.float32)
    scales = call.tensor(2).reshape(columns, blocks, 1).to(torch.float32)
    weight = (real * scales).reshape(columns, blocks * block)
    first = call.tensor(0)
    given = first.to(torch.float32)
    if blocks * block > depth:  # of the last block there is less: what is behind it is multiplied by 0
        given = torch.nn.functional.pad(given, (0, blocks * block - depth))
    bias = call.optional(5)
    result = torch.nn.functional.linear(given, weight, None if bias is None else bias.to(torch.float32))
    return result.to(first.dtype)
