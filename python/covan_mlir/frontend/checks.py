"""Checks of a program's integers: of elements of its arguments, and of what it computes."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import torch
from torch.fx import Graph, Node

from covan_mlir.artifacts.schema import Check, ResultKind
from covan_mlir.artifacts.signature import Dim, evaluate
from covan_mlir.frontend.actions import module_path, op_name
from covan_mlir.frontend.describe import Description
from covan_mlir.frontend.faults import Faults
from covan_mlir.frontend.index_regions import WHOLE, Region, regions
from covan_mlir.frontend.intervals import Interval
from covan_mlir.frontend.origins import Origins, user_line

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Checks:
    """The checks of one program, while they are collected.

    Attributes:
        weights: placeholders whose tensors are the same at every call.
    """

    def __init__(self, exported: Graph, decomposed: Graph, description: Description) -> None:
        self._origins = Origins(exported)
        self._faults = Faults(decomposed)
        self._description = description
        self.weights = {node: tensor for node, (_, tensor) in description.weights.items()}
        passed = [place for place, leaf in enumerate(description.signature.inputs) if leaf.kind != "constant"]
        self._arguments = {
            node: place
            for node, place in zip(description.parameters, passed, strict=False)
            if isinstance(value := node.meta.get("val"), torch.Tensor) and value.dtype in INTEGERS
        }
        signature = description.signature
        named = {word for names in signature.size_names for name in names for word in re.findall(r"\w+", name)}
        self._sizes = named & signature.symbols.keys()  # others are known when the program has run
        self._of_arguments: dict[Hashable, Check] = {}
        self._computed: dict[Hashable, tuple[Check, Node]] = {}

    def origin(self, node: Node) -> Node:
        """The call of the exported graph that a node comes from."""
        return self._origins.of(node)

    def regions(self, graph: Graph, ranges: Mapping[Node, Interval]) -> dict[Node, Region]:
        """The nodes of a graph that are regions of arguments."""
        return regions(graph, self._arguments, ranges)

    def of_argument(self, check: Check, region: Region) -> bool:
        """Check elements of an argument before each call; -> whether the limits follow from sizes of arguments."""
        low, high = (_less(limit, region.added) for limit in (check.low, check.high))
        sizes = dict.fromkeys(self._sizes, 1)
        if any(isinstance(limit, str) and evaluate(limit, sizes) is None for limit in (low, high)):
            return False
        bounds = () if all(cut == WHOLE for cut in region.bounds) else region.bounds
        argument = self._arguments[region.argument]
        key = (check.kind, argument, bounds, region.ignored, low, high)
        self._of_arguments.setdefault(
            key,
            msgspec.structs.replace(
                check, low=low, high=high, argument=argument, bounds=bounds, ignored=region.ignored
            ),
        )
        return True

    def is_told(self, key: Hashable) -> bool:
        """Whether the program tells of a check already."""
        return key in self._computed

    def tell(self, key: Hashable, check: Check, fails: Node) -> None:
        """Have the program tell whether a check fails, by a boolean that it computes, in a branch or a loop perhaps."""
        outside = self._faults.outside(fails)
        if outside is not None:
            self._computed[key] = (check, outside)

    def described(self) -> Description:
        """The description of the program with its checks, and with the results that tell of those that it makes."""
        description, computed = self._description, self._computed.values()
        told: list[tuple[ResultKind, int]] = [("faults", number) for number in range(len(computed))]
        signature = replace(
            description.signature,
            checks=(*self._of_arguments.values(), *(check for check, _ in computed)),
            results=(*description.signature.results, *told),
        )
        return replace(
            description, signature=signature, results=(*description.results, *(fails for _, fails in computed))
        )


def check_at(origin: Node, low: Any = 0, high: Any = 0) -> Check:
    """A check of indices that an operator of the model is given."""
    line = user_line(origin)
    return Check(
        op=op_name(origin),
        low=_dim(low),
        high=_dim(high),
        module=module_path(origin),
        file=line.file if line else "",
        line=line.line if line else 0,
    )


def _dim(size: Any) -> Dim:
    return size if isinstance(size, int) else str(size.node.expr)


def _less(limit: Dim, number: int) -> Dim:
    if isinstance(limit, int):
        return limit - number
    return f"{limit} - {number}" if number > 0 else f"{limit} + {-number}" if number else limit
