"""torch's own samples of an operator as programs: what eager gives for them, and whether a compiled program agrees.

The samples are those of `OpInfo`, which torch tests its operators and compilers with. Several samples of one operator
are one program: their tensors are its arguments, everything else is constant.
"""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.testing._comparison import default_tolerances
from torch.testing._internal.common_device_type import precisionOverride, toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import covan_mlir
from covan_mlir import CompileOptions
from covan_mlir.errors import CovanError
from covan_mlir.frontend.capture import capture

Outcome = Literal["agrees", "differs", "refused", "fails", "not exported", "random", "undefined", "not run by eager"]
DTYPES = {
    "f32": torch.float32,
    "i64": torch.int64,
    "bool": torch.bool,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
}
UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
"""Operators whose results are whatever the memory held."""
AXES = {"argsort": 1, "kthvalue": 2, "median": 1, "mode": 1, "nanmedian": 1, "sort": 1, "topk": 2}
"""Operators that give places of elements, any of several equal ones; which of their arguments says the axis."""
SECONDS = 90.0
"""That the compiler is given for a program."""


@dataclass(frozen=True)
class Key:
    """A sample: its place among those of an operator and dtype."""

    op: str
    dtype: str
    sample: int


@dataclass(frozen=True)
class Judged:
    """What became of one sample.

    Attributes:
        outcome: ``refused``: covan says that it cannot compile it; ``fails``: any other exception, a crash, no end;
            ``not exported``: `torch.export` does not take it; ``random``, ``undefined``: there is nothing to compare.
        reason: why, on one line; empty where it agrees.
    """

    key: Key
    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True)
class Record:
    """What became of the samples of an operator in a dtype.

    Attributes:
        samples: how many were judged.
        apart: those that do not agree with eager.
        of: how many there are.
    """

    op: str
    dtype: str
    samples: int
    apart: tuple[Judged, ...]
    of: int
    torch: str = str(torch.__version__)


@dataclass(frozen=True)
class Suspect:
    """A program of several samples failed; the one at which it did, where that is known."""

    key: Key | None = None


@dataclass(frozen=True)
class _Failure:
    outcome: Outcome
    reason: str
    position: int | None = None


@dataclass(frozen=True)
class Sample:
    """One call of an operator: its arguments with the tensors taken out of them.

    Attributes:
        structure: of the arguments, without their tensors.
        leaves: of the arguments, None in the places of tensors.
        wrapper: calls the operator on what its derivatives are defined for: on symmetric matrices, say.
        settled: from results to what of them does not depend on choices, as the signs of singular vectors.
    """

    function: Callable[..., Any]
    structure: pytree.TreeSpec
    leaves: tuple[Any, ...]
    tensors: tuple[Tensor, ...]
    wrapper: Callable[..., Any]
    settled: Callable[[Any], Any]

    def call(self, tensors: Sequence[Tensor], dtype: torch.dtype | None = None) -> Any:
        """The operator on other tensors; where an argument is a type of floating point, with another one."""
        args, kwargs = self._arguments(tensors, dtype)
        return self.function(*args, **kwargs)

    def determined(self, tensors: Sequence[Tensor], dtype: torch.dtype | None = None) -> Any:
        """As `call`, what has derivatives: as torch's own tests of these have it."""
        args, kwargs = self._arguments(tensors, dtype)
        return self.settled(self.wrapper(self.function, *args, **kwargs))

    def _arguments(self, tensors: Sequence[Tensor], dtype: torch.dtype | None) -> tuple[Any, Any]:
        rest = iter(tensors)
        filled = [next(rest) if leaf is None else leaf.value for leaf in self.leaves]
        if dtype is not None:
            filled = [dtype if isinstance(x, torch.dtype) and x.is_floating_point else x for x in filled]
        args, kwargs = pytree.tree_unflatten(filled, self.structure)
        return args, kwargs

    def copies(self, dtype: torch.dtype | None = None) -> list[Tensor]:
        """The tensors, for a call that may write to them; those of floating point in another dtype."""
        return [
            t.to(dtype) if dtype is not None and t.is_floating_point() else t.clone(memory_format=torch.preserve_format)
            for t in self.tensors
        ]


