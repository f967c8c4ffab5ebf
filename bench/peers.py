"""Ways to run a model on this CPU, behind one interface: eager, torch.compile, ONNX Runtime, OpenVINO, stock, covan.

All take the model and example arguments, compile for exactly these shapes, and give a call without arguments. Each has
as many threads as there are cores, computes in the model's own element types, treats weights as constants, and reads
inputs where torch holds them. ONNX Runtime and OpenVINO write their results to the same place at every call.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import geometric_mean
from typing import Any

import common
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

Call = Callable[[], Any]
Model = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]
"""A module, and the arguments to call it with."""

COVAN = "covan"
UNFUSED = "unfused"
"""covan without fused reductions: a contender where it is asked for."""
PEERS = ("eager", "torch.compile", "onnxruntime", "openvino", "stock")
CONTENDERS = (*PEERS, COVAN)
ROUNDING = 2.0**-24
"""Relative error of the nearest f32 number: the least error that eager is said to have."""
WRONG = {torch.float32: 1e-4, torch.bfloat16: 5e-2}
"""Of the largest element: sums in another order stay below, a lost bias or a wrong constant does not."""
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def cast(workload: Model, dtype: torch.dtype) -> Model:
    """The model in another element type."""
    model, args, kwargs = workload

    def one(leaf: Any) -> Any:
        return leaf.to(dtype) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf

    args, kwargs = pytree.tree_map(one, (args, kwargs))
    return model.to(dtype), args, kwargs


def _dtype(model: nn.Module, args: Any) -> torch.dtype:
    """The element type that a model computes in: that of its weights, or of its inputs."""
    floating = (t.dtype for t in (*model.parameters(), *_tensors(args)) if t.is_floating_point())
    return next(floating, torch.float32)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def _eager(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    return lambda: model(*args, **kwargs)


def _torch_compile(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    # Without this, weights are arguments: neither is BatchNorm folded into them nor are they packed.
    compiled = torch.compile(model, dynamic=False, options={"freezing": True})
    return lambda: compiled(*args, **kwargs)


def onnx_program(exported: torch.export.ExportedProgram) -> torch.onnx.ONNXProgram:
    """The model in ONNX.

    Raises:
        RuntimeError: it has no form there, and why.
    """
    try:
        program = torch.onnx.export(exported, dynamo=True, verbose=False)
    except torch.onnx.OnnxExporterError as error:  # whose text is advice
        raise RuntimeError(f"ONNX export: {common.short(error.__cause__ or error)}") from error
    assert program is not None
    return program


def onnx_session(exported: torch.export.ExportedProgram) -> Any:
    """An `onnxruntime.InferenceSession` on all cores.

    Raises:
        RuntimeError: the model has no form in ONNX, and why.
    """
    import onnxruntime

    program = onnx_program(exported)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = common.cores()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(
        program.model_proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _onnxruntime(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    session = onnx_session(torch.export.export(model, args, dict(kwargs), strict=False))
    binding = session.io_binding()
    inputs = [x.detach().contiguous() for x in _tensors((args, dict(kwargs)))]
    for value, tensor in zip(session.get_inputs(), inputs, strict=True):
        binding.bind_input(value.name, "cpu", 0, tensor.numpy().dtype, tuple(tensor.shape), tensor.data_ptr())
    for value in session.get_outputs():
        binding.bind_output(value.name, "cpu")
    session.run_with_iobinding(binding)
    results = [torch.from_numpy(value.numpy().copy()) for value in binding.get_outputs()]
    binding.clear_binding_outputs()
    for value, tensor in zip(session.get_outputs(), results, strict=True):
        binding.bind_output(value.name, "cpu", 0, tensor.numpy().dtype, tuple(tensor.shape), tensor.data_ptr())

    def call(inputs: list[Tensor] = inputs) -> list[Tensor]:  # which keeps them alive
        session.run_with_iobinding(binding)
        return results

    return call


def openvino_request(model: Any, precision: str = "f32") -> Any:
    """An `openvino.InferRequest` of a converted model, on all cores, that computes in ``precision``."""
    import openvino

    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": common.cores(),
        "ENABLE_HYPER_THREADING": True,  # the cores that others use, whatever they are
        "INFERENCE_PRECISION_HINT": precision,  # by default it computes in bf16 where the machine can,
        "KV_CACHE_PRECISION": "f32",  # and keeps caches in 8 bits
    }
    return openvino.Core().compile_model(model, "CPU", settings).create_infer_request()


def _openvino(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    import openvino

    precision = "f32"
    if _dtype(model, args) is torch.bfloat16:
        # Its tensors and numpy's know no bf16: it is given the model in f32, and computes in bf16 inside.
        precision = "bf16"
        model, args, kwargs = cast((copy.deepcopy(model), args, dict(kwargs)), torch.float32)
    exported = torch.export.export(model, args, dict(kwargs), strict=False)
    request = openvino_request(openvino.convert_model(exported), precision)
    inputs = [x.detach().contiguous() for x in _tensors((args, dict(kwargs)))]
    for at, tensor in enumerate(inputs):
        request.set_input_tensor(at, openvino.Tensor(tensor.numpy(), shared_memory=True))
    request.infer(share_outputs=True)
    results = [torch.from_numpy(tensor.data) for tensor in request.output_tensors]

    def call(inputs: list[Tensor] = inputs) -> list[Tensor]:  # which keeps them alive
        request.infer(share_outputs=True)
        return results

    return call


def _stock(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    from stock import compile_stock

    program = compile_stock(model, args, kwargs)
    return lambda: program(*args, **kwargs)


def _covan(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], fuse: bool = True) -> Call:
    import covan_mlir

    options = covan_mlir.CompileOptions(fuse_reductions=fuse)
    exe = covan_mlir.compile_module(model, args, kwargs, options=options)
    return lambda: exe(*args, **kwargs)


def _unfused(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    return _covan(model, args, kwargs, fuse=False)


_WAYS: dict[str, Callable[[nn.Module, tuple[Any, ...], Mapping[str, Any]], Call]] = {
    "eager": _eager,
    "torch.compile": _torch_compile,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "stock": _stock,
    COVAN: _covan,
    UNFUSED: _unfused,
}


def prepare(contender: str, workload: Model) -> Call:
    """Compile a model for its arguments and call it once: the first call belongs to the compilation.

    Returns:
        A call that gives the results: torch tensors, as the model's tree or as a list of its tensors. Those of
        `onnxruntime` and `openvino` are the same tensors at every call, written anew.

    Raises:
        Exception: whatever the contender raises where it cannot.
    """
    call = _WAYS[contender](*workload)
    call()
    return call


def relative_error(actual: Any, expected: Any) -> float:
    """Largest difference of corresponding tensors, over the largest element of the expected one.

    Raises:
        ValueError: as many tensors are not on both sides, or they are of other shapes.
    """
    worst = 0.0
    for a, e in zip(_tensors(actual), _tensors(expected), strict=True):
        if a.shape != e.shape:
            raise ValueError(f"a result has shape {tuple(a.shape)}, not {tuple(e.shape)}")
        if e.numel():
            scale = float(e.abs().max()) or 1.0
            error = float((a.double() - e.double()).abs().max()) / scale
            worst = error if error != error else max(worst, error)  # NaN stays
    return worst


def in_double(workload: Model) -> Any:
    """Eager's results in f64, by a copy of the model."""
    model, args, kwargs = workload

    double, args, kwargs = cast((copy.deepcopy(model), args, kwargs), torch.float64)
    return double(*args, **kwargs)


