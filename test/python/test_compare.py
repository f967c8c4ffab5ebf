"""Compared with eager: faults that are planted in the compiler are found, and named; healthy programs agree."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import fails
from planted import fault

import covan_mlir
from covan_mlir.comparing.bisect import Answer, Found, first_wrong, shortest_failing
from covan_mlir.comparing.compare import CompareOptions
from covan_mlir.comparing.comparison import Comparison
from covan_mlir.comparing.measure import Tolerance, measure
from covan_mlir.comparing.taps import tapped
from covan_mlir.errors import CompileError, InputError
from covan_mlir.frontend.decompose import decompose
from covan_mlir.tools import cli

DEFAULT = Tolerance()
EPS = torch.finfo(torch.float32).eps


def test_errors_are_what_their_definitions_say() -> None:
    truth = torch.tensor([1.0, 4.0, -2.0, 0.0], dtype=torch.float64)
    eager = truth.float()
    got = eager.clone()
    got[1] = torch.nextafter(torch.nextafter(got[1], torch.tensor(9.0)), torch.tensor(9.0))
    it = measure(got, eager, truth, Tolerance(eager=0, ulps=0, atol=1.0))
    assert (it.error.abs, it.error.rel, it.error.ulp) == (8 * EPS, 2 * EPS, 2.0)  # an ulp of 4 is 4 eps
    assert (it.eager.abs, it.difference.abs, it.worst) == (0.0, 8 * EPS, (1,))
    assert it.excess == 8 * EPS
    assert not it.beyond


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_an_ulp_is_one_of_the_tensor_s_own_type(dtype: torch.dtype) -> None:
    eager = torch.tensor([3.0, 0.375], dtype=dtype)
    got = eager + torch.tensor([0.0, 0.25 * torch.finfo(dtype).eps], dtype=dtype)
    assert measure(got, eager, eager.double(), DEFAULT).error.ulp == 1.0


def test_what_rounding_explains_is_within_tolerance_and_nothing_else() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(64, 4096), torch.randn(4096, 64)
    truth, eager = a.double() @ b.double(), a @ b
    other = torch.stack([a[:, i::2] @ b[i::2] for i in range(2)]).sum(0)  # another order
    assert not measure(other, eager, truth, DEFAULT).beyond
    wrong = eager.clone()
    wrong[5, 7] += a[5, 0] * b[0, 7]  # one product of 4,096 counted twice
    measured = measure(wrong, eager, truth, DEFAULT)
    assert measured.beyond
    assert measured.worst == (5, 7)


def test_fills_of_masks_do_not_hide_errors() -> None:
    truth = torch.randn(1000, dtype=torch.float64)
    truth[::2], truth[1] = -3e38, -math.inf
    eager = truth.float()
    got = eager.clone()
    assert not measure(got, eager, truth, DEFAULT).beyond
    got[3] += 0.01
    assert measure(got, eager, truth, DEFAULT).worst == (3,)


@pytest.mark.parametrize(
    ("got", "eager", "truth", "beyond"),
    [
        (math.nan, 1.0, 1.0, True),
        (math.inf, 1.0, 1.0, True),
        (1.0, math.nan, math.nan, True),
        (math.nan, math.nan, math.nan, False),
        (-math.inf, -math.inf, -math.inf, False),
        (math.inf, -math.inf, -math.inf, True),
        (math.inf, math.inf, 1e39, False),  # overflows in eager as well
        (math.nan, math.nan, 1e39, False),
    ],
)
def test_nan_and_infinity(got: float, eager: float, truth: float, beyond: bool) -> None:
    tensors = [torch.tensor([2.0, value]) for value in (got, eager)]
    assert measure(*tensors, torch.tensor([2.0, truth], dtype=torch.float64), DEFAULT).beyond is beyond


def test_choices_are_right_where_either_precision_makes_them() -> None:
    got, eager, truth = torch.tensor([1, 2, 3]), torch.tensor([1, 2, 4]), torch.tensor([1, 9, 3])
    assert not measure(got, eager, truth, DEFAULT).beyond
    measured = measure(got + 1, eager, truth, DEFAULT)
    assert (measured.beyond, measured.worst, measured.error.wrong) == (True, (0,), 3)


@pytest.mark.parametrize("bad", [math.nan, -1.0, math.inf])
def test_a_tolerance_is_a_number(bad: float) -> None:
    with pytest.raises(ValueError, match="rtol is a number that is not negative"):
        Tolerance(rtol=bad)


def test_a_search_finds_the_first_wrong_value_and_what_hides_it() -> None:
    names = [str(index) for index in range(40)]
    for first in range(40):
        for hidden in [set[int](), {first - 1, first}, {first - 2, first - 1}, set(range(5, 15))]:
            asked: list[str] = []

            def ask(name: str, first: int = first, hidden: set[int] = hidden, asked: list[str] = asked) -> Answer:
                asked.append(name)
                return "hidden" if int(name) in hidden else "wrong" if int(name) >= first else "right"

            bracket = first_wrong(names, ask)
            shown = [i for i in range(40) if i not in hidden or i == 39]
            right = [i for i in shown if i < first]
            last, least = right[-1] if right else -1, min(i for i in shown if i >= first)
            assert bracket == Found(
                str(last) if right else None, str(least), tuple(str(i) for i in range(last + 1, least))
            )
            assert len(asked) <= 6 + len(hidden)


def test_a_search_that_may_not_go_on_says_so() -> None:
    assert first_wrong(["a", "b", "c"], lambda name: None) == Found(None, "c", (), complete=False)


def test_the_shortest_that_fails() -> None:
    for least in range(1, 20):
        assert shortest_failing(19, lambda n, least=least: n >= least) == least  # type: ignore[misc]
    assert shortest_failing(19, lambda n: False) is None


def test_taps_return_values_as_they_were_made() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        z = y.view(-1)
        z.mul_(2)
        return y - 3

    x = torch.randn(2, 3)
    program = torch.export.export(_Wrapped(model), (x,))
    taps = tapped(program, ["add", "view", "mul_"])
    own, *values = taps.module()(x)
    assert torch.equal(own, (x + 1) * 2 - 3)
    for got, want in zip(values, [x + 1, (x + 1).view(-1), (x + 1).view(-1) * 2], strict=True):
        assert torch.equal(got, want)
    assert len(tapped(program, ["add"], keep=False).module()(x)) == 1
    assert torch.equal(tapped(program, ["add"], keep=False, strides={"add": 2}).module()(x)[0], (x + 1)[:, ::2])
    assert torch.equal(program.module()(x), own)


def test_tapped_programs_decompose() -> None:
    def model(input: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, indices = (input + 1).relu_().topk(2, -1)
        return values, indices

    program = torch.export.export(_Wrapped(model), (torch.randn(2, 8),))
    decomposed = decompose(tapped(program, ["add", "relu_", "getitem", "getitem_1"]))
    assert len(decomposed.graph.output_node().args[0]) == 6


class _Wrapped(torch.nn.Module):
    def __init__(self, function: object) -> None:
        super().__init__()
        self.forward = function


class _Deep(torch.nn.Module):
    """200 operations, with 50 additions of tensors among them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(50):
            x = torch.tanh(x * 0.5) + x
            x = x * 0.9
        return x


