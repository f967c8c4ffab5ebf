"""How far a tensor is from what it should be: absolute, relative and ulp errors, and whether that is too far.

The reference is eager PyTorch in float64. How far eager itself is off in the model's own precision says how much of an
error rounding explains at this place of this model; the default tolerance is a multiple of that, and never less than
some ulps, for compilers sum in another order and approximate functions differently.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

from covan_mlir.reporting.comparison_json import StoredError, stored

_BLOCK = 1 << 22  # elements at a time: float64 copies of a large tensor do not fit
_SAMPLE = 1 << 16  # elements, for the scale of a tensor
FILL = 1.8e19  # square root of float32's largest: what is larger is a fill (of a mask), and says nothing of the scale
_UNKNOWN = 1024.0  # ulps: what eager's own error is taken for where there is no float64 reference


@dataclass(frozen=True)
class Tolerance:
    """What is too far: an element may be off by ``(eager * own + ulps * eps) * (|reference| + scale)``, or by
    ``atol + rtol * |reference|`` if that is more.

    ``own`` is the largest error that eager itself makes in this tensor, relative to ``|reference| + scale``; ``scale``
    is the median magnitude of the tensor's elements; ``eps`` is that of its dtype.

    Attributes:
        eager: how many times eager's own error.
        ulps: units in the last place beside that.
        rtol, atol: as in `torch.testing.assert_close`; to have them alone, set ``eager`` and ``ulps`` to 0.
    """

    eager: float = 32.0
    ulps: float = 64.0
    rtol: float = 0.0
    atol: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (value >= 0 and math.isfinite(value)):
                raise ValueError(f"{name} is a number that is not negative, not {value!r}")


@dataclass(frozen=True)
class Error:
    """The largest errors of a tensor.

    Attributes:
        abs: ``|value - reference|``; of integers and booleans the largest difference.
        rel: the same over ``|reference|``, where that is not zero.
        ulp: the same in units in the last place of the reference, in the tensor's dtype.
        wrong: elements that are NaN or infinite where the reference is not, or the other way round; of integers and
            booleans, all that differ.
    """

    abs: float = 0.0
    rel: float = 0.0
    ulp: float = 0.0
    wrong: int = 0

    def stored(self) -> StoredError:
        """As JSON has it."""
        return StoredError(stored(self.abs), stored(self.rel), stored(self.ulp), self.wrong)


@dataclass(frozen=True)
class Measured:
    """One tensor of the compiled program, measured.

    Attributes:
        error: against eager in float64.
        eager: eager's own, in the model's precision, against float64.
        difference: against eager in the model's precision.
        excess: the largest error of an element over what it may be; more than 1 is beyond tolerance.
        worst: index of that element.
        values: (compiled, eager, float64 reference) there.
        exact: whether there was a float64 reference; without, eager in the model's precision took its place.
    """

    error: Error
    eager: Error
    difference: Error
    excess: float
    worst: tuple[int, ...]
    values: tuple[float, float, float]
    exact: bool = True

    def stored(self) -> dict[str, Any]:
        """As JSON has it: what `StoredResult` and `StoredComparedAction` tell of how far a tensor is off."""
        return {
            "error": self.error.stored(),
            "eager": self.eager.stored(),
            "difference": self.difference.stored(),
            "excess": stored(self.excess),
            "worst": list(self.worst),
            "values": tuple(map(stored, self.values)),
            "exact": self.exact,
        }

    @property
    def beyond(self) -> bool:
        return self.excess > 1.0


def measure(got: torch.Tensor, eager: torch.Tensor, reference: torch.Tensor | None, tolerance: Tolerance) -> Measured:
    """Measure a tensor of the compiled program.

    Args:
        got: from the compiled program.
        eager: of the same shape and dtype.
        reference: of the same shape, in float64 if ``eager`` is a floating-point tensor; None: there is none.

    Raises:
        ValueError: shapes or dtypes differ.
    """
    if got.shape != eager.shape or got.dtype != eager.dtype:
        raise ValueError(f"{got.dtype}{list(got.shape)} is compared with {eager.dtype}{list(eager.shape)}")
    exact = reference is not None and reference.shape == eager.shape
    truth = reference if exact and reference is not None else eager
    tensors = [tensor.detach().reshape(-1) for tensor in (got, eager, truth)]
    if not got.numel():
        return Measured(Error(), Error(), Error(), 0.0, (), (0.0, 0.0, 0.0), exact)
    if not got.dtype.is_floating_point:
        return _discrete(tensors, got.shape, exact)
    eps = torch.finfo(got.dtype).eps
    scale = _scale(tensors[2])
    own, relative = _Largest(got.dtype), 0.0
    for _, e, r in _blocks(tensors):
        own.add(e, r)
        part = (e - r).abs() / (r.abs() + scale)
        finite = part[torch.isfinite(part)]
        relative = max(relative, float(finite.max()) if finite.numel() else 0.0)
    if not exact:
        relative = _UNKNOWN * eps
    allowed = tolerance.eager * relative + tolerance.ulps * eps
    error, difference = _Largest(got.dtype), _Largest(got.dtype)
    excess, at, start = 0.0, 0, 0
    for g, e, r in _blocks(tensors):
        error.add(g, r)
        difference.add(g, e)
        limit = torch.maximum(allowed * (r.abs() + scale), tolerance.atol + tolerance.rtol * r.abs())
        off = (g - r).abs()
        ratio = torch.where(off == 0, 0.0, off / limit)
        odd = ~(torch.isfinite(g) & torch.isfinite(r))
        # As eager does is right, overflow of its precision included; so is what float64 gives.
        same = (g == r) | (g == e) | (g.isnan() & (r.isnan() | e.isnan()))
        ratio = torch.where(odd, torch.where(same, 0.0, math.inf), ratio)
        most, index = ratio.max(0)
        if float(most) > excess:
            excess, at = float(most), start + int(index)
        start += len(g)
    return Measured(
        error.done(), own.done(), difference.done(), excess, _index(at, got.shape), _values(tensors, at), exact
    )


def _discrete(tensors: list[torch.Tensor], shape: torch.Size, exact: bool) -> Measured:
    """Integers and booleans are right where they are what eager gives in either precision."""
    got, eager, truth = tensors
    truth = truth.to(eager.dtype)

    def error(a: torch.Tensor, b: torch.Tensor) -> Error:
        off = a != b
        largest = float((a.to(torch.float64) - b.to(torch.float64)).abs().max())
        return Error(largest, 0.0, 0.0, int(off.sum()))

    bad = (got != eager) & (got != truth)
    at = int(bad.to(torch.uint8).argmax())
    return Measured(
        error(got, truth),
        error(eager, truth),
        error(got, eager),
        math.inf if bool(bad.any()) else 0.0,
        _index(at, shape),
        _values([got, eager, truth], at),
        exact,
    )


class _Largest:
    """The largest errors of a tensor that comes in blocks of float64."""

    def __init__(self, dtype: torch.dtype) -> None:
        limits = torch.finfo(dtype)
        self._eps, self._tiny = limits.eps, limits.tiny
        self._abs = self._rel = self._ulp = 0.0
        self._wrong = 0

    def add(self, values: torch.Tensor, reference: torch.Tensor) -> None:
        finite = torch.isfinite(values) & torch.isfinite(reference)
        self._wrong += int((~finite & (values != reference) & ~(values.isnan() & reference.isnan())).sum())
        off, size = (values - reference).abs()[finite], reference.abs()[finite]
        if not len(off):
            return
        self._abs = max(self._abs, float(off.max()))
        some = size > 0
        if bool(some.any()):
            self._rel = max(self._rel, float((off[some] / size[some]).max()))
        _, exponent = torch.frexp(size.clamp(min=self._tiny))
        one = torch.ldexp(torch.ones_like(size), exponent - 1) * self._eps
        self._ulp = max(self._ulp, float((off / one).max()))

    def done(self) -> Error:
        return Error(self._abs, self._rel, self._ulp, self._wrong)


def _blocks(tensors: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    for start in range(0, len(tensors[0]), _BLOCK):
        yield [tensor[start : start + _BLOCK].to(torch.float64) for tensor in tensors]


def _scale(reference: torch.Tensor) -> float:
    sizes = reference[:: max(1, len(reference) // _SAMPLE)].to(torch.float64).abs()
    sizes = sizes[(sizes > 0) & (sizes < FILL)]
    return float(sizes.median()) if len(sizes) else 0.0


def _index(at: int, shape: torch.Size) -> tuple[int, ...]:
    position: list[int] = []
    for size in reversed(shape):
        position.append(at % size)
        at //= size
    return tuple(reversed(position))


def _values(tensors: list[torch.Tensor], at: int) -> tuple[float, float, float]:
    got, eager, truth = (float(tensor[at]) for tensor in tensors)
    return got, eager, truth
