"""Products and convolutions on CPUs against float64: roles of axes, sizes around the tiles', element types."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from plain_chains import Writer

from covan_mlir.fred.chain import Chain, Combine
from covan_mlir.fred.expression import Affine, Apply, Const, Expr, Window
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.select import Selection, choices, select
from covan_mlir.lowering.kernels.standalone import Standalone
from covan_mlir.machine.description import PRESETS
from covan_mlir.machine.host import host

MACHINE = dataclasses.replace(host(), cores=2)
NUMPY: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
Arrays = dict[str, np.ndarray[Any, Any]]


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


def test_roles_of_axes() -> None:
    """Batched or not, either operand transposed, axes apart, several contracted axes, a result in another order."""
    b, i, j, k, h = 3, 21, 50, 37, 4
    plain = {"i": i, "j": j, "k": k}
    cases = {
        "plain": product("ik", "kj", "ij", "k", **plain),
        "transposed": product("ik", "jk", "ij", "k", **plain),
        "both": product("ki", "jk", "ij", "k", **plain),
        "batched": product("bik", "bjk", "bij", "k", b=b, **plain),
        "shared": product("bik", "kj", "bij", "k", b=b, **plain),
        "heads": product("ik", "hjk", "hij", "k", h=h, **plain),
        "joined": product("hik", "jhk", "ij", "hk", h=h, **plain),
        "turned": product("ik", "jk", "ji", "k", **plain),
        "vector": product("k", "jk", "j", "k", j=j, k=k),
        "outer": product("ik", "jk", "ij", "k", i=i, j=j, k=1),
    }
    check({n: (chain, arrays_of(chain, 1), k * h) for n, chain in cases.items()}, "product", fastest=False)


def test_sizes_around_tiles() -> None:
    sizes = [(1, 16, 1), (8, 48, 600), (9, 49, 64), (7, 15, 130), (65, 17, 33), (200, 97, 300)]
    cases = {f"p{i}x{j}x{k}": (product("ik", "jk", "ij", "k", i=i, j=j, k=k), k) for i, j, k in sizes}
    check({n: (chain, arrays_of(chain, 2), k) for n, (chain, k) in cases.items()}, "product", fastest=False)


def weighted(chain: Chain, name: str = "b") -> Chain:
    """The chain with an input that is a weight."""
    inputs = tuple(dataclasses.replace(value, weight=value.name == name) for value in chain.inputs)
    return dataclasses.replace(chain, inputs=inputs)


def packed_kernels(chain: Chain, name: str) -> list[Executable]:
    """Some kernels of a product that read panels packed ahead of time."""
    choice = choices(weighted(chain), CpuTarget(MACHINE))
    assert not isinstance(choice, Refusal), choice
    packed = [(candidate, schedule) for candidate, schedule in choice.schedules() if schedule.to_json().get("packed")]
    picked = random.Random(0).sample(packed, 3)
    selections = [candidate.write(schedule, f"{name}_{n}") for n, (candidate, schedule) in enumerate(picked)]
    assert all(isinstance(selection, Selection) for selection in selections)
    return [selection.executable for selection in selections if isinstance(selection, Selection)]


def test_what_is_read_soon_is_asked_for() -> None:
    """What results are made of, for each of their vectors; a share of the next panel where a tile leaves loads."""

    def asked(chain: Chain, rows: int, vectors: int) -> int:
        listed = choices(chain, CpuTarget(PRESETS["avx512"]))
        assert not isinstance(listed, Refusal)
        for candidate, schedule in listed.schedules():
            fields = schedule.to_json()
            if (candidate.template.name, fields.get("rows"), fields.get("vectors")) == ("product", rows, vectors):
                written = candidate.write(schedule, "k")
                assert isinstance(written, Selection), written
                return written.executable.text.count("memref.prefetch")
        raise AssertionError("there is no such tile")

    sizes = {"i": 8, "j": 48, "k": 64}
    gated = product("ik", "kj", "ij", "k", **sizes)
    w = Writer("f32", **sizes)
    a, b = w.input("a", "ik"), w.input("b", "kj")
    w.reduce("s", "ij", "add", "k", f("arith.mulf", a, b))
    alone = w.chain("s")
    assert asked(alone, 8, 3) == 1
    assert asked(gated, 8, 3) == 1 + 8 * 3
    assert asked(alone, 8, 1) == 0
    assert asked(gated, 8, 1) == 8


def test_weights_packed_ahead_of_time() -> None:
    """All roles of axes that a weight may have, last panels and blocks that are not full, and element types."""
    plain = {"i": 21, "j": 94, "k": 37}
    cases = {
        "plain": (product("ik", "kj", "ij", "k", **plain), 37),
        "transposed": (product("ik", "jk", "ij", "k", **plain), 37),
        "batched": (product("bik", "bjk", "bij", "k", b=3, **plain), 37),
        "shared": (product("bik", "kj", "bij", "k", b=3, **plain), 37),
        "joined": (product("hik", "jhk", "ij", "hk", h=4, **plain), 148),
        "outer": (product("ik", "hjk", "hij", "k", h=4, **plain), 37),
        "blocks": (product("ik", "jk", "ij", "k", i=3, j=48, k=2500), 2500),
        "row": (product("ik", "jk", "ij", "k", i=1, j=96, k=130), 130),
        "halves": (product("ik", "jk", "ij", "k", "bf16", **plain), 37),
        "double": (product("ik", "jk", "ij", "k", "f64", **plain), 37),
    }
    for name, (chain, terms) in cases.items():
        kernels, arrays = packed_kernels(chain, name), arrays_of(chain, 4)
        alone = Standalone(kernels)
        want = interpret(chain, arrays, "f64")["y"]
        for executable in kernels:
            assert [operand.name for operand in executable.dispatches[0].inputs] == ["a", "bias", "gate", "b.packed"]
            got = np.asarray(alone[executable.name](*(alone.buffer(a) for a in arrays.values())).to_host())
            near(got, want, terms, chain.values["y"].dtype)


def test_a_weight_is_packed_where_nothing_else_reads_it_and_little_is_added() -> None:
    def packs(chain: Chain) -> bool:
        choice = choices(chain, CpuTarget(MACHINE))
        assert not isinstance(choice, Refusal)
        return any(schedule.to_json().get("packed") for _, schedule in choice.schedules())

    chain = product("ik", "jk", "ij", "k", i=8, j=96, k=64)
    assert packs(weighted(chain))
    assert not packs(chain)  # it may be another one at each call
    assert not packs(weighted(chain, "a"))  # it is read as scalars
    assert not packs(weighted(product("ik", "jk", "ij", "k", i=8, j=10, k=64)))  # lanes of its panel would be empty
    assert not packs(weighted(product("ik", "jk", "ij", "k", unknown="k", i=8, j=96, k=64)))
    w = Writer("f32", i=96, j=96, k=96)
    a, b = w.input("a", "ik"), w.input("b", "ij")
    w.reduce("s", "ij", "add", "k", f("arith.mulf", a, w.input("c", "kj")))
    w.map("y", "ij", f("arith.addf", w.read("s"), b))
    assert not packs(weighted(w.chain("y")))  # it is added, not multiplied


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
def test_element_types(dtype: str) -> None:
    cases = {
        "plain": product("ik", "kj", "ij", "k", dtype, i=19, j=40, k=70),
        "transposed": product("ik", "jk", "ij", "k", dtype, i=19, j=40, k=70),
    }
    check({n: (chain, arrays_of(chain, 3), 70) for n, chain in cases.items()}, "product")
    chain = convolution(7, 5, (3, 3), (9, 20), dtype=dtype)
    check({"conv": (chain, arrays_of(chain, 3), 63)}, "convolution")


def test_sizes_known_at_run_time_only() -> None:
    chain = product("bik", "jk", "bij", "k", unknown="bijk", b=1, i=1, j=1, k=1)
    alone = Standalone([kernel(chain, "p", "product")])
    for seed, (b, i, j, k) in enumerate([(1, 1, 1, 1), (2, 17, 50, 300), (1, 8, 48, 64), (3, 5, 100, 1000)]):
        arrays = arrays_of(chain, seed, b=b, i=i, j=j, k=k)
        got = np.asarray(alone["p"](*(alone.buffer(arrays[value.name]) for value in chain.inputs)).to_host())
        near(got, interpret(chain, arrays, "f64")["y"], k, "f32")


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
    """``max(sum of x * f + bias, 0)``; depthwise where there are as many groups as channels and filters."""
    spatial = "dhw"[3 - len(window) :]
    results = [(n + 2 * pad - dilation * (r - 1) - 1) // stride + 1 for n, r in zip(image, window, strict=True)]
    sizes = dict(zip(spatial.upper(), image, strict=True)) | dict(zip(spatial, results, strict=True))
    taps = dict(zip("trs"[3 - len(window) :], window, strict=True))
    deep = channels // groups
    depthwise = groups == channels == filters
    sizes |= taps | ({"n": batch} if batch else {}) | ({"g": groups} if groups > 1 else {})
    sizes |= {} if depthwise else {"k": filters // groups, "c": deep}
    w = Writer(dtype, **sizes)
    lead, group = "n" if batch else "", "g" if groups > 1 else ""
    inner = "" if depthwise else "c"
    w.input("x", lead + group + inner + spatial.upper())
    own = group + ("" if depthwise else "k")
    weight = w.input("f", own + inner + "".join(taps))
    bias = w.input("bias", own) if own else w.number(0.0)
    at = [Affine.of([(axis, 1)]) for axis in lead + group + inner]
    at += [Affine.of([(axis, stride), (tap, dilation)], -pad) for axis, tap in zip(spatial, taps, strict=True)]
    window_read = Window("x", dtype, tuple(at), Const(0.0, dtype))
    result = lead + own + spatial
    w.reduce("s", result, "add", inner + "".join(taps), f("arith.mulf", window_read, weight))
    w.map("y", result, f("arith.maximumf", f("arith.addf", w.read("s"), bias), w.number(0.0)))
    return w.chain("y")


def test_convolutions() -> None:
    cases = {
        "same": convolution(20, 33, (3, 3), (13, 19)),
        "strided": convolution(6, 40, (3, 3), (17, 33), stride=2),
        "pointwise": convolution(70, 24, (1, 1), (15, 15), stride=2, pad=0),
        "first": convolution(3, 16, (7, 7), (40, 41), stride=2, pad=3),
        "broad": convolution(3, 8, (7, 7), (20, 112), stride=2, pad=3),
        "broader": convolution(2, 5, (5, 4), (9, 141), stride=3, pad=3),
        "patches": convolution(3, 30, (4, 4), (32, 36), stride=4, pad=0),
        "dilated": convolution(9, 10, (3, 3), (20, 20), dilation=3, pad=3),
        "grouped": convolution(12, 20, (3, 3), (14, 14), groups=4),
        "batched": convolution(4, 6, (3, 3), (9, 9), batch=3),
        "deep": convolution(300, 9, (3, 3), (7, 7)),
        "line": convolution(10, 12, (5,), (100,), pad=2, stride=2),
        "volume": convolution(5, 6, (3, 3, 3), (6, 7, 20)),
        "valid": convolution(4, 4, (5, 5), (5, 5), pad=0),
        "wide": convolution(2, 3, (1, 5), (3, 200), pad=2),
    }
    check({n: (chain, arrays_of(chain, 5), 2700) for n, chain in cases.items()}, "convolution")


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


NARROW = {
    **{name: DEPTHWISE[name] for name in ("one", "strided", "narrow", "batched", "flat", "point")},
    "row": convolution(19, 19, (5,), (11,), groups=19, pad=2),
    "dilated rows": convolution(16, 16, (3, 3), (12, 12), groups=16, dilation=3, pad=4, stride=2),
    "beyond": convolution(3, 3, (2, 2), (3, 5), groups=3, pad=3),
}


def test_depthwise_convolutions_of_narrow_images() -> None:
    """Lanes along channels: numbers of them that fill no vector, rows and columns that lie outside as a whole."""
    alone = Standalone([written_by("channel_lanes", chain, f"n{n}") for n, chain in enumerate(NARROW.values())])
    for n, chain in enumerate(NARROW.values()):
        arrays = arrays_of(chain, 6)
        got = np.asarray(alone[f"n{n}"](*(alone.buffer(arrays[value.name]) for value in chain.inputs)).to_host())
        near(got, interpret(chain, arrays, "f64")["y"], 100, "f32")


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


def test_every_tile_gives_the_same() -> None:
    """Other schedules of a product and of convolutions, one of each tile."""
    target = CpuTarget(MACHINE)
    for chain, terms in (
        (product("ik", "jk", "ij", "k", i=30, j=70, k=90), 90),
        (convolution(20, 30, (3, 3), (10, 18)), 180),
        (convolution(6, 6, (3, 3), (13, 18), groups=6), 9),
    ):
        kernels: dict[tuple[int, int], Executable] = {}
        listed = choices(chain, target)
        assert not isinstance(listed, Refusal)
        for candidate, schedule in listed.schedules():
            if candidate.template.name not in ("product", "convolution", "depthwise"):
                continue
            fields = schedule.to_json()
            key = (fields.get("rows", 0), fields["vectors"])
            if key not in kernels:
                written = candidate.write(schedule, f"k{len(kernels)}")
                assert isinstance(written, Selection), written
                kernels[key] = written.executable
        assert len(kernels) >= 8
        alone = Standalone([*kernels.values()])
        arrays = arrays_of(chain, 7)
        want = interpret(chain, arrays, "f64")["y"]
        for executable in kernels.values():
            name = executable.name
            got = np.asarray(alone[name](*(alone.buffer(arrays[value.name]) for value in chain.inputs)).to_host())
            near(got, want, terms, "f32")


def test_error_function() -> None:
    """Within a unit and a half in the last place, on both of its parts and at their border; infinities and NaN."""
    w = Writer(i=4, j=25000, k=1)
    a, b = w.input("a", "ik"), w.input("b", "kj")
    w.reduce("s", "ij", "add", "k", f("arith.mulf", a, b))
    w.map("y", "ij", f("math.erf", w.read("s")))
    chain = w.chain("y")
    points = np.concatenate([np.linspace(-6, 6, 24980), np.geomspace(1e-30, 1, 17), [np.inf, -np.inf, np.nan]])
    arrays = {"a": np.array([[1], [-1], [0.01], [5]], np.float32), "b": points.astype(np.float32)[None]}
    alone = Standalone([kernel(chain, "p", "product")])
    got = np.asarray(alone["p"](*(alone.buffer(arrays[value.name]) for value in chain.inputs)).to_host())
    want = np.vectorize(math.erf)((arrays["a"] * arrays["b"]).astype(np.float64))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    known = ~np.isnan(want)
    units = (np.abs(got - want) / np.spacing(np.abs(want).astype(np.float32)))[known]
    assert units.max() <= 1.5


@pytest.mark.parametrize("template", ["product", "dot_product"])
def test_infinities_and_nan_stay_where_they_are(template: str) -> None:
    chain = product("ik", "jk", "ij", "k", i=9, j=20, k=40)
    arrays = arrays_of(chain, 9)
    arrays["a"][3, 5], arrays["a"][4, 6] = np.inf, np.nan
    alone = Standalone([written_by(template, chain, "p")])
    got = np.asarray(alone["p"](*(alone.buffer(arrays[value.name]) for value in chain.inputs)).to_host())
    want = interpret(chain, arrays, "f64")["y"]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))


@pytest.mark.parametrize("name", ["avx2", "neon"])
def test_other_machines_have_schedules(name: str) -> None:
    """Tiles that their registers hold, in vectors of their width."""
    machine = PRESETS[name]
    for chain in (product("ik", "jk", "ij", "k", i=30, j=70, k=90), convolution(20, 30, (3, 3), (10, 18))):
        selection = select(chain, "k", CpuTarget(machine), always=True)
        assert isinstance(selection, Selection)
        assert selection.schedule["lanes"] == machine.lanes("f32")
        held = (selection.schedule["rows"] + 1) * selection.schedule["vectors"] + 1
        assert held <= machine.registers


def test_what_is_no_product_is_refused() -> None:
    w = Writer(i=8, j=8, k=8)
    a, b = w.input("a", "ik"), w.input("b", "jk")
    w.reduce("s", "ij", "add", "k", f("arith.addf", a, b))
    refusal = select(w.chain("s"), "k", CpuTarget(MACHINE), always=True)
    assert not isinstance(refusal, Selection) or refusal.template != "product"


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
