"""Orders in which images lie between kernels: the least sum of times, what is turned and what is not, lineages."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lineages import edited, performing
from oracle import assert_same
from torch import Tensor, nn

import covan_mlir
from covan_mlir.checking.verify import verify
from covan_mlir.executable import Executable
from covan_mlir.fred import chain_json
from covan_mlir.passes.raising.labelling import WIDEST, Table, TooWideError, least, tabulated

TABLES = st.lists(
    st.lists(st.integers(0, 6), min_size=1, max_size=3, unique=True).flatmap(
        lambda variables: st.lists(st.integers(0, 9), min_size=1 << len(variables), max_size=1 << len(variables)).map(
            lambda values: Table(tuple(variables), values)
        )
    ),
    min_size=1,
    max_size=8,
)


@given(TABLES)
def test_the_least_sum_is_that_of_all_choices(tables: list[Table[int]]) -> None:
    variables = sorted({variable for table in tables for variable in table.variables})
    chosen = least(tables)
    assert chosen.keys() == {*variables}
    every = (dict(zip(variables, one, strict=True)) for one in product((False, True), repeat=len(variables)))
    assert sum(table.at(chosen) for table in tables) == min(sum(table.at(one) for table in tables) for one in every)


def test_too_many_at_once() -> None:
    with pytest.raises(TooWideError):
        tabulated(range(WIDEST + 1), lambda chosen: 0.0)
    star = [Table((0, n), (0.0, 1.0, 1.0, 0.0)) for n in range(1, 3 * WIDEST)]
    assert not any(least(star).values())


class Inverted(nn.Module):
    """Residual blocks of MobileNet's kind, as small as makes channels behind positions pay on any machine."""

    def __init__(self, shown: bool = False) -> None:
        super().__init__()
        self.shown = shown
        self.grow = nn.ModuleList(nn.Conv2d(32, 192, 1) for _ in range(2))
        self.window = nn.ModuleList(nn.Conv2d(192, 192, 5, padding=2, groups=192) for _ in range(2))
        self.shrink = nn.ModuleList(nn.Conv2d(192, 32, 1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        seen = []
        for grow, window, shrink in zip(self.grow, self.window, self.shrink, strict=True):
            inner = torch.relu(window(torch.relu(grow(x))))
            seen.append(inner)
            x = x + shrink(inner)
        return (x, *seen) if self.shown else x


X = torch.randn(1, 32, 9, 7)


def behind(exe: Executable) -> list[bool]:
    """Of each kernel, whether its results have their channels last: those of 9 x 7 positions are not."""
    chains = [chain_json.load(record.source) for record in exe.lineage.fusions if record.kernel]
    last = [chain.sizes[chain.values[chain.outputs[0]].axes[-1]] for chain in chains]
    return [size in (32, 192) for size in last]


@pytest.fixture(scope="module")
def turned() -> tuple[Executable, nn.Module]:
    model = Inverted().eval()
    return covan_mlir.compile_module(model, (X,)), model


def test_images_between_kernels_are_turned(turned: tuple[Executable, nn.Module]) -> None:
    """And the program's own results are not, nor is anything computed or copied besides."""
    exe, model = turned
    assert_same(exe(X), model(X))
    assert sorted(behind(exe)) == [False, *[True] * 5]
    assert len(exe.lineage.sites) == 6
    assert "channels_last" in {record.template for record in exe.lineage.fusions}


def test_lineages_of_turned_images(turned: tuple[Executable, nn.Module]) -> None:
    lineage = turned[0].lineage
    verdict = verify(lineage)
    assert verdict.outcome == "yes", str(verdict)
    first, second = lineage.sites[0], lineage.sites[1]
    assert verify(edited(lineage, performing(lineage, first, second.parts))).outcome == "no"


def test_images_that_others_read_stay() -> None:
    """Results of the program, here all that a window gives."""
    model = Inverted(shown=True).eval()
    exe = covan_mlir.compile_module(model, (X,))
    for got, want in zip(exe(X), model(X), strict=True):
        assert_same(got, want)
    windows = [r for r in exe.lineage.fusions if r.kernel and chain_json.load(r.source).windowed]
    assert len(windows) == 2
    for record in windows:
        chain = chain_json.load(record.source)
        assert chain.sizes[chain.values[chain.outputs[0]].axes[-1]] == 7
    assert exe.verify()


def test_no_order_is_chosen_that_is_predicted_to_take_longer(tmp_path: Path) -> None:
    """What is chosen for a model of windows, pooling, strides and residuals costs at most what it costs as it is."""
    torch.manual_seed(3)
    first = [
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.Hardswish(),
    ]
    model = nn.Sequential(*first, Inverted(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5)).eval()
    x = torch.randn(2, 3, 40, 36)
    plain = tmp_path / "plain.py"
    plain.write_text("from covan_mlir.passes.raising.layouts import Layouts\nLayouts.choose = lambda self: {}\n")
    seconds = []
    for extensions in ((), (str(plain),)):
        exe = covan_mlir.compile_module(model, (x,), options=covan_mlir.CompileOptions(extensions=extensions))
        assert_same(exe(x), model(x))
        assert exe.verify()
        seconds.append(sum(record.seconds for record in exe.lineage.fusions if record.kernel))
    assert seconds[0] < seconds[1]
