"""The contract of templates: who is asked, who is taken, and what files of the user's own add."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from fred_chains import Floats, attention, row_cases
from torch import Tensor

import covan_mlir
from covan_mlir import CompileError, CompileOptions
from covan_mlir.fred.chain import Axis, Chain, Input
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels import registry
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.embed import by_name
from covan_mlir.lowering.kernels.kernel import Executable, Operand, Refusal
from covan_mlir.lowering.kernels.overrides import IllegalError
from covan_mlir.lowering.kernels.select import Choices, Selection, choices, select
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.lowering.kernels.targets import named
from covan_mlir.lowering.kernels.template import Match, Schedule, Template
from covan_mlir.lowering.pipeline import StepError
from covan_mlir.machine.description import PRESETS

EXAMPLE = Path(__file__).parent / "example_template.py"
TARGET = CpuTarget(PRESETS["avx2"])


@pytest.fixture
def forgotten() -> Iterator[None]:
    """Templates that a test registers are forgotten after it."""
    registry.templates("cpu", "rows")
    before = dict(registry._templates["cpu"])
    yield
    registry._templates["cpu"] = before


@dataclass(frozen=True)
class Tile(Schedule):
    size: int


@dataclass(frozen=True)
class FixedMatch(Match[Tile]):
    """Takes as long as it is told, and has text instead of code."""

    seconds: float
    reason: str

    def schedules(self) -> list[Tile]:
        return [Tile(4), Tile(8)]

    def predict(self, schedule: Tile) -> float:
        return self.seconds * schedule.size

    def emit(self, schedule: Tile, name: str, lines: object) -> Executable | Refusal:
        return Refusal(self.reason) if self.reason else Executable.single(name, "module {}", (), ())


def fixed(
    called: str, seconds: float, reason: str = "", broken: bool = False, least: float = 0.0
) -> type[Template[KernelTarget, Tile]]:
    class Fixed(Template[KernelTarget, Tile]):
        name: ClassVar[str] = called
        target: ClassVar[str] = "cpu"

        def floor(self, chain: Chain, target: KernelTarget) -> float:
            return least

        def match(self, chain: Chain, target: KernelTarget, fusion: Fusion | None = None) -> FixedMatch:
            if broken:
                raise ZeroDivisionError("the template's bug")
            return FixedMatch(seconds, reason)

    return Fixed


SOFTMAX = row_cases(64, 1000)["softmax"][0]


@pytest.mark.usefixtures("forgotten")
def test_predicted_time_decides() -> None:
    registry.register(fixed("slow", 1.0))
    selection = select(SOFTMAX, "k", TARGET, always=True)
    assert isinstance(selection, Selection)
    assert selection.template == "rows"
    registry.register(fixed("fast", 1e-12))
    selection = select(SOFTMAX, "k", TARGET, always=True)
    assert isinstance(selection, Selection)
    assert (selection.template, selection.schedule) == ("fast", {"size": 4})
    assert selection.cost.seconds == 4e-12


@pytest.mark.usefixtures("forgotten")
def test_a_template_that_fails_leaves_the_chain_to_others() -> None:
    registry.register(fixed("broken", 0.0, broken=True))
    registry.register(fixed("refusing", 1e-12, reason="not today"))
    selection = select(SOFTMAX, "k", TARGET, always=True)
    assert isinstance(selection, Selection)
    assert selection.template == "rows"


@pytest.mark.usefixtures("forgotten")
def test_a_template_that_cannot_be_the_fastest_is_asked_last() -> None:
    """Only where schedules are listed, or none of the others can be written."""
    registry.register(fixed("general", 1e-12, least=1.0))
    selection = select(SOFTMAX, "k", TARGET, always=True)
    assert isinstance(selection, Selection)
    assert selection.template == "rows"
    listed = choices(SOFTMAX, TARGET)
    assert isinstance(listed, Choices)
    assert [candidate.template.name for candidate in listed.candidates[:2]] == ["general", "rows"]
    registry._templates["cpu"] = {}
    registry.register(fixed("refusing", 1e-12, reason="not today"))
    registry.register(fixed("general", 1.0, least=1.0))
    selection = select(SOFTMAX, "k", TARGET, always=True)
    assert isinstance(selection, Selection)
    assert selection.template == "general"


@pytest.mark.usefixtures("forgotten")
def test_every_refusal_has_its_reason() -> None:
    registry._templates["cpu"] = {}
    assert select(SOFTMAX, "k", TARGET) == Refusal("there is no template for cpu")
    registry.register(fixed("first", 1e-12, reason="not today"))
    assert select(SOFTMAX, "k", TARGET) == Refusal("not today")
    registry.register(fixed("second", 1e-12, broken=True))
    registry.register(fixed("third", 1e-12, reason="nor tomorrow"))
    assert select(SOFTMAX, "k", TARGET) == Refusal("first: not today; third: nor tomorrow")


@pytest.mark.usefixtures("forgotten")
def test_names_of_templates_are_their_own() -> None:
    with pytest.raises(ValueError, match=r"templates\.rows registers a template 'rows' for cpu: choose another name"):
        registry.register(fixed("rows", 1.0))


@pytest.mark.parametrize("kind", ["cpu", "cuda", "vulkan"])
@pytest.mark.parametrize("chain", [SOFTMAX, attention(2, 64, 64, 16), attention(2, 1, 256, 16)], ids=str)
def test_schedules_are_data(kind: str, chain: Chain) -> None:
    choice = choices(chain, named(kind, "", {}))
    assert isinstance(choice, Choices)
    listed = list(choice.schedules())
    assert (listed[0][1], listed[0][1]) == (choice.pick()[1], choice.candidates[0].first)
    for candidate, schedule in (listed[0], listed[-1]):
        assert candidate.match.read(json.loads(json.dumps(schedule.to_json()))) == schedule
        assert candidate.match.predict(schedule) > 0
        with pytest.raises(IllegalError, match="cannot hold"):
            candidate.match.read({**schedule.to_json(), "no such field": 1})


def test_executables_are_data() -> None:
    selection = select(attention(2, 1, 4096, 64), "k", CpuTarget(replace(PRESETS["avx2"], cores=8)), always=True)
    assert isinstance(selection, Selection)
    executable = selection.executable
    assert [dispatch.name for dispatch in executable.dispatches] == ["k", "k_merge"]
    assert Executable.from_json(json.loads(json.dumps(executable.to_json()))) == executable


def test_a_name_stands_for_one_kernel() -> None:
    x, y = Operand("x", (4,), "f32"), Operand("y", (4,), "f32")
    one, other = (Executable.single("k", text, (x,), (y,)) for text in ("module {}", "module { }"))
    assert by_name([one, one]) == {"k": one}
    with pytest.raises(StepError, match="two kernels are called k"):
        by_name([one, other])


# Files of the user's own


def test_a_template_of_the_users_own_is_used() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sum(-1)

    x = torch.randn(64, 512)
    options = CompileOptions(fuse_reductions="always", extensions=(str(EXAMPLE),))
    exe = covan_mlir.compile_module(Model(), (x,), options=options)
    (record,) = exe.lineage.fusions
    assert record.kernel.startswith("fred_add_64x512_f32_")
    assert [*record.schedule] == ["lanes"]
    assert [site.kernel for site in exe.lineage.sites] == [record.kernel]
    torch.testing.assert_close(torch.from_numpy(exe(x).numpy()), Model()(x))
    assert exe.verify()
    # It is gone with the compilation that it was for.
    plain = covan_mlir.compile_module(Model(), (x,), options=CompileOptions(fuse_reductions="always"))
    assert plain.lineage.fusions[0].schedule["shape"] == "rows"
    assert plain.kernel_code(plain.lineage.sites[0]) != exe.kernel_code(exe.lineage.sites[0])


def test_chains_that_the_example_is_not_for() -> None:
    f = Floats()
    doubled = f.reduce("s", "i", "j", "add", f.op("addf", f.x, f.x))
    chain = Chain((Axis("i", 4), Axis("j", 64)), (Input("x", ("i", "j"), "f32"),), (doubled,), ("s",))
    import example_template

    try:
        choice = choices(chain, TARGET)
        assert isinstance(choice, Choices)
        assert [candidate.template.name for candidate in choice.candidates] == ["rows"]
        plain = replace(chain, steps=(f.reduce("s", "i", "j", "add", f.x),))
        choice = choices(plain, TARGET)
        assert isinstance(choice, Choices)
        assert [candidate.template.name for candidate in choice.candidates] == ["example_sum", "rows"]
    finally:
        del registry._templates["cpu"][example_template.Sum.name]


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "not a Python file"), ("1 / 0", "ZeroDivisionError: division by zero"), ("def", "SyntaxError")],
)
def test_files_that_cannot_be_loaded(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "mine.py"
    if text is not None:
        file.write_text(text)
    options = CompileOptions(extensions=(str(file),))
    with pytest.raises(CompileError, match=said) as caught:
        covan_mlir.compile_module(lambda x: x.sum(-1), (torch.randn(4, 8),), options=options)
    assert str(file) in str(caught.value)


def test_extensions_are_a_tuple_of_files() -> None:
    with pytest.raises(TypeError, match="extensions is a tuple of files"):
        CompileOptions(extensions="mine.py")  # type: ignore[arg-type]
    assert Path(CompileOptions(extensions=("mine.py",)).extensions[0]).is_absolute()
