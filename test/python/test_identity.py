"""What an operator gives back is found out once for all parts that call it alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from covan_mlir.checking.source_values import function_of
from covan_mlir.frontend import identity
from covan_mlir.frontend.dtypes import DTYPES
from covan_mlir.frontend.identity import Identities
from covan_mlir.provenance.model import Part
from covan_mlir.provenance.unchecked import is_unchecked

ROWS = "f32[4, 8]"


def part(number: int, op: str, *operands: int, kind: str = ROWS) -> Part:
    """A part that reads arguments of the program."""
    values = ",".join(f'{{"a":{operand},"of":"{kind}"}}' for operand in operands)
    return Part(number, number, f"part_{number}", op, (), (kind,), args=f"[[{values}],[]]")


def test_parts_that_call_an_operator_alike_are_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    once = Identities._once

    def counted(called: Part, *rest: Any) -> list[int]:
        ran.append(called.name)
        return once(called, *rest)

    monkeypatch.setattr(Identities, "_once", staticmethod(counted))
    parts = [
        part(0, "aten.relu.default", 0),
        part(1, "aten.relu.default", 1),
        part(2, "aten.relu.default", 0, kind="f32[4]"),
        part(3, "aten.maximum.default", 0, 1),
        part(4, "aten.maximum.default", 1, 1),
        part(5, "aten.maximum.default", 2, 3),
        part(6, "aten.maximum.default", 3, 3),
    ]
    kept = Identities({one.id: one for one in parts})
    assert [kept.kept(one.id) for one in parts] == [None, None, None, None, 0, None, 0]
    # What gives its operand back is asked again, of other values.
    assert ran == ["part_0", "part_2", "part_3", "part_4", "part_4"]


@pytest.mark.parametrize(("diagonal", "position"), [(0, None), (3, None), (7, 0)])
def test_an_operator_is_asked_with_what_its_operands_give_back(diagonal: int, position: int | None) -> None:
    # The upper triangle of 4 × 8 is cut off by the first two: only what is left of all of it is its operand.
    operand = f'{{"a":0,"of":"{ROWS}"}}'
    triangle = Part(0, 0, "tril", "aten.tril.default", (), (ROWS,), args=f"[[{operand},{diagonal}],[]]")
    halved = Part(1, 1, "mul", "aten.mul.Tensor", (), (ROWS,), args=f"[[{operand},2],[]]")
    largest = Part(2, 2, "maximum", "aten.maximum.default", (0,), (ROWS,), args=f'[[{operand},{{"p":0}}],[]]')
    other = Part(3, 3, "maximum", "aten.maximum.default", (1,), (ROWS,), args=f'[[{operand},{{"p":1}}],[]]')
    kept = Identities({one.id: one for one in (triangle, halved, largest, other)})
    assert kept.kept(largest.id) == position
    assert kept.kept(other.id) is None


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_examples_have_small_integers_and_the_limits_of_their_type(dtype: torch.dtype) -> None:
    drawn = identity._draw(dtype, [1000], torch.Generator().manual_seed(0))
    assert drawn.dtype is dtype
    values = set(drawn.tolist())
    if dtype is torch.bool:
        assert values == {False, True}
        return
    limits = torch.finfo(dtype) if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype)
    small = set(range(9)) if limits.min == 0 else set(range(-8, 9))
    assert values == small | {limits.min, limits.max}


@pytest.mark.parametrize("op", ["aten._ctc_loss.default", "aten.linalg_ldl_solve.default", "aten.lu_unpack.default"])
def test_what_reads_memory_unchecked_is_never_run(op: str) -> None:
    """On numbers that are drawn it could end the process."""
    args = '[[{"a":0,"of":"f32[4, 4]"},{"a":1,"of":"i32[4]"},{"a":2,"of":"f32[4, 4]"}],[]]'
    part = Part(0, 0, "part", op, (), ("f32[4, 4]",), (0, 1, 2), view=False, twin=0, args=args)
    assert Identities({0: part}).kept(0) is None
    assert function_of(op) is None
    assert is_unchecked(op)
    assert not is_unchecked("aten.gather.default")
