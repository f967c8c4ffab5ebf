"""Products on CPUs against float64: roles of axes, sizes around the tiles', element types, weights in another form."""

from __future__ import annotations

import dataclasses
import math
import random
import re

import numpy as np
import pytest
from dense_chains import MACHINE, NUMPY, arrays_of, check, convolution, f, kernel, near, product, written_by
from limits import some
from plain_chains import Writer

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Const
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.turns import in_turns
from covan_mlir.lowering.kernels.kernel import Executable, Operand, Refusal
from covan_mlir.lowering.kernels.select import Candidate, Selection, choices, select
from covan_mlir.lowering.kernels.standalone import Standalone
from covan_mlir.lowering.kernels.template import Schedule
from covan_mlir.machine.description import PRESETS


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


def packed_kernels(chain: Chain, name: str, weight: str = "b") -> list[Executable]:
    """Some kernels of a product that read a weight packed ahead of time."""
    choice = choices(weighted(chain, weight), CpuTarget(MACHINE))
    assert not isinstance(choice, Refusal), choice
    packed = [(candidate, schedule) for candidate, schedule in choice.schedules() if schedule.to_json().get("packed")]
    picked = random.Random(0).sample(packed, 3)
    selections = [candidate.write(schedule, f"{name}_{n}") for n, (candidate, schedule) in enumerate(picked)]
    assert all(isinstance(selection, Selection) for selection in selections)
    return [selection.executable for selection in selections if isinstance(selection, Selection)]


def test_what_is_read_soon_is_asked_for() -> None:
    """What results are made of, for each of their vectors; a share of the next panel where a tile leaves loads, and of
    the next rows of a weight."""

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
    assert asked(weighted(alone, "a"), 8, 3) == 1  # it is packed, and read in order
    w = Writer("f32", **{**sizes, "i": 9})
    w.reduce("s", "ij", "add", "k", f("arith.mulf", w.input("a", "ik"), w.input("b", "kj")))
    assert asked(weighted(w.chain("s"), "a"), 8, 3) == 2  # a tile of eight would be empty but for one row
    assert asked(alone, 8, 1) == 0
    assert asked(weighted(alone, "a"), 8, 1) == 0
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


def test_weights_packed_by_rows() -> None:
    """A weight that is read as scalars: all roles of its axes, tiles, groups and blocks that are not full."""
    plain = {"i": 21, "j": 50, "k": 37}
    cases = {
        "plain": (product("ik", "kj", "ij", "k", **plain), 37),
        "both": (product("ki", "jk", "ij", "k", **plain), 37),
        "batched": (product("bik", "bkj", "bij", "k", b=3, **plain), 37),
        "shared": (product("ik", "bkj", "bij", "k", b=3, **plain), 37),
        "joined": (product("hik", "jhk", "ij", "hk", h=4, **plain), 148),
        "blocks": (product("ik", "kj", "ij", "k", i=12, j=49, k=2500), 2500),
        "groups": (product("ik", "kj", "ij", "k", i=300, j=49, k=40), 40),
        "double": (product("ik", "kj", "ij", "k", "f64", **plain), 37),
    }
    for name, (chain, terms) in cases.items():
        kernels, arrays = packed_kernels(chain, name, "a"), arrays_of(chain, 5)
        alone = Standalone(kernels)
        want = interpret(chain, arrays, "f64")["y"]
        for executable in kernels:
            assert [operand.name for operand in executable.dispatches[0].inputs] == ["b", "bias", "gate", "a.packed"]
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
    assert packs(weighted(chain, "a"))  # by rows: it is read as scalars
    assert not packs(weighted(product("ik", "jk", "ij", "k", "bf16", i=8, j=96, k=63), "a"))  # widened as it is staged
    assert not packs(weighted(product("ik", "jk", "ij", "k", i=8, j=10, k=64)))  # lanes of its panel would be empty
    assert not packs(weighted(product("ik", "jk", "ij", "k", unknown="k", i=8, j=96, k=64)))
    w = Writer("f32", i=96, j=96, k=96)
    a, b = w.input("a", "ik"), w.input("b", "ij")
    w.reduce("s", "ij", "add", "k", f("arith.mulf", a, w.input("c", "kj")))
    w.map("y", "ij", f("arith.addf", w.read("s"), b))
    assert not packs(weighted(w.chain("y")))  # it is added, not multiplied


