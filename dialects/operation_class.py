"""Classes of operations whose fields are not all written out, and the fields that every op with a chain in it has."""

# ext makes the bases of these classes at run time, where no type checker sees them.
# mypy: disable-error-code="misc,name-defined"

# The field types below are evaluated by ext when the classes are made, which
# `from __future__ import annotations` would turn into strings.
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import ext

from covan_mlir.dialects.fred_limits import MAX_INPUTS, MAX_OUTPUTS

# IRDL wants all values of one variadic operand, or result, to be of one type. So each has a place of its own, which
# may be empty, and the segment sizes say which are not: 1, 1, ..., 0, 0.
CHAIN_FIELDS: Mapping[str, Any] = {
    **{f"input_{i}": ext.Operand[Any] | None for i in range(MAX_INPUTS)},
    **{f"output_{i}": ext.Result[Any] | None for i in range(MAX_OUTPUTS)},
    "axes": ir.ArrayAttr,
    "sizes": ir.ArrayAttr,
    "names": ir.ArrayAttr,
    "inputs": ir.ArrayAttr,
    "body": ext.Region,
}
OPERATOR_FIELDS: Mapping[str, Any] = {**CHAIN_FIELDS, "held": ext.Region}
CHAIN_TRAITS: Sequence[Any] = (ir.IsIsolatedFromAboveTrait, ir.NoTerminatorTrait, ext.Pure)


def operation_class(
    dialect: Any,
    name: str,
    traits: Sequence[Any],
    fields: Mapping[str, Any],
    verify: str,
    check: Callable[[Any], bool],
    doc: str,
) -> Any:
    """A class of operations.

    Args:
        verify: name of the method that the bindings call, with ``check`` as what it does.
    """

    def fill(namespace: dict[str, Any]) -> None:
        namespace["__annotations__"] = dict(fields)
        namespace["__module__"] = dialect.__module__
        namespace["__doc__"] = doc
        namespace[verify] = lambda self: check(self.operation)

    keywords = {"name": name, "traits": list(traits)}
    return types.new_class(f"{name.capitalize()}Op", (dialect.Operation,), keywords, fill)
