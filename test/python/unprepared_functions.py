"""What programs that nobody prepared do: functions and layers of users', and what they are called with."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def written(x: Tensor, y: Tensor) -> Tensor:
    whole = y.clone()
    whole[:, :, 2:6, 2:6].copy_(x.relu()[:, :, :4, :4])
    return whole.sin()


def expanded(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    rows = torch.cat([x.exp(), y.sin(), x.cos()], 1).expand(2, 3, 5)
    return rows * 2, rows[:, 2:] / y


def image_of(channels: int) -> tuple[Tensor, ...]:
    return (torch.randn(1, channels, 4, 4),)


def picked(x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """The compiler computes what is read behind the gather, of the elements that were picked."""
    rows = torch.gather(torch.where(x > 0, x.exp(), x), -1, at)
    return torch.gather(rows, -1, torch.arange(5).expand(8, 5) * 3), rows * 2


def masked(scores: Tensor) -> Tensor:
    """What is done of the mask again, after it was written to, belongs to no assertion about it."""
    groups = scores.view(3, 1, 8).topk(2, dim=-1)[0].sum(-1)
    mask = torch.zeros_like(groups)
    mask.scatter_(1, groups.topk(1, dim=-1, sorted=False)[1], 1)
    mask = mask.unsqueeze(-1).expand(-1, 1, 8).reshape(-1, 8)
    return scores.masked_fill(~mask.bool(), 0.0).exp()


def centres(x: Tensor, centres: Tensor) -> Tensor:
    """What is joined for the distances stands in memory that is written piece by piece, again in each turn."""
    for _ in range(2):
        nearest = F.one_hot(torch.cdist(x, centres).argmin(1), 4).float()
        centres = nearest.T @ x / nearest.sum(0).clamp(min=1)[:, None]
    return centres


def shifted(x: Tensor) -> Tensor:
    shifted = x.clone()
    shifted[1:, 1:] += x[:-1, :-1]
    return shifted


def signed(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.to(torch.int8), x.to(torch.int8).to(torch.uint8) + 1


def recurrence(x: Tensor) -> Tensor:
    """Each row is written in place; a copy gives back what it is given, whatever it is written over."""
    out, state = torch.zeros_like(x), x[:, 0].sin()
    for row in range(x.shape[1]):
        state = torch.tanh(state + x[:, row])
        out[:, row] = state
    return out


def strided(x: Tensor) -> Tensor:
    """Two insertions, the second into what the first gave: the names of both are in their places."""
    y = x.clone()
    y[:, 1:] = 1
    y[:, ::2] *= 2
    return y


def cleared(x: Tensor) -> Tensor:
    """The indices of a diagonal are laid out ahead of time, which reads nothing of what is put there."""
    y = x.clone()
    y.diagonal().fill_(0)
    return y


def overwritten(x: Tensor) -> tuple[Tensor, Tensor]:
    """Of what is written over, its sizes are asked for, and nothing else."""
    y = x * 2
    view = y.permute(2, 0, 1)
    view[0] = 7
    return y, view


def spread(x: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers are written over what others have inserted rows into: theirs, and no work of who writes."""
    y = x + 1
    y[2:4].mul_(3)
    y.view(-1)[::9] = 5
    return y, y[2:4]


def places(x: Tensor, up: Tensor, down: Tensor, scores: Tensor) -> Tensor:
    hidden = torch.relu(torch.relu(x @ up) @ down)
    ranks = torch.argsort(torch.topk(torch.softmax(hidden @ scores, -1), 2, -1)[1].reshape(-1), stable=True)
    places = torch.empty_like(ranks)
    places[ranks] = torch.arange(ranks.shape[0])
    return places


def turned_round(x: Tensor) -> Tensor:
    one, other = x.chunk(2, -1)
    return x * 0.5 + torch.cat([-other, one], -1) * 2


def edges_of(x: Tensor) -> Tensor:
    across = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])[None, None]
    return F.conv2d(x, across, padding=1) ** 2 + F.conv2d(x, across.mT, padding=1) ** 2


def kept(overlap: Tensor) -> Tensor:
    keep = torch.ones(5, dtype=torch.bool)
    for i in range(5):
        keep = keep & ~((overlap[i] > 0.3) & (torch.arange(5) > i) & keep[i])
    return keep


