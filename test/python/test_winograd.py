"""Convolutions by Winograd's filtering: exact as algebra, within their bound as kernels, and only where allowed."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
import torch
from dense_chains import MACHINE, Arrays, arrays_of, convolution
from limits import many, part, some
from torch import nn

import covan_mlir
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Apply, Read
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.cpu.convolution_roles import convolution_of
from covan_mlir.lowering.kernels.cpu.minimal_filtering import Matrix
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.winograd_algebra import SIZES, STRIDES, TAPS, Algorithm
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.select import Choices, Selection, choices, select
from covan_mlir.lowering.kernels.standalone import Standalone
from covan_mlir.machine.description import PRESETS

TARGET = CpuTarget(MACHINE)


def weights(chain: Chain) -> Chain:
    """All but what slides is the same at every call."""
    return replace(chain, inputs=tuple(replace(value, weight=value.name != "x") for value in chain.inputs))


def with_residual(chain: Chain) -> Chain:
    """``max(sum + bias, 0) * gate``, the gate an input of the result's shape."""
    last = chain.steps[-1]
    gated = replace(last, expr=Apply("arith.mulf", (last.expr, Read("gate", "f32")), "f32"))
    gate = replace(chain.inputs[0], name="gate", axes=last.axes, weight=False)
    return replace(chain, inputs=(*chain.inputs, gate), steps=(*chain.steps[:-1], gated))


def listed(chain: Chain, target: CpuTarget = TARGET) -> Choices:
    offered = choices(chain, target)
    assert not isinstance(offered, Refusal), offered
    return offered


def kernels(chain: Chain, prefix: str, kinds: int) -> dict[str, tuple[Executable, Algorithm]]:
    """Kernels of different sizes of tiles and numbers of dispatches, the best of each kind, and one with ragged
    register tiles. -> (kernel, its algorithm) by name"""
    chosen: dict[tuple[int, bool, bool], tuple[Executable, Algorithm]] = {}
    stride = convolution_of(chain).width.stride
    for candidate, schedule in listed(chain).schedules():
        fields = schedule.to_json()
        if candidate.template.name != "winograd":
            continue
        tiles = fields["down"] * fields["across"]
        key = (fields["size"], fields["fused"], tiles > fields["rows"] and tiles % fields["rows"] > 0)
        if key not in chosen and len(chosen) < kinds:
            written = candidate.write(schedule, f"{prefix}_{len(chosen)}")
            assert isinstance(written, Selection), written
            chosen[key] = (written.executable, Algorithm(fields["size"], stride))
    assert chosen
    return {executable.name: (executable, algorithm) for executable, algorithm in chosen.values()}


def results(alone: Standalone, name: str, chain: Chain, arrays: Arrays) -> np.ndarray:
    return np.asarray(alone[name](*(alone.buffer(arrays[value.name]) for value in chain.inputs)).to_host())


def check(chains: dict[str, Chain], kinds: int = 6) -> None:
    """Kernels of some chains (in a sweep of all), against float64, within the bound."""
    chains = dict(some([*chains.items()], 4))
    written = {name: kernels(chain, name, kinds) for name, chain in chains.items()}
    alone = Standalone([executable for each in written.values() for executable, _ in each.values()])
    for name, chain in chains.items():
        arrays = arrays_of(chain, 5)
        want = interpret(chain, arrays, "f64")["y"]
        largest = float(np.abs(arrays["x"]).max()) * float(np.abs(arrays["f"]).max())
        gate = float(np.abs(arrays["gate"]).max()) if "gate" in arrays else 1.0
        for kernel, (_, algorithm) in written[name].items():
            got = results(alone, kernel, chain, arrays)
            bound = algorithm.bound(chain.known_sizes["c"]) * largest * gate
            assert got.shape == want.shape
            unit = float(ml_dtypes.finfo(got.dtype).eps)  # the result is rounded once more where it is stored
            np.testing.assert_allclose(got.astype(np.float64), want, rtol=max(1e-6, unit), atol=bound, err_msg=kernel)