@dataclass
class Lineup:
    """Contenders on one model.

    Attributes:
        calls: of those that compile and whose results are right.
        compile_s: seconds to compile, first call included.
        errors: `relative_error` to eager's f64 results.
        fails: why the others are not in the calls.
    """

    calls: dict[str, Call] = field(default_factory=dict)
    compile_s: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    fails: dict[str, str] = field(default_factory=dict)

    def error_over_eager(self, contender: str) -> float | None:
        """A contender's error over that of eager in the model's own type, which is at least that of rounding."""
        if contender not in self.errors or "eager" not in self.errors:
            return None
        return self.errors[contender] / max(self.errors["eager"], ROUNDING)


def line_up(contenders: Sequence[str], workload: Model) -> Lineup:
    """Compile a model with each contender and check what it gives."""
    lineup = Lineup()
    expected = in_double(workload)
    model, args, kwargs = workload
    most = WRONG[_dtype(model, args)]
    lineup.errors["eager"] = relative_error(model(*args, **kwargs), expected)
    for contender in contenders:
        try:
            call, seconds = common.once(partial(prepare, contender, workload))
            error = relative_error(call(), expected)
        except Exception as failure:  # a contender may fail in any way: that is a result
            lineup.fails[contender] = common.short(failure, 200)
            continue
        lineup.errors[contender] = error
        if not error <= most:  # also when it is NaN
            lineup.fails[contender] = f"wrong result, off by {error:.2g} of the largest element"
            continue
        lineup.calls[contender] = call
        lineup.compile_s[contender] = seconds
    return lineup


def best(times: Mapping[str, common.Timing]) -> str | None:
    """The peer of the least median, of those that were timed."""
    return min((name for name in PEERS if name in times), key=lambda name: times[name].median, default=None)


def gain(times: Mapping[str, common.Timing]) -> float | None:
    """Time of the best peer over covan's; None: one of them is missing."""
    peer = best(times)
    return times[peer].over(times[COVAN]) if peer and COVAN in times else None


def summary(gains: Mapping[str, float | None]) -> str:
    """Geometric mean and least of the gains, and which are missing, in a line or two."""
    known = {name: value for name, value in gains.items() if value is not None}
    missing = [name for name in gains if name not in known]
    lines = []
    if known:
        least = min(known, key=known.__getitem__)
        mean = geometric_mean(list(known.values()))
        below = sum(value < 1.0 for value in known.values())
        lines.append(
            f"best peer / covan over {len(known)}: geometric mean {common.cell(mean)}, "
            f"least {common.cell(known[least])} ({least}), {below} below 1.0"
        )
    if missing:
        lines.append(f"without a ratio: {', '.join(missing)}")
    return "\n".join(lines)