@dataclass(frozen=True)
class _Fixed:
    """A leaf that is no tensor: None among them."""

    value: Any


class Call(nn.Module):
    """A sample: a module, so that errors tell which."""

    def __init__(self, sample: Sample) -> None:
        super().__init__()
        self.sample = sample

    def forward(self, tensors: list[Tensor]) -> Any:
        return self.sample.call(tensors)


class Program(nn.Module):
    """Several samples, one behind the other."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        super().__init__()
        self.calls = nn.ModuleList(map(Call, samples))
        self.position: int | None = None

    def forward(self, tensors: list[list[Tensor]]) -> list[Any]:
        results = []
        for self.position, given in enumerate(tensors):
            results.append(self.calls[self.position](given))
        return results


@cache
def operators() -> dict[str, Any]:
    """torch's descriptions of its operators, by name."""
    return {op.full_name: op for op in op_db}


def takes(op: str, dtype: str) -> bool:
    """Whether torch has samples of an operator in a dtype."""
    return DTYPES[dtype] in operators()[op].dtypes


@cache
def samples(op: str, dtype: str) -> tuple[Sample, ...]:
    """All samples that torch has of an operator in a dtype: the same ones on every call."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    described = operators()[op]
    chosen = []
    for given in described.sample_inputs("cpu", DTYPES[dtype], requires_grad=False):
        leaves, structure = pytree.tree_flatten(((given.input, *given.args), given.kwargs))
        chosen.append(
            Sample(
                described.op,
                structure,
                tuple(None if isinstance(leaf, Tensor) else _Fixed(leaf) for leaf in leaves),
                tuple(leaf for leaf in leaves if isinstance(leaf, Tensor)),
                described.gradcheck_wrapper,
                given.output_process_fn_grad,
            )
        )
    return tuple(chosen)


def spread(op: str, dtype: str, most: int) -> list[Key]:
    """At most so many samples of an operator in a dtype, far apart; the last one is among them."""
    count = len(samples(op, dtype))
    places = sorted({step * (count - 1) // most for step in range(1, most + 1)}) if count > most else range(count)
    return [Key(op, dtype, place) for place in places]


def tolerance(op: str, dtype: torch.dtype) -> tuple[float, float]:
    """Relative and absolute: those of `torch.testing`, or larger where torch's own tests grant an operator more."""
    rtol, atol = default_tolerances(dtype)
    for info in operators()[op].decorators:
        for decorator in getattr(info, "decorators", [info]):
            if isinstance(decorator, toleranceOverride) and dtype in decorator.d:
                rtol, atol = max(rtol, decorator.d[dtype].rtol), max(atol, decorator.d[dtype].atol)
            elif isinstance(decorator, precisionOverride) and dtype in decorator.d:
                atol = max(atol, decorator.d[dtype])
    return rtol, atol


def judged(keys: Sequence[Key]) -> list[Judged] | Suspect:
    """What becomes of samples that are compiled as one program, if that does not fail or there is but one."""
    verdicts: list[Judged] = []
    programs: list[tuple[Key, Sample, Any]] = []
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for key in keys:
            sample = samples(key.op, key.dtype)[key.sample]
            try:
                expected = _seeded(sample, 0)
                if key.op not in UNDEFINED and differences(key.op, expected, _seeded(sample, 1)):
                    verdicts.append(Judged(key, "random"))
                else:
                    programs.append((key, sample, expected))
            except Exception as error:
                verdicts.append(Judged(key, "not run by eager", _line(error)))
        if not programs:
            return verdicts
        compiled = _compiled([sample for _, sample, _ in programs])
        if isinstance(compiled, _Failure):
            if len(programs) == 1:
                return [*verdicts, Judged(programs[0][0], compiled.outcome, compiled.reason)]
            return Suspect(None if compiled.position is None else programs[compiled.position][0])
        for (key, sample, expected), given in zip(programs, compiled, strict=True):
            difference = differences(key.op, expected, given)
            if key.op in UNDEFINED:
                verdicts.append(Judged(key, "undefined"))
            elif difference and not (
                as_near(partial(_in_f64, sample), expected, given)
                or _as_high(key.op, sample, expected, given)
                or _as_singular(key.op, expected, given)
            ):
                verdicts.append(Judged(key, "differs", difference))
            else:
                verdicts.append(Judged(key, "agrees"))
    return verdicts


