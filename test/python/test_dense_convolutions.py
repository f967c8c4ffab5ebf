"""Convolutions and pooling on CPUs against float64 and torch: strides, padding, groups, images of every width."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from dense_chains import MACHINE, Arrays, arrays_of, channels_last, check, convolution, f, kernel, near, written_by
from limits import SWEEP, many, part
from plain_chains import Writer
from torch import nn

import covan_mlir
from covan_mlir.fred.chain import Chain, Combine
from covan_mlir.fred.expression import Affine, Const, Window
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.select import Selection, choices
from covan_mlir.lowering.kernels.standalone import Standalone


def test_convolutions() -> None:
    cases = {
        "same": convolution(20, 33, (3, 3), (13, 19)),
        "strided": convolution(6, 40, (3, 3), (17, 33), stride=2),
        "pointwise": convolution(70, 24, (1, 1), (15, 15), stride=2, pad=0),
        "first": convolution(3, 16, (7, 7), (40, 41), stride=2, pad=3),
        "broad": convolution(3, 8, (7, 7), (20, 112), stride=2, pad=3),
        "broader": convolution(2, 5, (5, 4), (9, 141), stride=3, pad=3),
        "patches": convolution(3, 30, (4, 4), (32, 36), stride=4, pad=0),
        "side_by_side": convolution(5, 30, (2, 2), (14, 14), stride=2, pad=0),
        "dilated": convolution(9, 10, (3, 3), (20, 20), dilation=3, pad=3),
        "grouped": convolution(12, 20, (3, 3), (14, 14), groups=4),
        "batched": convolution(4, 6, (3, 3), (9, 9), batch=3),
        "deep": convolution(300, 9, (3, 3), (7, 7)),
        "line": convolution(10, 12, (5,), (100,), pad=2, stride=2),
        "volume": convolution(5, 6, (3, 3, 3), (6, 7, 20)),
        "wide": convolution(2, 3, (1, 5), (3, 200), pad=2),
        "long_line": convolution(12, 10, (128,), (49,), pad=64, groups=2),
        "strided_long_line": convolution(4, 6, (100,), (301,), pad=0, stride=2),
        "dilated_long_line": convolution(3, 5, (70,), (401,), pad=3, stride=3, dilation=2),
        "long_rows": convolution(3, 4, (3, 80), (9, 100), pad=40),
        "long_rows_and_columns": convolution(2, 3, (20, 70), (25, 90), pad=0),
        "tall": convolution(3, 4, (70, 3), (80, 19), pad=0, stride=2),
    }
    check({n: (chain, arrays_of(chain, 5), 2700) for n, chain in cases.items()}, "convolution")
    valid = convolution(4, 4, (5, 5), (5, 5), pad=0)
    check({"valid": (valid, arrays_of(valid, 5), 2700)}, "convolution", fastest=False)


def test_filters_packed_ahead_of_time() -> None:
    """By tiles of output channels: groups, taps in a loop and written out, tiles and blocks of channels not full."""
    cases = {
        "same": convolution(20, 24, (3, 3), (13, 19)),
        "strided": convolution(6, 40, (3, 3), (17, 33), stride=2),
        "grouped": convolution(12, 24, (3, 3), (14, 14), groups=2),
        "batched": convolution(4, 8, (3, 3), (9, 9), batch=3),
        "deep": convolution(300, 12, (3, 3), (7, 7)),
        "first": convolution(3, 16, (7, 7), (40, 41), stride=2, pad=3),
        "ragged": convolution(5, 63, (3, 3), (10, 10)),
        "line": convolution(10, 12, (5,), (100,), pad=2),
        "long_line": convolution(12, 8, (128,), (49,), pad=64, groups=2),
        "volume": convolution(5, 6, (3, 3, 3), (6, 7, 20)),
    }
    for name, chain in cases.items():
        filtered = tuple(dataclasses.replace(value, weight=value.name == "f") for value in chain.inputs)
        choice = choices(dataclasses.replace(chain, inputs=filtered), CpuTarget(MACHINE))
        assert not isinstance(choice, Refusal), choice
        packed = [
            pair
            for pair in choice.schedules()
            if pair[0].template.name == "convolution" and pair[1].to_json()["packed"]
        ]
        picked = [packed[0], *random.Random(0).sample(packed, many(1, 2))]
        written = [candidate.write(schedule, f"{name}{n}") for n, (candidate, schedule) in enumerate(picked)]
        kernels = [one.executable for one in written if isinstance(one, Selection)]
        assert len(kernels) == len(picked)
        alone, arrays = Standalone(kernels), arrays_of(chain, 6)
        want = interpret(chain, arrays, "f64")["y"]
        for one in kernels:
            assert "f.packed" in [operand.name for operand in one.dispatches[0].inputs]
            got = np.asarray(alone[one.name](*(alone.buffer(a) for a in arrays.values())).to_host())
            near(got, want, 2700, "f32")


DEPTHWISE = {
    "one": convolution(17, 17, (7, 7), (14, 14), groups=17, pad=3),
    "strided": convolution(8, 8, (3, 3), (15, 15), groups=8, stride=2),
    "narrow": convolution(70, 70, (5, 5), (7, 7), groups=70, pad=2),
    "ragged": convolution(3, 3, (3, 3), (50, 77), groups=3),
    "batched": convolution(5, 5, (3, 4), (9, 33), groups=5, stride=3, batch=3),
    "dilated": convolution(6, 6, (3, 3), (20, 40), groups=6, dilation=3, pad=4),
    "far": convolution(2, 2, (2, 3), (40, 300), groups=2, stride=9),
    "line": convolution(9, 9, (5,), (100,), groups=9, pad=2),
    "flat": convolution(4, 4, (3, 3), (1, 21), groups=4),
    "point": convolution(4, 4, (1, 1), (9, 9), groups=4, pad=2, stride=2),
    "tall": convolution(1, 1, (7, 7), (90, 33), groups=1, pad=3),
    "columns": convolution(3, 3, (3, 5), (31, 170), groups=3, stride=5, dilation=2, pad=4),
    "rows": convolution(2, 2, (5, 3), (48, 40), groups=2, dilation=2, pad=6),
}


@pytest.mark.parametrize("template", ["depthwise", "convolution"])
def test_depthwise_convolutions(template: str) -> None:
    """Windows that leave the input on every side, vectors of which some columns exist: straight from memory, and from
    planes that are staged."""
    alone = Standalone([written_by(template, chain, name) for name, chain in DEPTHWISE.items()])
    for name, chain in DEPTHWISE.items():
        arrays = arrays_of(chain, 5)
        got = np.asarray(alone[name](*(alone.buffer(arrays[value.name]) for value in chain.inputs)).to_host())
        near(got, interpret(chain, arrays, "f64")["y"], 100, "f32")


LARGE = {
    "even": convolution(3, 3, (31, 31), (28, 28), groups=3, pad=15),
    "ragged": convolution(2, 2, (17, 9), (23, 50), groups=2, pad=4),
    "valid": convolution(4, 4, (11, 13), (11, 30), groups=4, pad=0),
    "strided": convolution(2, 2, (11, 11), (30, 21), groups=2, stride=2, pad=5),
    "dilated": convolution(2, 2, (9, 9), (33, 20), groups=2, dilation=2, pad=8),
    "batched": convolution(2, 2, (65, 3), (70, 18), groups=2, pad=1, batch=2),
}


def test_depthwise_convolutions_of_many_taps() -> None:
    """Rows of the input that all rows of a tile take are read in a loop, whichever of them there are."""
    alone = Standalone([written_by("depthwise", chain, f"l{n}") for n, chain in enumerate(LARGE.values())])
    for n, chain in enumerate(LARGE.values()):
        arrays = arrays_of(chain, 7)
        got = np.asarray(alone[f"l{n}"](*(alone.buffer(arrays[value.name]) for value in chain.inputs)).to_host())
        near(got, interpret(chain, arrays, "f64")["y"], 1000, "f32")


NARROW = {
    **{name: DEPTHWISE[name] for name in ("one", "strided", "narrow", "batched", "flat", "point")},
    "row": convolution(19, 19, (5,), (11,), groups=19, pad=2),
    "dilated rows": convolution(16, 16, (3, 3), (12, 12), groups=16, dilation=3, pad=4, stride=2),
    "beyond": convolution(3, 3, (2, 2), (3, 5), groups=3, pad=3),
}


def test_depthwise_convolutions_of_narrow_images() -> None:
    """Lanes along channels: numbers of them that fill no vector, rows and columns that lie outside as a whole."""
    # Registers hold a row of the results and one of the filter.
    held = [c for c in NARROW.values() if (c.sizes["w"] or 0) + (c.sizes["s"] or 0) + 2 <= MACHINE.registers]
    assert len(held) > 1
    alone = Standalone([written_by("channel_lanes", chain, f"n{n}") for n, chain in enumerate(held)])
    for n, chain in enumerate(held):
        arrays = arrays_of(chain, 6)
        got = np.asarray(alone[f"n{n}"](*(alone.buffer(arrays[value.name]) for value in chain.inputs)).to_host())
        near(got, interpret(chain, arrays, "f64")["y"], 100, "f32")


LAST = {
    **{name: chain for name, chain in DEPTHWISE.items() if name != "tall"},  # of one channel
    "broad": convolution(40, 40, (3, 3), (9, 30), groups=40),
    "large": convolution(20, 20, (9, 11), (13, 15), groups=20, pad=4),
    "many": convolution(130, 130, (5, 5), (14, 14), groups=130, pad=2, stride=2),
    "row": convolution(19, 19, (5,), (11,), groups=19, pad=2),
    "images": convolution(24, 24, (3, 3), (7, 7), groups=24, batch=5),
}


@pytest.mark.parametrize("weight", [True, False])
def test_depthwise_convolutions_of_images_with_channels_last(weight: bool) -> None:
    """Lanes along channels, in memory as they are: the best tile and others; filters turned ahead of time or there."""
    chains = {
        name: dataclasses.replace(
            last := channels_last(chain),
            inputs=tuple(dataclasses.replace(value, weight=weight and value.name == "f") for value in last.inputs),
        )
        for name, chain in LAST.items()
    }
    kernels: dict[str, Executable] = {}
    for name, chain in chains.items():
        listed = choices(chain, CpuTarget(MACHINE))
        assert not isinstance(listed, Refusal)
        mine = [pair for pair in listed.schedules() if pair[0].template.name == "channels_last"]
        picked = [mine[0], random.Random(0).choice(mine)]
        for n, (candidate, schedule) in enumerate(picked if SWEEP else picked[:1] if weight else picked[1:]):
            written = candidate.write(schedule, f"{name}{n}".replace(" ", "_"))
            assert isinstance(written, Selection)
            kernels[f"{name}{n}"] = written.executable
    alone = Standalone(list(kernels.values()))
    for name, chain in chains.items():
        arrays = arrays_of(chain, 6)
        want = interpret(chain, arrays, "f64")["y"]
        for n in range(len(kernels) // len(chains)):
            run = alone[kernels[f"{name}{n}"].name]
            near(np.asarray(run(*(alone.buffer(a) for a in arrays.values())).to_host()), want, 100, "f32")


def test_rows_that_are_told_apart_are_not_one() -> None:
    """What is added to a row's sums has the row's axis, and not that of columns."""
    w = Writer(g=20, H=7, W=7, h=7, w=7, r=3, s=3)
    w.input("x", "gHW")
    weight, other = w.input("f", "grs"), w.input("o", "gh")
    at = [Affine.of([("g", 1)]), *(Affine.of([(axis, 1), (tap, 1)], -1) for axis, tap in ("hr", "ws"))]
    w.reduce("t", "ghw", "add", "rs", f("arith.mulf", Window("x", "f32", tuple(at), Const(0.0, "f32")), weight))
    w.map("y", "ghw", f("arith.addf", w.read("t"), other))
    listed = choices(w.chain("y"), CpuTarget(MACHINE))
    assert not isinstance(listed, Refusal)
    assert "channel_lanes" not in {candidate.template.name for candidate in listed.candidates}


def test_much_is_made_of_a_depthwise_sum() -> None:
    """A long epilogue is not written out for every vector of a tile."""
    w = Writer(g=5, H=20, W=37, h=20, w=37, r=3, s=3)
    w.input("x", "gHW")
    weight, other = w.input("f", "grs"), w.input("o", "ghw")
    at = [Affine.of([("g", 1)]), *(Affine.of([(axis, 1), (tap, 1)], -1) for axis, tap in ("hr", "ws"))]
    w.reduce("t", "ghw", "add", "rs", f("arith.mulf", Window("x", "f32", tuple(at), Const(0.0, "f32")), weight))
    sigmoid = f(
        "arith.divf", w.number(1.0), f("arith.addf", w.number(1.0), f("math.exp", f("arith.negf", w.read("t"))))
    )
    w.map("y", "ghw", f("arith.addf", f("arith.mulf", w.read("t"), sigmoid), other))
    chain = w.chain("y")
    check({"silu": (chain, arrays_of(chain, 4), 9)}, "depthwise")


def test_random_convolutions() -> None:
    """Twelve at random, against torch in float64."""
    chance = random.Random(20)
    cases: dict[str, tuple[Chain, Arrays, Callable[[], np.ndarray[Any, Any]]]] = {}
    while len(cases) < 12:
        groups, r, s = chance.choice([1, 1, 2, 3]), chance.randint(1, 5), chance.randint(1, 5)
        stride, pad, dilation = chance.randint(1, 3), chance.randint(0, 3), chance.randint(1, 2)
        channels, filters = groups * chance.randint(1, 9), groups * chance.randint(2, 9)
        image = (chance.randint(5, 24), chance.randint(5, 40))
        if any(n + 2 * pad < dilation * (t - 1) + 1 for n, t in zip(image, (r, s), strict=True)) or (r, s) == (1, 1):
            continue
        options = {"stride": stride, "pad": pad, "dilation": dilation, "groups": groups}
        chain = convolution(channels, filters, (r, s), image, **options)
        arrays = arrays_of(chain, len(cases))

        def reference(
            arrays: Arrays = arrays, shape: tuple[int, ...] = (channels, filters, r, s), options: Any = options
        ) -> np.ndarray[Any, Any]:
            channels, filters, r, s = shape
            x, weight, bias = (torch.from_numpy(arrays[name]).double() for name in ("x", "f", "bias"))
            weight = weight.reshape(filters, channels // options["groups"], r, s)
            y = torch.nn.functional.conv2d(
                x.reshape(1, channels, *x.shape[-2:]),
                weight,
                bias.reshape(filters),
                options["stride"],
                options["pad"],
                options["dilation"],
                options["groups"],
            )
            return torch.relu(y).numpy()

        cases[f"c{len(cases)}"] = (chain, arrays, reference)
    alone = Standalone([kernel(chain, name, "convolution") for name, (chain, _, _) in cases.items()])
    for name, (chain, arrays, reference_of) in cases.items():
        got = np.asarray(alone[name](*(alone.buffer(arrays[value.name]) for value in chain.inputs)).to_host())
        want = reference_of()
        near(got.reshape(want.shape), want, 250, "f32")


def test_pooling() -> None:
    """Maxima and sums of windows, of every stride and padding; NaN wins, and what is outside never does."""
    cases: dict[str, tuple[Chain, Arrays, int]] = {}
    kinds: tuple[tuple[str, Combine, int, int, int], ...] = (
        ("max", "max", 3, 2, 1),
        ("least", "min", 2, 2, 0),
        ("sum", "add", 5, 1, 2),
        ("apart", "max", 2, 3, 0),
    )
    for name, combine, r, stride, pad in kinds:
        h = (21 + 2 * pad - r) // stride + 1
        w = Writer(n=2, c=5, p=21, q=21, h=h, w=h, r=r, s=r)
        w.input("x", "ncpq")
        outside = {"max": -np.inf, "min": np.inf, "add": 0.0}[combine]
        at = [Affine.of([(axis, 1)]) for axis in "nc"]
        at += [Affine.of([(axis, stride), (tap, 1)], -pad) for axis, tap in zip("hw", "rs", strict=True)]
        w.reduce("s", "nchw", combine, "rs", Window("x", "f32", tuple(at), Const(float(outside), "f32")))
        w.map("y", "nchw", f("arith.mulf", w.read("s"), w.number(0.5)))
        chain = w.chain("y")
        arrays = arrays_of(chain, 11)
        cases[name] = (chain, arrays, r * r)
    check(cases, "depthwise")


def test_bands_of_columns() -> None:
    """Parts of rows, whatever the stride and what is outside: where they leave the input is known at run time only."""
    target = CpuTarget(MACHINE)
    kernels: dict[str, tuple[Executable, Chain, Arrays]] = {}
    for name, chain in {
        "same": convolution(3, 5, (3, 3), (6, 150)),
        "strided": convolution(2, 5, (3, 4), (9, 301), stride=2),
        "far": convolution(2, 3, (2, 3), (40, 999), stride=9),
        "line": convolution(4, 6, (5,), (777,), pad=4, dilation=2),
    }.items():
        listed = choices(chain, target)
        assert not isinstance(listed, Refusal)
        candidate, schedule = next(
            (candidate, schedule)
            for candidate, schedule in listed.schedules()
            if (fields := schedule.to_json())["width"] < (chain.sizes["w"] or 0) and fields["width"] % 16
        )
        written = candidate.write(schedule, name)
        assert isinstance(written, Selection), written
        kernels[name] = (written.executable, chain, arrays_of(chain, 13))
    alone = Standalone([executable for executable, _, _ in kernels.values()])
    for name, (_, chain, arrays) in kernels.items():
        got = np.asarray(alone[name](*(alone.buffer(arrays[value.name]) for value in chain.inputs)).to_host())
        near(got, interpret(chain, arrays, "f64")["y"], 40, "f32")


HALVES: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "strided": (nn.Conv2d(20, 36, 3, 2, 1), (20, 13, 22)),
    "winograd": (nn.Conv2d(20, 36, 3, 1, 1), (20, 13, 22)),
    "first": (nn.Conv2d(3, 20, 7, 2, 3), (3, 40, 50)),
    "depthwise": (nn.Conv2d(24, 24, 5, 1, 2, groups=24), (24, 20, 33)),
    "narrow": (nn.Conv2d(40, 40, 3, 1, 1, groups=40), (40, 7, 7)),
    "grouped": (nn.Conv2d(24, 48, 3, 1, 1, groups=4), (24, 9, 17)),
    "along one": (nn.Conv1d(12, 20, 5, 1, 2), (12, 70)),
    "one point": (nn.Conv2d(64, 48, 1), (64, 9, 17)),
    "maximum": (nn.MaxPool2d(3, 2, 1), (12, 21, 30)),
}


@pytest.mark.parametrize("dtype", part([torch.bfloat16, torch.float16], kept=[torch.bfloat16]))
def test_programs_of_halves(dtype: torch.dtype) -> None:
    """One site each, which widens what it reads, sums in single precision, and rounds once."""
    torch.manual_seed(0)
    for name, (module, shape) in HALVES.items():
        model, x = copy.deepcopy(module).to(dtype).eval(), torch.randn(1, *shape).to(dtype)
        exe = covan_mlir.compile_module(model, (x,))
        assert len([site for site in exe.lineage.sites if site.phase == "call"]) == 1, name
        with torch.no_grad():
            want = model.double()(x.double())
        unit = torch.finfo(dtype).eps
        torch.testing.assert_close(exe(x).double(), want, rtol=unit, atol=1e-5 * float(want.abs().max()), msg=name)


def test_filters_of_halves_are_widened_ahead_of_time() -> None:
    """Those that are weights; other ones where they are used."""

    def prepared(chain: Chain) -> set[tuple[str, ...]]:
        listed = choices(chain, CpuTarget(MACHINE))
        assert not isinstance(listed, Refusal)
        chosen: dict[str, tuple[str, ...]] = {}
        for candidate, schedule in listed.schedules():
            if candidate.template.name not in chosen and candidate.template.name not in ("winograd", "loop_nest"):
                written = candidate.write(schedule, "k")
                assert isinstance(written, Selection), written
                chosen[candidate.template.name] = tuple(o.name for o in written.executable.dispatches[0].inputs)
        return set(chosen.values())

    for chain in (
        convolution(20, 30, (3, 3), (10, 18), dtype="bf16"),
        convolution(6, 6, (3, 3), (13, 18), groups=6, dtype="f16"),
    ):
        weighted = tuple(dataclasses.replace(value, weight=value.name == "f") for value in chain.inputs)
        assert {names[-1] for names in prepared(dataclasses.replace(chain, inputs=weighted))} == {"f.widened"}
        assert not any("f.widened" in names for names in prepared(chain))
