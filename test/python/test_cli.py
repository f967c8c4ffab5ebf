"""The command line: what it does, and that whatever goes wrong is one line, a hint and an exit code."""

from __future__ import annotations

import io
import textwrap
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import covan, fails
from hypothesis import given, settings
from hypothesis import strategies as st
from limits import HANG
from typer.testing import CliRunner

from covan_mlir.artifacts import artifact
from covan_mlir.artifacts.pytree import LEAF, Tree
from covan_mlir.artifacts.signature import Leaf, Signature
from covan_mlir.tools import cli, cli_common, cli_inputs, cli_values
from covan_mlir.tools.cli_common import CliError

# --- help ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["compile", "run", "explain"])
def test_help_has_examples(command: str) -> None:
    result = CliRunner().invoke(cli.app, [command, "--help"])
    assert result.exit_code == 0
    assert f"  covan {command} " in result.stdout
    assert all(len(line) <= 90 for line in result.stdout.splitlines())


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("covan 0.")
    assert cli.main(["-h"]) == 0
    assert "explain" in capsys.readouterr().out
    assert cli.main([]) == 2
    assert "explain" in capsys.readouterr().out


@pytest.mark.parametrize(
    "args", [["runn"], ["run"], ["run", "a", "b"], ["explain", "a", "--nope"], ["run", "a", "--seed", "x"], ["--nope"]]
)
def test_usage_errors(capsys: pytest.CaptureFixture[str], args: list[str]) -> None:
    assert "--help" in fails(capsys, *args, code=2)[1]


# --- inputs ----------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng


@pytest.mark.parametrize(
    ("text", "dtype", "shape"),
    [
        ("1x3x224x224xf32", "float32", (1, 3, 224, 224)),
        ("f64", "float64", ()),
        ("0x2xi8", "int8", (0, 2)),
        ("7xu16", "uint16", (7,)),
        ("2xi1", "bool", (2,)),
        ("2x3xbfloat16", "bfloat16", (2, 3)),
    ],
)
def test_shapes(text: str, dtype: str, shape: tuple[int, ...]) -> None:
    value: Any = cli_inputs.array(cli_inputs.parse(text), RNG(0))
    assert (value.dtype.name, value.shape) == (dtype, shape)
    np.testing.assert_array_equal(value, cli_inputs.array(cli_inputs.parse(text), RNG(0)))
    if value.dtype.kind in "iu":
        assert ((value >= 0) & (value < 10)).all()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2xi64=7", [7, 7]), ("2xf32=-1.5", [-1.5, -1.5]), ("1xbool=true", [True]), ("1xf16=inf", [np.inf])],
)
def test_splats(text: str, expected: list[Any]) -> None:
    np.testing.assert_array_equal(cli_inputs.array(cli_inputs.parse(text), RNG()), expected)


@pytest.mark.parametrize(("text", "value"), [("3", 3), ("-2.5", -2.5), ("true", True), ("1e3", 1000.0)])
def test_numbers(text: str, value: Any) -> None:
    got = cli_inputs.array(cli_inputs.parse(text), RNG())
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("2x3xf3", "f32"),
        ("2,3,f32", "SHAPExDTYPE"),
        ("-1x3xf32", "SHAPExDTYPE"),
        ("2x3", "SHAPExDTYPE"),
        ("", "SHAPExDTYPE"),
        ("2xf32=two", "SHAPExDTYPE"),
        ("2xi8=300", "another value"),
        ("2xi8=1.5", "another value"),
        ("2xi8=nan", "another value"),
        ("2xi8=inf", "another value"),
        ("2xu8=-1", "another value"),
        ("2xf16=1e6", "another value"),
        ("2xi64=9223372036854775808", "another value"),
        ("9" * 5000 + "xf32", "SHAPExDTYPE"),
        ("²xf32", "SHAPExDTYPE"),
    ],
)
def test_bad_inputs(text: str, hint: str) -> None:
    with pytest.raises(CliError) as info:
        cli_inputs.array(cli_inputs.parse(text), RNG())
    assert info.value.code == 2
    assert hint in info.value.hint


@pytest.mark.parametrize("text", ["99999999999x99999999999xf32", "999999999999999xf32", "9" * 18 + "xi8=1"])
def test_inputs_beyond_memory(text: str) -> None:
    with pytest.raises(CliError, match="memory"):
        cli_inputs.array(cli_inputs.parse(text), RNG())


@given(st.text(max_size=20) | st.from_regex(r"([0-9]x){0,3}[a-z0-9]{1,4}(=.{1,4})?", fullmatch=True))
def test_any_text_is_an_input_or_an_error(text: str) -> None:
    try:
        given_ = cli_inputs.parse(text)
        if given_.path is None:
            cli_inputs.array(given_, RNG())
    except CliError:
        pass  # and nothing else


