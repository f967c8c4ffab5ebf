"""Gradients of convolutions' weights as correlations of two images, against the chain's interpreter in float64."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from dense_chains import MACHINE, arrays_of, f, near
from plain_chains import Writer
from torch import nn

import covan_mlir
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Affine, Const, Window
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.cpu.correlation_schedule import CorrelationSchedule
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.select import Candidate, Selection, choices, select
from covan_mlir.lowering.kernels.standalone import Standalone
from covan_mlir.machine.description import PRESETS


def weight_gradient(
    rows: int,
    channels: int,
    taps: tuple[int, ...],
    image: tuple[int, ...],
    *,
    images: int = 0,
    stride: int = 1,
    pad: int = 1,
    dilation: int = 1,
    groups: int = 1,
    apart: bool = False,
    dtype: str = "f32",
) -> Chain:
    """``w - 0.5 * sum of x * g``, of a convolution's input and the gradient of its result.

    Args:
        apart: the images' axis is behind that of rows and channels.
    """
    spatial = "dhw"[3 - len(taps) :]
    results = [(n + 2 * pad - dilation * (r - 1) - 1) // stride + 1 for n, r in zip(image, taps, strict=True)]
    sizes = dict(zip(spatial.upper(), image, strict=True)) | dict(zip(spatial, results, strict=True))
    own = dict(zip("trs"[3 - len(taps) :], taps, strict=True))
    sizes |= (
        own | {"o": rows, "i": channels} | ({"n": images} if images else {}) | ({"g": groups} if groups > 1 else {})
    )
    w = Writer(dtype, **sizes)
    lead, group = "n" if images else "", "g" if groups > 1 else ""
    ahead = [group + axis + lead if apart else lead + group + axis for axis in "io"]
    w.input("x", ahead[0] + spatial.upper())
    still, weight = w.input("g", ahead[1] + spatial), w.input("w", f"{group}oi" + "".join(own))
    at = [Affine.of([(axis, 1)]) for axis in ahead[0]]
    at += [Affine.of([(axis, stride), (tap, dilation)], -pad) for axis, tap in zip(spatial, own, strict=True)]
    term = f("arith.mulf", Window("x", dtype, tuple(at), Const(0.0, dtype)), still)
    w.reduce("s", f"{group}io" + "".join(own), "add", lead + spatial, term)
    w.map("y", f"{group}oi" + "".join(own), f("arith.subf", weight, f("arith.mulf", w.read("s"), w.number(0.5))))
    return w.chain("y")


CASES = {
    "same": weight_gradient(20, 33, (3, 3), (8, 8), images=6),
    "wide": weight_gradient(9, 16, (3, 3), (20, 37), images=2),
    "first": weight_gradient(33, 3, (3, 3), (16, 16), images=4),
    "stem": weight_gradient(20, 3, (7, 7), (29, 30), images=2, stride=2, pad=3),
    "strided": weight_gradient(17, 18, (3, 3), (15, 16), images=3, stride=2),
    "dilated": weight_gradient(10, 20, (3, 3), (14, 14), images=2, dilation=3, pad=3),
    "grouped": weight_gradient(6, 9, (3, 3), (10, 12), images=2, groups=3),
    "one image": weight_gradient(12, 17, (5, 5), (12, 12), pad=2),
    "line": weight_gradient(18, 20, (5,), (96,), images=3, pad=2),
    "long line": weight_gradient(4, 6, (9,), (1600,), pad=4),
    "volume": weight_gradient(8, 9, (3, 3, 3), (5, 6, 7), images=2),
    "apart": weight_gradient(10, 12, (3, 3), (7, 7), images=6, apart=True),
    "valid": weight_gradient(8, 9, (3, 2), (9, 9), images=2, pad=0),
    "few": weight_gradient(3, 2, (3, 3), (6, 6), images=2),
    "tall": weight_gradient(5, 7, (3, 1), (19, 23), images=1, pad=1),
    "double": weight_gradient(9, 10, (3, 3), (9, 9), images=2, dtype="f64"),
}


def candidate(chain: Chain) -> Candidate:
    listed = choices(chain, CpuTarget(MACHINE))
    assert not isinstance(listed, Refusal), listed
    return next(one for one in listed.candidates if one.template.name == "correlation")


def run(chains: dict[str, tuple[Chain, Candidate, CorrelationSchedule]]) -> None:
    written = {name: one.write(schedule, f"kernel_{n}") for n, (name, (_, one, schedule)) in enumerate(chains.items())}
    failed = {name: kernel for name, kernel in written.items() if not isinstance(kernel, Selection)}
    assert not failed, failed
    alone = Standalone([kernel.executable for kernel in written.values() if isinstance(kernel, Selection)])
    for number, (name, (chain, _, schedule)) in enumerate(chains.items()):
        arrays = arrays_of(chain, 3)
        got = np.asarray(alone[f"kernel_{number}"](*(alone.buffer(arrays[v.name]) for v in chain.inputs)).to_host())
        want = interpret(chain, arrays, "f64")["y"]
        try:
            near(got, want, 2000, chain.values["y"].dtype)
        except AssertionError as error:
            raise AssertionError(f"{name}, {schedule}") from error


@pytest.mark.parametrize("along", ["channel", "row"])
def test_lanes_along_either_image(along: str) -> None:
    """What is predicted to be best, and any other, of those that the machine can hold."""
    chains = {}
    for name in CASES:
        one = candidate(CASES[name])
        schedules = [s for s in one.match.schedules() if s.to_json()["along"] == along]
        assert schedules, name
        chosen = [schedules[0], random.Random(1).choice(schedules), schedules[-1]]
        chains |= {f"{name} {n}": (CASES[name], one, schedule) for n, schedule in enumerate(dict.fromkeys(chosen))}
    run(chains)


@pytest.mark.parametrize("name", ["avx512", "avx2", "neon"])
def test_other_machines_have_schedules(name: str) -> None:
    machine = PRESETS[name]
    selection = select(weight_gradient(64, 32, (3, 3), (16, 16), images=8), "k", CpuTarget(machine), always=True)
    assert isinstance(selection, Selection)
    assert selection.template == "correlation"
    assert selection.schedule["lanes"] == machine.lanes("f32")


def test_in_a_step_of_training() -> None:
    """A weight's gradient and what the optimizer makes of it are one kernel; all is as in eager PyTorch."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 24, 3, padding=1), nn.ReLU(), nn.AvgPool2d(3, 2, 1), nn.Flatten(), nn.Linear(24 * 16, 5)),
    )
    x, targets, twin = torch.randn(8, 3, 16, 16), torch.arange(8) % 5, copy.deepcopy(model)
    step = covan_mlir.compile_training_step(model, F.cross_entropy, lambda p: torch.optim.SGD(p, lr=0.1), (x, targets))
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        loss = F.cross_entropy(twin(x), targets)
        loss.backward()
        optimizer.step()
        assert step(x, targets).item() == pytest.approx(loss.item(), rel=1e-5)
    for name, value in step.state_dict()["model"].items():
        torch.testing.assert_close(value, twin.state_dict()[name], rtol=1e-4, atol=1e-5)
    assert step.executable.verify()
    (kernel,) = (record.kernel for record in step.lineage.fusions if record.template == "correlation")
    (site,) = (site for site in step.lineage.sites if site.kernel == kernel)
    roles = {action.role for action in step.lineage.why(site)}
    assert roles == {"gradient of 4 with respect to its input, bias and weight", "update of 4.weight by SGD"}
