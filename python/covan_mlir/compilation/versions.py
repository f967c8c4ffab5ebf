"""Which versions a program of open sizes is to have: what was asked for, checked, as sizes of the open dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from covan_mlir.artifacts.schema import SizeRange
from covan_mlir.artifacts.signature import Signature
from covan_mlir.artifacts.variant import Version
from covan_mlir.compilation.specialise import Size, Specialise
from covan_mlir.errors import InputError
from covan_mlir.fred import chain_json
from covan_mlir.frontend.open_dimensions import LEAST, OpenDimension, Wanted
from covan_mlir.lowering.kernels.layouts import plain
from covan_mlir.runtime import values
from covan_mlir.runtime.compiled_program import CompiledProgram

MOST = 16
"""Versions of a program, beside the general one."""
MEMORY = 1.05
"""The most that all versions' weights may take together, in those of the general one."""
USUAL = (1, 8, 64)
"""Sizes that are tried where the user names none."""
WORTH = 0.1
"""Part of its time by which a version must be predicted to be faster than the general one, where nobody named it."""


def wanted(specialise: Specialise, dimensions: Mapping[str, OpenDimension]) -> list[dict[str, Wanted]]:
    """The sizes of each version, by name of the dimension: those that are left out are as in the general one.

    The size 1 is a version of its own wherever the user allows it: torch.export takes open sizes to be greater.

    Raises:
        InputError: there is no such dimension, a size is none that it may have, or there are too many versions.
    """
    if specialise is True:
        return _usual(dimensions)
    assert not isinstance(specialise, bool)
    alternatives: list[list[dict[str, Wanted]]] = []
    for name, sizes in specialise.items():
        if name not in dimensions:
            known = ", ".join(dimensions) or "none: name them with torch.export.Dim in dynamic_shapes"
            raise InputError(f"specialise: there is no open dimension {name!r}; there is {known}")
        ranges = list(_ranges(dimensions[name], sizes))
        alternatives.append([{}, *({name: each} for each in ranges)])
    versions = [_joined(parts) for parts in itertools.product(*alternatives)][1:]
    if len(versions) > MOST:
        counts = " x ".join(str(len(each)) for each in alternatives)
        raise InputError(
            f"specialise: {counts} sizes are {len(versions)} versions beside the general one; at most {MOST} are built"
        )
    return versions


def _ranges(dimension: OpenDimension, sizes: Sequence[Size]) -> Iterator[Wanted]:
    """The sizes of one dimension, those below two first and apart."""
    alone = dimension.low < LEAST
    if alone:
        yield 1, 1
    for size in sizes:
        low, high = size if isinstance(size, tuple) else (size, size)
        if low < dimension.low or (dimension.high is not None and high > dimension.high):
            most = "" if dimension.high is None else f" ≤ {dimension.high}"
            told = f"{low}" if low == high else f"{low}..{high}"
            raise InputError(
                f"specialise: {dimension.name}={told} is out of {dimension.low} ≤ {dimension.name}{most}, which is "
                "what its Dim allows"
            )
        low = max(low, LEAST)
        if low <= high:
            yield low, high


def _usual(dimensions: Mapping[str, OpenDimension]) -> list[dict[str, Wanted]]:
    """As many of the usual sizes as there may be versions."""
    for count in range(len(USUAL), -1, -1):
        sizes = {
            name: [size for size in USUAL[:count] if each.low <= size and (each.high is None or size <= each.high)]
            for name, each in dimensions.items()
        }
        try:
            return wanted(sizes, dimensions)
        except InputError:
            if not count:
                raise
    raise AssertionError


def _joined(parts: Sequence[Mapping[str, Wanted]]) -> dict[str, Wanted]:
    return {name: size for part in parts for name, size in part.items()}


def general(names: Iterable[str], dimensions: Mapping[str, OpenDimension]) -> dict[str, Wanted]:
    """The sizes that the general program is for, of those dimensions."""
    return {name: (max(dimensions[name].low, LEAST), dimensions[name].high) for name in names}