def test_files_that_are_no_arrays(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    whole = io.BytesIO()
    np.save(whole, np.arange(6))
    objects = io.BytesIO()
    np.save(objects, np.array([{}, None], object), allow_pickle=True)
    texts = io.BytesIO()
    np.save(texts, np.array(["a"]))
    for data in (b"", b"hello", whole.getvalue()[:-3], whole.getvalue()[:20], objects.getvalue(), texts.getvalue()):
        file.write_bytes(data)
        with pytest.raises(CliError, match=r"x\.npy") as info:
            cli_inputs.array(cli_inputs.parse(str(file)), RNG())
        assert "numpy.save" in info.value.hint
    for path in (tmp_path / "absent.npy", tmp_path / "folder.npy"):
        (tmp_path / "folder.npy").mkdir(exist_ok=True)
        with pytest.raises(CliError):
            cli_inputs.array(cli_inputs.parse(str(path)), RNG())


def signature(*inputs: Leaf) -> Signature:
    args = Tree("tuple", tuple(LEAF for _ in inputs))
    return Signature(Tree("tuple", (args, Tree("dict"))), LEAF, inputs, (Leaf("tensor", "float32", ()),))


def test_arguments_fill_constants_in() -> None:
    takes = signature(
        Leaf("tensor", "float32", (2,), name="x"),
        Leaf("constant", value="mean", name="how"),
        Leaf("scalar", "int", symbol="s0", name="n"),
    )
    args, kwargs = cli_inputs.arguments(takes, [cli_inputs.parse("2xf32=1"), cli_inputs.parse("5")], RNG())
    np.testing.assert_array_equal(args[0], [1, 1])
    assert (args[1:], kwargs) == (("mean", 5), {})
    args, _ = cli_inputs.arguments(takes, [], RNG())
    assert (args[0].shape, args[0].dtype, args[1:]) == ((2,), np.float32, ("mean", 2))


def test_arguments_that_do_not_fit() -> None:
    x, n = Leaf("tensor", "float32", ("s0", 3), name="x"), Leaf("scalar", "int", name="n")
    for takes, texts, message, hint in [
        (signature(x), ["2x3xf32", "3"], "takes 1 input; 2 given", "x: float32[s0, 3]"),
        (signature(x), [], "sizes to be chosen", "--input 8x3xf32"),
        (signature(n), ["2xf32"], "is an array", "number"),
        (signature(x), ["4"], "is a number", "x3xf32=4"),
    ]:
        with pytest.raises(CliError, match=message) as info:
            cli_inputs.arguments(takes, [cli_inputs.parse(text) for text in texts], RNG())
        assert hint in info.value.hint


def test_summaries() -> None:
    assert cli_values.summary(np.array([[1.5, -2]], np.float32)) == "float32[1, 2]  1.5 -2"
    assert cli_values.summary(np.arange(100)) == "int64[100]  min 0  mean 49.5  max 99"
    assert cli_values.summary(np.zeros((0, 3), np.int8)) == "int8[0, 3]  (empty)"
    assert cli_values.summary(np.arange(100) < 3) == "bool[100]  3 true, 97 false"
    assert cli_values.summary(np.array(True)) == "bool[]  True"
    assert cli_values.summary(7) == "int  7"
    odd = np.r_[np.full(20, 60000, np.float16), np.array([np.nan, np.inf], np.float16)]
    assert cli_values.summary(odd) == "float16[22]  min 60000  mean 60000  max 60000  1 nan  1 infinite"
    assert cli_values.summary(np.full(9, np.nan)) == "float64[9]  9 nan"


@settings(max_examples=50)
@given(st.binary(max_size=64))
def test_any_float_is_summed_up(data: bytes) -> None:
    assert cli_values.summary(np.frombuffer(data[: len(data) // 2 * 2], np.float16)).startswith("float16[")


# --- run -------------------------------------------------------------------------------------------------------------

BLOCKER = textwrap.dedent("""
    class Blocker:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in BLOCKED or name.startswith("iree.compiler"):
                raise ImportError(f"{name} must not be imported")
    sys.meta_path.insert(0, Blocker())
""")


def test_run_and_explain_need_no_torch(compiled: Path) -> None:
    blocker = BLOCKER.replace("BLOCKED", "('torch', 'torch_mlir')")
    files = ("-o", "y.npy", "-o", "half.npy")
    result = covan("run", "m.covan", "-i", "2x4xf32=1", *files, before=blocker, cwd=compiled.parent)
    assert result.returncode == 0, result.stderr
    first, second = result.stdout.splitlines()
    assert first.startswith("output 0: float32[16]  min ")
    assert second == "output 1: bfloat16[2, 4]  1 1 1 1 1 1 1 1"
    y = np.load(compiled.parent / "y.npy")
    np.testing.assert_allclose(y.reshape(2, 8).sum(axis=1), 1, rtol=1e-5)
    blocker = BLOCKER.replace("BLOCKED", "('torch', 'torch_mlir', 'iree')")
    result = covan("explain", "m.covan", "softmax", before=blocker, cwd=compiled.parent)
    assert result.returncode == 0, result.stderr
    assert "aten.softmax.int" in result.stdout
    assert "models.py:11" in result.stdout


def test_run_draws_what_is_not_given(compiled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for seed in ("0", "0", "1"):
        assert cli.main(["run", str(compiled), "--seed", seed]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != outputs[2]


def test_run_errors(compiled: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(compiled)
    assert "2 given" in fails(capsys, "run", file, "-i", "2x4xf32", "-i", "3xf32")[0]
    assert "x has size 5 on axis 1" in fails(capsys, "run", file, "-i", "2x5xf32")[0]
    assert "x is float64" in fails(capsys, "run", file, "-i", "2x4xf64")[0]
    assert "not understood" in fails(capsys, "run", file, "-i", "2x4", code=2)[0]
    assert "no such file" in fails(capsys, "run", file, "-i", "absent.npy")[0]
    assert "no folder" in fails(capsys, "run", file, "-o", "no/y.npy")[0]
    assert "3 files given" in fails(capsys, "run", file, "-o", "a.npy", "-o", "b.npy", "-o", "c.npy")[0]
    assert "no such file" in fails(capsys, "run", "absent.covan")[0]
    damaged = bytearray(compiled.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (here / "damaged.covan").write_bytes(damaged)
    error, hint = fails(capsys, "run", "damaged.covan")
    assert "damaged.covan: damaged" in error
    assert "Copy" in hint


# --- compile ---------------------------------------------------------------------------------------------------------


def compile_(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    capsys.readouterr()
    code = cli.main(["compile", *args])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert "error" not in err
    return out


def test_compile_what_a_file_holds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compile_(capsys, "models.py:net", "-i", "3x4xf32").startswith("models.covan: ")
    assert "no lineage" in compile_(capsys, "models.py:Net", "-i", "3x4xf32", "--no-provenance")
    compile_(capsys, "models.py:make_scaled", "-o", "scaled.covan")
    assert artifact.read("scaled.covan").signature.outputs[0].shape == (2, 8)
    compile_(capsys, "models.py:make_function", "-i", "3xbf16", "--iree-flag=--iree-opt-level=O1")
    assert artifact.read("models.covan").signature.inputs[0].dtype == "bfloat16"
    assert "--iree-opt-level=O1" in artifact.read("models.covan").variant().info["flags"]


def test_compile_with_open_dimensions(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("index.npy", np.array([0, 2]))
    compile_(capsys, "models.py:Two", "-i", "4x5xf32", "-i", "index.npy", "--dynamic", "x:0", "--dynamic", "1:0")
    assert cli.main(["run", "models.covan", "-i", "9x5xf32=1", "-i", "3xi64=8"]) == 0
    assert capsys.readouterr().out.startswith("output 0: float32[3, 5]  min 1")


def test_compile_an_exported_program(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    class Half(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x / 2

    torch.export.save(torch.export.export(Half(), (torch.ones(3),)), "half.pt2")
    assert compile_(capsys, "half.pt2").startswith("half.covan: ")
    assert cli.main(["run", "half.covan", "-i", "3xf32=1"]) == 0
    assert capsys.readouterr().out == "output 0: float32[3]  0.5 0.5 0.5\n"
    assert "--input" in fails(capsys, "compile", "half.pt2", "-i", "3xf32", code=2)[1]
    assert "--dynamic" in fails(capsys, "compile", "half.pt2", "--dynamic", "0:0", code=2)[1]
    Path("bad.pt2").write_bytes(b"hello")
    assert "bad.pt2" in fails(capsys, "compile", "bad.pt2")[0]


def test_training_mode_is_noted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["compile", "models.py:Drops", "-i", "3xf32"])
    assert "covan: note: the model is in training mode" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "code", "error", "hint"),
    [
        (["absent.py:f"], 1, "absent.py: no such file", "path"),
        (["models"], 2, "not a model", "FILE.py:factory"),
        (["models.txt"], 2, "not a model", "FILE.py:factory"),
        (["models.py"], 2, "which model", "models.py:Net (it has Net, Two,"),
        (["models.py:mak"], 1, "no 'mak'", "did you mean make"),
        (["models.py:zzz"], 1, "no 'zzz'", "it has Net, Two,"),
        (["models.py:number"], 1, "is a int", "function"),
        (["models.py:double"], 1, "missing a required argument: 'x'", "takes no arguments"),
        (["models.py:broken"], 1, "broken() failed: RuntimeError: no weights here", "--debug"),
        (["models.py:leaves"], 1, "SystemExit: 3", "--debug"),
        (["models.py:make_four"], 1, "tuple of 4", "(model, args)"),
        (["models.py:make_text"], 1, "a str", "(model, args)"),
        (["models.py:Net"], 1, "no example inputs", "--input"),
        (["models.py:Two", "-i", "3xf32"], 1, "missing a required argument: 'index'", "Two takes (x, index)"),
        (["models.py:Two", "-i", "3xf32", "-i", "2xi64", "-i", "2xi64"], 1, "too many", "Two takes"),
        (["models.py:Net", "-i", "2x5xf32"], 1, "Net does not export", "--debug"),
        (["models.py:Branches", "-i", "3xf32"], 1, "Branches does not export", "--debug"),
        (["models.py:make", "-i", "2x4xf3"], 2, "no dtype 'f3'", "f32"),
        (["models.py:make", "--target", "cup"], 1, "unknown target 'cup'", "cpu"),
        (["models.py:make", "-o", "no/m.covan"], 1, "no folder", "folder"),
        (["models.py:make", "-o", "."], 1, "directory", "file"),
        (["models.py:make", "--dynamic", "x"], 2, "not understood", "NAME:DIM"),
        (["models.py:make", "--dynamic", "y:0"], 1, "no argument 'y'", "there are x"),
        (["models.py:make", "--dynamic", "0:2"], 1, "a tensor of 2 dimensions", "from 0"),
        (["models.py:make", "--dynamic", "0:1"], 1, "does not export", "--debug"),
        (["models.py:make", "--iree-flag=--no-such-flag"], 1, "no-such-flag", ""),
        (["syntax.py:f"], 1, "syntax.py:2: importing it failed: SyntaxError", "--debug"),
        (["fails.py:f"], 1, "fails.py:2: importing it failed: ZeroDivisionError", "--debug"),
    ],
)
def test_compile_errors(
    here: Path, capsys: pytest.CaptureFixture[str], args: Sequence[str], code: int, error: str, hint: str
) -> None:
    (here / "syntax.py").write_text("x = 1\ndef f(:\n")
    (here / "fails.py").write_text("x = 1\ny = 1 / 0\n")
    before = sorted(here.iterdir())
    got_error, got_hint = fails(capsys, "compile", *args, code=code)
    assert error in got_error
    assert hint in got_hint
    assert [path for path in sorted(here.iterdir()) if path.name != "__pycache__"] == before


def test_debug_shows_the_traceback(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["--debug", "compile", "models.py:broken"], ["compile", "models.py:broken", "--debug"]):
        assert cli.main(args) == 1
        err = capsys.readouterr().err
        assert "Traceback" in err
        assert 'raise RuntimeError("no weights here' in err
        assert err.splitlines()[-2].startswith("covan: error: ")


def test_unexpected_errors_are_reported_too(
    stub: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(artifact, "read", fail)
    error, hint = fails(capsys, "explain", stub)
    assert error == "unexpected ZeroDivisionError: a bug"
    assert "--debug" in hint


def test_interrupts(stub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(artifact, "read", interrupt)
    assert cli.main(["explain", stub]) == 130


# --- progress --------------------------------------------------------------------------------------------------------


class Stream(io.StringIO):
    """Wakes who waits for what is written to it."""

    def __init__(self, terminal: bool = False) -> None:
        super().__init__()
        self._terminal = terminal
        self._written = threading.Condition()

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        with self._written:
            self._written.notify_all()
            return super().write(text)

    def wait_for(self, text: str) -> None:
        with self._written:
            assert self._written.wait_for(lambda: text in self.getvalue(), HANG)


def test_quick_steps_say_nothing() -> None:
    stream = Stream()
    with cli_common.Progress("export", stream, delay=HANG) as progress:
        progress("import")
    assert stream.getvalue() == ""


def test_slow_steps_are_told_once() -> None:
    stream = Stream()
    with cli_common.Progress("export", stream, delay=0.02) as progress:
        stream.wait_for("covan: export")
        progress("import")
        stream.wait_for("covan: import")
        time.sleep(0.2)  # in which it could be told again
    lines = stream.getvalue().splitlines()
    assert [line.split(" (")[0] for line in lines] == ["covan: export", "covan: import"]


def test_terminals_get_one_line() -> None:
    stream = Stream(terminal=True)
    with cli_common.Progress("export", stream, delay=0.02) as progress:
        progress("iree:[flow]")
        stream.wait_for("iree:[flow]")
