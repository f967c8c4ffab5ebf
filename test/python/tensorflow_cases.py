"""Models of TensorFlow, Keras and TFLite: compiled, told of by layer and line, verified; against TensorFlow itself."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import pytest
import tensorflow as tf
from command_line import covan
from tensorflow_models import attention, cnn, entropy, grouped, quantised, recurrent, tflite

import covan_mlir
from covan_mlir import Executable
from covan_mlir.errors import ExportError, InputError
from covan_mlir.frontend.frontends import capture
from covan_mlir.frontend.onnx import registry
from covan_mlir.frontend.onnx.registry import Operator
from covan_mlir.frontend.tensorflow import kinds

IMAGES = np.random.default_rng(0).standard_normal((3, 16, 16, 3), np.float32)


def _agrees(exe: Executable, expected: Any, *args: Any, atol: float = 1e-5) -> None:
    """Results are TensorFlow's, in its structure, and the lineage holds."""
    results = exe(*args)
    tf.nest.assert_same_structure(results, expected, check_types=False)
    for result, wanted in zip(tf.nest.flatten(results), tf.nest.flatten(expected), strict=True):
        np.testing.assert_allclose(result, np.asarray(wanted), rtol=1e-4, atol=atol)
    verdict = exe.verify()
    assert verdict, verdict


@cache
def compiled() -> Executable:
    return covan_mlir.compile_module(cnn(), dynamic_shapes={"batch": (1, 64)})


def test_a_keras_model_for_any_batch() -> None:
    for batch in (1, 3, 64):
        x = np.random.default_rng(batch).standard_normal((batch, 16, 16, 3), np.float32)
        np.testing.assert_allclose(compiled()(image=x), cnn()(x), rtol=1e-4, atol=1e-6)
    with pytest.raises(InputError, match="the model was exported for 1 ≤"):
        compiled()(np.zeros((65, 16, 16, 3), np.float32))
    verdict = compiled().verify()
    assert verdict, verdict


def test_layers_are_modules() -> None:
    lineage = compiled().lineage
    nodes = [(a.name, a.op, a.module) for a in lineage.actions if a.translated]
    assert nodes == [
        ("net_1/stem_1/BiasAdd__1", "onnx.Transpose", "net.stem"),
        ("net_1/stem_1/BiasAdd", "onnx.Conv", "net.stem"),
        ("net_1/norm_1/batchnorm/mul_1", "onnx.Mul", "net.norm.batchnorm"),
        ("net_1/norm_1/batchnorm/add_1", "onnx.Add", "net.norm.batchnorm"),
        ("net_1/act_1/Relu", "onnx.Relu", "net.act"),
        ("net_1/depth_1/depthwise__1", "onnx.Conv", "net.depth"),
        ("net_1/pool_1/MaxPool2d", "onnx.MaxPool", "net.pool"),
        ("net_1/pool_1/MaxPool2d__1", "onnx.Transpose", "net.pool"),
        ("net_1/mean_1/Mean", "onnx.ReduceMean", "net.mean"),
        ("net_1/head_1/MatMul", "onnx.MatMul", "net.head"),
        ("net_1/head_1/BiasAdd", "onnx.Add", "net.head"),
        ("net_1/head_1/Softmax", "onnx.Softmax", "net.head"),
    ]
    assert {site.id for site in lineage.where("net.stem")} <= {site.id for site in lineage.where("net")}
    assert lineage.where("net.stem")


def test_every_tensor_is_compared_and_the_translation_with_tensorflow() -> None:
    comparison = compiled().compare(IMAGES)
    assert comparison
    assert not comparison.notes


def test_a_wrong_translation_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Operator("Tanh", "", 6, None, lambda call: call.tensor(0) * 2)
    monkeypatch.setitem(registry._OPERATORS, ("", "Tanh"), [wrong])
    exe = covan_mlir.compile_module(tf.function(lambda x: tf.tanh(x)), (np.ones(4, np.float32),))
    comparison = exe.compare(np.ones(4, np.float32))
    assert not comparison
    assert any("the translation of the model is wrong" in note for note in comparison.notes)


class Scaled(keras.Model):
    """A model by subclassing, which does not say what it takes."""

    def __init__(self) -> None:
        super().__init__(name="scaled")
        self.first = keras.layers.Dense(4, name="first")
        self.second = keras.layers.Dense(2, name="second")

    def call(self, x: Any) -> Any:
        y = tf.nn.relu(self.first(x))
        return {"scaled": self.second(y) * 2.0, "both": (y, x + 1.0)}


