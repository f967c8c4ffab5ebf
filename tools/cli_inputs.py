"""Inputs on the command line: numbers, ``.npy`` files, and shapes to be filled. Needs numpy only."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from covan_mlir.artifacts import pytree
from covan_mlir.artifacts.signature import Leaf, Signature
from covan_mlir.tools.cli_common import CliError

SYNTAX = "SHAPExDTYPE (1x3x224x224xf32), SHAPExDTYPE=VALUE, FILE.npy, or a number"

# Ours and MLIR's short names -> torch's.
DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    **{f"{'u' if unsigned else 'i'}{bits}": f"{'u' if unsigned else ''}int{bits}"
       for bits in (8, 16, 32, 64) for unsigned in (False, True)},
    "i1": "bool",
}  # fmt: skip
DTYPES |= {name: name for name in list(DTYPES.values())}

_SPEC = re.compile(r"(?P<shape>(?:\d{1,18}x)*)(?P<dtype>[a-zA-Z]\w*)(?:=(?P<value>.+))?", re.ASCII)
_SMALL = 10  # random integers are drawn below: indices into tables as often as not


@dataclass(frozen=True)
class Input:
    """One ``--input``, parsed: a number, a file, or a shape with a dtype (and a value that fills it).

    Attributes:
        text: as it was typed.
        dtype: as torch spells it; empty for files and numbers.
        value: the number, or what fills the shape; None: random.
    """

    text: str
    path: Path | None = None
    dtype: str = ""
    shape: tuple[int, ...] = ()
    value: int | float | bool | None = None


def parse(text: str) -> Input:
    """One input as `SYNTAX` has it.

    Raises:
        CliError: it does not.
    """
    if text.endswith(".npy"):
        return Input(text, path=Path(text))
    number = _number(text)
    if number is not None:
        return Input(text, value=number)
    match = _SPEC.fullmatch(text)
    if match is None:
        raise CliError(f"--input {text!r} is not understood", f"write {SYNTAX}", code=2)
    name = match["dtype"]
    if name not in DTYPES:
        near = difflib.get_close_matches(name, DTYPES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        known = ", ".join(name for name in DTYPES if name != DTYPES[name])
        raise CliError(f"--input {text!r}: there is no dtype {name!r}", f"{hint}dtypes are {known}", code=2)
    value = None
    if match["value"] is not None:
        value = _number(match["value"])
        if value is None:
            raise CliError(f"--input {text!r}: {match['value']!r} is no number", f"write {SYNTAX}", code=2)
    shape = tuple(int(size) for size in match["shape"].split("x")[:-1])
    return Input(text, dtype=DTYPES[name], shape=shape, value=value)


def _number(text: str) -> int | float | bool | None:
    if text in ("true", "false"):
        return text == "true"
    try:
        number = int(text)
        return number if abs(number) < 1 << 64 else float(number)
    except (ValueError, OverflowError):
        pass
    try:
        return float(text)
    except ValueError:
        return None


def array(given: Input, rng: np.random.Generator, *, wide: bool = False) -> np.ndarray[Any, Any] | int | float | bool:
    """The value of an input.

    Args:
        wide: give bfloat16 as float32, for those who can convert it and not read it.

    Raises:
        CliError: the file cannot be read, the value does not fit the dtype, or there is too much of it.
    """
    if given.path is not None:
        return _load(given)
    if not given.dtype:
        assert given.value is not None
        return given.value
    dtype = np.dtype(np.float32) if wide and given.dtype == "bfloat16" else _numpy_dtype(given.dtype)
    try:
        if given.value is not None:
            return _splat(given, dtype)
        if dtype.kind == "b":
            return rng.integers(0, 2, given.shape).astype(dtype)
        if dtype.kind in "iu":
            return rng.integers(0, _SMALL, given.shape).astype(dtype)
        return rng.standard_normal(given.shape).astype(dtype)
    except (MemoryError, ValueError) as error:  # numpy: "array is too big", "Maximum allowed dimension exceeded"
        raise CliError(f"--input {given.text!r} does not fit into memory", "use a smaller shape") from error


def _splat(given: Input, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    value: Any = given.value
    if dtype.kind in "iu":
        fits = math.isfinite(value) and value == int(value) and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    else:
        with np.errstate(over="ignore"):
            fits = not math.isfinite(value) or bool(np.isfinite(np.float64(value).astype(dtype)))
    if not fits:
        raise CliError(f"--input {given.text!r}: {value} is no {given.dtype}", "use another value or dtype", code=2)
    return np.full(given.shape, value, dtype)


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError as error:
        raise CliError("bfloat16 inputs need the package ml_dtypes", "pip install ml_dtypes") from error
    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16


def _load(given: Input) -> np.ndarray[Any, Any]:
    assert given.path is not None
    hint = "write the array with numpy.save"
    try:
        value = np.load(given.path, allow_pickle=False)
    except FileNotFoundError as error:
        raise CliError(f"{given.path}: no such file", "check the path of --input") from error
    except OSError as error:
        raise CliError(f"{given.path}: cannot be read: {error.strerror or error}", hint) from error
    except (ValueError, EOFError, SyntaxError, UnicodeError) as error:
        raise CliError(f"{given.path} is no .npy file of numbers: {str(error).splitlines()[0]}", hint) from error
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufcV":
        raise CliError(f"{given.path} is no .npy file of numbers", hint)
    return value.astype(value.dtype.newbyteorder("="), copy=False)


def arguments(
    signature: Signature, inputs: Sequence[Input], rng: np.random.Generator
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``(args, kwargs)`` of a call from inputs in the order of the program's; random ones when none are given.

    Raises:
        CliError: see `leaves`.
    """
    args, kwargs = pytree.unflatten(signature.in_tree, leaves(signature, inputs, rng))
    return args, kwargs


