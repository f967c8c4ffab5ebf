"""What the arguments of a program are, as attributes of them: weights, and the names of sizes known at run time only.

```mlir
func.func @main(%x: tensor<?x8xf32> {covan.sizes = ["batch", ""]}, %w: tensor<8x4xf32> {covan.weight = "fc.weight"})
```

Sizes of one name are the same, whichever arguments have them. An integer has one name: what it is called as a size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir

WEIGHT = "covan.weight"
SIZES = "covan.sizes"
_ATTRIBUTES = "arg_attrs"  # of func.func


@dataclass(frozen=True)
class ArgumentFacts:
    """What is known of one argument.

    Attributes:
        weight: name of the weight that it is; empty: it is an input.
        sizes: for each dimension what its size is called, or ""; without an element if nothing is known.
    """

    weight: str = ""
    sizes: tuple[str, ...] = ()


def read_arguments(function: ir.Operation) -> tuple[ArgumentFacts, ...]:
    """What is known of each argument of a ``func.func`` with a body."""
    count = len(function.regions[0].blocks[0].arguments)
    if _ATTRIBUTES not in function.attributes:
        return (ArgumentFacts(),) * count
    return tuple(map(_read, function.attributes[_ATTRIBUTES]))


def _read(attributes: ir.DictAttr) -> ArgumentFacts:
    return ArgumentFacts(
        attributes[WEIGHT].value if WEIGHT in attributes else "",
        tuple([size.value for size in attributes[SIZES]]) if SIZES in attributes else (),
    )


def write_arguments(function: ir.Operation, arguments: Sequence[ArgumentFacts]) -> None:
    """Gives a ``func.func`` what is known of each of its arguments; other attributes of theirs stay."""
    context = function.context
    dictionaries = [_others(attributes) for attributes in _attributes(function, len(arguments))]
    for dictionary, argument in zip(dictionaries, arguments, strict=True):
        if argument.weight:
            dictionary[WEIGHT] = ir.StringAttr.get(argument.weight, context)
        if any(argument.sizes):
            dictionary[SIZES] = ir.ArrayAttr.get([ir.StringAttr.get(size, context) for size in argument.sizes], context)
    if any(dictionaries):
        function.attributes[_ATTRIBUTES] = ir.ArrayAttr.get(
            [ir.DictAttr.get(dictionary, context) for dictionary in dictionaries], context
        )
    elif _ATTRIBUTES in function.attributes:
        del function.attributes[_ATTRIBUTES]


def _attributes(function: ir.Operation, count: int) -> Sequence[ir.DictAttr]:
    if _ATTRIBUTES not in function.attributes:
        return [ir.DictAttr.get({}, function.context)] * count
    return list(function.attributes[_ATTRIBUTES])


def _others(attributes: ir.DictAttr) -> dict[str, ir.Attribute]:
    return {named.name: named.attr for named in attributes if named.name not in (WEIGHT, SIZES)}