def _line(function: Callable[..., Any], text: str) -> str:
    lines, start = inspect.getsourcelines(function)
    offset = next(place for place, line in enumerate(lines) if text in line)
    return f"{Path(__file__).resolve()}:{start + offset}"


def test_a_model_by_subclassing_and_its_lines() -> None:
    built, x = Scaled(), np.random.default_rng(0).standard_normal((3, 5), np.float32)
    with pytest.raises(InputError, match="scaled does not say what it takes: give example arguments"):
        covan_mlir.compile_module(built)
    exe = covan_mlir.compile_module(built, (tf.constant(x),), dynamic_shapes={"x:0": (1, 8)})
    _agrees(exe, built(x), x)
    assert exe(x[:2])["scaled"].shape == (2, 2)
    lines = {a.op: a.line for a in exe.lineage.actions if a.translated}
    assert lines["onnx.Relu"] == _line(Scaled.call, "tf.nn.relu")
    assert exe.lineage.where(_line(Scaled.call, "* 2.0"))
    assert exe.lineage.where("scaled.second")


@tf.function
def _inner(x: Any) -> Any:
    return tf.nn.relu(x) - 0.5


@tf.function
def _steps(x: Any, w: Any, flag: bool = True) -> Any:
    y = tf.matmul(x, w)
    for _ in tf.range(3):
        y = tf.tanh(y)
    if flag:
        y = y + 1.0
    with tf.name_scope("block"):
        z = _inner(y)
    return z, y


def test_a_function_and_its_lines() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 4), np.float32), rng.standard_normal((4, 4), np.float32)
    exe = covan_mlir.compile_module(_steps, (x, w), {"flag": False})
    _agrees(exe, _steps(x, w, flag=False), x, w)
    lines = {(a.op, a.line) for a in exe.lineage.actions if a.translated}
    python = _steps.python_function
    assert ("onnx.MatMul", _line(python, "tf.matmul")) in lines
    assert ("onnx.Tanh", _line(python, "tf.tanh")) in lines
    assert ("onnx.Relu", _line(_inner.python_function, "tf.nn.relu")) in lines
    assert exe.lineage.where("block")


@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
def test_recurrences(layer: str) -> None:
    built, x = recurrent(layer), np.random.default_rng(0).standard_normal((3, 6, 5), np.float32)
    exe = covan_mlir.compile_module(built, dynamic_shapes={"batch": 3})
    _agrees(exe, built(x), x)
    assert exe.compare(x)


def test_attention() -> None:
    built, ids = attention(), np.random.default_rng(0).integers(0, 50, (3, 7)).astype(np.int32)
    exe = covan_mlir.compile_module(built, dynamic_shapes={"batch": 3})
    _agrees(exe, built(ids), ids)
    assert exe.lineage.where("net.attention")
    open_batch = covan_mlir.compile_module(built)
    _agrees(open_batch, built(ids), ids)
    assert open_batch.compare(ids)


def test_convolutions_in_groups() -> None:
    """On CPUs Keras has XLA compile them, each as a function of its own."""
    built, x = grouped(), np.random.default_rng(0).standard_normal((2, 8, 8, 8), np.float32)
    exe = covan_mlir.compile_module(built, dynamic_shapes={"batch": 2})
    _agrees(exe, built(x), x)
    assert sum(action.op == "onnx.Conv" for action in exe.lineage.actions) == 2
    assert exe.lineage.where("net.coarse")


