"""What `CompileOptions.specialise` may hold. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Size = int | tuple[int, int]
Specialise = Mapping[str, Sequence[Size]] | bool
"""Of each open dimension, by name, sizes and ranges of sizes; True: those that are usual."""


def checked(specialise: Specialise) -> Specialise:
    """What `CompileOptions.specialise` holds, copied.

    Raises:
        TypeError, ValueError: it is no such thing.
    """
    if isinstance(specialise, bool):
        return specialise
    given: object = specialise  # callers may have no type checker
    if not isinstance(given, Mapping):
        raise TypeError(f"specialise is a dict of open dimensions and their sizes, or True, not {given!r}")
    return {name: _sizes(name, sizes) for name, sizes in specialise.items()}


def _sizes(name: object, sizes: object) -> tuple[Size, ...]:
    if not isinstance(name, str):
        raise TypeError(f"specialise: a dimension's name is text, as torch.export.Dim has it, not {name!r}")
    if isinstance(sizes, str) or not isinstance(sizes, Sequence):
        raise TypeError(f"specialise: the sizes of {name} are a list such as [1, 8, (9, 64)], not {sizes!r}")
    taken: list[Size] = []
    for size in sizes:
        if _is_size(size):
            least = size
        elif isinstance(size, tuple | list) and len(size) == 2 and all(map(_is_size, size)):
            size = (size[0], size[1])
            least = size[0]
            if size[0] > size[1]:
                raise ValueError(f"specialise: {name}={size[0]}..{size[1]} is no range: its first size is the greater")
        else:
            raise TypeError(f"specialise: {name} has {size!r}, which is neither a size nor a range (least, most)")
        if least < 1:
            raise ValueError(f"specialise: {name}={least}: sizes are at least 1")
        if size in taken:
            raise ValueError(f"specialise: {name} has {size} twice")
        taken.append(size)
    return tuple(taken)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