def _seeded(sample: Sample, seed: int) -> Any:
    torch.manual_seed(seed)
    return sample.call(sample.copies())


def _in_f64(sample: Sample) -> Any:
    return sample.call(sample.copies(torch.float64), torch.float64)


def _compiled(chosen: Sequence[Sample]) -> list[Any] | _Failure:
    """The results of samples that are one compiled program, or why there are none."""
    program = Program(chosen)
    try:
        exported = capture(program, ([sample.copies() for sample in chosen],), None, None).program
    except CovanError as error:
        return _Failure("not exported", _line(error), program.position)
    try:
        options = CompileOptions(cache=False, timeout=SECONDS)
        exe = covan_mlir.compile_module(exported, (), options=options)
    except CovanError as error:
        outcome: Outcome = "random" if "do not follow torch.manual_seed" in str(error) else "refused"
        return _Failure(outcome, _line(error), _position(exported, error))
    except Exception as error:
        return _Failure("fails", f"compiling: {type(error).__name__}: {_line(error)}")
    try:
        results: list[Any] = exe([sample.copies() for sample in chosen])
    except Exception as error:
        return _Failure("fails", f"running: {type(error).__name__}: {_line(error)}")
    return results


def _position(program: ExportedProgram, error: CovanError) -> int | None:
    """Of the sample whose operation an error names."""
    name = getattr(error, "action", None)
    for node in program.graph.nodes:
        if node.name == name:
            for path, _ in node.meta.get("nn_module_stack", {}).values():
                if path.startswith("calls."):
                    return int(path.split(".")[1])
    return None


def _line(error: BaseException) -> str:
    """What an error says, without where and what to do."""
    first = str(error).partition("\n")[0]
    return " ".join(re.sub(r"^\S+\.py:\d+: |; (use|pass|compute|the size|If) .*", "", first).split())[:300]