class Module(tf.Module):
    """A module with a variable, and two functions when it is asked for them."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(np.eye(4, dtype=np.float32) * 3)

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, name="rows")])
    def times(self, rows: Any) -> Any:
        return {"product": rows @ self.w}


class Two(Module):
    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, name="rows")])
    def plus(self, rows: Any) -> Any:
        return rows + 1.0


def test_modules_and_signatures(tmp_path: Path) -> None:
    built, rows = Module(), np.ones((2, 4), np.float32)
    _agrees(covan_mlir.compile_module(built), built.times(rows), rows)
    with pytest.raises(ExportError, match="has the functions plus, times: pass the one"):
        capture(Two(), (), None, None)
    two = Two()
    signatures = {"one": two.times.get_concrete_function(), "other": two.plus.get_concrete_function()}
    tf.saved_model.save(two, str(tmp_path), signatures=signatures)
    with pytest.raises(ExportError, match=r"has the signatures one, other, and none is called serving_default"):
        capture(tmp_path, (), None, None)
    loaded = tf.saved_model.load(str(tmp_path))
    _agrees(covan_mlir.compile_module(loaded.signatures["other"]), loaded.signatures["other"](rows=rows), rows)


def test_a_saved_model(tmp_path: Path) -> None:
    cnn().export(str(tmp_path / "saved"), verbose=False)
    exe = covan_mlir.compile_module(tmp_path / "saved", dynamic_shapes={"image:0": (1, 8)})
    _agrees(exe, {"output_0": cnn()(IMAGES)}, IMAGES)
    assert exe.compare(image=IMAGES)
    assert exe.lineage.where("net_1.stem_1")


def test_a_keras_file(tmp_path: Path) -> None:
    cnn().save(tmp_path / "net.keras")
    captured = capture(tmp_path / "net.keras", (IMAGES,), None, {"batch": 3})
    assert captured.reference is not None
    (own,) = captured.reference([IMAGES])
    assert own is not None
    np.testing.assert_allclose(own, cnn()(IMAGES), rtol=1e-5)


@pytest.mark.parametrize("eight_bits", [False, True])
def test_a_tflite_file(tmp_path: Path, eight_bits: bool) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(quantised() if eight_bits else tflite())
    x = (np.clip(IMAGES * 40, -128, 127) if eight_bits else IMAGES).astype(np.int8 if eight_bits else np.float32)
    exe = covan_mlir.compile_module(path, dynamic_shapes={"image:0": 3})
    runner = tf.lite.Interpreter(model_path=str(path)).get_signature_runner()
    (expected,) = runner(image=x).values()
    _agrees(exe, expected, x, atol=1 if eight_bits else 1e-5)  # what is rounded in the middle may be one off
    assert exe.compare(x)
    assert exe.lineage.where("net_1.depth_1")


def test_nodes_that_are_not_converted_are_told_at_once() -> None:
    with pytest.raises(ExportError) as caught:
        capture(entropy(), (), None, None)
    assert str(caught.value) == (
        "entropy: 3 nodes have no translation: 2 × Lgamma: tf2onnx does not convert it (Lgamma, Lgamma_1); "
        "Digamma: tf2onnx does not convert it (Digamma)"
    )


def test_damaged_files(tmp_path: Path) -> None:
    cnn().export(str(tmp_path / "saved"), verbose=False)
    graph = tmp_path / "saved" / "saved_model.pb"
    graph.write_bytes(graph.read_bytes()[:1000])
    (tmp_path / "cut.tflite").write_bytes(tflite()[:2000])
    (tmp_path / "none.keras").write_text("no archive")
    for name, kind in (("saved", "SavedModel"), ("cut.tflite", ""), ("none.keras", "Keras model")):
        with pytest.raises(ExportError) as caught:
            capture(tmp_path / name, (), None, None)
        assert str(tmp_path / name) in str(caught.value)
        assert kind in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(ExportError, match=r"absent\.tflite: no such file"):
        capture(tmp_path / "absent.tflite", (), None, None)


def test_what_is_said_without_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    monkeypatch.setattr(kinds.importlib.util, "find_spec", lambda name: None)
    for name in ("tensorflow", "tf2onnx", "onnx"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(ExportError, match=r"pip install 'covan-mlir\[tensorflow\]'"):
        capture("model.tflite", (), None, None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"image": IMAGES.astype(np.float64)}, r"image: float32\[batch, 16, 16, 3\] is given as float64"),
        ({"picture": IMAGES}, "no input 'picture'"),
        ({"image": IMAGES[0]}, "is given with 3 dimensions"),
    ],
)
def test_arguments_that_contradict_the_model(given: dict[str, np.ndarray[Any, Any]], message: str) -> None:
    with pytest.raises((InputError, ExportError), match=message):
        capture(cnn(), (), given, None)


def test_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(tflite())
    result = covan("info", "net.tflite", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "takes image: float32[?, 16, 16, 3]" in result.stdout
    assert "all of it is translated" in result.stdout
    result = covan("compile", "net.tflite", "--dynamic", "image:0=1..8", "-o", "net.covan", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    result = covan("compare", "net.covan", "--model", "net.tflite", "-i", "2x16x16x3xf32", cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
