"""Recurrent layers, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.registry import operator
from covan_mlir.frontend.translation.refused import Refused

STEPS = 4096
"""Steps of a sequence, at most: each is written out."""
_ACTIVATIONS: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "relu": lambda v, a, b: torch.relu(v),
    "tanh": lambda v, a, b: torch.tanh(v),
    "sigmoid": lambda v, a, b: torch.sigmoid(v),
    "affine": lambda v, a, b: a * v + b,
    "leakyrelu": lambda v, a, b: torch.nn.functional.leaky_relu(v, a),
    "thresholdedrelu": lambda v, a, b: torch.where(v > a, v, torch.zeros_like(v)),
    "scaledtanh": lambda v, a, b: a * torch.tanh(b * v),
    "hardsigmoid": lambda v, a, b: torch.clamp(a * v + b, 0.0, 1.0),
    "elu": lambda v, a, b: torch.nn.functional.elu(v, a),
    "softsign": lambda v, a, b: torch.nn.functional.softsign(v),
    "softplus": lambda v, a, b: torch.nn.functional.softplus(v),
}
_ALPHAS = {"leakyrelu": 0.01, "thresholdedrelu": 1.0, "hardsigmoid": 0.2, "elu": 1.0, "affine": 1.0, "scaledtanh": 1.0}
_BETAS = {"hardsigmoid": 0.5, "scaledtanh": 1.0}


class _Layer:
    """What is common to the three kinds: directions, activations, lengths of sequences."""

    def __init__(self, call: Call, functions: list[str]) -> None:
        self.call = call
        self.directions = 2 if call.text("direction", "forward") == "bidirectional" else 1
        self.backward = call.text("direction", "forward") == "reverse"
        names = [name.lower() for name in call.texts("activations")] or functions * self.directions
        alphas, betas = iter(call.reals("activation_alpha") or []), iter(call.reals("activation_beta") or [])
        self.functions: list[Callable[[Tensor], Tensor]] = []
        clip = call.real("clip") if call.given("clip") else None
        for name in names:
            if name not in _ACTIVATIONS:
                raise Refused(f"its activation {name!r} is not known")
            alpha = next(alphas, _ALPHAS.get(name, 0.0)) if name in _ALPHAS else 0.0
            beta = next(betas, _BETAS.get(name, 0.0)) if name in _BETAS or name == "affine" else 0.0
            self.functions.append(self._activation(name, alpha, beta, clip))
        self.value = call.tensor(0)
        self.batch_first = bool(call.integer("layout"))
        if self.batch_first:
            self.value = self.value.transpose(0, 1)
        if not isinstance(self.value.shape[0], int) or self.value.shape[0] > STEPS:
            raise Refused("the length of its sequence is open, or very long")
        self.lengths = call.optional(4)
        self.hidden = call.tensor(2).shape[-1]

    @staticmethod
    def _activation(name: str, alpha: float, beta: float, clip: float | None) -> Callable[[Tensor], Tensor]:
        function = _ACTIVATIONS[name]
        if clip is None:
            return lambda v: function(v, alpha, beta)
        return lambda v: function(torch.clamp(v, -clip, clip), alpha, beta)

    def state(self, index: int, direction: int) -> Tensor:
        """A state before the first step."""
        given = self.call.optional(index)
        if given is None:
            return torch.zeros(self.value.shape[1], self.hidden, dtype=self.value.dtype)
        return given[:, direction] if self.batch_first else given[direction]

    def run(self, step: Callable[[int, Tensor, Any], Any], states: int) -> tuple[Tensor, list[Tensor]]:
        """All steps of all directions; -> (outputs [steps, directions, batch, hidden], last states)."""
        outputs, last = [], []
        for direction in range(self.directions):
            turned = self.backward or direction == 1
            carried = [self.state(5 + k, direction) for k in range(states)]
            count = self.value.shape[0]
            rows: list[Any] = [None] * count
            order = range(count - 1, -1, -1) if turned else range(count)
            for t in order:
                new = step(direction, self.value[t], carried)
                if self.lengths is not None:
                    inside = (self.lengths > t).unsqueeze(-1)
                    rows[t] = torch.where(inside, new[0], torch.zeros_like(new[0]))
                    carried = [torch.where(inside, n, c) for n, c in zip(new, carried, strict=True)]
                else:
                    rows[t], carried = new[0], list(new)
            outputs.append(torch.stack(rows))
            last.append(carried)
        finals = [torch.stack([carried[k] for carried in last]) for k in range(states)]
        whole = torch.stack(outputs, 1)
        if self.batch_first:
            return whole.permute(2, 0, 1, 3), [final.transpose(0, 1) for final in finals]
        return whole, finals

    def biases(self, direction: int, gates: int) -> tuple[list[Any], list[Any]]:
        """Of input and of recurrence, for each gate."""
        bias = self.call.optional(3)
        if bias is None:
            return [None] * gates, [None] * gates
        rows = bias[direction].split(self.hidden)
        return list(rows[:gates]), list(rows[gates:])


@operator("RNN")
def rnn(call: Call) -> Any:
    """One gate."""
    layer = _Layer(call, ["tanh"])

    def step(direction: int, value: Tensor, carried: list[Tensor]) -> tuple[Tensor, ...]:
        w, r = call.tensor(1)[direction], call.tensor(2)[direction]
        (wb,), (rb,) = layer.biases(direction, 1)
        total = torch.nn.functional.linear(value, w, wb) + torch.nn.functional.linear(carried[0], r, rb)
        return (layer.functions[direction](total),)

    whole, (hidden,) = layer.run(step, 1)
    return whole, hidden


@operator("GRU")
def gru(call: Call) -> Any:
    """Gates: update, reset, hidden."""
    layer = _Layer(call, ["sigmoid", "tanh"])
    before = not call.integer("linear_before_reset")
    linear = torch.nn.functional.linear

    def step(direction: int, value: Tensor, carried: list[Tensor]) -> tuple[Tensor, ...]:
        f, g = layer.functions[2 * direction : 2 * direction + 2]
        wz, wr, wh = call.tensor(1)[direction].split(layer.hidden)
        rz, rr, rh = call.tensor(2)[direction].split(layer.hidden)
        (wbz, wbr, wbh), (rbz, rbr, rbh) = layer.biases(direction, 3)
        (h,) = carried
        z = f(linear(value, wz, wbz) + linear(h, rz, rbz))
        r = f(linear(value, wr, wbr) + linear(h, rr, rbr))
        inner = linear(r * h, rh, rbh) if before else r * linear(h, rh, rbh)
        new = g(linear(value, wh, wbh) + inner)
        return ((1 - z) * new + z * h,)

    whole, (hidden,) = layer.run(step, 1)
    return whole, hidden


@operator("LSTM")
def lstm(call: Call) -> Any:
    """Gates: input, output, forget, cell; peepholes look at the cell."""
    layer = _Layer(call, ["sigmoid", "tanh", "tanh"])
    holes = call.optional(7)
    if call.integer("input_forget"):
        raise Refused("its input and forget gates are coupled")
    linear = torch.nn.functional.linear

    def step(direction: int, value: Tensor, carried: list[Tensor]) -> tuple[Tensor, ...]:
        f, g, h = layer.functions[3 * direction : 3 * direction + 3]
        hidden, cell = carried
        weights, recurrent = call.tensor(1)[direction], call.tensor(2)[direction]
        bias = call.optional(3)
        size = 4 * layer.hidden
        wb, rb = (None, None) if bias is None else (bias[direction][:size], bias[direction][size:])
        gates = linear(value, weights, wb) + linear(hidden, recurrent, rb)
        i, o, forget, c = gates.split(layer.hidden, -1)
        if holes is not None:
            pi, po, pf = holes[direction].split(layer.hidden)
            i, forget = i + pi * cell, forget + pf * cell
        new = f(forget) * cell + f(i) * g(c)
        o = f(o + po * new) if holes is not None else f(o)
        return o * h(new), new

    whole, (hidden, cell) = layer.run(step, 2)
    return whole, hidden, cell
