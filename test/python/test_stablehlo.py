"""StableHLO modules: read, translated, compiled; against StableHLO's own interpreter."""

from __future__ import annotations

import io
import random
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from stablehlo_programs import CALLS, INTERPRETED, OPEN, function

import covan_mlir
from covan_mlir.errors import CovanError, ExportError, InputError
from covan_mlir.frontend.actions import distinct, source_actions
from covan_mlir.frontend.frontends import capture
from covan_mlir.frontend.stablehlo import info, interpreter, reader, reading
from covan_mlir.frontend.stablehlo.dtypes import torch_type
from covan_mlir.frontend.stablehlo.module import StableHloModule
from covan_mlir.frontend.stablehlo.program import Results, Type, operations


def written(folder: Path, text: str, name: str = "model.mlir") -> Path:
    """A file with a module."""
    path = folder / name
    path.write_text(text)
    return path


def example(kind: Type, seed: int) -> torch.Tensor:
    """Elements of a type: floats around zero, integers of which some are beyond what they count in."""
    rng, shape = np.random.default_rng(seed), [size or 0 for size in kind.shape]
    if kind.dtype == "f32":
        values = np.asarray(rng.standard_normal(shape) * 2, np.float32)
        values.reshape(-1)[:1] = 2.5
        return torch.from_numpy(values)
    numbers = np.asarray(rng.integers(-1 if kind.dtype.startswith("i") else 0, 4, shape))
    return torch.from_numpy(numbers).to(torch_type(kind.dtype))


@pytest.mark.parametrize("name", INTERPRETED)
def test_translations_give_what_the_interpreter_gives(name: str) -> None:
    data = INTERPRETED[name].encode()
    module, blobs = reader.read(name, data)
    assert not blobs or isinstance(module, reader.Module), module
    loaded = reading.loaded(name, module, blobs)
    types = loaded.module.functions["main"].body.types
    for seed in range(3):
        given = [example(kind, seed + 10 * index) for index, kind in enumerate(types)]
        arrays = [tensor.contiguous().numpy().tobytes() for tensor in given]
        answer, results = interpreter.interpreted(data, list(types), arrays)
        assert isinstance(answer, Results), answer
        own = StableHloModule(loaded)(*given)
        for result, kind, blob in zip(own, answer.types, results, strict=True):
            expected = torch.frombuffer(bytearray(blob), dtype=torch_type(kind.dtype)).reshape(list(kind.shape))
            assert result.dtype is expected.dtype
            np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=2e-6, atol=1e-6)


def test_constants_of_all_types() -> None:
    """As numbers, as bytes, one for all; in the words of MLIR where its bindings have no arrays."""
    kinds = {
        "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i1": bool,
        "i8": np.int8, "i64": np.int64, "ui8": np.uint8, "ui16": np.uint16, "ui64": np.uint64,
        "complex<f32>": np.complex64, "complex<f64>": np.complex128,
    }  # fmt: skip
    texts, expected = [], []
    for kind, dtype in kinds.items():
        complex_ = kind.startswith("complex")
        few = ["(1.5,-2.0)", "(0.0,0x7F800000)" if "32" in kind else "(0.0,3.0)"] if complex_ else ["1", "0"]
        few = few if complex_ or kind[0] in "iu" else ["1.5", "-0.0"]
        few = ["true", "false"] if kind == "i1" else few
        values = {
            "(1.5,-2.0)": 1.5 - 2j,
            "(0.0,0x7F800000)": complex(0, np.inf),
            "(0.0,3.0)": 3j,
            "true": 1,
            "false": 0,
        }
        numbers = [values[text] if text in values else float(text) for text in few]
        texts.append((f"dense<[{', '.join(few)}]>", f"tensor<2x{kind}>"))
        expected.append(np.array(numbers).astype(dtype))
        texts.append((f"dense<{few[0]}>", f"tensor<3x{kind}>"))
        expected.append(np.full(3, numbers[0]).astype(dtype))
        texts.append((f"dense<{few[0]}>", f"tensor<{kind}>"))
        expected.append(np.array(numbers[0]).astype(dtype))
        many = np.arange(200).astype(dtype)
        texts.append(
            (f'dense<"0x{many.tobytes().hex().upper()}">', f"tensor<200x{kind}>")
            if kind != "i1"
            else (f"dense<[{', '.join('true' if value else 'false' for value in many)}]>", "tensor<200xi1>")
        )
        expected.append(many)
    lines = [f"%c{i} = stablehlo.constant {text} : {kind}" for i, (text, kind) in enumerate(texts)]
    names, types = ", ".join(f"%c{i}" for i in range(len(texts))), ", ".join(kind for _, kind in texts)
    body = "\n".join([*lines, f"return {names} : {types}"])
    loaded = reading.read("constants", function(f"() -> ({types})", body).encode())
    results = StableHloModule(loaded)()
    for result, wanted in zip(results, expected, strict=True):
        assert result.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() == wanted.tobytes()
        assert tuple(result.shape) == wanted.shape


