"""Products and convolutions as chains, their kernels, and what results may differ by."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import pytest
from plain_chains import Writer

from covan_mlir.fred.chain import Chain, Input, Step
from covan_mlir.fred.expression import Affine, Apply, Const, Expr, Window, rebuild
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.select import Selection, choices, select
from covan_mlir.lowering.kernels.standalone import Standalone
from covan_mlir.machine.description import Machine
from covan_mlir.machine.host import VARIABLE, host

MACHINE = dataclasses.replace(host(), cores=2)
NUMPY: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
Arrays = dict[str, np.ndarray[Any, Any]]


def assumed(machine: Machine, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are compiled for this machine from now on."""
    (path := folder / "machine.json").write_bytes(msgspec.json.encode(machine))
    monkeypatch.setenv(VARIABLE, str(path))


def f(op: str, *args: Expr) -> Apply:
    return Apply(op, args, args[0].dtype)


def product(
    left: str, right: str, result: str, over: str, dtype: str = "f32", unknown: str = "", **sizes: int
) -> Chain:
    """``relu(sum of left * right + bias) * gate`` with axes as they are written."""
    w = Writer(dtype, **{axis: None if axis in unknown else size for axis, size in sizes.items()})
    a, b = w.input("a", left), w.input("b", right)
    bias, gate = w.input("bias", result[-1]), w.input("gate", result)
    w.reduce("s", result, "add", over, f("arith.mulf", a, b))
    total = f("arith.maximumf", f("arith.addf", w.read("s"), bias), w.number(0.0))
    w.map("y", result, f("arith.mulf", total, gate))
    return w.chain("y")


def arrays_of(chain: Chain, seed: int, **sizes: int) -> Arrays:
    generator = np.random.default_rng(seed)
    known = {**{a.name: a.size for a in chain.axes if a.size is not None}, **sizes}
    return {
        value.name: generator.standard_normal([known[axis] for axis in value.axes]).astype(NUMPY[value.dtype])
        for value in chain.inputs
    }


def kernel(chain: Chain, name: str, template: str) -> Executable:
    selection = select(chain, name, CpuTarget(MACHINE), always=True)
    assert isinstance(selection, Selection), selection
    assert selection.template == template
    return selection.executable


def written_by(template: str, chain: Chain, name: str) -> Executable:
    """The kernel that a template writes first, whether or not it is the fastest."""
    listed = choices(chain, CpuTarget(MACHINE))
    assert not isinstance(listed, Refusal)
    candidate, schedule = next(pair for pair in listed.schedules() if pair[0].template.name == template)
    written = candidate.write(schedule, name)
    assert isinstance(written, Selection), written
    return written.executable


def near(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any], terms: int, dtype: str) -> None:
    """Within the bound of a sum of so many terms in any order, a unit in the last place each, and that of storing."""
    unit = float(ml_dtypes.finfo(NUMPY[dtype]).eps)
    single = float(np.finfo(np.float64 if dtype == "f64" else np.float32).eps)
    bound = (terms**0.5 * 4 * single + 2 * unit) * max(1.0, float(np.abs(want).max()))
    assert got.shape == want.shape
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=0, atol=bound)


def check(cases: dict[str, tuple[Chain, Arrays, int]], template: str, *, fastest: bool = True) -> None:
    """``fastest``: no other template is predicted to be faster."""
    chains = {name: chain for name, (chain, _, _) in cases.items()}
    alone = Standalone(
        [kernel(c, name, template) if fastest else written_by(template, c, name) for name, c in chains.items()]
    )
    for name, (chain, arrays, terms) in cases.items():
        (output,) = chain.outputs
        got = np.asarray(alone[name](*(alone.buffer(arrays[value.name]) for value in chain.inputs)).to_host())
        near(got, interpret(chain, arrays, "f64")[output], terms, chain.values[output].dtype)


def convolution(
    channels: int,
    filters: int,
    window: tuple[int, ...],
    image: tuple[int, ...],
    *,
    stride: int = 1,
    pad: int = 1,
    dilation: int = 1,
    groups: int = 1,
    batch: int = 0,
    dtype: str = "f32",
) -> Chain:
    """``max(sum of x * f + bias, 0)``; as in a program, there is no axis of one channel or filter (of a group)."""
    spatial = "dhw"[3 - len(window) :]
    results = [(n + 2 * pad - dilation * (r - 1) - 1) // stride + 1 for n, r in zip(image, window, strict=True)]
    sizes = dict(zip(spatial.upper(), image, strict=True)) | dict(zip(spatial, results, strict=True))
    taps = dict(zip("trs"[3 - len(window) :], window, strict=True))
    deep, each = channels // groups, filters // groups
    sizes |= taps | ({"n": batch} if batch else {}) | ({"g": groups} if groups > 1 else {})
    sizes |= ({"k": each} if each > 1 else {}) | ({"c": deep} if deep > 1 else {})
    w = Writer(dtype, **sizes)
    lead, group = "n" if batch else "", "g" if groups > 1 else ""
    inner = "c" if deep > 1 else ""
    w.input("x", lead + group + inner + spatial.upper())
    own = group + ("k" if each > 1 else "")
    weight = w.input("f", own + inner + "".join(taps))
    bias = w.input("bias", own) if own else w.number(0.0)
    at = [Affine.of([(axis, 1)]) for axis in lead + group + inner]
    at += [Affine.of([(axis, stride), (tap, dilation)], -pad) for axis, tap in zip(spatial, taps, strict=True)]
    window_read = Window("x", dtype, tuple(at), Const(0.0, dtype))
    result = lead + own + spatial
    w.reduce("s", result, "add", inner + "".join(taps), f("arith.mulf", window_read, weight))
    w.map("y", result, f("arith.maximumf", f("arith.addf", w.read("s"), bias), w.number(0.0)))
    return w.chain("y")


def channels_last(chain: Chain) -> Chain:
    """The same with the axis ``g`` behind all others: in the input ``x``, and in steps that have others, too."""

    def behind(axes: tuple[str, ...]) -> list[int]:
        return [n for n, axis in enumerate(axes) if axis != "g"] + [axes.index("g")]

    orders = {value.name: behind(value.axes) for value in chain.steps if len(value.axes) > 1}
    orders["x"] = behind(chain.values["x"].axes)

    def turned(expr: Expr) -> Expr:
        if isinstance(expr, Window) and expr.name == "x":
            return dataclasses.replace(expr, at=tuple(expr.at[n] for n in orders["x"]))
        return expr

    def laid(value: Input | Step) -> tuple[str, ...]:
        return tuple(value.axes[n] for n in orders[value.name]) if value.name in orders else value.axes

    inputs = tuple(dataclasses.replace(value, axes=laid(value)) for value in chain.inputs)
    steps = (dataclasses.replace(step, axes=laid(step), expr=rebuild(step.expr, turned)) for step in chain.steps)
    return dataclasses.replace(chain, inputs=inputs, steps=tuple(steps))
