"""Sums of products along what is contracted, of few rows, against float64."""

from __future__ import annotations

import numpy as np
import pytest
from dense_chains import MACHINE, arrays_of, near, product

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.cpu.column_tail import MOST
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.select import Selection, choices, select
from covan_mlir.lowering.kernels.standalone import Standalone


def kernels(chain: Chain, name: str) -> list[Executable]:
    """One of each register tile."""
    listed = choices(chain, CpuTarget(MACHINE))
    assert not isinstance(listed, Refusal)
    written = [
        candidate.write(schedule, f"{name}_{n}")
        for n, (candidate, schedule) in enumerate(listed.schedules())
        if candidate.template.name == "dot_product"
    ]
    assert written
    assert all(isinstance(one, Selection) for one in written)
    return [one.executable for one in written if isinstance(one, Selection)]


SIZES = {"row": (1, 40, 64), "few": (3, 33, 70), "more": (11, 16, 130), "short": (5, 50, 3)}


@pytest.mark.parametrize(("start", "dtype"), enumerate(["f32", "f64", "bf16"]))
def test_every_tile(start: int, dtype: str) -> None:
    """Rows that are no multiple of a tile's, columns and contracted positions that fill no vector: of each type all
    tiles, and each with some of the sizes, for LLVM takes its time."""
    for n, (name, (i, j, k)) in enumerate(SIZES.items()):
        chain = product("ik", "jk", "ij", "k", dtype, i=i, j=j, k=k)
        arrays, tiles = arrays_of(chain, i), kernels(chain, name)
        written = tiles[(start + n) % min(len(SIZES), len(tiles)) :: len(SIZES)]
        alone, want = Standalone(written), interpret(chain, arrays, "f64")["y"]
        for executable in written:
            got = np.asarray(alone[executable.name](*map(alone.buffer, arrays.values())).to_host())
            near(got, want, k, dtype)


def test_roles_of_axes() -> None:
    """Batches, a shared factor, several contracted axes, a vector, columns whose number is known at run time only."""
    cases = {
        "batched": product("bik", "bjk", "bij", "k", b=3, i=2, j=20, k=37),
        "heads": product("ik", "hjk", "hij", "k", h=4, i=2, j=20, k=37),
        "joined": product("ihk", "jhk", "ij", "hk", i=3, j=20, h=4, k=37),
        "vector": product("k", "jk", "j", "k", j=50, k=37),
    }
    for name, chain in cases.items():
        arrays, (written, *_) = arrays_of(chain, 2), kernels(chain, name)
        alone = Standalone([written])
        got = np.asarray(alone[written.name](*map(alone.buffer, arrays.values())).to_host())
        near(got, interpret(chain, arrays, "f64")["y"], 148, "f32")
    chain = product("bik", "bjk", "bij", "k", unknown="bj", b=1, i=2, j=1, k=70)
    written, *_ = kernels(chain, "open")
    alone = Standalone([written])
    for b, j in ((1, 1), (3, 16), (2, 45)):
        arrays = arrays_of(chain, j, b=b, j=j)
        got = np.asarray(alone[written.name](*map(alone.buffer, arrays.values())).to_host())
        near(got, interpret(chain, arrays, "f64")["y"], 70, "f32")


def test_a_long_weight_is_read_in_place() -> None:
    selection = select(product("ik", "jk", "ij", "k", i=2, j=1024, k=4096), "k", CpuTarget(MACHINE), always=True)
    assert isinstance(selection, Selection)
    assert selection.template == "dot_product"


def test_what_it_is_not_for() -> None:
    """A factor that lies along its columns, many rows, sums that are longer than one partial sum may be."""
    for chain in (
        product("ik", "kj", "ij", "k", i=3, j=64, k=64),
        product("ki", "jk", "ij", "k", i=3, j=64, k=64),
        product("ik", "jk", "ij", "k", i=64, j=64, k=64),
        product("ik", "jk", "ij", "k", i=3, j=64, k=65536),
    ):
        listed = choices(chain, CpuTarget(MACHINE))
        assert not isinstance(listed, Refusal)
        assert "dot_product" not in {candidate.template.name for candidate in listed.candidates}


def with_tails(chain: Chain, name: str) -> list[Executable]:
    """The best and the worst kernel that sums the last columns of a product along what is contracted."""
    listed = choices(chain, CpuTarget(MACHINE))
    assert not isinstance(listed, Refusal)
    tails = [(candidate, schedule) for candidate, schedule in listed.schedules() if schedule.to_json().get("tail")]
    assert len(tails) > 1
    written = [
        candidate.write(schedule, f"{name}_{n}") for n, (candidate, schedule) in enumerate(tails[:: len(tails) - 1])
    ]
    return [one.executable for one in written if isinstance(one, Selection)]


def test_last_columns_of_products_of_many_rows() -> None:
    """Where they would fill a small part of a vector: staged, or in place; in one block, or beside several."""
    lanes = MACHINE.lanes("f32")
    few = int(MOST * lanes)
    cases = {
        "one": product("ik", "kj", "ij", "k", i=70, j=49, k=60),
        "in_place": product("bik", "bjk", "bij", "k", b=3, i=30, j=3 * lanes + few, k=37),
        "blocks": product("ik", "kj", "ij", "k", i=33, j=lanes + 2, k=2100),
    }
    for name, chain in cases.items():
        arrays, written = arrays_of(chain, 3), with_tails(chain, name)
        assert len(written) == 2
        alone, want = Standalone(written), interpret(chain, arrays, "f64")["y"]
        for executable in written:
            got = np.asarray(alone[executable.name](*map(alone.buffer, arrays.values())).to_host())
            near(got, want, 2100, "f32")
    chain = product("bik", "bkj", "bij", "k", unknown="b", b=1, i=20, j=33, k=40)
    written = with_tails(chain, "open")
    alone = Standalone(written)
    for b in (1, 4):
        arrays = arrays_of(chain, b, b=b)
        for executable in written:
            got = np.asarray(alone[executable.name](*map(alone.buffer, arrays.values())).to_host())
            near(got, interpret(chain, arrays, "f64")["y"], 40, "f32")


def test_last_columns_that_fill_vectors_are_columns() -> None:
    """So are those of factors that lie across what is contracted, and of few rows."""
    for chain in (
        product("ik", "kj", "ij", "k", i=70, j=60, k=60),
        product("ki", "kj", "ij", "k", i=70, j=49, k=60),
        product("ik", "kj", "ij", "k", i=4, j=49, k=60),
    ):
        listed = choices(chain, CpuTarget(MACHINE))
        assert not isinstance(listed, Refusal)
        assert not any(schedule.to_json().get("tail") for _, schedule in listed.schedules())
