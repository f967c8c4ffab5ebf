"""Quantised models side by side: covan in 8 bits and in f32, ONNX Runtime and OpenVINO in 8 bits.

    python bench/quantised.py [bert_base resnet50 ...] [--rounds 11] [--seconds 3]     models at their real size
    python bench/quantised.py --products                                               integer products alone

covan and `torch.compile` are given what torch's exporter makes of the model (PT2E, for x86: weights by channels, what
they multiply as a whole), ONNX Runtime and OpenVINO what ONNX Runtime's static quantisation does (QDQ, the same kinds),
both calibrated with the example's arguments. *Apart* is covan's largest difference from the quantised model in eager;
*quantised*, of that from the model.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numpy as np
import peers
import torch
from pt2e import exported_steps
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from workloads import build

import covan_mlir

PRODUCTS = ((128, 768, 3072), (197, 768, 768), (512, 512, 512), (1024, 1024, 1024), (32, 3072, 768), (1, 768, 768))
"""Rows, terms and columns."""
MODELS = ("bert_base", "vit_b16", "resnet50", "mobilenet_v2")


class Whole(nn.Module):
    """A model whose results are tensors, all of them: torch's quantiser takes no layers that nothing reads."""

    def __init__(self, model: nn.Module, kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.kwargs = model, kwargs

    def forward(self, *args: Tensor) -> list[Tensor]:
        results = pytree.tree_leaves(self.model(*args, **self.kwargs))
        return [one for one in results if isinstance(one, Tensor)]


def onnx_steps(model: nn.Module, args: tuple[Any, ...], folder: Path) -> tuple[Path, dict[str, Any]]:
    """The file of a model in ONNX, quantised statically, and its arguments by name."""
    import onnxruntime
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    plain, prepared, quantised = (folder / f"{name}.onnx" for name in ("plain", "prepared", "quantised"))
    peers.onnx_program(torch.export.export(model, args)).save(plain)
    session = onnxruntime.InferenceSession(plain, providers=["CPUExecutionProvider"])
    feed = {value.name: one.numpy() for value, one in zip(session.get_inputs(), args, strict=True)}

    class Example(quantization.CalibrationDataReader):  # type: ignore[misc]  # the package is untyped
        def __init__(self) -> None:
            self.left = [feed]

        def get_next(self) -> dict[str, Any] | None:
            return self.left.pop() if self.left else None

    try:
        quant_pre_process(plain, prepared, skip_symbolic_shape=True)
    except Exception:  # weights in a file of their own
        prepared = plain
    quantization.quantize_static(
        prepared,
        quantised,
        Example(),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
    )
    return quantised, feed


def onnxruntime_call(file: Path, feed: dict[str, Any]) -> Callable[[], Any]:
    """A call of a file by ONNX Runtime, on all cores."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = common.cores()
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feed)


def openvino_call(file: Path, feed: dict[str, Any]) -> Callable[[], Any]:
    """A call of a file by OpenVINO, on all cores."""
    import openvino

    request = peers.openvino_request(openvino.Core().read_model(file))
    return lambda: request.infer(feed, share_inputs=True, share_outputs=True)


def model_row(name: str, rounds: int, seconds: float) -> common.Row:
    """One model."""
    model, args, kwargs = build(name)
    whole = Whole(model, kwargs).eval()
    quantised = exported_steps(whole, args)
    start = time.perf_counter()
    exe = covan_mlir.compile_module(torch.export.export(quantised, args), args)
    exe(*args)
    compile_s = time.perf_counter() - start
    plain = covan_mlir.compile_module(whole, args)
    with torch.no_grad():
        want, exact = quantised(*args)[0], whole(*args)[0]
    with tempfile.TemporaryDirectory() as folder:
        file, feed = onnx_steps(whole, args, Path(folder))
        calls = {
            "covan": lambda: exe(*args),
            "covan f32": lambda: plain(*args),
            "onnxruntime": onnxruntime_call(file, feed),
            "openvino": openvino_call(file, feed),
            "torch.compile": peers.prepare("torch.compile", (quantised, args, {})),
        }
        times = common.interleave(
            calls, rounds=rounds, seconds=seconds, warmup=4, settle=common.SETTLE, pause=common.REST
        )
    best = min(("onnxruntime", "openvino", "torch.compile"), key=lambda one: times[one].median)
    return {
        "model": name,
        **{one: timing.median * 1e3 for one, timing in times.items()},
        "best / covan": times[best].over(times["covan"]),
        "f32 / covan": times["covan f32"].over(times["covan"]),
        "apart": float((exe(*args)[0] - want).abs().max()),
        "quantised": float((want - exact).abs().max()),
        "sites": len(exe.lineage.sites),
        "compile_s": compile_s,
    }


class Product(nn.Module):
    """An integer product with a scale for each column."""

    weight: Tensor
    scales: Tensor

    def __init__(self, terms: int, columns: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (terms, columns), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(columns))

    def forward(self, x: Tensor) -> Tensor:
        return torch._int_mm(x, self.weight).float() * self.scales


def product_row(rows: int, terms: int, columns: int) -> common.Row:
    """One product: covan and eager with a sign, ONNX Runtime without, which is what it is fast at."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    torch.manual_seed(0)
    model, x = Product(terms, columns), torch.randint(-128, 128, (rows, terms), dtype=torch.int8)
    exe = covan_mlir.compile_module(model, (x,))
    nodes = [
        helper.make_node("MatMulInteger", ["x", "w"], ["y"]),
        helper.make_node("Cast", ["y"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["o"]),
    ]
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [rows, terms])],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, [rows, columns])],
        [
            numpy_helper.from_array(model.weight.numpy(), "w"),
            numpy_helper.from_array(model.scales.numpy(), "s"),
        ],
    )
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(whole, file := Path(folder) / "product.onnx")
        peer = onnxruntime_call(file, {"x": (x.int() + 128).to(torch.uint8).numpy().astype(np.uint8)})
    calls = {"covan": lambda: exe(x), "eager": lambda: model(x), "onnxruntime": peer}
    times = common.interleave(calls, rounds=15, seconds=1.5, warmup=5, settle=common.SETTLE, pause=common.REST)
    work = 2 * rows * terms * columns
    best = min(("eager", "onnxruntime"), key=lambda one: times[one].median)
    return {
        "product": f"{rows}x{terms}x{columns}",
        **{f"{one}, us": timing.median * 1e6 for one, timing in times.items()},
        "covan, GOP/s": work / times["covan"].median / 1e9,
        "best / covan": times[best].over(times["covan"]),
    }


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--products", action="store_true", help="integer products alone")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    if options.products:
        rows = [product_row(*sizes) for sizes in PRODUCTS]
    else:
        rows = [model_row(name, options.rounds, options.seconds) for name in options.models]
    print(common.report("Milliseconds per call (medians)", common.machine(), [*rows[0]], rows, 150))


if __name__ == "__main__":
    main()
