"""The node cases that ONNX tests backends with: loading, running many at a time, judging.

A case is *out of scope* if it is for training, or takes or gives strings or elements of types that programs lack (8-bit
floating-point numbers, integers of 4 and 2 bits). It *matches* if all results have the type, the shape and the values
that the case expects, within its own tolerances, or what rounding of the element type and of the largest element
allows.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np
import onnx
import torch
from onnx import numpy_helper

import covan_mlir
from covan_mlir.errors import CompileError, CovanError, ExportError, InputError
from covan_mlir.frontend.onnx.dtypes import TYPES, type_name
from covan_mlir.frontend.onnx.export import settled
from covan_mlir.frontend.onnx.inputs import declared
from covan_mlir.frontend.onnx.module import OnnxModule
from covan_mlir.frontend.onnx.nodes import numbered
from covan_mlir.frontend.onnx.reading import read
from covan_mlir.frontend.onnx.unsupported import check_supported
from covan_mlir.frontend.translation.arrays import to_torch

Outcome = Literal["matches", "refused", "differs", "fails", "out of scope"]
_TRAINING = ("ai.onnx.preview.training", "ai.onnx.training")
_ROUNDING = {"float16": 1e-3, "bfloat16": 8e-3}
"""Beside a case's own tolerance: a unit in the last place of what numpy rounds otherwise."""
_SUMS = 2e-7
"""Of the largest element: what another order of summands gives."""


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        sets: inputs and expected outputs.
    """

    name: str
    op: str
    model: onnx.ModelProto
    sets: tuple[tuple[list[Any], list[Any]], ...]
    rtol: float
    atol: float


@dataclass(frozen=True)
class Judged:
    """What became of a case.

    Attributes:
        compiled: whether a program was judged; else the translation alone, run by eager PyTorch.
    """

    name: str
    op: str
    outcome: Outcome
    why: str = ""
    compiled: bool = True


@functools.cache
def cases() -> dict[str, Case]:
    """All node cases that ship with onnx, by name."""
    from onnx.backend.test.case.node import collect_testcases

    known_cases = {}
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numbers that overflow on purpose
        collected = collect_testcases(None)
    for case in collected:
        assert case.model is not None
        assert case.data_sets is not None
        sets = tuple((list(inputs), list(outputs)) for inputs, outputs in case.data_sets)
        known_cases[case.name] = Case(case.name, _op(case.model), case.model, sets, case.rtol, case.atol)
    return known_cases


def folder_cases(kind: str) -> dict[str, Case]:
    """Cases that ship as files: ``simple``, ``pytorch-converted``, ``pytorch-operator``."""
    root = Path(onnx.__file__).parent / "backend" / "test" / "data" / kind
    known_cases = {}
    for folder in sorted(root.iterdir()):
        model = onnx.load(folder / "model.onnx")
        sets = []
        for data in sorted(folder.glob("test_data_set_*")):
            inputs = [_stored(data / f"input_{k}.pb", value) for k, value in enumerate(_inputs(model))]
            outputs = [_stored(data / f"output_{k}.pb", value) for k, value in enumerate(model.graph.output)]
            sets.append((inputs, outputs))
        known_cases[f"{kind}/{folder.name}"] = Case(f"{kind}/{folder.name}", _op(model), model, tuple(sets), 1e-3, 1e-7)
    return known_cases


def _stored(path: Path, value: onnx.ValueInfoProto) -> Any:
    if value.type.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def _inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    held = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in held]


def _op(model: onnx.ModelProto) -> str:
    """What a case is about: its operator, or ``function`` for one that is written out."""
    if len(model.graph.node) == 1:
        node = model.graph.node[0]
        return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
    return "several"


def out_of_scope(case: Case) -> str:
    """Why a case is none for programs; empty: it is one."""
    for node in case.model.graph.node:
        if node.domain in _TRAINING:
            return "training"
    held = [value.type for value in (*case.model.graph.input, *case.model.graph.output)]
    held += [value.type for value in case.model.graph.value_info]
    for kind in held:
        while kind.WhichOneof("value") in ("sequence_type", "optional_type"):
            kind = getattr(kind, kind.WhichOneof("value")).elem_type
        if kind.HasField("tensor_type") and kind.tensor_type.elem_type not in TYPES:
            name = type_name(kind.tensor_type.elem_type)
            return "strings" if name == "STRING" else f"elements of type {name}"
    return ""


class _Many(torch.nn.Module):
    def __init__(self, modules: Sequence[OnnxModule], counts: Sequence[int]) -> None:
        super().__init__()
        self.cases = torch.nn.ModuleList(modules)
        self.counts = counts

    def forward(self, *inputs: Any) -> Any:
        results, start = [], 0
        for module, count in zip(self.cases, self.counts, strict=True):
            results.append(module(*inputs[start : start + count]))
            start += count
        return results


def judged(names: Sequence[str], compiled: bool = True) -> list[Judged] | None:
    """Compile cases as one program, and judge each; None: together they do not compile, so that they have to be tried
    one by one.

    Args:
        compiled: else their translations are run by eager PyTorch.
    """
    known = cases() | {k: v for kind in ("simple", "pytorch-converted", "pytorch-operator") for k, v in _folder(kind)}
    rows: dict[str, Judged] = {}
    ready: list[tuple[Case, OnnxModule, list[Any]]] = []
    for name in names:
        case = known[name]
        why = out_of_scope(case)
        if why:
            rows[name] = Judged(name, case.op, "out of scope", why)
            continue
        try:
            ready.append((case, *_translated(case)))
        except (ExportError, InputError) as error:
            rows[name] = Judged(name, case.op, "refused", str(error))
        except Exception as error:
            rows[name] = Judged(name, case.op, "fails", f"{type(error).__name__}: {error}"[:300])
    if ready and not compiled:
        rows |= {case.name: _eager(case, module, given) for case, module, given in ready}
    elif ready:
        results = _run(ready)
        if results is None:
            return None
        rows |= results
    return [replace(rows[name], compiled=compiled) for name in names]


def _eager(case: Case, module: OnnxModule, given: list[Any]) -> Judged:
    try:
        with torch.no_grad():
            return _compared(case, module(*given))
    except Exception as error:
        return Judged(case.name, case.op, "fails", f"{type(error).__name__}: {error}"[:300])


@functools.cache
def _folder(kind: str) -> tuple[tuple[str, Case], ...]:
    return tuple(folder_cases(kind).items())


def _translated(case: Case) -> tuple[OnnxModule, list[Any]]:
    loaded = read(case.model)
    check_supported(loaded)
    for value in loaded.inputs:
        declared(value)
    given = [_torch(value) for value in case.sets[0][0]]
    places, _ = numbered(loaded.model)
    fixed, used = settled(loaded, places, given)
    module = OnnxModule(loaded, places, fixed)
    module.hold(used)
    return module, given


def _run(ready: Sequence[tuple[Case, OnnxModule, list[Any]]]) -> dict[str, Judged] | None:
    alone = len(ready) == 1
    arguments = tuple(value for _, _, given in ready for value in given)
    many = _Many([module for _, module, _ in ready], [len(given) for _, _, given in ready])
    try:
        exe = covan_mlir.compile_module(many, arguments)
        results = exe(*arguments)
    except Exception as error:
        if not alone:
            return None
        case = ready[0][0]
        why = next(iter(str(error).splitlines()), "")
        refused = isinstance(error, CompileError | ExportError) and "crash" not in why
        outcome: Outcome = "refused" if refused else "fails"
        named = "" if isinstance(error, CovanError) else f"{type(error).__name__}: "
        return {case.name: Judged(case.name, case.op, outcome, f"{named}{why}"[:300])}
    return {case.name: _compared(case, result) for (case, _, _), result in zip(ready, results, strict=True)}


def _compared(case: Case, result: Any) -> Judged:
    expected = case.sets[0][1]
    got = list(result) if len(expected) != 1 else [result]
    whys = [_difference(g, e, case) for g, e in zip(got, expected, strict=True)]
    why = next(filter(None, whys), "")
    return Judged(case.name, case.op, "differs" if why else "matches", why)


def _torch(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_torch(item) for item in value]
    return to_torch(_array(value).copy())


def _array(value: Any) -> np.ndarray[Any, Any]:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _difference(got: Any, expected: Any, case: Case) -> str:
    """How a result is not what is expected; empty: it is."""
    if isinstance(expected, list):
        if not isinstance(got, list | tuple) or len(got) != len(expected):
            return "the sequence has another length"
        return next(filter(None, (_difference(g, e, case) for g, e in zip(got, expected, strict=True))), "")
    if expected is None or got is None:
        return "" if got is expected else "nothing, or something, is given"
    want = _array(expected)
    if got.dtype is torch.bfloat16:
        have = got.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    else:
        have = got.numpy()
    if have.dtype != want.dtype or have.shape != want.shape:
        return f"{have.dtype}{list(have.shape)} instead of {want.dtype}{list(want.shape)}"
    if want.dtype.kind in "biu":
        return "" if np.array_equal(have, want) else "integers differ"
    exact = want.astype(np.complex128 if want.dtype.kind == "c" else np.float64)
    near = have.astype(exact.dtype)
    finite = np.abs(exact[np.isfinite(exact)])
    largest = float(finite.max()) if finite.size else 0.0
    rtol = max(case.rtol, _ROUNDING.get(want.dtype.name, 0.0))
    atol = max(case.atol, largest * max(_SUMS, _ROUNDING.get(want.dtype.name, 0.0)))
    if np.allclose(near, exact, rtol, atol, equal_nan=True):
        return ""
    with np.errstate(invalid="ignore"):
        return f"by up to {float(np.nanmax(np.abs(near - exact))):.3g}"
