"""The loop nest for any reduction with affine reads, against the chain's interpreter in float64."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from dense_chains import MACHINE, arrays_of, convolution, f, near, product
from limits import part
from plain_chains import Writer

import covan_mlir
from covan_mlir import CompileOptions
from covan_mlir.fred.chain import Chain, Combine
from covan_mlir.fred.expression import Affine, Const, Expr, Window
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.cpu.loop_nest_space import AHEAD
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.select import Candidate, Selection, choices
from covan_mlir.lowering.kernels.standalone import Standalone
from covan_mlir.lowering.kernels.template import IllegalScheduleError

TARGET = CpuTarget(MACHINE)


def pairs(left: str, right: str, result: str, over: str, combine: Combine, how: str, **sizes: int) -> Chain:
    """``-(combine of how(left, right))``: distances, products of other semirings."""
    w = Writer("f32", **sizes)
    a, b = w.input("a", left), w.input("b", right)
    term: Expr = f(f"arith.{how}", a, b)
    w.reduce("s", result, combine, over, f("math.absf", term) if how == "subf" else term)
    w.map("y", result, f("arith.negf", w.read("s")))
    return w.chain("y")


def slid(
    axes: str, at: Sequence[Affine], result: str, over: str, combine: Combine, outside: float, **sizes: int
) -> Chain:
    """``-(combine of x at some positions)``, ``outside`` where these leave it."""
    w = Writer("f32", **sizes)
    w.input("x", axes)
    w.reduce("s", result, combine, over, Window("x", "f32", tuple(at), Const(outside, "f32")))
    w.map("y", result, f("arith.negf", w.read("s")))
    return w.chain("y")


def correlation(channels: int, size: int, around: int) -> Chain:
    """Of two images, one of which is shifted: two reads, none of which has all axes."""
    w = Writer("f32", c=channels, h=size, w=size, i=2 * around + 1, j=2 * around + 1)
    a = w.input("a", "chw")
    w.input("b", "chw")
    at = [Affine.of([("c", 1)]), Affine.of([("h", 1), ("i", 1)], -around), Affine.of([("w", 1), ("j", 1)], -around)]
    w.reduce("s", "ijhw", "add", "c", f("arith.mulf", a, Window("b", "f32", tuple(at), Const(0.0, "f32"))))
    w.map("y", "ijhw", f("arith.negf", w.read("s")))
    return w.chain("y")


def of(*terms: tuple[str, int], offset: int = 0) -> Affine:
    return Affine.of(terms, offset)


CASES = {
    "distances": pairs("ik", "jk", "ij", "k", "add", "subf", i=19, j=35, k=40),
    "few distances": pairs("ik", "jk", "ij", "k", "add", "subf", i=3, j=5, k=70),
    "least sums": pairs("ik", "kj", "ij", "k", "min", "addf", i=21, j=40, k=33),
    "shared lanes": product("ijk", "ljk", "ilk", "j", i=9, l=10, j=12, k=33),
    "five axes": product("abcd", "bdef", "acef", "bd", a=6, b=5, c=7, d=9, e=3, f=33),
    "across": product("ki", "jk", "ij", "k", i=18, j=17, k=50),
    "short": product("ik", "kj", "ij", "k", i=3, j=7, k=5),
    "long": product("ik", "kj", "ij", "k", i=9, j=33, k=2100),
    "double": product("ik", "kj", "ij", "k", "f64", i=10, j=21, k=30),
    "halves": product("ik", "jk", "ij", "k", "bf16", i=10, j=21, k=30),
    "volume": convolution(5, 6, (3, 3, 3), (6, 7, 20)),
    "strided": convolution(6, 10, (3, 3), (17, 33), stride=2),
    "dilated": convolution(4, 10, (3, 3), (12, 20), dilation=3, pad=3),
    "correlation": correlation(9, 18, 2),
    "backwards": slid("p", [of(("w", 1), ("r", -2), offset=3)], "w", "r", "add", 0.5, p=50, w=50, r=4),
    "maxima": slid(
        "cpq",
        [of(("c", 1)), of(("h", 2), ("r", 1), offset=-1), of(("w", 2), ("s", 1), offset=-1)],
        "chw",
        "rs",
        "max",
        -np.inf,
        c=3,
        p=15,
        q=40,
        h=8,
        w=20,
        r=3,
        s=3,
    ),
    "diagonal": slid("pq", [of(("i", 1), ("k", 1)), of(("i", 1))], "i", "k", "add", 0.0, p=44, q=40, i=40, k=5),
}


def candidate(chain: Chain) -> Candidate:
    listed = choices(chain, TARGET)
    assert not isinstance(listed, Refusal)
    return next(one for one in listed.candidates if one.template.name == "loop_nest")


@pytest.mark.parametrize("name", part(CASES, kept=list(CASES)[::2]))
def test_first_and_other_schedules(name: str) -> None:
    """Of each axis that lanes may run along: a good schedule, and a bad one."""
    chain = CASES[name]
    one = candidate(chain)
    by_lane: dict[str, list[object]] = {}
    for schedule in one.match.schedules():
        by_lane.setdefault(schedule.lane, []).append(schedule)
    wanted = [schedule for group in by_lane.values() for schedule in dict.fromkeys((group[0], group[-1]))]
    written = [one.write(schedule, f"k{n}") for n, schedule in enumerate(wanted)]
    kernels = [each.executable for each in written if isinstance(each, Selection)]
    assert len(kernels) == len(written)
    alone, arrays = Standalone(kernels), arrays_of(chain, 3)
    want = interpret(chain, arrays, "f64")["y"]
    for kernel in kernels:
        got = np.asarray(alone[kernel.name](*(alone.buffer(arrays[each.name]) for each in chain.inputs)).to_host())
        near(got, want, 2100, chain.values["y"].dtype)


def test_what_is_read_can_be_asked_for_ahead() -> None:
    chain = product("ik", "kj", "ij", "k", i=9, j=48, k=33)
    one = candidate(chain)
    match = one.match
    plain = next(each for each in match.schedules() if each.lane == "j" and not each.staged)
    ahead = match.read({**plain.to_json(), "ahead": 8})
    written = [one.write(schedule, f"k{n}") for n, schedule in enumerate((plain, ahead))]
    kernels = [each.executable for each in written if isinstance(each, Selection)]
    assert ["prefetch" in kernel.text for kernel in kernels] == [False, True]
    alone, arrays = Standalone(kernels), arrays_of(chain, 3)
    results = [alone[k.name](*(alone.buffer(arrays[each.name]) for each in chain.inputs)).to_host() for k in kernels]
    np.testing.assert_array_equal(*results)
    structure, generator = match.structure(plain), random.Random(0)
    sampled = [match.sampled(structure, generator) for _ in range(60)]
    assert {each.ahead for each in sampled if each is not None} == {*AHEAD}
    everything = [access.alias for access in match.task.accesses]
    with pytest.raises(IllegalScheduleError, match="nothing is asked for 2 steps ahead"):
        match.read({**plain.to_json(), "staged": everything, "ahead": 2})


def test_what_comes_from_memory_is_asked_for_ahead() -> None:
    near, far = (product("ik", "kj", "ij", "k", i=4, j=j, k=256) for j in (64, 8192))
    assert [candidate(chain).first.to_json()["ahead"] for chain in (near, far)] == [0, 8]
    assert 4 * 256 * 64 < TARGET.machine.l2 < 4 * 256 * 8192


def test_a_nan_is_passed_on() -> None:
    chain = CASES["least sums"]
    written = candidate(chain).write(candidate(chain).first, "k")
    assert isinstance(written, Selection)
    arrays = arrays_of(chain, 4)
    arrays["a"][5, 7] = np.nan
    alone = Standalone([written.executable])
    got = np.asarray(alone["k"](*(alone.buffer(arrays[each.name]) for each in chain.inputs)).to_host())
    assert np.isnan(got[5]).all()
    assert not np.isnan(np.delete(got, 5, axis=0)).any()


def test_what_it_is_not_for() -> None:
    unknown = product("ik", "kj", "ij", "k", unknown="i", i=8, j=8, k=8)
    w = Writer("f32", i=8, j=8)
    x = w.input("x", "ij")
    w.reduce("s", "i", "add", "j", x)
    w.map("y", "ij", f("arith.divf", x, w.read("s")))
    for chain in (unknown, w.chain("y")):
        listed = choices(chain, TARGET)
        assert not isinstance(listed, Refusal)
        assert "loop_nest" not in {one.template.name for one in listed.candidates}


def test_the_first_schedule_is_nearly_the_best_one() -> None:
    """It is looked for among some of all, so that chains that others compute cost no time."""
    for name in ("distances", "shared lanes", "volume"):
        one = candidate(CASES[name])
        least = min(one.match.predict(schedule) for schedule in one.match.ranked)
        assert least <= one.seconds <= 1.25 * least


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_predicted_to_be_faster_than_its_floor(name: str) -> None:
    one, target = candidate(CASES[name]), CpuTarget(MACHINE)
    floor = one.template.floor(CASES[name], target)
    assert floor > 0
    assert all(one.match.predict(schedule) >= floor for schedule in one.match.schedules())


def test_programs_take_it_where_no_other_template_does() -> None:
    def nearest(points: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
        return (points[:, None] - centres[None]).abs().sum(-1)

    points, centres = torch.randn(64, 40), torch.randn(48, 40)
    exe = covan_mlir.compile_module(nearest, (points, centres), options=CompileOptions(records=None))
    assert [record.template for record in exe.lineage.fusions if record.kernel] == ["loop_nest"]
    torch.testing.assert_close(exe(points, centres), nearest(points, centres))
    assert exe.verify()


def test_a_machine_without_masks_and_with_short_vectors() -> None:
    """What is legal follows from the machine: all register tiles fit its registers."""
    small = CpuTarget(replace(MACHINE, vector_bits=128, registers=16))
    listed = choices(CASES["volume"], small)
    assert not isinstance(listed, Refusal)
    nests = [schedule for one, schedule in listed.schedules() if one.template.name == "loop_nest"]
    assert nests
    assert all(each.lanes == 4 and (each.rows + 1) * each.columns < 16 for each in nests)
