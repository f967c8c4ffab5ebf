"""Open sizes that must not be 1: torch.export reads a program for sizes from 2 on, and promises it for 1 as well.

``squeeze`` of an axis of open size does nothing in such a program, and an axis of 1 is gone in eager mode: there,
results would have another shape. So the program is walked once more with a 1 in the place of each size, without
computing anything.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv

log = logging.getLogger(__name__)


def not_one(program: ExportedProgram) -> set[str]:
    """The symbols of open sizes of a program for which a 1 gives tensors of other shapes than the program has."""
    symbols = [symbol for symbol, limits in program.range_constraints.items() if _may_be_one(symbol, limits)]
    return {str(symbol) for symbol in symbols if not _same_shapes(program, symbol)}


def _may_be_one(symbol: Any, limits: Any) -> bool:
    return bool(getattr(symbol, "is_Symbol", False) and limits.lower <= 1 <= limits.upper)


def _same_shapes(program: ExportedProgram, symbol: Any) -> bool:
    """Whether all tensors have the shapes that the program says where one of its sizes is 1."""
    placeholders = program.graph.find_nodes(op="placeholder")
    hints = {
        size.node.expr: size.node.hint
        for node in placeholders
        for size in getattr(node.meta.get("val"), "shape", ())
        if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol
    }
    sizes = {**hints, symbol: 1}

    def known(size: Any) -> int:
        return int(size.node.expr.subs(sizes)) if isinstance(size, torch.SymInt) else int(size)

    def shaped(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return torch.empty([known(size) for size in value.shape], dtype=value.dtype)
        return known(value) if isinstance(value, torch.SymInt) else value

    walk = _Shapes(program.graph_module, known)
    try:
        with FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True), torch.no_grad():
            walk.run(*(shaped(node.meta.get("val")) for node in placeholders))
    except _OtherShape:
        return False
    except Exception as error:  # what cannot be walked says nothing
        log.debug("not walked with a size of 1: %s", error)
    return True


class _OtherShape(Exception):
    """A tensor has another shape than the program says."""


class _Shapes(Interpreter):
    """Runs a graph, and compares shapes with those of its nodes."""

    def __init__(self, module: torch.fx.GraphModule, known: Any) -> None:
        super().__init__(module)
        self._known = known

    def run_node(self, n: Node) -> Any:
        """See torch."""
        result = super().run_node(n)
        said = n.meta.get("val")
        if n.op == "call_function" and isinstance(said, torch.Tensor) and isinstance(result, torch.Tensor):
            try:
                expected = [self._known(size) for size in said.shape]
            except (TypeError, ValueError):  # sizes that depend on values
                return result
            if list(result.shape) != expected:
                raise _OtherShape
        return result
