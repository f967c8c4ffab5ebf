"""Plain data (as JSON has it) as attributes, and back: certificates, schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_mlir import ir


def attribute(value: Any, context: ir.Context) -> ir.Attribute:
    """Text, numbers, booleans, lists and mappings as an attribute.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(value, bool):
        return ir.BoolAttr.get(value, context)
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context), value)
    if isinstance(value, float):
        with ir.Location.unknown(context):
            return ir.FloatAttr.get(ir.F64Type.get(context), value)
    if isinstance(value, str):
        return ir.StringAttr.get(value, context)
    if isinstance(value, list | tuple):
        return ir.ArrayAttr.get([attribute(item, context) for item in value], context)
    if isinstance(value, Mapping):
        return ir.DictAttr.get({key: attribute(item, context) for key, item in value.items()}, context)
    raise TypeError(f"{value!r} is no data")


def data(value: Any) -> Any:
    """The inverse of `attribute`; tuples come back as lists.

    Raises:
        TypeError: it is an attribute that `attribute` does not make.
    """
    if isinstance(value, ir.BoolAttr | ir.IntegerAttr | ir.FloatAttr | ir.StringAttr):
        return bool(value.value) if isinstance(value, ir.BoolAttr) else value.value
    if isinstance(value, ir.ArrayAttr):
        return [data(item) for item in value]
    if isinstance(value, ir.DictAttr):
        return {named.name: data(named.attr) for named in value}
    raise TypeError(f"{value} is no data")
