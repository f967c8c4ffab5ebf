"""Gradients of torch's own samples of its operators (`OpInfo`), against eager PyTorch's.

    python bench/gradients.py --most 2
    python bench/gradients.py --dtype f64 --only softmax nn.functional.layer_norm
    python bench/gradients.py --most 1 --together 8
    python bench/gradients.py --most 1 --drawn 60 --verify
    python bench/gradients.py --dtype f64 --most 1 --drawn 60 --order 2
    python bench/gradients.py --dtype f64 --most 1 --drawn 60 --numeric

Of each sample that has gradients, the operator and what differentiates it are compiled as ``torch.compile`` would have
it, and the gradients of a random sum of its results compared with eager's; with `--numeric` also with finite
differences of what is compiled, unless eager's gradients are not these. Of second order, what is compiled is the
gradients, and what differentiates these. Told are all samples that differ or cannot be compiled, and how many operators
of those that compile forward agree in all their samples; with `--verify` also, what `verify()` says of all programs.
"""

from __future__ import annotations

import argparse
import dataclasses
import logging
import random
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

import torch
import torch.testing._internal.common_methods_invocations as common_methods_invocations
from judging import Judge, NoAnswer
from opinfo_samples import Key, Sample, as_near, differences, operators, samples, spread, takes
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError
from torch.testing._utils import wrapper_set_seed
from torch.utils import _pytree as pytree

import covan_mlir
from covan_mlir.errors import CovanError
from covan_mlir.executable import Executable
from covan_mlir.training.aot import differentiable

SECONDS = 180.0
"""Per sample."""
NOT_TRIED = {"no gradients", "not run by eager", "not compiled forward"}
_CHARACTERS = 300


Judgement = tuple[str, str, list[tuple[str, str]]]
"""The outcome for a sample, why it does not agree, and the verdict of each program if they are to be verified."""


@dataclass(frozen=True)
class Question:
    """What is asked of a sample.

    Attributes:
        verify: whether programs are to be verified.
        order: of derivatives: 1 or 2.
        numeric: whether gradients are compared with finite differences, and not with eager's.
    """

    verify: bool = False
    order: int = 1
    numeric: bool = False