def test_text_bytecode_and_portable_artifacts_are_read_alike() -> None:
    with reader.context() as context:
        module = ir.Module.parse(CALLS, context)
        plain = io.BytesIO()
        module.operation.write_bytecode(plain)
        artifact = stablehlo.serialize_portable_artifact(module, "1.0.0")
    modules = [reading.read("m", data).module for data in (CALLS.encode(), plain.getvalue(), artifact)]
    names = [[op.name for op in operations(module.functions["twice"].body)] for module in modules]
    assert names == [["stablehlo.add"]] * 3


def test_what_is_called_twice_is_two_actions(tmp_path: Path) -> None:
    captured = capture(written(tmp_path, CALLS), (), None, None)
    actions = distinct(source_actions(captured.program.graph))
    assert [(a.name, a.op, a.module, a.line) for a in actions] == [
        ("first/twice/add", "stablehlo.add", "first.twice", "net.py:7"),
        ("second/twice/add", "stablehlo.add", "second.twice", "net.py:7"),
    ]
    assert actions[1].inputs == (0,)


def test_a_file_with_open_sizes(tmp_path: Path) -> None:
    exe = covan_mlir.compile_module(written(tmp_path, OPEN))
    for rows in (2, 5):
        x = np.random.default_rng(rows).random((rows, 4), np.float32) + 1
        np.testing.assert_allclose(exe(x), x / x.sum(1, keepdims=True), rtol=1e-6)
    verdict = exe.verify()
    assert verdict, verdict


def test_tensors_are_compared_with_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from covan_mlir.frontend.stablehlo import registry

    path = written(tmp_path, CALLS)
    assert covan_mlir.compile_module(path).compare(np.ones(4, np.float32))
    monkeypatch.setitem(registry._OPERATIONS, "stablehlo.add", lambda call: call.tensor(0) * 3)
    comparison = covan_mlir.compile_module(path).compare(np.ones(4, np.float32))
    assert not comparison
    assert any("the translation of the model is wrong" in note for note in comparison.notes)


