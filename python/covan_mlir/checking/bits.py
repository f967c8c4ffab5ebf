"""Numbers read as others of the same bits: a float's as an integer, and back.

Floats are computed in float64 whatever they are in the program. Their bits are those of the program's own width, so
they follow where that is known: of 32 and 64 bits. Of two ways to compute a float that differ by a rounding the bits
differ, too: what reads bits has to be computed as the source does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from covan_mlir.checking.field import PAIR
from covan_mlir.checking.tensors import Direct, Tensor, UnevaluatedError, is_float, wide
from covan_mlir.fred.scalars import FLOATS, Array

_FLOATS: dict[str, np.dtype[Any]] = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
_KINDS = {"f": "float", PAIR.kind: "float", "i": "integer", "u": "integer"}


def read_as(tensor: Tensor, kind: str) -> Tensor:
    """A tensor as one of a type: of the same elements, or of others of the same bits."""
    element = kind.partition("[")[0]
    if "[" not in kind or not crosses(tensor.dtype, element):
        return tensor
    return Direct(tensor.shape, wide(element), lambda flat: bits_of(tensor.at(flat), element))


def crosses(dtype: np.dtype[Any], element: str) -> bool:
    """Whether elements of a type are integers where the others are floats, or the other way round."""
    if not is_float(element) and element[:1] not in ("i", "u"):  # booleans, complex numbers
        return False
    return {_KINDS.get(each.kind) for each in (dtype, wide(element))} == {"float", "integer"}


def bits_of(value: Array, element: str) -> Array:
    """Floats, of 32 or 64 bits in the program, as integers of that width, or integers as such floats.

    Raises:
        UnevaluatedError: which bits they have does not follow.
    """
    width = value.dtype.itemsize if element in FLOATS else wide(element).itemsize
    floats = element if element in FLOATS else f"f{8 * width}"
    if value.dtype == PAIR or floats not in _FLOATS or wide(element).itemsize > 8 or 8 * width != int(floats[1:]):
        raise UnevaluatedError(f"the bits of elements of {value.dtype} as {element}")
    if element in FLOATS:
        return np.asarray(value.view(_FLOATS[floats]).astype(np.float64))
    with np.errstate(over="ignore"):
        return np.asarray(value.astype(_FLOATS[floats]).view(wide(element)))