class Call(nn.Module):
    """A sample: from its tensors to the results that can be differentiated.

    Args:
        dtype: that a type of floating point among its arguments is replaced by.
    """

    def __init__(self, sample: Sample, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        seeded = sample.wrapper is wrapper_set_seed
        self.sample, self.dtype = dataclasses.replace(sample, wrapper=_called) if seeded else sample, dtype

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        results = pytree.tree_leaves(self.sample.determined(tensors, self.dtype))
        return [x for x in results if isinstance(x, Tensor) and x.is_floating_point()]


class Slopes(nn.Module):
    """From the tensors of a call to the gradients of a random sum of its results."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call, self.sample = call, call.sample
        with torch.no_grad():
            self.weights = _weights(call(*_copies(call.sample, call.dtype)))

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        learning = [k for k, x in enumerate(tensors) if x.is_floating_point()]

        def total(*values: Tensor) -> Tensor:
            given = list(tensors)
            for k, value in zip(learning, values, strict=True):
                given[k] = value
            return torch.stack([(y * w).sum() for y, w in zip(self.call(*given), self.weights, strict=True)]).sum()

        slopes = torch.func.grad(total, tuple(range(len(learning))))(*(tensors[k] for k in learning))
        return list(slopes)


class Joint(nn.Module):
    """Several samples, one behind the other."""

    def __init__(self, calls: Sequence[Call | Slopes]) -> None:
        super().__init__()
        self.calls = nn.ModuleList(calls)
        self.counts = [len(call.sample.tensors) for call in calls]

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        rest = iter(tensors)
        return [y for call, count in zip(self.calls, self.counts, strict=True) for y in call(*islice(rest, count))]


def _asked(sample: Sample, order: int, dtype: torch.dtype | None = None) -> Call | Slopes:
    call = Call(sample, dtype)
    return call if order == 1 else Slopes(call)


def _weights(results: Sequence[Tensor]) -> list[Tensor]:
    """Random numbers, the same on every call and for every type."""
    torch.manual_seed(1)
    return [torch.randn(y.shape, dtype=torch.float16).to(y.dtype) for y in results]


def _copies(sample: Sample, dtype: torch.dtype | None = None) -> list[Tensor]:
    return [t.detach().requires_grad_() if t.is_floating_point() else t for t in sample.copies(dtype)]


def _gradients(function: Any, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    """Of a sum of the results with random weights, the same on every call and for every type."""
    torch.manual_seed(0)
    results = [y for y in function(*tensors) if y.requires_grad]
    if not results:
        return []
    learning = [x for x in tensors if x.requires_grad]
    return list(torch.autograd.grad(results, learning, _weights(results), allow_unused=True))


def judged_together(keys: Sequence[Key], question: Question) -> list[Judgement] | None:
    """What `judged` says of each sample where all that have gradients are one program, and agree; else None."""
    outcomes: dict[Key, str] = dict.fromkeys(keys, "agrees")
    calls: dict[Key, Call | Slopes] = {}
    programs: list[Executable] = []
    with _seeds_outside():
        for key in keys:
            sample = samples(key.op, key.dtype)[key.sample]
            try:
                call = _asked(sample, question.order)
                if any(isinstance(x, Tensor) for x in _gradients(call, _copies(sample))):
                    calls[key] = call
                else:
                    outcomes[key] = "no gradients"
            except Exception:
                outcomes[key] = "not run by eager"
        if calls and not _agree(calls, programs):
            return None
    verdicts = [_verdict(exe) for exe in programs if question.verify]
    return [(outcomes[key], "", verdicts if key == keys[0] else []) for key in keys]


def _agree(calls: Mapping[Key, Call | Slopes], programs: list[Executable]) -> bool:
    joint, reasons = Joint(list(calls.values())), list[str]()

    def copies() -> list[Tensor]:
        return [x for call in calls.values() for x in _copies(call.sample)]

    expected = _gradients(joint, copies())
    try:
        with _warned(reasons):
            given = _gradients(differentiable(joint, copies(), _names(len(copies())), _compile(programs)), copies())
    except Exception:
        return False
    learning = {key: sum(x.is_floating_point() for x in call.sample.tensors) for key, call in calls.items()}
    left, right = iter(expected), iter(given)
    apart = [differences(key.op, [*islice(left, n)], [*islice(right, n)]) for key, n in learning.items()]
    return not reasons and not any(apart)


def judged(key: Key, question: Question) -> Judgement:
    """The outcome for one sample, why it does not agree, and the verdict of each program if they are to be verified."""
    programs: list[Executable] = []
    outcome, reason = _compared(key, question, programs)
    return outcome, reason, [_verdict(exe) for exe in programs if question.verify]


def _verdict(exe: Executable) -> tuple[str, str]:
    verdict = exe.verify()
    reasons = (*map(str, verdict.counterexamples), *(reason for check in verdict.checks for reason in check.missing))
    return verdict.outcome, next(iter(reasons), "")


def _compared(key: Key, question: Question, programs: list[Executable]) -> tuple[str, str]:
    """The outcome for one sample, and why it does not agree; what is compiled for it is added to ``programs``."""
    sample = samples(key.op, key.dtype)[key.sample]
    reasons: list[str] = []
    with _seeds_outside():
        try:
            call = _asked(sample, question.order)
            expected = _gradients(call, _copies(sample))
        except Exception as error:
            return "not run by eager", str(error)
        if not any(isinstance(x, Tensor) for x in expected):
            return "no gradients", ""
        try:
            with _warned(reasons):
                run = differentiable(call, _copies(sample), _names(len(sample.tensors)), _compile(programs))
                given = _gradients(run, _copies(sample))
            if question.numeric and (reason := _numerically(run, sample)) and not _numerically(call, sample):
                return "differs", reason
        except Exception as error:
            reasons.append(f"{type(error).__name__}: {error}")
        if reasons:
            return "refused" if _compiles(call, sample) else "not compiled forward", reasons[0]
        if not given:  # a result that is the same everywhere has a gradient for eager alone: 0
            given = [None if x is None else torch.zeros_like(x) for x in expected]
        difference = differences(key.op, expected, given)
        if not difference or as_near(lambda: _exact(sample, question.order), expected, given):
            return "agrees", ""
        return "differs", difference


def _names(count: int) -> list[str]:
    return [f"x{k}" for k in range(count)]


def _compile(programs: list[Executable]) -> Callable[[torch.export.ExportedProgram], Any]:
    """What compiles a program, and adds it to ``programs``."""

    def compiled(program: torch.export.ExportedProgram) -> Any:
        programs.append(covan_mlir.compile_module(program))
        return programs[-1]

    return compiled


@contextmanager
def _seeds_outside() -> Iterator[None]:
    """OpInfo seeds in each call of what draws; what is traced is seeded outside, as models are."""
    with warnings.catch_warnings(), mock.patch.object(common_methods_invocations, "wrapper_set_seed", _called):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _warned(reasons: list[str]) -> Iterator[None]:
    """Why something runs in eager mode."""
    log, handler = logging.getLogger(differentiable.__module__), logging.Handler(logging.WARNING)
    handler.emit = lambda record: reasons.append(record.getMessage())  # type: ignore[method-assign]  # of this one alone
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def _called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _numerically(run: Callable[..., list[Tensor]], sample: Sample) -> str:
    """How gradients differ from what finite differences say in a random direction; empty if they do not."""

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        return tuple(y for y in run(*tensors) if y.requires_grad)

    try:
        torch.autograd.gradcheck(function, tuple(_copies(sample)), fast_mode=True, check_undefined_grad=False)
    except (GradcheckError, RuntimeError) as error:  # it fails on tensors without elements
        return str(error)
    return ""


def _compiles(call: nn.Module, sample: Sample) -> bool:
    """Whether a sample compiles without what differentiates it."""
    try:
        with torch.no_grad():
            covan_mlir.compile_module(call, tuple(sample.copies()))
    except CovanError:
        return False
    return True


def _exact(sample: Sample, order: int) -> list[Tensor | None]:
    return _gradients(_asked(sample, order, torch.float64), _copies(sample, torch.float64))


def _serve(connection: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            keys, question = connection.recv()
        except EOFError:
            return
        try:
            connection.send([judged(keys[0], question)] if len(keys) == 1 else judged_together(keys, question))
        except Exception as error:
            connection.send([(f"raises {type(error).__name__}", str(error), [])] if len(keys) == 1 else None)


def _judgements(judge: Judge, keys: Sequence[Key], question: Question) -> list[Judgement]:
    """What is said of samples, of which each is a program of its own where they are none together."""
    try:
        said: list[Judgement] | None = judge.ask((tuple(keys), question))
    except NoAnswer as error:
        said = [("fails", str(error), [])] if len(keys) == 1 else None
    return said if said is not None else [one for key in keys for one in _judgements(judge, [key], question)]


def _differentiable(info: Any, options: argparse.Namespace) -> bool:
    known = info.supports_autograd and (options.order == 1 or info.supports_gradgrad)
    return bool(known) and takes(info.full_name, options.dtype)


def _tell(key: Key, outcome: str, reason: str) -> None:
    print(f"{key.op} {key.sample}: {outcome}: {' '.join(reason.split())[:_CHARACTERS]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dtype", choices=("f32", "f64"), default="f32")
    parser.add_argument("--most", type=int, default=2, help="samples of each operator, far apart")
    parser.add_argument("--only", nargs="*", help="operators; all if none is named")
    parser.add_argument("--drawn", type=int, help="so many operators, drawn at random")
    parser.add_argument("--order", type=int, choices=(1, 2), default=1, help="of derivatives")
    parser.add_argument("--numeric", action="store_true", help="compare with finite differences, too")
    parser.add_argument("--together", type=int, default=1, help="samples that are one program, while these agree")
    parser.add_argument("--verify", action="store_true", help="verify the programs, too")
    options = parser.parse_args()
    if options.numeric and options.dtype != "f64":
        parser.error("finite differences are of double precision: --dtype f64")
    if options.numeric and options.together > 1:
        parser.error("finite differences are of one sample")
    question = Question(options.verify, options.order, options.numeric)
    names = [op for op, info in operators().items() if _differentiable(info, options)]
    if options.drawn is not None:
        names = sorted(random.Random(0).sample(names, options.drawn))
    judge = Judge(_serve, "opinfo_samples", SECONDS)
    outcomes: dict[str, list[str]] = defaultdict(list)
    verdicts: Counter[str] = Counter()
    keys = [key for op in options.only or names for key in spread(op, options.dtype, options.most)]
    for start in range(0, len(keys), options.together):
        group = keys[start : start + options.together]
        for key, (outcome, reason, said) in zip(group, _judgements(judge, group, question), strict=True):
            for verdict, why in said:
                verdicts[verdict] += 1
                if verdict != "yes":
                    _tell(key, f"verified: {verdict}", why)
            outcomes[key.op].append(outcome)
            if outcome not in {"agrees", "no gradients"}:
                _tell(key, outcome, reason)
    judge.end()
    if options.verify:
        print(f"programs verified: {dict(verdicts)}")
    print(dict(Counter(outcome for each in outcomes.values() for outcome in each)))
    tried = [set(each) - NOT_TRIED for each in outcomes.values() if set(each) - NOT_TRIED]
    right = sum(each == {"agrees"} for each in tried)
    print(f"{right} of {len(tried)} operators that compile forward and have gradients")


if __name__ == "__main__":
    main()
