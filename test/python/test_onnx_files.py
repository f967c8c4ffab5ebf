"""ONNX files that are damaged, hostile, too old or not translated: one clear line, and nothing read from elsewhere."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx_attacks import cases, use
from onnx_models import encoder, model, node, victims

from covan_mlir.errors import CovanError, ExportError, InputError
from covan_mlir.frontend.frontends import capture
from covan_mlir.frontend.onnx.info import told
from covan_mlir.frontend.onnx.inputs import declared, symbols
from covan_mlir.frontend.onnx.reading import read


def _external(folder: Path, change: Callable[[onnx.TensorProto], None] = lambda tensor: None) -> Path:
    """A model whose only weight, of 16 × 16 numbers, is in a file of its own."""
    weight = np.arange(256, dtype=np.float32).reshape(16, 16)
    built = model([node("MatMul", ["x", "W"], ["y"])], {"x": ("float32", [2, 16])}, ["y"], {"W": weight})
    (folder / "weights.bin").write_bytes(weight.tobytes())
    tensor = built.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "0"), ("length", "1024")):
        tensor.external_data.add(key=key, value=value)
    change(tensor)
    path = folder / "model.onnx"
    path.write_bytes(built.SerializeToString())
    return path


def _set(key: str, value: str) -> Callable[[onnx.TensorProto], None]:
    def change(tensor: onnx.TensorProto) -> None:
        for entry in tensor.external_data:
            if entry.key == key:
                entry.value = value

    return change


def test_tensors_in_files_of_their_own(tmp_path: Path) -> None:
    weights = read(_external(tmp_path)).weights
    assert np.array_equal(weights["W"].numpy(), np.arange(256, dtype=np.float32).reshape(16, 16))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("location", "../secret.bin", "no path below the model's folder"),
        ("location", "/etc/passwd", "no path below the model's folder"),
        ("location", "link/secret.bin", "leads out of the model's folder"),
        ("location", "absent.bin", "there is no such file"),
        ("location", "", "no path below the model's folder"),
        ("offset", "4", "which has 1024"),
        ("offset", "-4", "which has 1024"),
        ("length", "99999999999", "which has 1024"),
        ("length", "many", "is no number"),
    ],
)
def test_what_lies_elsewhere_is_not_read(tmp_path: Path, key: str, value: str, message: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(1024))
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(ExportError, match=message):
        read(_external(folder, _set(key, value)))


def test_a_size_that_the_file_does_not_have(tmp_path: Path) -> None:
    def enlarge(tensor: onnx.TensorProto) -> None:
        tensor.dims[0] = 2**40

    with pytest.raises(ExportError, match="which has 1024"):
        read(_external(tmp_path, enlarge))
    built = encoder()
    built.graph.initializer[0].dims[0] = 2**40
    with pytest.raises(ExportError, match=r"'W' has 1536 bytes where its shape and type take"):
        read(built)


def test_a_model_in_memory_has_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="pass the file's path"):
        read(onnx.load(_external(tmp_path), load_external_data=False))


def test_every_beginning_of_a_file_is_refused_or_read(tmp_path: Path) -> None:
    whole = encoder().SerializeToString()
    path = tmp_path / "cut.onnx"
    refused = []
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        try:
            read(path)
        except CovanError as error:
            refused.append(str(error))
    assert refused
    assert not [message for message in refused if "\n" in message]


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("no protobuf at all, and \x00 not either")
    for name, message in (("text.onnx", "no ONNX model"), ("absent.onnx", "no such file")):
        with pytest.raises(ExportError, match=message):
            capture(tmp_path / name, (), None, None)


@pytest.mark.parametrize(("opset", "message"), [(5, "is the oldest that is compiled"), (9999, "install a newer onnx")])
def test_opsets(opset: int, message: str) -> None:
    built = model([node("Add", ["x", "x"], ["y"])], {"x": ("float32", [4])}, ["y"])
    built.opset_import[0].version = opset
    with pytest.raises(ExportError, match=message):
        read(built)


def test_all_nodes_without_a_translation_are_told_at_once(tmp_path: Path) -> None:
    nodes = [
        node("RandomNormalLike", ["s"], ["i"], name="noise"),
        node("Mystery", ["b"], ["u"], name="one", domain="org.example"),
        node("Mystery", ["u"], ["v"], name="two", domain="org.example"),
    ]
    built = model(nodes, {"b": ("float32", [1, 4, 4]), "s": ("float32", [1, 1, 4])}, ["v"], org_example=1)
    with pytest.raises(ExportError) as caught:
        capture(built, (), None, None)
    assert str(caught.value) == (
        "the model: 3 nodes have no translation: 2 × org.example.Mystery: there is no translation of it (one, two); "
        "RandomNormalLike: it draws random numbers (noise)"
    )
    onnx.save(built, tmp_path / "model.onnx")
    facts = told(tmp_path / "model.onnx")
    assert [(row.op, row.nodes) for row in facts.unsupported] == [
        ("org.example.Mystery", ("one", "two")),
        ("RandomNormalLike", ("noise",)),
    ]
    assert facts.inputs == ("b: float32[1, 4, 4]", "s: float32[1, 1, 4]")


def test_functions_that_call_themselves() -> None:
    function = helper.make_function(
        "org.example", "F", ["a"], ["b"], [node("F", ["a"], ["b"], domain="org.example")],
        [helper.make_opsetid("org.example", 1)],
    )  # fmt: skip
    built = model([node("F", ["x"], ["y"], domain="org.example")], {"x": ("float32", [2])}, ["y"], org_example=1)
    built.functions.append(function)
    with pytest.raises(ExportError, match="in a circle"):
        capture(built, (), None, None)


def test_shapes_that_are_not_computed_in_full() -> None:
    """Sizes of petabytes fail by shape, before memory is asked for."""
    nodes = [node("ConstantOfShape", ["s"], ["big"]), node("Add", ["x", "big"], ["y"])]
    built = model(nodes, {"x": ("float32", [4])}, ["y"], {"s": np.array([2**50, 4])})
    with pytest.raises(CovanError):
        capture(built, (np.zeros(5, np.float32),), None, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": np.zeros((2, 16))}, r"x: float32\[batch, 16\] is given as float64"),
        ({"x": np.zeros((2, 15), np.float32)}, "is given with 15 for 16"),
        ({"x": np.zeros(16, np.float32)}, "is given with 1 dimensions"),
        ({"z": np.zeros((2, 16), np.float32)}, "no input 'z': it takes x"),
    ],
)
def test_arguments_that_contradict_the_file(given: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InputError, match=message):
        capture(encoder(), (), given, None)


def test_sizes_without_a_name_are_not_the_same() -> None:
    built = model([node("Relu", ["x"], ["y"])], {"x": ("float32", ["?", -1, "?", "n", ""])}, ["y"])
    (value,) = map(declared, read(built).inputs)
    assert symbols([value]) == ["x:0", "x:1", "x:2", "n", "x:4"]


def test_names_that_are_read_and_not_computed() -> None:
    built = model([node("Add", ["x", "nowhere"], ["y"])], {"x": ("float32", [2])}, ["y"])
    with pytest.raises(ExportError, match="'nowhere' is computed by no node"):
        capture(built, (), None, None)


def test_the_same_name_twice() -> None:
    built = encoder()
    built.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), "W"))
    with pytest.raises(ExportError, match="two tensors called 'W'"):
        read(built)


def test_changed_files_are_refused_or_translated(tmp_path: Path) -> None:
    """A seeded part of `bench/attack_onnx.py`, in this process: its time and memory are looked at there."""
    path = tmp_path / "model.onnx"
    for case in itertools.islice(cases(victims(tmp_path), 3), 40):
        path.write_bytes(case.data)
        with contextlib.suppress(CovanError):
            use(path)


@pytest.mark.parametrize("version", [0, -(2**63), 2**63 - 1])
def test_opsets_that_there_are_none_of(tmp_path: Path, version: int) -> None:
    built = encoder()
    built.opset_import[0].version = version
    with pytest.raises(ExportError, match=f"of opset {version}"):
        read(built)


def test_examples_of_any_size_are_not_made() -> None:
    huge = model([node("Relu", ["x"], ["y"])], {"x": ("float32", [2**40])}, ["y"])
    with pytest.raises(InputError, match="more than 1024 MiB: give example arguments"):
        capture(huge, (), None, None)