def test_a_weight_that_several_products_read_is_in_one_form() -> None:
    """Read as vectors by one product and as scalars by the other, by rows by both, and by what is made of both."""
    sizes = {"i": 12, "j": 48, "l": 32, "k": 40, "m": 16}
    roles = Writer("f32", **sizes)
    x, a, z = roles.input("x", "ik"), roles.input("a", "jk"), roles.input("z", "lk")
    roles.reduce("s", "ij", "add", "k", f("arith.mulf", x, a))
    roles.reduce("t", "jl", "add", "k", f("arith.mulf", a, z))
    rows = Writer("f32", **sizes)
    a, x, z = rows.input("a", "ik"), rows.input("x", "kj"), rows.input("z", "kl")
    rows.reduce("s", "ij", "add", "k", f("arith.mulf", a, x))
    rows.reduce("t", "il", "add", "k", f("arith.mulf", a, z))
    gated = Writer("f32", **sizes)
    a, x, z, b = gated.input("a", "ij"), gated.input("x", "mi"), gated.input("z", "mi"), gated.input("b", "ij")
    gated.reduce("s", "mj", "add", "i", f("arith.mulf", x, a))
    gated.reduce("t", "mj", "add", "i", f("arith.mulf", z, b))
    gated.map("y", "mj", f("arith.addf", f("arith.mulf", gated.read("s"), gated.read("t")), gated.read("s")))
    tried: set[str] = set()
    for name, chain in (("roles", roles.chain("s", "t")), ("rows", rows.chain("s", "t")), ("gated", gated.chain("y"))):
        listed = choices(weighted(chain, "a"), CpuTarget(MACHINE))
        if isinstance(listed, Refusal):
            continue
        pairs = [pair for pair in listed.schedules() if pair[0].template.name in ("siblings", "gated")]
        written = [candidate.write(schedule, f"{name}{n}") for n, (candidate, schedule) in enumerate(pairs[:2])]
        kernels = [one.executable for one in written if isinstance(one, Selection)]
        assert len(kernels) == len(written), written
        if not kernels:
            continue
        tried.add(name)
        alone, arrays = Standalone(kernels), arrays_of(chain, 8)
        want = interpret(chain, arrays, "f64")
        for one in kernels:
            names = [operand.name for operand in one.dispatches[0].inputs]
            assert len(names) == len({*names})
            results = alone[one.name](*(alone.buffer(arrays[value.name]) for value in chain.inputs))
            for output, got in zip(chain.outputs, results if isinstance(results, tuple) else (results,), strict=True):
                near(np.asarray(got.to_host()), want[output], 48, "f32")
    assert "gated" in tried


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


def test_every_tile_gives_the_same() -> None:
    """Other schedules of a product and of convolutions, one of each tile."""
    target = CpuTarget(MACHINE)
    for chain, terms in (
        (product("ik", "jk", "ij", "k", i=30, j=70, k=90), 90),
        (convolution(20, 30, (3, 3), (10, 18)), 180),
        (convolution(6, 6, (3, 3), (13, 18), groups=6), 9),
    ):
        tiles: dict[tuple[int, int], tuple[Candidate, Schedule]] = {}
        listed = choices(chain, target)
        assert not isinstance(listed, Refusal)
        for candidate, schedule in listed.schedules():
            if candidate.template.name not in ("product", "convolution", "depthwise"):
                continue
            fields = schedule.to_json()
            key = (fields.get("rows", 0), fields["vectors"])
            tiles.setdefault(key, (candidate, schedule))
        assert len(tiles) >= 8
        kernels = []
        for candidate, schedule in some([*tiles.values()], 6):
            written = candidate.write(schedule, f"k{len(kernels)}")
            assert isinstance(written, Selection), written
            kernels.append(written.executable)
        alone = Standalone(kernels)
        arrays = arrays_of(chain, 7)
        want = interpret(chain, arrays, "f64")["y"]
        for executable in kernels:
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


