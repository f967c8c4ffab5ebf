"""What of a module is not translated: all of it at once, before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterator

from covan_mlir.errors import ExportError
from covan_mlir.frontend.stablehlo import operators as _declared
from covan_mlir.frontend.stablehlo.program import Operation, operations
from covan_mlir.frontend.stablehlo.reading import Loaded
from covan_mlir.frontend.stablehlo.registry import callee, key, lookup

assert _declared  # importing declares what is translated
_SHOWN = 8
CONSTANT = "stablehlo.constant"


def unsupported(loaded: Loaded) -> list[tuple[str, list[str]]]:
    """Names of operations without a translation and their lines, where these are known; most frequent ones first."""
    rows: dict[str, list[str]] = {}
    for operation in reached(loaded):
        if lookup(key(operation)) is None and callee(operation) is None:
            frames = loaded.module.places[operation.place].frames
            rows.setdefault(key(operation), []).append(f"{frames[0].file}:{frames[0].line}" if frames else "")
    return sorted(rows.items(), key=lambda row: (-len(row[1]), row[0]))


def check_supported(loaded: Loaded) -> None:
    """Raises ExportError for operations without a translation: one line that names all, and lines of code."""
    rows = unsupported(loaded)
    if not rows:
        return
    told = []
    for name, places in rows:
        shown = list(dict.fromkeys(place for place in places if place))[:_SHOWN]
        times = f"{len(places)} × " if len(places) > 1 else ""
        at = f" ({', '.join(shown)})" if shown else ""
        told.append(f"{times}{name}{at}")
    count = sum(len(places) for _, places in rows)
    what = "operation has" if count == 1 else "operations have"
    raise ExportError(f"{loaded.name}: {count} {what} no translation: {'; '.join(told)}")


def reached(loaded: Loaded) -> Iterator[Operation]:
    """Operations of functions that the model calls, each function once: no constants, nothing of functions that a
    translation stands for."""
    functions, seen = [loaded.module.main], {loaded.module.main}
    while functions:
        function = loaded.module.functions.get(functions.pop())
        for operation in operations(function.body) if function is not None else ():
            if operation.name != CONSTANT:
                yield operation
            called = callee(operation)
            if called is not None and lookup(key(operation)) is None and called not in seen:
                seen.add(called)
                functions.append(called)
