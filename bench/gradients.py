"""Gradients of torch's own samples of its operators (`OpInfo`), against eager PyTorch's.

    python bench/gradients.py --most 2
    python bench/gradients.py --dtype f64 --only softmax nn.functional.layer_norm
    python bench/gradients.py --most 1 --verify

Of each sample that has gradients, the operator and what differentiates it are compiled as ``torch.compile`` would have
it, and the gradients of a random sum of its results compared. Told are all samples that differ or cannot be compiled,
and how many operators of those that compile forward agree in all their samples; with `--verify` also, what `verify()`
says of all programs.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

import torch
import torch.testing._internal.common_methods_invocations as common_methods_invocations
from judging import Judge, NoAnswer
from opinfo_samples import Key, Sample, as_near, differences, operators, samples, spread, takes
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import covan_mlir
from covan_mlir.errors import CovanError
from covan_mlir.executable import Executable
from covan_mlir.training.aot import differentiable

SECONDS = 180.0
"""Per sample."""
NOT_TRIED = {"no gradients", "not run by eager", "not compiled forward"}
_CHARACTERS = 300


class Call(nn.Module):
    """A sample: from its tensors to the results that can be differentiated.

    Args:
        dtype: that a type of floating point among its arguments is replaced by.
    """

    def __init__(self, sample: Sample, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.sample, self.dtype = sample, dtype

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        results = pytree.tree_leaves(self.sample.determined(tensors, self.dtype))
        return [x for x in results if isinstance(x, Tensor) and x.is_floating_point()]


def _copies(sample: Sample, dtype: torch.dtype | None = None) -> list[Tensor]:
    return [t.detach().requires_grad_() if t.is_floating_point() else t for t in sample.copies(dtype)]


def _gradients(function: Any, tensors: Sequence[Tensor]) -> list[Tensor | None]:
    """Of a sum of the results with random weights, the same on every call and for every type."""
    torch.manual_seed(0)
    results = [y for y in function(*tensors) if y.requires_grad]
    if not results:
        return []
    torch.manual_seed(1)
    weights = [torch.randn(y.shape, dtype=torch.float16).to(y.dtype) for y in results]
    learning = [x for x in tensors if x.requires_grad]
    return list(torch.autograd.grad(results, learning, weights, allow_unused=True))


def judged(key: Key, verify: bool) -> tuple[str, str, list[tuple[str, str]]]:
    """The outcome for one sample, why it does not agree, and the verdict of each program if they are to be verified."""
    programs: list[Executable] = []
    outcome, reason = _compared(key, programs)
    return outcome, reason, [_verdict(exe) for exe in programs if verify]


def _verdict(exe: Executable) -> tuple[str, str]:
    verdict = exe.verify()
    reasons = (*map(str, verdict.counterexamples), *(reason for check in verdict.checks for reason in check.missing))
    return verdict.outcome, next(iter(reasons), "")


def _compared(key: Key, programs: list[Executable]) -> tuple[str, str]:
    """The outcome for one sample, and why it does not agree; what is compiled for it is added to ``programs``."""
    sample = samples(key.op, key.dtype)[key.sample]
    call = Call(sample)
    reasons: list[str] = []

    def compiled(program: torch.export.ExportedProgram) -> Any:
        try:
            programs.append(covan_mlir.compile_module(program))
            return programs[-1]
        except CovanError as error:
            reasons.append(str(error))
            raise

    # OpInfo seeds in each call of what draws; what is traced is seeded outside, as models are.
    with warnings.catch_warnings(), mock.patch.object(common_methods_invocations, "wrapper_set_seed", _called):
        warnings.simplefilter("ignore")
        try:
            expected = _gradients(call, _copies(sample))
        except Exception as error:
            return "not run by eager", str(error)
        if not any(isinstance(x, Tensor) for x in expected):
            return "no gradients", ""
        try:
            run = differentiable(call, _copies(sample), [f"x{k}" for k in range(len(sample.tensors))], compiled)
            given = _gradients(run, _copies(sample))
        except Exception as error:
            reasons.append(f"{type(error).__name__}: {error}")
        if reasons:
            return ("refused", reasons[0]) if _compiles(call) else ("not compiled forward", "")
        difference = differences(key.op, expected, given)
        if not difference or as_near(lambda: _exact(sample), expected, given):
            return "agrees", ""
        return "differs", difference


def _called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _compiles(call: Call) -> bool:
    """Whether a sample alone compiles."""
    try:
        with torch.no_grad():
            covan_mlir.compile_module(call, tuple(call.sample.copies()))
    except CovanError:
        return False
    return True


def _exact(sample: Sample) -> list[Tensor | None]:
    return _gradients(Call(sample, torch.float64), _copies(sample, torch.float64))


def _serve(connection: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            key, verify = connection.recv()
        except EOFError:
            return
        try:
            connection.send(judged(key, verify))
        except Exception as error:
            connection.send((f"raises {type(error).__name__}", str(error), []))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dtype", choices=("f32", "f64"), default="f32")
    parser.add_argument("--most", type=int, default=2, help="samples of each operator, far apart")
    parser.add_argument("--only", nargs="*", help="operators; all if none is named")
    parser.add_argument("--verify", action="store_true", help="verify the programs, too")
    options = parser.parse_args()
    names = [op for op, info in operators().items() if info.supports_autograd and takes(op, options.dtype)]
    judge = Judge(_serve, "opinfo_samples", SECONDS)
    outcomes: dict[str, list[str]] = defaultdict(list)
    verdicts: Counter[str] = Counter()
    for op in options.only or names:
        for key in spread(op, options.dtype, options.most):
            try:
                outcome, reason, said = judge.ask((key, options.verify))
            except NoAnswer as error:
                outcome, reason, said = "fails", str(error), []
            for verdict, why in said:
                verdicts[verdict] += 1
                if verdict != "yes":
                    print(f"{op} {key.sample}: verified: {verdict}: {' '.join(why.split())[:_CHARACTERS]}", flush=True)
            outcomes[op].append(outcome)
            if outcome not in NOT_TRIED | {"agrees"}:
                print(f"{op} {key.sample}: {outcome}: {' '.join(reason.split())[:_CHARACTERS]}", flush=True)
    judge.end()
    if options.verify:
        print(f"programs verified: {dict(verdicts)}")
    print(dict(Counter(outcome for each in outcomes.values() for outcome in each)))
    tried = [set(each) - NOT_TRIED for each in outcomes.values() if set(each) - NOT_TRIED]
    right = sum(each == {"agrees"} for each in tried)
    print(f"{right} of {len(tried)} operators that compile forward and have gradients")


if __name__ == "__main__":
    main()
