"""What a StableHLO module is, before anything is compiled."""

from __future__ import annotations

from collections import Counter

from covan_mlir.frontend.stablehlo.program import Type
from covan_mlir.frontend.stablehlo.reading import Loaded, read
from covan_mlir.frontend.stablehlo.registry import callee, key, lookup
from covan_mlir.frontend.stablehlo.unsupported import reached, unsupported
from covan_mlir.frontend.translation.info import Info, Missing, OperatorCount


def told(name: str, data: bytes, producer: str = "") -> Info:
    """Read a module and tell what it is.

    Raises:
        ExportError: it is damaged.
    """
    loaded = read(name, data)
    main = loaded.module.functions[loaded.module.main]
    counts = Counter(key(op) for op in reached(loaded) if callee(op) is None or lookup(key(op)) is not None)
    return Info(
        file=name,
        producer=producer,
        opsets=("StableHLO",),
        inputs=tuple(
            f"{own or index}: {kind}" for index, (own, kind) in enumerate(zip(main.names, main.body.types, strict=True))
        ),
        outputs=tuple(str(kind) for kind in _results(loaded)),
        dimensions=(),
        weights=len(loaded.tensors),
        weight_bytes=sum(t.untyped_storage().nbytes() for t in loaded.tensors),
        operators=tuple(OperatorCount(op, count) for op, count in counts.most_common()),
        unsupported=tuple(
            Missing(op, "there is no translation of it", tuple(dict.fromkeys(filter(None, lines))))
            for op, lines in unsupported(loaded)
        ),
    )


def _results(loaded: Loaded) -> list[Type]:
    body = loaded.module.functions[loaded.module.main].body
    types = dict(zip(body.arguments, body.types, strict=True))
    for operation in body.operations:
        types |= dict(zip(operation.results, operation.types, strict=True))
    return [types[value] for value in body.returned]