class _Soft(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(64, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.linear(x), -1) * 2


class _Folds(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.v, self.w = (torch.nn.Parameter(torch.rand(48) + 0.5) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * (self.v * self.w) + 1


def _compare(model: torch.nn.Module, x: torch.Tensor, name: str, after: str) -> Comparison:
    options = covan_mlir.CompileOptions(extra_steps=fault(name, after))
    return covan_mlir.compile_module(model, (x,), options=options).compare(x)


def _line(text: str) -> str:
    """``test_compare.py:N`` of the line of this file that holds a text."""
    lines = Path(__file__).read_text().splitlines()
    return f"{Path(__file__).name}:{next(n for n, line in enumerate(lines, 1) if line.strip() == text)}"


def test_a_flipped_sign_among_two_hundred_operations() -> None:
    torch.manual_seed(0)
    comparison = _compare(_Deep(), torch.randn(8, 32), "flip_sign", "torch-to-linalg")
    assert not comparison
    assert comparison.first is not None
    assert len(comparison.rows) == 200
    assert comparison.first.action.name == "add_25"
    assert comparison.first.action.line.endswith(_line("x = torch.tanh(x * 0.5) + x"))
    assert [site.kernel for site in comparison.first.sites] == ["main_dispatch_0_elementwise_256_f32"]
    assert comparison.persists is True
    # Downstream everything differs, and is right for what it was given.
    assert {row.status for row in comparison.rows[: comparison.rows.index(comparison.first)]} == {"agrees"}
    assert "beyond" not in {row.status for row in comparison.rows[comparison.rows.index(comparison.first) + 1 :]}
    assert "the fault persists with add_25 alone observed, in the same sites as before" in str(comparison)


def test_a_wrong_repair_term_that_vanishes_when_it_is_looked_at() -> None:
    torch.manual_seed(0)
    comparison = _compare(_Soft(), torch.randn(64, 64), "wrong_repair", "iree:kernel-code")
    assert not comparison
    assert {row.status for row in comparison.rows} == {"agrees"}  # with everything observed
    assert comparison.results[0].measured.beyond
    assert comparison.persists is True
    assert comparison.suspicion is not None
    assert [action.name for action in comparison.suspicion.actions] == ["softmax", "mul"]
    assert len(comparison.suspicion.sites) == 1
    assert comparison.suspicion.sites[0].kernel.startswith("fred_")
    assert "observing any of softmax hides the fault" in str(comparison)


def test_a_kernel_that_reads_past_its_row() -> None:
    torch.manual_seed(0)
    comparison = _compare(_Soft(), torch.randn(64, 64), "past_the_row", "iree:kernel-code")
    assert comparison.first is not None
    assert comparison.first.action.name in ("softmax", "mul")  # what the kernel computes
    assert comparison.row("linear").status == "agrees"
    assert comparison.first.sites[0].kernel.startswith("fred_")
    assert comparison.persists is True


def test_a_program_that_crashes() -> None:
    torch.manual_seed(0)
    comparison = _compare(_Soft(), torch.randn(64, 64), "far_away", "iree:kernel-code")
    assert comparison.first is not None
    assert (comparison.first.action.name, comparison.first.status) == ("softmax", "crash")
    assert comparison.row("linear").status == "agrees"
    assert comparison.row("mul").status == "unobserved"
    assert "SIGSEGV" in comparison.crash
    assert comparison.persists is True


def test_a_constant_folded_wrongly() -> None:
    comparison = _compare(_Folds(), torch.randn(4, 48), "wrong_constant", "iree:global-optimization")
    assert comparison.first is not None
    assert (comparison.first.action.name, comparison.first.fate) == ("mul", "folded")
    assert comparison.first.measured is not None
    assert comparison.first.measured.worst == (17,)
    assert comparison.persists is True


def test_a_program_that_returns_nan() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.cos(torch.tanh(x) - x)

    comparison = _compare(_Wrapped(model), torch.randn(4, 8), "not_a_number", "torch-to-linalg")
    assert comparison.first is not None
    assert comparison.first.action.name == "tanh"
    assert comparison.first.measured is not None
    assert comparison.first.measured.error.wrong > 0


class _Stateful(torch.nn.Module):
    """Buffers that are written to, views, several results of one operation, a choice, numbers drawn at random."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm = torch.nn.Linear(64, 64), torch.nn.LayerNorm(64)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> dict[str, object]:
        self.calls.add_(1)
        a, b = self.linear(x).chunk(2, -1)
        z = self.norm(torch.cat([a * b, a], -1).relu_())
        w = (z @ z.transpose(-1, -2)).softmax(-1)
        noise = torch.rand_like(x) + 1
        out = w @ z * scale + self.calls
        return {"out": out, "index": w.argmax(-1), "n": 3, "noise": noise, "many": z.bfloat16().float().repeat(8, 1)}


def test_a_healthy_model_agrees_in_pieces_too() -> None:
    model, x = _Stateful(), torch.randn(32, 64)
    exe = covan_mlir.compile_module(model, (x,), options=covan_mlir.CompileOptions(random_numbers=True))
    comparison = exe.compare(x, options=CompareOptions(memory=40_000))
    assert comparison, str(comparison)
    assert model.calls == 0  # comparing is no call
    states = {row.action.name: (row.status, row.sampled) for row in comparison.rows}
    assert states["rand_like"] == ("unobserved", 1)
    assert states["add"] == ("unobserved", 1)
    assert "drawn at random" in comparison.row("add").why
    assert states["linear"] == ("agrees", 1)
    assert states["repeat"] == ("agrees", 2)
    assert {state for state, _ in states.values()} == {"agrees", "unobserved"}
    said = "\n".join(comparison.notes)
    assert "repeat takes 64.0 KiB: one in 2 of its elements was compared" in said
    assert "programs in turn" in said
    assert [result.index for result in comparison.results] == [0, 1, 3, 4]


def test_an_executable_from_a_file_needs_the_model(tmp_path: Path) -> None:
    model, x = _Soft(), torch.randn(8, 64)
    covan_mlir.compile_module(model, (x,)).save(tmp_path / "m.covan")
    exe = covan_mlir.load(tmp_path / "m.covan")
    with pytest.raises(InputError, match=r"does not hold the model: give it, exe.compare\(\.\.\., model=model\)"):
        exe.compare(x)
    with pytest.raises(InputError, match=r"not the model that was compiled: it calls aten.tanh.default \(tanh\) at .*"):
        exe.compare(x, model=lambda x: torch.tanh(x))
    comparison = exe.compare(x.numpy(), model=model)
    assert comparison, str(comparison)
    assert [row.action.name for row in comparison.rows] == ["linear", "softmax", "mul"]
    with torch.no_grad():
        model.linear.bias[3] += 1
    other = exe.compare(x, model=model)
    assert not other
    assert other.results[0].measured.beyond
    assert (other.first, other.suspicion) == (None, None)
    assert "the model's weights are others than those compiled in" in str(other)


@pytest.mark.parametrize(
    ("step", "what", "said"),
    [
        (
            "no-such-step",
            fault("flip_sign", "")[0][1],
            "this pipeline has no step 'no-such-step'; it has torch-backend",
        ),
        ("torch-to-linalg", "/no/such/file.py:f", "/no/such/file.py cannot be run: FileNotFoundError"),
        ("torch-to-linalg", f"{__file__}:nothing", "has no function 'nothing'"),
        ("torch-to-linalg", fault("not_a_number", "")[0][1], "not_a_number failed: IndexError"),
    ],
)
def test_extra_steps_that_cannot_be_run(step: str, what: str, said: str) -> None:
    if what.startswith(__file__):
        what = f"{sys.modules['planted'].__file__}:nothing"
    options = covan_mlir.CompileOptions(extra_steps=((step, what),))
    with pytest.raises(CompileError) as error:
        covan_mlir.compile_module(lambda x: x + 1, (torch.ones(2),), options=options)
    assert said in str(error.value)


def test_extra_steps_are_pairs() -> None:
    with pytest.raises(TypeError, match="extra_steps is a tuple of pairs"):
        covan_mlir.CompileOptions(extra_steps=("torch-to-linalg", "steps.py:flip"))  # type: ignore[arg-type]


def test_arguments_that_do_not_fit_are_refused() -> None:
    exe = covan_mlir.compile_module(lambda x: x + 1, (torch.ones(2),))
    with pytest.raises(InputError, match="x"):
        exe.compare(torch.ones(3))
    with pytest.raises(InputError, match="x"):
        exe.compare(np.ones(2))


def test_the_command_line(compiled: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(compiled.parent)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert fails(capsys, "compare", "m.covan", code=2)[1] == "give --model FILE.py:FACTORY|FILE"
    message, _ = fails(capsys, "compare", "m.covan", "--model", "models.py:make_function")
    assert message.startswith("this is not the model that was compiled: it calls aten.mul.Tensor (mul)")
    assert cli.main(["compare", "m.covan", "--model", "models.py:make", "--json"]) == 0
    row = json.loads(capsys.readouterr().out.removeprefix("hello from the factory\n"))
    assert (row["agrees"], row["first"], row["persists"]) == (True, None, None)
    assert [it["action"] for it in row["rows"]] == ["linear", "softmax", "view", "to"]
    for name in ("models", "models_model"):
        sys.modules.pop(name, None)


def test_options_that_run_code_are_given_again(tmp_path: Path) -> None:
    """What a file says of flags, steps and extensions is compared with what the caller says, and not taken."""
    path, x = tmp_path / "model.covan", torch.randn(2, 4)
    options = covan_mlir.CompileOptions(iree_flags=("--iree-opt-data-tiling=false",), frontend="linalg")
    model = torch.nn.Linear(4, 4)
    covan_mlir.compile_module(model, (x,), options=options).save(path)
    exe = covan_mlir.load(path)
    for others in (None, covan_mlir.CompileOptions(iree_flags=("--iree-opt-data-tiling=true",))):
        with pytest.raises(
            covan_mlir.InputError, match=r"says that it was compiled with .iree_flags=.*data-tiling=false"
        ):
            exe.compare(x, model=model, options=CompareOptions(compiled_with=others))
        with pytest.raises(covan_mlir.InputError, match="data-tiling=false"):
            exe.verify((x,), model=model, options=CompareOptions(compiled_with=others))
    assert exe.compare(x, model=model, options=CompareOptions(compiled_with=options))
    assert exe.verify((x,), model=model, options=CompareOptions(compiled_with=options))


def test_flags_are_given_again_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    factory = "def make():\n    torch.manual_seed(1)\n    return torch.nn.Linear(4, 4), (torch.ones(2, 4),)\n"
    Path("line.py").write_text(f"import torch\n\n{factory}")
    flag = "--iree-flag=--iree-opt-data-tiling=false"
    assert cli.main(["compile", "line.py:make", "-o", "m.covan", flag]) == 0
    for command in (("compare",), ("verify", "--values")):
        assert cli.main([*command, "m.covan", "--model", "line.py:make"]) == 1
        assert "compiled with \"iree_flags=('--iree-opt-data-tiling=false',)\"" in capsys.readouterr().err
        assert cli.main([*command, "m.covan", "--model", "line.py:make", flag]) == 0