def limited(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    rows = x.abs().sum(-1, keepdim=True).repeat(1, 10)
    limited = rows.clamp(0, 5)
    return (rows != limited).any(), y * limited


def grouped(groups: Tensor, x: Tensor) -> Tensor:
    values, inverse = torch.unique(groups, return_inverse=True)
    return torch.zeros(values.shape[0], x.shape[1]).index_add(0, inverse, x)


def turned(x: Tensor, y: Tensor) -> Tensor:
    result = x.clone()
    result[result > 0] = y[result > 0].flip(0)
    return result


def gathered_in_order(x: Tensor) -> Tensor:
    turned = x.permute(2, 1, 0)
    return torch.stack([turned.gather(2, turned.argsort(dim=2, stable=True)), turned.sin()], 1)


def squared(real: Tensor, imaginary: Tensor) -> tuple[Tensor, ...]:
    x = torch.complex(real, imaginary)
    y = x.mT
    return (y * y).abs(), x * x, y, torch.view_as_real(y).sum(-1).cumsum(-1), torch.view_as_real(x)


def masked_layers(keys: Tensor, queries: Tensor) -> Tensor:
    """Products of which a part is masked: each layer has masks of its own, which are the same."""
    for _ in range(2):
        below, strictly = (torch.triu(torch.ones(16, 16, dtype=torch.bool), diagonal) for diagonal in (0, 1))
        one = (keys @ queries.mT).masked_fill(below, 0) @ keys
        keys = (one + (queries @ keys.mT).masked_fill(strictly, 0) @ queries).tanh()
    return keys


def number_written(x: Tensor) -> Tensor:
    y = x.clone()
    y[3:4] = x.norm()
    return y


def stencil(x: Tensor) -> Tensor:
    """Two turns of a stencil, and borders."""
    x = x.clone()
    for _ in range(2):
        x[1:-1, 1:-1] += 0.1 * (x[2:, 1:-1] + x[:-2, 1:-1] - 2 * x[1:-1, 1:-1])
    x[0], x[:, -1] = 0, 1
    return x


def assigned(x: Tensor) -> Tensor:
    y = x.exp()
    y[:, 1:3] = x[:, :2].relu()
    return y


def ordered(x: Tensor) -> tuple[Tensor, Tensor]:
    """Two calls with the same indices."""
    order = x.argsort(-1)
    return torch.zeros_like(x).scatter(-1, order, x), x.gather(-1, order)


class FeedForward(nn.Module):
    """A feed-forward with a depthwise convolution between: its results go to a product, one row for each point."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.product = nn.Linear(16, 24)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.product(self.function(self.depthwise(x).flatten(2).transpose(1, 2)))
        return y


def joined_twice(x: Tensor, one: Tensor, other: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """What compilers merge, piece by piece and as a whole."""
    first, second = (torch.cat([one[x[:, 0]], other[x[:, 1]].relu()], dim) for _ in range(2))
    return first.sum(1), second


class ChannelAttention(nn.Module):
    """Two means padded with zeros, which share the memory that holds these (as in ECA-Net)."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Conv2d(8, 256, 1), nn.Conv2d(256, 8, 1)
        self.first, self.second = (nn.Conv1d(1, 1, 5, padding=2, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.wide(x).relu()
        x = self.wide(self.narrow(x * self._weights(self.first, x))).relu()
        return x * self._weights(self.second, x)

    @staticmethod
    def _weights(across: nn.Module, x: Tensor) -> Tensor:
        return across(x.mean((2, 3))[:, None]).sigmoid().view(1, -1, 1, 1)


def in_three_sums(s: Tensor, q: Tensor) -> Tensor:
    """Sums of so many terms that they are several kernels; the products of ``s`` in them are the same."""

    def total(q: Tensor) -> Tensor:
        product, terms = torch.ones_like(q * s), []
        for k in range(12):
            product, q = product * (s + 2 * k), q / 3.7
            terms.append(product * q / (k + 3.7))
            product = product * (s + 2 * k + 1)
        return sum(terms[1:], terms[0])

    return total(q) - total(1 - q) + total(q.abs() + 1)


def padded(x: Tensor, mode: str) -> Tensor:
    return F.pad(x, (1, 2, 2, 1), mode=mode).relu()


def image() -> tuple[Tensor, ...]:
    return (torch.randn(1, 3, 8, 8),)


def graph() -> tuple[Tensor, ...]:
    return torch.randn(30, 16), torch.randint(0, 30, (60,)), torch.randint(0, 30, (60,))


def sorted_rows(rows: int) -> tuple[Tensor, ...]:
    return torch.randn(rows, 8), torch.tensor([0, 1, rows - 1, rows - 1], dtype=torch.int32)


def rows() -> tuple[Tensor, ...]:
    return (torch.randn(3, 4),)


# Of four rows a window of three that moves by two reads three, and of six columns it reads five.