def leaves(signature: Signature, inputs: Sequence[Input], rng: np.random.Generator) -> list[Any]:
    """The arguments of a call, flat: numbers and arrays. What is built into the program is never random.

    Raises:
        CliError: too few or too many; an array for a number; a shape is needed and not known.
    """
    takes = [leaf for leaf in signature.inputs if leaf.kind != "constant"]
    if takes and not inputs:
        return [leaf.value if leaf.kind == "constant" else _drawn(leaf, rng) for leaf in signature.inputs]
    if len(inputs) != len(takes):
        some = f"{len(takes)} input{'' if len(takes) == 1 else 's'}"
        raise CliError(f"the program takes {some}; {len(inputs)} given", f"it takes {_listing(takes)}")
    given = iter(inputs)
    return [leaf.value if leaf.kind == "constant" else _value(leaf, next(given), rng) for leaf in signature.inputs]


def _listing(leaves: Sequence[Leaf]) -> str:
    return ", ".join(f"{leaf.name}: {leaf.type_string()}" for leaf in leaves) or "none"


def _drawn(leaf: Leaf, rng: np.random.Generator) -> Any:
    if leaf.fixed is not None:
        shape = [int(size) for size in leaf.shape]
        return np.array(leaf.fixed, _numpy_dtype(leaf.dtype)).reshape(shape)
    return _value(leaf, _of_leaf(leaf), rng)


def _of_leaf(leaf: Leaf) -> Input:
    if leaf.kind == "scalar":
        return Input(leaf.name, value={"float": 1.0, "bool": True}.get(leaf.dtype, 2))
    if not all(isinstance(size, int) for size in leaf.shape):
        hint = f"give its shape, such as --input {'x'.join(str(s) if isinstance(s, int) else '8' for s in leaf.shape)}"
        raise CliError(f"the input {_listing([leaf])} has sizes to be chosen", f"{hint}x{_abbreviated(leaf.dtype)}")
    if leaf.dtype not in DTYPES:
        raise CliError(f"the input {_listing([leaf])} cannot be drawn at random", "give a .npy file with --input")
    return Input(_listing([leaf]), dtype=leaf.dtype, shape=tuple(int(size) for size in leaf.shape))


def _abbreviated(dtype: str) -> str:
    return next((short for short, name in DTYPES.items() if name == dtype), dtype)


def _value(leaf: Leaf, given: Input, rng: np.random.Generator) -> Any:
    value = array(given, rng)
    if leaf.kind == "scalar":
        if isinstance(value, np.ndarray):
            raise CliError(f"--input {given.text!r} is an array; {leaf.name} is a {leaf.dtype}", "give a number")
        return value
    if not isinstance(value, np.ndarray):
        text = "x".join([*map(str, leaf.shape), _abbreviated(leaf.dtype)])
        hint = f"write --input {text}={given.text}"
        raise CliError(f"--input {given.text!r} is a number; {_listing([leaf])} is a tensor", hint)
    if leaf.dtype == "bfloat16" and value.dtype.kind == "V" and value.dtype.itemsize == 2:
        return value.view(_numpy_dtype("bfloat16"))  # .npy files do not know it: they hold the bytes
    return value
