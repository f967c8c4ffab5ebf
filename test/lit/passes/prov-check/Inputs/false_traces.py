"""Passes that make traces false in ways that the comparison of ids before and after does not tell."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.prov_locations import ids, key, rewrite_locations, strip


def _named(id_: int, location: ir.Location) -> ir.Location:
    return ir.Location.name(key(id_, ""), location, location.context)


@dataclass(frozen=True)
class SwapsPass:
    """The ops of parts 1 and 2 take each other's trace."""

    name: ClassVar[str] = "test-swaps"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        other = {frozenset({1}): 2, frozenset({2}): 1}
        rewrite_locations(op, lambda old: _named(other[ids(old)], strip(old)) if ids(old) in other else old)


@dataclass(frozen=True)
class ForgesPass:
    """The op of part 1 is said to perform part 2 as well."""

    name: ClassVar[str] = "test-forges"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        rewrite_locations(op, lambda old: _named(2, old) if ids(old) == {1} else old)


@dataclass(frozen=True)
class DropsPass:
    """The op of part 2 loses its trace, and the pass says that it may."""

    name: ClassVar[str] = "test-drops"
    op_name: ClassVar[str | None] = "func.func"
    drops_traces: ClassVar[bool] = True

    def run(self, op: ir.Operation) -> None:
        rewrite_locations(op, lambda old: strip(old) if ids(old) == {2} else old)