def times(matrix: Matrix, vector: list[Fraction]) -> list[Fraction]:
    return [sum((c * v for c, v in zip(row, vector, strict=True)), start=Fraction(0)) for row in matrix]


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("size", SIZES)
def test_the_algebra_is_exact(size: int, stride: int) -> None:
    chance = random.Random(size)
    algorithm = Algorithm(size, stride)
    assert algorithm.span == stride * (size - 1) + TAPS
    for _ in range(20):
        d = [Fraction(chance.randint(-9, 9)) for _ in range(algorithm.span)]
        g = [Fraction(chance.randint(-9, 9)) for _ in range(TAPS)]
        products = [a * b for a, b in zip(times(algorithm.filters, g), times(algorithm.inputs, d), strict=True)]
        want = [sum(d[stride * i + r] * g[r] for r in range(TAPS)) for i in range(size)]
        assert times(algorithm.results, products) == want


@pytest.mark.parametrize("stride", STRIDES)
@pytest.mark.parametrize("size", SIZES)
def test_constants_are_exact(size: int, stride: int) -> None:
    """Those that are multiplied by at run time are numbers of single precision."""
    algorithm = Algorithm(size, stride)
    for row in (*algorithm.inputs, *algorithm.results):
        assert all(Fraction(float(np.float32(float(c)))) == c for c in row)


@pytest.mark.parametrize("kinds", part((2, 6), kept=(2,)))
def test_sizes_around_tiles_and_vectors(kinds: int) -> None:
    check(
        {
            "even": weights(convolution(16, 32, (3, 3), (8, 16))),
            "odd": weights(convolution(5, 7, (3, 3), (13, 11))),
            "small": weights(convolution(40, 33, (3, 3), (7, 7))),
            "least": weights(convolution(2, 2, (3, 3), (3, 3), pad=0)),
            "valid": weights(convolution(17, 20, (3, 3), (12, 21), pad=0)),
            "full": weights(convolution(9, 50, (3, 3), (9, 18), pad=2)),
            "wide": weights(convolution(3, 8, (3, 3), (4, 150))),
            "batched": with_residual(weights(convolution(20, 18, (3, 3), (10, 14), batch=3))),
        },
        kinds,
    )


@pytest.mark.parametrize("kinds", part((2, 6), kept=(2,)))
def test_strides(kinds: int) -> None:
    check(
        {
            "even": weights(convolution(16, 32, (3, 3), (16, 32), stride=2)),
            "odd": weights(convolution(5, 7, (3, 3), (13, 27), stride=2)),
            "least": weights(convolution(2, 2, (3, 3), (3, 3), stride=2, pad=0)),
            "valid": weights(convolution(17, 20, (3, 3), (12, 41), stride=2, pad=0)),
            "full": weights(convolution(9, 50, (3, 3), (18, 35), stride=2, pad=2)),
            "batched": with_residual(weights(convolution(20, 18, (3, 3), (20, 14), stride=2, batch=3))),
        },
        kinds,
    )


def turned(chain: Chain) -> Chain:
    """The same, of a filter whose output channels are its last axis."""
    inputs = [replace(v, axes=("c", "r", "s", "k")) if v.name == "f" else v for v in chain.inputs]
    return replace(chain, inputs=tuple(inputs))


def test_filters_that_change_are_transformed_at_each_call() -> None:
    """In one dispatch more; panels and channels of a workgroup not full."""
    chains = {
        "ragged": convolution(21, 33, (3, 3), (7, 7), batch=2),
        "strided": convolution(17, 40, (3, 3), (16, 32), stride=2),
        "turned": turned(convolution(9, 20, (3, 3), (9, 18))),
        "gated": with_residual(convolution(20, 18, (3, 3), (10, 14))),
    }
    for chain in chains.values():
        for kernel, _ in kernels(chain, "k", 6).values():
            assert not kernel.preparations
            assert kernel.dispatches[0].name == f"{kernel.name}_filters"
    check(chains)


@pytest.mark.parametrize("seed", part((7, 8), kept=()))
def test_random_sizes(seed: int) -> None:
    chance = random.Random(seed)
    chains = {}
    for n in range(5):
        image = (chance.randint(3, 30), chance.randint(3, 40))
        chain = convolution(
            chance.randint(1, 70),
            chance.randint(1, 70),
            (3, 3),
            image,
            stride=chance.choice(STRIDES),
            pad=chance.randint(0, 2),
            batch=chance.choice((0, 1, 2)),
        )
        chains[f"r{n}"] = with_residual(weights(chain)) if chance.random() < 0.5 else weights(chain)
    check(chains, kinds=2)


