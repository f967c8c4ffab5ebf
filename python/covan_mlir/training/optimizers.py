"""torch's optimizers as functions of tensors: from a parameter, its gradient and what is kept to their next values.

The arithmetic is that of ``torch.optim`` for one tensor at a time, operation by operation, so that the same steps are
made. What depends on the number of the step or on a schedule is computed outside, in double precision as torch does,
and comes as numbers; what does not is built in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from covan_mlir.errors import InputError

Optimizer = torch.optim.Optimizer | Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
"""One of torch's for the parameters of a model, or what makes one of them."""
Kept = Mapping[str, Tensor]
"""What an optimizer keeps of one parameter, by the names that ``torch.optim`` gives it."""


@dataclass(frozen=True)
class Rule:
    """How an optimizer changes the parameters of one of its groups.

    Attributes:
        keeps: names of what it keeps of each parameter: zeros at first, of the parameter's shape.
        numbers: names of the numbers that `numbers_at` gives.
        numbers_at: from the group as it is now, and the number of the step, from 1, to numbers.
        update: from parameter, gradient, what is kept and the numbers to the next parameter and what is kept then.
        fixed: the group's options that are built in: they may not change any more.
        counts: whether torch keeps the number of the step with what is kept.
    """

    keeps: tuple[str, ...]
    numbers: tuple[str, ...]
    numbers_at: Callable[[Mapping[str, Any], int], Mapping[str, float]]
    update: Callable[[Tensor, Tensor, Kept, Kept], tuple[Tensor, Kept]]
    fixed: Mapping[str, Any]
    counts: bool = True


def rule_of(optimizer: torch.optim.Optimizer, group: Mapping[str, Any]) -> Rule:
    """The rule for a group of an optimizer.

    Raises:
        InputError: it is none of those that are known, or has options that are not.
    """
    for name in ("capturable", "differentiable"):
        if group.get(name):
            raise InputError(f"{type(optimizer).__name__}({name}=True) is not compiled: leave it out")
    rule = _RULES.get(type(optimizer))
    if rule is None:
        known = ", ".join(kind.__name__ for kind in _RULES)
        raise InputError(f"{type(optimizer).__name__} is not compiled: use one of {known}")
    return rule(group)


def _sgd(group: Mapping[str, Any]) -> Rule:
    """Sutskever et al., On the importance of initialization and momentum in deep learning (2013), as torch has it."""
    decay, momentum, nesterov = group["weight_decay"], group["momentum"], group["nesterov"]
    maximize = group["maximize"]

    def numbers_at(now: Mapping[str, Any], step: int) -> Mapping[str, float]:
        numbers = {"lr": float(now["lr"])}
        if momentum:  # the first gradient is kept whole
            numbers["keep"] = 0.0 if step == 1 else float(now["momentum"])
            numbers["take"] = 1.0 if step == 1 else 1.0 - float(now["dampening"])
        return numbers

    def update(parameter: Tensor, gradient: Tensor, kept: Kept, numbers: Kept) -> tuple[Tensor, Kept]:
        gradient = -gradient if maximize else gradient
        if decay:
            gradient = gradient + parameter * decay
        if not momentum:
            return parameter - gradient * numbers["lr"], {}
        buffer = kept["momentum_buffer"] * numbers["keep"] + gradient * numbers["take"]
        direction = gradient + buffer * momentum if nesterov else buffer
        return parameter - direction * numbers["lr"], {"momentum_buffer": buffer}

    keeps = ("momentum_buffer",) if momentum else ()
    fixed = {name: group[name] for name in ("weight_decay", "momentum", "nesterov", "maximize")}
    return Rule(keeps, ("lr", "keep", "take") if momentum else ("lr",), numbers_at, update, fixed, counts=False)


def _adam(group: Mapping[str, Any]) -> Rule:
    """Kingma and Ba, Adam (2015); with decoupled decay, Loshchilov and Hutter, Decoupled Weight Decay Regularization
    (2019)."""
    first, second = group["betas"]
    eps, decay, amsgrad, maximize = group["eps"], group["weight_decay"], group["amsgrad"], group["maximize"]
    decoupled = group.get("decoupled_weight_decay", False)

    def numbers_at(now: Mapping[str, Any], step: int) -> Mapping[str, float]:
        lr = float(now["lr"])
        size = lr / (1 - first**step)
        return {"shrink": 1 - lr * decay, "size": size, "root": math.sqrt(1 - second**step)}

    def update(parameter: Tensor, gradient: Tensor, kept: Kept, numbers: Kept) -> tuple[Tensor, Kept]:
        gradient = -gradient if maximize else gradient
        if decay and decoupled:
            parameter = parameter * numbers["shrink"]
        elif decay:
            gradient = gradient + parameter * decay
        mean = kept["exp_avg"] + (gradient - kept["exp_avg"]) * (1 - first)
        square = kept["exp_avg_sq"] * second + gradient * gradient * (1 - second)
        after = {"exp_avg": mean, "exp_avg_sq": square}
        if amsgrad:
            after["max_exp_avg_sq"] = torch.maximum(kept["max_exp_avg_sq"], square)
        largest = after["max_exp_avg_sq"] if amsgrad else square
        return parameter - mean / (largest.sqrt() / numbers["root"] + eps) * numbers["size"], after

    keeps = ("exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if amsgrad else ()))
    fixed = {name: group[name] for name in ("betas", "eps", "weight_decay", "amsgrad", "maximize")}
    return Rule(keeps, ("shrink", "size", "root"), numbers_at, update, fixed)


_RULES: Mapping[type[torch.optim.Optimizer], Callable[[Mapping[str, Any]], Rule]] = {
    torch.optim.SGD: _sgd,
    torch.optim.Adam: _adam,
    torch.optim.AdamW: _adam,
}