_BODY = "%r = stablehlo.add %x, %x : tensor<2xf32>\nreturn %r : tensor<2xf32>"
_UNKNOWN = function(
    "(%x: tensor<2xf32>) -> tensor<2xf32>",
    """%a = stablehlo.custom_call @mine(%x) : (tensor<2xf32>) -> tensor<2xf32> loc("net.py":3:1)
    %b = stablehlo.custom_call @mine(%a) : (tensor<2xf32>) -> tensor<2xf32> loc("net.py":4:1)
    %c = "stablehlo.all_gather"(%b) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0]]> : tensor<1x1xi64>}>
        : (tensor<2xf32>) -> tensor<2xf32>
    return %c : tensor<2xf32>""",
)
_CIRCLE = """
func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %y = func.call @main(%x) : (tensor<f32>) -> tensor<f32>
  return %y : tensor<f32>
}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("what is this", r"model.mlir is no StableHLO module that can be read: .*"),
        ("ML\xefRStableHLO_v1.0.0", "model.mlir is no StableHLO module that can be read"),
        (
            _UNKNOWN,
            r"3 operations have no translation: 2 × stablehlo.custom_call @mine \(net.py:3, net.py:4\); "
            r"stablehlo.all_gather \(.*model.mlir:4\)",
        ),
        (_CIRCLE, "functions and regions are nested more than 64 deep, or in a circle"),
        (function("(%x: tensor<2xf8E4M3FN>) -> tensor<2xf8E4M3FN>", "return %x : tensor<2xf8E4M3FN>"), "f8E4M3FN"),
    ],
    ids=["text", "bytes", "unsupported", "circle", "type"],
)
def test_files_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "model.mlir"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CovanError, match=message) as told:
        capture(path, (), None, None)
    assert len(str(told.value).splitlines()) == 1


def test_the_only_public_function_is_the_model(tmp_path: Path) -> None:
    text = function("(%x: tensor<2xf32>) -> tensor<2xf32>", _BODY).replace("@main", "@f")
    captured = capture(written(tmp_path, text), (), None, None)
    assert [a.op for a in distinct(source_actions(captured.program.graph))] == ["stablehlo.add"]


def test_a_reader_that_crashes_takes_nobody_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "READER", "this")  # a module that prints, and ends
    with pytest.raises(ExportError, match="m cannot be read: the reader"):
        reading.read("m", b"")


def test_arguments_that_do_not_fit(tmp_path: Path) -> None:
    path = written(tmp_path, CALLS)
    with pytest.raises(InputError, match=r"takes 1 inputs, and 2 are given"):
        capture(path, (np.ones(4, np.float32), 1), None, None)
    with pytest.raises(InputError, match=r"input 0 is f32\[4\], and float32\[5\] is given"):
        capture(path, (np.ones(5, np.float32),), None, None)
    with pytest.raises(ExportError, match=r"nowhere.mlir: No such file"):
        capture(tmp_path / "nowhere.mlir", (), None, None)


def test_without_jax(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ExportError, match=r"need the package jax: pip install 'covan-mlir\[jax\]'"):
        capture(written(tmp_path, CALLS), (), None, None)


def test_what_a_file_is() -> None:
    facts = info.told("m", _UNKNOWN.encode())
    assert (facts.inputs, facts.outputs) == (("0: f32[2]",), ("f32[2]",))
    assert {row.op: row.count for row in facts.operators} == {
        "stablehlo.custom_call @mine": 2,
        "stablehlo.all_gather": 1,
    }
    assert [(row.op, row.nodes) for row in facts.unsupported] == [
        ("stablehlo.custom_call @mine", ("net.py:3", "net.py:4")),
        ("stablehlo.all_gather", ("m:4",)),
    ]
    assert [row.count for row in info.told("m", CALLS.encode()).operators] == [1]


def test_damaged_modules_are_one_line(tmp_path: Path) -> None:
    """Bytes that are changed, left out or there twice; some are modules still."""
    rng = random.Random(0)
    texts, messages = [OPEN, CALLS, *INTERPRETED.values()], []
    for count in range(10):
        data = bytearray(rng.choice(texts).encode())
        for _ in range(rng.choice((1, 2, 9))):
            at = rng.randrange(len(data))
            match rng.randrange(3):
                case 0:
                    data[at] = rng.choice(b"0123456789<>[]%xf:,?")
                case 1:
                    del data[at : at + rng.randrange(1, 30)]
                case _:
                    data[at:at] = data[at : at + 20]
        path = tmp_path / f"{count}.mlir"
        path.write_bytes(bytes(data))
        try:
            capture(path, (), None, None)
        except CovanError as error:
            messages.append(str(error))
    assert messages
    assert all(len(message.splitlines()) == 1 for message in messages)