@pytest.mark.parametrize("dtype", part(("f16", "bf16"), kept=("bf16",)))
def test_halves(dtype: str) -> None:
    """Images and filters are widened; transformed filters are of single precision."""
    check({"halves": weights(convolution(20, 18, (3, 3), (10, 14), dtype=dtype))}, many(2, 6))


def test_filters_are_asked_for() -> None:
    """Those of the next point into the second cache, a line at each channel of a register tile, where there are enough
    of these to ask for all lines; else those of a few channels ahead into the first one."""
    chain = weights(convolution(20, 70, (3, 3), (16, 16)))
    asked: dict[bool, set[str]] = {True: set(), False: set()}
    for candidate, schedule in listed(chain).schedules():
        fields = schedule.to_json()
        if candidate.template.name != "winograd" or fields["fused"]:
            continue
        enough = -(-fields["down"] * fields["across"] // fields["rows"]) >= fields["vectors"]
        if not asked[enough]:
            written = candidate.write(schedule, "k")
            assert isinstance(written, Selection), written
            asked[enough] = set(re.findall(r"memref\.prefetch .*locality<(\d)>", written.executable.text))
    assert asked == {True: {"2"}, False: {"3"}}


def test_a_batch_known_at_run_time_only() -> None:
    known = weights(convolution(20, 18, (3, 3), (10, 14), batch=1))
    chain = replace(known, axes=tuple(replace(a, size=None) if a.name == "n" else a for a in known.axes))
    written = kernels(chain, "k", many(2, 4))
    alone = Standalone([executable for executable, _ in written.values()])
    for batch in (1, 3):
        arrays = arrays_of(chain, batch, n=batch)
        want = interpret(chain, arrays, "f64")["y"]
        for name in written:
            np.testing.assert_allclose(results(alone, name, chain, arrays), want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("stride", STRIDES)
def test_errors_are_as_predicted(stride: int) -> None:
    """Of random numbers, on average over a tile's results at most the predicted multiple of what a direct sum in single
    precision has; with all signs alike and magnitudes apart, within the bound."""
    chain = weights(convolution(96, 32, (3, 3), (24, 24), stride=stride))
    written = kernels(chain, "k", many(2, 6))
    alone = Standalone([executable for executable, _ in written.values()])
    arrays = arrays_of(chain, 3)
    arrays["bias"][:] = 100.0  # nothing is cut off
    want = interpret(chain, arrays, "f64")["y"]
    x, f = (torch.from_numpy(arrays[name]) for name in "xf")
    patches = torch.nn.functional.unfold(x[None], 3, padding=1, stride=stride)[0]
    direct = torch.zeros(32, (24 // stride) ** 2)
    for k in range(len(patches)):  # one product after the other
        direct += f.reshape(32, -1)[:, k : k + 1] * patches[k]
    exact = torch.nn.functional.conv2d(x[None].double(), f.double(), padding=1, stride=stride)[0].numpy()
    error = np.sqrt(np.mean((direct.numpy().reshape(exact.shape) - exact) ** 2))
    stored = float(np.spacing(np.float32(100.0))) / 12**0.5
    for name, (_, algorithm) in written.items():
        own = np.sqrt(np.mean((results(alone, name, chain, arrays) - want) ** 2))
        assert own <= 1.1 * algorithm.error * error + stored
    rng = np.random.default_rng(1)
    arrays["bias"][:] = 0.0
    for image, taps in (
        (np.full_like(arrays["x"], 1.7), np.full_like(arrays["f"], 0.3)),
        (np.exp2(rng.integers(-12, 1, arrays["x"].shape)).astype(np.float32), np.sign(arrays["f"])),
    ):
        arrays = {**arrays, "x": image, "f": taps}
        want = interpret(chain, arrays, "f64")["y"]
        largest = float(np.abs(arrays["x"]).max() * np.abs(arrays["f"]).max())
        for name, (_, algorithm) in written.items():
            assert np.abs(results(alone, name, chain, arrays) - want).max() <= algorithm.bound(96) * largest


def test_who_is_offered_it() -> None:
    """Dense 3 x 3 convolutions that are computed in single precision; of halves, by weights."""

    def templates(chain: Chain, winograd: int = 4) -> set[str]:
        names = {candidate.template.name for candidate in listed(chain, CpuTarget(MACHINE, winograd)).candidates}
        return names - {"loop_nest"}  # it takes all of them

    plain = convolution(32, 32, (3, 3), (14, 14))
    assert templates(weights(plain)) == {"winograd", "convolution", "output_lanes"}
    assert templates(weights(convolution(32, 32, (3, 3), (14, 14), dtype="bf16"))) == {"winograd", "convolution"}
    assert templates(weights(convolution(32, 32, (3, 3), (34, 34)))) == {"winograd", "convolution"}
    assert "winograd" in templates(weights(convolution(32, 32, (3, 3), (14, 14), stride=2)))
    assert templates(plain) == {"winograd", "convolution"}
    assert templates(convolution(32, 32, (3, 3), (14, 14), dtype="bf16")) == {"convolution"}
    others = (
        convolution(32, 32, (3, 3), (14, 14), stride=3),
        convolution(32, 32, (3, 3), (14, 14), dilation=2),
        convolution(32, 32, (3, 3), (14, 14), groups=4),
        convolution(32, 32, (3, 3), (14, 14), groups=32),
        convolution(32, 32, (5, 5), (14, 14)),
        convolution(32, 32, (3,), (14,)),
        convolution(32, 32, (3, 3), (14, 14), dtype="f64"),
        convolution(4, 4, (3, 3, 3), (6, 6, 6)),
    )
    for other in others:
        assert "winograd" not in templates(weights(other))


@pytest.mark.parametrize(("stride", "both"), [(1, 3), (2, 2)])
def test_the_limit_decides_which_tiles(stride: int, both: int) -> None:
    chain = weights(convolution(64, 64, (3, 3), (28, 28), stride=stride))
    for limit in range(5):
        sizes = {2, 4} if limit >= both else {2} if limit else set()
        offered = {
            schedule.to_json()["size"]
            for candidate, schedule in listed(chain, CpuTarget(MACHINE, limit)).schedules()
            if candidate.template.name == "winograd"
        }
        assert offered == sizes


@pytest.mark.parametrize("name", ["avx512", "avx2", "neon"])
def test_other_machines_have_schedules(name: str) -> None:
    machine = PRESETS[name]
    selection = select(weights(convolution(64, 64, (3, 3), (28, 28))), "k", CpuTarget(machine), always=True)
    assert isinstance(selection, Selection)
    assert selection.template == "winograd"
    assert selection.schedule["lanes"] == machine.lanes("f32")
    assert (selection.schedule["rows"] + 1) * selection.schedule["vectors"] + 1 <= machine.registers


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(32, 48, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(48)
        self.second = nn.Conv2d(48, 48, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(self.first(x)))
        return torch.nn.functional.silu(self.second(y) + y)


@pytest.mark.parametrize(("winograd", "sizes"), [(4, [4, 4]), (1, [2, 2]), (0, [])])
def test_in_a_program(winograd: int, sizes: list[int]) -> None:
    torch.manual_seed(3)
    model = Net().eval()
    model.norm.running_mean.normal_()
    model.norm.running_var.uniform_(0.5, 2.0)
    x = torch.randn(1, 32, 56, 56)
    with torch.no_grad():
        want = model.double()(x.double())
        model.float()
        exe = covan_mlir.compile_module(model, (x,), options=covan_mlir.CompileOptions(winograd=winograd))
        assert exe.verify(), exe.verify()
        error = (exe(x).double() - want).abs().max()
        plain = (model(x).double() - want).abs().max()
    assert error <= 4 * plain * max([1.0, *(Algorithm(size).error for size in sizes)])
    records = [record for record in exe.lineage.fusions if record.kernel]
    assert [record.schedule["size"] for record in records if "size" in record.schedule] == sizes
    # The same actions are where the kernels of direct sums would be.
    performed = {action for record in records for action in record.parts}
    assert len(records) == 2
    assert len(performed) >= 5


class Branches(nn.Module):
    """A convolution whose epilogue adds what another one computes of the same."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Conv2d(256, 256, 3, padding=1), nn.Conv2d(256, 256, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(self.wide(x) + self.narrow(x))


def test_a_transform_is_a_share_of_the_convolution_and_of_nothing_behind_it() -> None:
    exe = covan_mlir.compile_module(Branches().eval(), (torch.randn(1, 256, 7, 7),))
    assert exe.verify(), str(exe.verify())
    for site in exe.lineage.sites:
        if site.kernel.endswith("_parts"):  # where two dispatches are predicted to be faster than one
            assert [action.name for action in exe.lineage.why(site)] == ["conv2d"]


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="winograd"):
        covan_mlir.CompileOptions(winograd=-1)