def test_one_and_the_error_function() -> None:
    """What GELU has: within two units in the last place of 1, and small where it is; infinities and NaN."""
    w = Writer(i=2, j=25000, k=1)
    a, b = w.input("a", "ik"), w.input("b", "kj")
    w.reduce("s", "ij", "add", "k", f("arith.mulf", a, b))
    w.map("y", "ij", f("arith.addf", f("math.erf", w.read("s")), Const(1.0, "f32")))
    chain = w.chain("y")
    points = np.concatenate([np.linspace(-10, 10, 24980), np.geomspace(1e-30, 1, 17), [np.inf, -np.inf, np.nan]])
    arrays = {"a": np.array([[1], [-1]], np.float32), "b": points.astype(np.float32)[None]}
    alone = Standalone([kernel(chain, "p", "product")])
    got = np.asarray(alone["p"](*(alone.buffer(arrays[value.name]) for value in chain.inputs)).to_host())
    want = np.vectorize(math.erfc)(-(arrays["a"] * arrays["b"]).astype(np.float64))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    known = ~np.isnan(want)
    assert np.abs(got - want)[known].max() <= 2 * np.spacing(np.float32(1))
    near = known & (want > math.erfc(3))
    assert (np.abs(got - want)[near] / want[near]).max() <= 2.5e-3
    assert (got[known & (want < 1e-30)] < 1e-25).all()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_stores_of_the_first_lanes(dtype: str) -> None:
    """Machines without masks of stores write the first lanes in pieces, and nothing else: of any number of lanes."""
    lanes = MACHINE.lanes("f32")
    counts = range(-1, lanes + 2)
    operands = [Operand("x", (lanes,), dtype)], [Operand("y", (len(counts), lanes), dtype)]
    code = KernelBuilder("k", *operands, lanes)
    code.masks = False

    def body() -> None:
        value, memory = code.load(code.memory["x"], code.index(0)), code.memory["y"]
        code.store(code.splat(-1.0, dtype), memory, code.mul(code.workgroup, lanes))
        code.store(value, memory, code.mul(code.workgroup, lanes), code.prefix(code.add(code.workgroup, -1)))

    text = code.write(body, lambda _: len(counts))
    assert "maskedstore" not in text
    alone = Standalone([Executable.single("k", text, *map(tuple, operands))])
    x = np.arange(1, lanes + 1).astype(NUMPY[dtype])
    got = np.asarray(alone["k"](alone.buffer(x)).to_host())
    want = [[n + 1 if n < count else -1 for n in range(lanes)] for count in counts]
    np.testing.assert_array_equal(got.astype(np.float32), np.array(want, np.float32))


def test_vectors_in_turns() -> None:
    """An operation of each vector after the other, and what one reads of another's after that."""
    code = KernelBuilder("k", [], [Operand("y", (8,), "f32")], 4)

    def first() -> None:
        x = code.splat(1.5, "f32")
        code.op("mulf", code.op("addf", x, x), x)
        code.mul(code.workgroup, 12)

    def second() -> None:
        y, at = code.splat(2.5, "f32"), code.mul(code.workgroup, 12)
        doubled = code.op("addf", y, y)
        factor = code.cast("sitofp", code.cast("index_cast", at, "i32"), "f32")
        code.op("mulf", doubled, code.broadcast(factor))

    text = code.write(lambda: in_turns([first, second]), lambda _: 1)
    assert re.findall(r"arith\.(addf|mulf|muli|sitofp)", text) == ["addf", "addf", "mulf", "muli", "sitofp", "mulf"]


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
        rows, vectors = selection.schedule["rows"], selection.schedule["vectors"]
        assert (rows + 1) * vectors + 1 <= machine.registers
        assert rows * vectors >= machine.registers // 2


@pytest.mark.parametrize("name", ["avx2", "avx512"])
def test_a_row_and_a_weight_are_a_kernel_with_what_is_added(name: str) -> None:
    """Memory bounds both its time and the compiler's, which packs the row in a dispatch of its own."""
    machine = dataclasses.replace(PRESETS[name], bandwidth=11e9)
    for columns, depth in ((1000, 768), (1000, 1280), (2304, 768)):
        w = Writer("f32", j=columns, k=depth)
        w.reduce("s", "j", "add", "k", f("arith.mulf", w.input("a", "k"), w.input("b", "jk")))
        w.map("y", "j", f("arith.addf", w.read("s"), w.input("bias", "j")))
        selection = select(weighted(w.chain("y")), "k", CpuTarget(machine))
        assert isinstance(selection, Selection), selection


def test_what_is_no_product_is_refused() -> None:
    w = Writer(i=8, j=8, k=8)
    a, b = w.input("a", "ik"), w.input("b", "jk")
    w.reduce("s", "ij", "add", "k", f("arith.addf", a, b))
    refusal = select(w.chain("s"), "k", CpuTarget(MACHINE), always=True)
    assert not isinstance(refusal, Selection) or refusal.template != "product"
