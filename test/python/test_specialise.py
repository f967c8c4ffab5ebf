"""What may be asked for of versions, and what of it is refused, with one message."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import covan_mlir
from covan_mlir import CompileOptions, InputError
from covan_mlir.compilation import versions
from covan_mlir.frontend.open_dimensions import Example, OpenDimension

BATCH = OpenDimension("batch", 1, 64, 4)
LENGTH = OpenDimension("length", 2, None, 16)
BOTH = {"batch": BATCH, "length": LENGTH}


def texts(specialise: Any, dimensions: dict[str, OpenDimension]) -> list[str]:
    return [versions.told(sizes) for sizes in versions.wanted(specialise, dimensions)]


def test_the_size_one_is_always_a_version_of_its_own() -> None:
    assert texts({"batch": [8]}, BOTH) == ["batch=1", "batch=8"]
    assert texts({"batch": [(1, 8)]}, BOTH) == ["batch=1", "batch=2..8"]
    assert texts({"batch": [1]}, BOTH) == texts({"batch": []}, BOTH) == ["batch=1"]
    assert texts({"length": [8]}, BOTH) == ["length=8"]  # its Dim begins at 2


def test_several_dimensions_make_all_combinations() -> None:
    assert texts({"batch": [1], "length": [16]}, BOTH) == ["length=16", "batch=1", "batch=1, length=16"]


def test_usual_sizes_are_as_many_as_there_may_be_versions() -> None:
    assert texts(True, {"batch": BATCH}) == ["batch=1", "batch=8", "batch=64"]
    many = {name: OpenDimension(name, 0, None, 4) for name in "abc"}
    assert 1 < len(texts(True, many)) <= versions.MOST


@pytest.mark.parametrize(
    ("specialise", "error", "message"),
    [
        ({"batch": [8, 8]}, ValueError, "batch has 8 twice"),
        ({"batch": [0]}, ValueError, "sizes are at least 1"),
        ({"batch": [(8, 2)]}, ValueError, "no range"),
        ({"batch": 8}, TypeError, "are a list"),
        ({"batch": "8"}, TypeError, "are a list"),
        ({"batch": [8.0]}, TypeError, "neither a size nor a range"),
        ({"batch": [True]}, TypeError, "neither a size nor a range"),
        ({3: [8]}, TypeError, "name is text"),
        ([8], TypeError, "is a dict"),
    ],
)
def test_options_are_checked_at_once(specialise: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        CompileOptions(specialise=specialise)


@pytest.mark.parametrize(
    ("specialise", "message"),
    [
        ({"bach": [8]}, "there is no open dimension 'bach'; there is batch, length"),
        ({"batch": [65]}, "batch=65 is out of 1 ≤ batch ≤ 64"),
        ({"length": [1]}, "length=1 is out of 2 ≤ length, which"),
        ({"batch": [(60, 70)]}, r"batch=60\.\.70 is out of"),
        ({"batch": [*range(2, 10)], "length": [3, 4]}, r"10 x 3 sizes are 29 versions"),
    ],
)
def test_what_the_model_does_not_have_is_refused(specialise: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        versions.wanted(CompileOptions(specialise=specialise).specialise, BOTH)


def test_models_without_named_sizes_are_refused() -> None:
    program = torch.export.export(torch.nn.ReLU(), (torch.randn(2),))
    with pytest.raises(InputError, match="no dimensions by name"):
        covan_mlir.compile_module(program, options=CompileOptions(specialise={"batch": [8]}))
    with pytest.raises(InputError, match="no open dimension 'batch'; there is none"):
        covan_mlir.compile_module(torch.nn.ReLU(), (torch.randn(2),), options=CompileOptions(specialise={"batch": [8]}))


def test_versions_need_a_lineage() -> None:
    with pytest.raises(InputError, match="compile with provenance=True"):
        covan_mlir.compile_module(
            torch.nn.ReLU(),
            (torch.randn(2),),
            dynamic_shapes=({0: Dim("n")},),
            provenance=False,
            options=CompileOptions(specialise={"n": [8]}),
        )


def test_examples_of_other_sizes() -> None:
    batch, length = Dim("batch"), Dim("length", max=64)

    def f(x: Tensor, more: dict[str, Tensor]) -> Tensor:
        return x @ more["y"]

    x, y = torch.arange(6.0).reshape(1, 2, 3), torch.arange(12.0).reshape(3, 4)
    shapes = {"x": {0: batch, 1: 2 * length}, "more": {"y": {1: length}}}
    example = Example.of(f, (x, {"y": y}), None, shapes)
    assert {name: each.size for name, each in example.dimensions.items()} == {"batch": 1, "length": 1}
    assert example.places == {"batch": (0, 0), "length": (1, 1)}
    other = example.with_sizes({"length": (5, 5), "batch": (2, 9)})
    assert other.args[0].shape == (2, 10, 3)
    assert other.args[1]["y"].tolist() == [[0, 1, 2, 3, 0], [4, 5, 6, 7, 4], [8, 9, 10, 11, 8]]
    assert other.dynamic_shapes["x"][1] == 10
    assert (other.dynamic_shapes["x"][0].min, other.dynamic_shapes["x"][0].max) == (2, 9)
