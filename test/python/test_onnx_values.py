"""Nodes that give as many results as values say: places, elements each once, boxes kept. By ONNX's reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from limits import many, part
from onnx.reference import ReferenceEvaluator
from onnx_models import model, node

import covan_mlir
from covan_mlir.frontend.frontends import capture

Arrays = Mapping[str, np.ndarray[Any, Any]]
RNG = np.random.default_rng(0)


def expected(built: onnx.ModelProto, arrays: Arrays) -> list[Any]:
    return list(ReferenceEvaluator(built).run(None, dict(arrays)))


def elements_once(array: np.ndarray[Any, Any], axis: int | None = None, sorted: int = 1) -> list[Any]:
    """What `Unique` gives, by NumPy: ONNX's reference cannot leave elements in the order in which they come."""
    values, first, inverse, counts = np.unique(array, True, True, True, axis=axis)
    order = np.arange(len(first)) if sorted else np.argsort(first)
    places = np.argsort(order)[inverse.reshape(-1)]
    return [np.take(values, order, axis or 0), first[order], places, counts[order]]


def agree(actual: Any, wanted: Sequence[Any]) -> None:
    results = actual if isinstance(actual, tuple) else (actual,)
    for own, theirs in zip(results, wanted, strict=True):
        assert own.dtype == theirs.dtype
        np.testing.assert_array_equal(own, theirs)


def one(op: str, results: int, arrays: Arrays, **attributes: Any) -> onnx.ModelProto:
    """A model of one node, whose operands are inputs."""
    names = [f"r{number}" for number in range(results)]
    inputs = {name: (str(array.dtype), array.shape) for name, array in arrays.items()}
    return model([node(op, list(arrays), names, **attributes)], inputs, names)


CASES = {
    "places": ("NonZero", 1, {"x": (RNG.random((3, 4)) > 0.5).astype(np.float32)}, {}),
    "slices that a condition chooses": (
        "Compress", 1, {"x": RNG.random((4, 3), np.float32), "c": np.array([True, False, True])}, {"axis": 0},
    ),
    "elements that a condition chooses": (
        "Compress", 1, {"x": RNG.random((2, 3), np.float32), "c": RNG.random(5) > 0.4}, {},
    ),
    "elements once": ("Unique", 4, {"x": RNG.integers(0, 5, (3, 4))}, {}),
    "elements once, as they come": ("Unique", 4, {"x": RNG.integers(0, 5, (3, 4))}, {"sorted": 0}),
    "rows once": ("Unique", 4, {"x": RNG.integers(0, 2, (6, 2)).astype(np.float32)}, {"axis": 0}),
    "columns once, as they come": ("Unique", 4, {"x": RNG.integers(0, 2, (2, 6))}, {"axis": 1, "sorted": 0}),
}  # fmt: skip


@pytest.mark.parametrize("name", part(CASES, ("places", "elements once, as they come")))
def test_results_of_sizes_that_values_decide(name: str) -> None:
    op, results, arrays, attributes = CASES[name]
    built = one(op, results, arrays, **attributes)
    exe = covan_mlir.compile_module(built)
    wanted = elements_once(arrays["x"], **attributes) if op == "Unique" else expected(built, arrays)
    agree(exe(**arrays), wanted)
    assert exe.verify()


def boxes(
    images: int, classes: int, count: int, most: int, overlap: float, least: float | None, centred: bool = False
) -> onnx.ModelProto:
    """Detections whose limits are in the file, as exporters write them."""
    weights = {"most": np.array([most]), "overlap": np.array([overlap], np.float32)}
    operands = ["boxes", "scores", "most", "overlap"]
    if least is not None:
        weights["least"] = np.array([least], np.float32)
        operands.append("least")
    inputs = {"boxes": ("float32", [images, count, 4]), "scores": ("float32", [images, classes, count])}
    return model(
        [node("NonMaxSuppression", operands, ["kept"], center_point_box=int(centred))], inputs, ["kept"], weights
    )


def detections(seed: int, images: int, classes: int, count: int) -> Arrays:
    """Few different numbers: many scores are equal, many boxes have no area, many overlaps are the same."""
    rng = np.random.default_rng(seed)
    return {
        "boxes": rng.integers(0, 6, (images, count, 4)).astype(np.float32) / 4,
        "scores": rng.integers(0, 8, (images, classes, count)).astype(np.float32) / 8,
    }


@settings(max_examples=many(15, 60))
@given(
    st.integers(0, 1 << 20), st.integers(1, 2), st.integers(1, 3), st.integers(1, 12), st.integers(0, 14),
    st.sampled_from([0.0, 0.3, 0.5, 1.0]), st.sampled_from([None, 0.0, 0.5, 2.0]), st.booleans(),
)  # fmt: skip
def test_boxes_that_are_kept(
    seed: int, images: int, classes: int, count: int, most: int, overlap: float, least: float | None, centred: bool
) -> None:
    """What translates them, run by PyTorch."""
    built = boxes(images, classes, count, most, overlap, least, centred)
    arrays = detections(seed, images, classes, count)
    (wanted,) = expected(built, arrays)
    taken = capture(built, (), None, None)
    assert taken.program is not None
    kept = taken.program.module()(*(torch.from_numpy(arrays[name]) for name in ("boxes", "scores")))
    np.testing.assert_array_equal(kept.numpy(), wanted)


@pytest.mark.parametrize(("images", "classes"), part([(1, 1), (2, 3)], ((2, 3),)))
def test_detections_compiled(images: int, classes: int) -> None:
    built = boxes(images, classes, 40, 6, 0.4, 0.25)
    exe = covan_mlir.compile_module(built)
    for seed in (1, 2, 3):
        arrays = detections(seed, images, classes, 40)
        agree(exe(**arrays), expected(built, arrays))
    assert exe.lineage.where("NonMaxSuppression_kept")
    verdict = exe.verify()
    assert verdict, verdict