def differences(op: str, expected: Any, given: Any) -> str:
    """How a result differs from eager's, beyond the tolerance; empty if it does not."""
    wanted, structure = pytree.tree_flatten(expected)
    leaves, other = pytree.tree_flatten(given)
    if len(wanted) != len(leaves):
        return f"{len(leaves)} results in place of {len(wanted)}: {other}, not {structure}"
    for left, right in zip(wanted, leaves, strict=True):
        if not isinstance(left, Tensor) or not isinstance(right, Tensor):
            if left is not right and left != right and not (left != left and right != right):
                return f"{right!r}, not {left!r}"
            continue
        rtol, atol = tolerance(op, left.dtype)
        try:
            torch.testing.assert_close(right, left, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            return " ".join(str(error).split())[:300]
    return ""


def _as_high(op: str, sample: Sample, expected: Any, given: Any) -> bool:
    """Whether results differ only in which of several equal elements they are the places of: PyTorch promises none,
    unless a sort is to be stable."""
    leaves = iter(sample.tensors)
    args, kwargs = pytree.tree_unflatten(
        [next(leaves) if leaf is None else leaf.value for leaf in sample.leaves], sample.structure
    )
    *values, places = pytree.tree_leaves(expected)
    *others, chosen = pytree.tree_leaves(given)
    if op not in AXES or kwargs.get("stable") or places.dtype != torch.int64 or chosen.shape != places.shape:
        return False
    x, axis = args[0], kwargs.get("dim", args[AXES[op]] if len(args) > AXES[op] else -1)
    if differences(op, values, others) or not x.dim() or chosen.dtype != torch.int64:
        return False
    if places.dim() < x.dim():
        places, chosen = places.unsqueeze(axis), chosen.unsqueeze(axis)
    if bool(((chosen < 0) | (chosen >= x.shape[axis])).any()):
        return False
    distinct = chosen.sort(axis).values.diff(dim=axis).ne(0).all()
    return bool(distinct) and not differences(op, x.gather(axis, places), x.gather(axis, chosen))


def _as_singular(op: str, expected: Any, given: Any) -> bool:
    """Whether results differ only in the singular vectors, or those of eigenvalues: PyTorch promises neither their
    signs nor, where values are equal or vectors are added to make a basis, which ones."""
    if op == "linalg.eigh":
        values, u = given
        wanted_values, wanted_u = expected
        v, wanted_v = u.mH, wanted_u.mH
    elif op in ("svd", "linalg.svd"):
        (u, values, v), (wanted_u, wanted_values, wanted_v) = given, expected
        if op == "svd":
            v, wanted_v = v.mH, wanted_v.mH
    else:
        return False
    if differences(op, wanted_values, values) or u.shape != wanted_u.shape or v.shape != wanted_v.shape:
        return False
    count = values.shape[-1]

    def whole(left: Tensor, right: Tensor) -> Tensor:
        matrix: Tensor = left[..., :count] * values.unsqueeze(-2) @ right[..., :count, :]
        return matrix

    def product(vectors: Tensor) -> Tensor:
        tall = vectors.shape[-2] >= vectors.shape[-1]
        products: Tensor = vectors.mH @ vectors if tall else vectors @ vectors.mH
        return products

    return not any(
        differences(op, left, right)
        for left, right in (
            (whole(wanted_u, wanted_v), whole(u, v)),
            (product(wanted_u), product(u)),
            (product(wanted_v), product(v)),
        )
    )


_CLASS = 4
"""Binary digits by which magnitudes of a class differ."""


def _near(best: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Of each element, whether ``right`` is as near to ``best`` as ``left`` is.

    Errors of sums are as large as their terms are, which elements of about that size have as well: an element may have
    twice the error that eager has in any element of its magnitude. What has no number in f64 is what eager gives.
    """
    rtol, atol = default_tolerances(left.dtype)
    rounded = best.to(left.dtype)
    close = torch.isclose(right.double(), rounded.double(), rtol=rtol, atol=atol, equal_nan=True)
    same = torch.isclose(right.double(), left.double(), rtol=rtol, atol=atol, equal_nan=True)
    finite = best.isfinite() & left.isfinite()
    near = torch.where(best.isfinite() & ~left.isfinite(), close, close | same)  # else eager overflowed on its way
    own, other = (best - left.double()).abs(), (best - right.double()).abs()
    magnitude = best.abs().clamp(min=float(torch.finfo(torch.float64).tiny)).log2().div(_CLASS).floor()
    for each in {*magnitude[finite & ~near].tolist()}:
        alike = finite & (magnitude == each)
        near |= alike & (other <= 2 * own[alike].max())
    return near


def as_near(in_f64: Callable[[], Any], expected: Any, given: Any) -> bool:
    """Whether a result is as near to eager's in f64 as eager's own is, within twice its error: sums of many terms and
    matrices near singular ones have more rounding than the tolerances grant."""
    try:
        exact = pytree.tree_leaves(in_f64())
    except Exception:
        return False  # eager has no f64 for it
    wanted, leaves = pytree.tree_leaves(expected), pytree.tree_leaves(given)
    if not len(exact) == len(wanted) == len(leaves):
        return False
    for best, left, right in zip(exact, wanted, leaves, strict=True):
        if not isinstance(left, Tensor):
            continue
        if not left.is_floating_point():
            if not torch.equal(left, right):
                return False
            continue
        if left.shape != right.shape or left.dtype != right.dtype or best.dtype != torch.float64:
            return False
        if not bool(_near(best.double(), left, right).all()):
            return False
    return True