def usual(all_sizes: Mapping[str, Wanted], named: Mapping[str, Wanted]) -> int:
    """What kernels of a version take open sizes for: the geometric mean of their ranges; 0: some have no such range.

    Args:
        all_sizes: of all dimensions that versions differ in.
        named: of those that are special to this one.
    """
    open_names = [name for name, (low, high) in all_sizes.items() if low != high]
    if not open_names or any(name not in named for name in open_names):
        return 0
    middles = [middle(*named[name]) for name in open_names]
    return round(math.exp(sum(map(math.log, middles)) / len(middles)))


def middle(low: int, high: int | None) -> int:
    """The geometric mean of a range's ends."""
    return round(math.sqrt(low * (low if high is None else high)))


def needed(version: Mapping[str, Wanted]) -> bool:
    """Whether the general version is not right for these sizes."""
    return any(low < LEAST for low, _ in version.values())


def told(version: Mapping[str, Wanted]) -> str:
    """Sizes for people: ``batch=8, length=2..64``."""
    return ", ".join(
        f"{name}={low}" if low == high else f"{name}={low}..{'' if high is None else high}"
        for name, (low, high) in version.items()
    )


def symbols(signature: Signature, places: Mapping[str, tuple[int, int]], names: Iterable[str]) -> dict[str, str]:
    """What the general program calls the sizes of open dimensions, by their names.

    Raises:
        InputError: no argument has such a size as it is, but only one that is computed of it.
    """
    called: dict[str, str] = {}
    for name in names:
        leaf, axis = places.get(name, (-1, 0))
        size = signature.inputs[leaf].shape[axis] if leaf >= 0 else None
        if not isinstance(size, str) or not size.isidentifier():
            raise InputError(
                f"specialise: no argument has the size {name} itself on an axis, only sizes computed of it"
            )
        called[name] = size
    return called


def versioned(
    general: CompiledProgram, compiled: CompiledProgram, sizes: Mapping[str, Wanted], called: Mapping[str, str]
) -> tuple[CompiledProgram, str]:
    """A program with one more version; -> (the program, why it does not have it, if it has not).

    Args:
        compiled: the version.
        called: symbols of the open dimensions, by name.
    """
    held = dict(general.weights)
    for name, weight in compiled.weights.items():
        if name in held and not _same(held[name], weight):
            return general, f"the constant {name} is another one at these sizes"
        held.setdefault(name, weight)
    if len(held) > len(general.weights) and any(v.info.get("weights") == "arguments" for v in general.variants):
        return general, "it reads other weights"
    if [state.name for state in compiled.signature.states] != [state.name for state in general.signature.states]:
        return general, "it changes other buffers"
    ranges = tuple(SizeRange(name, called[name], low, high) for name, (low, high) in sizes.items())
    version = Version(ranges, compiled.signature, compiled.variants)
    return replace(general, weights=held, specialised=(*general.specialised, version)), ""


def _same(one: Any, other: Any) -> bool:
    """Whether two weights are the same; a NaN is itself."""
    if one is other:
        return True
    if tuple(one.shape) != tuple(other.shape) or values.dtype_of(one) != values.dtype_of(other):
        return False
    first, second = values.raw(one), values.raw(other)
    return first.ctypes.data == second.ctypes.data or bool((first == second).all())


def layouts(program: CompiledProgram) -> tuple[str, ...]:
    """How the kernels of a program read its weights; the compiler's own read them as they are."""
    held: set[str] = set()
    for variant in program.variants:
        records = [record for record in variant.lineage.fusions if record.source]
        own = {part for record in records if record.kernel for part in record.parts}
        for record in records:
            if record.kernel:
                held.update(record.layouts)
            elif own.isdisjoint(record.parts):
                chain = chain_json.load(record.source)
                held.update(plain(chain, [value for value in chain.inputs if value.weight]))
    return tuple(sorted(held))


def weight_bytes(program: CompiledProgram) -> int:
    """Of what a program, and its versions, read from outside."""
    return sum(values.raw(weight).nbytes for weight in program.weights.values())
