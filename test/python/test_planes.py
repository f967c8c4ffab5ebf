"""Convolutions whose windows' columns have planes of their own, and register tiles of two widths, against float64."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
from dense_chains import MACHINE, arrays_of, convolution, near
from hypothesis import given
from hypothesis import strategies as st
from limits import some

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.cpu.convolution_schedule import spans_of
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.select import Selection, choices
from covan_mlir.lowering.kernels.standalone import Standalone

CASES = {
    "same": convolution(20, 33, (3, 3), (13, 19)),
    "strided": convolution(6, 40, (3, 3), (17, 33), stride=2),
    "first": convolution(3, 16, (7, 7), (40, 41), stride=2, pad=3),
    "dilated": convolution(9, 10, (3, 3), (20, 20), dilation=3, pad=3),
    "grouped": convolution(12, 20, (3, 3), (14, 14), groups=4),
    "batched": convolution(4, 6, (3, 3), (9, 9), batch=3),
    "line": convolution(10, 12, (5,), (100,), pad=2, stride=2),
    "volume": convolution(5, 6, (3, 3, 3), (6, 7, 20)),
    "far": convolution(2, 3, (2, 5), (3, 21), pad=4, stride=3),
}


def test_columns_apart() -> None:
    """Bands that fill the image and that do not, as many tiles as there are; strides, dilations, groups, 1-d to 3-d."""
    chance = random.Random(3)
    written: list[tuple[Chain, Executable]] = []
    for name, chain in CASES.items():
        listed = choices(chain, CpuTarget(MACHINE))
        assert not isinstance(listed, Refusal)
        apart = [pair for pair in listed.schedules() if pair[1].to_json().get("apart")]
        for n, (candidate, schedule) in enumerate([apart[0], *some(chance.sample(apart, 2), 1)]):
            selection = candidate.write(schedule, f"{name}_{n}")
            assert isinstance(selection, Selection), selection
            written.append((chain, selection.executable))
    alone = Standalone([executable for _, executable in written])
    for chain, executable in written:
        arrays = arrays_of(chain, 5)
        got = np.asarray(alone[executable.name](*map(alone.buffer, arrays.values())).to_host())
        near(got, interpret(chain, arrays, "f64")["y"], 250, "f32")


@given(st.integers(1, 200), st.integers(1, 12))
def test_tiles_of_two_widths_cover_a_run_once(vectors: int, most: int) -> None:
    spans = spans_of(vectors, most)
    assert spans[0].start == 0
    assert all(before.stop == after.start for before, after in pairwise(spans))
    assert vectors <= spans[-1].stop <= 1.03 * vectors
    for span in spans:
        assert 1 <= span.vectors <= most
        assert (span.stop - span.start) % span.vectors == 0
