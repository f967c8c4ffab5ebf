"""The process that interprets StableHLO, by the reference that its own project has: the judge of a translation.

``python -m covan_mlir.frontend.stablehlo.interpreter PARENT``: types of arguments come in as a frame whose blobs are
the module and the arguments, types of results go out with their elements.
"""

from __future__ import annotations

import sys

import msgspec
import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from covan_mlir.frontend.stablehlo.program import Failed, Results, Type
from covan_mlir.frontend.stablehlo.reader import context, element_type, parsed
from covan_mlir.support.processes import frames, parent


def interpreted(data: bytes, types: list[Type], blobs: list[bytes]) -> tuple[Results | Failed, list[bytes]]:
    """-> (types of the results, or why there are none; their elements)."""
    with context() as own:
        try:
            arguments = [
                ir.DenseElementsAttr.get(
                    np.frombuffer(blob, element_type(kind.dtype)).reshape([size or 0 for size in kind.shape]),
                    signless=not kind.dtype.startswith("ui"),
                )
                for kind, blob in zip(types, blobs, strict=True)
            ]
            results = [np.array(value) for value in stablehlo.eval_module(parsed(own, data), arguments)]
            kinds = {np.dtype(element_type(name)): name for name in _NAMES}
            told = tuple(Type(kinds[result.dtype], tuple(result.shape)) for result in results)
            return Results(told), [np.ascontiguousarray(result).tobytes() for result in results]
        except Exception as error:
            return Failed(str(error).strip() or type(error).__name__), []


_NAMES = ("f64", "f32", "f16", "i1", "i8", "i16", "i32", "i64", "ui8", "ui16", "ui32", "ui64")


def main() -> None:
    """Answer one frame."""
    parent.watch(int(sys.argv[1]))
    types, (data, *blobs) = frames.receive(sys.stdin.buffer, msgspec.json.Decoder(type=list[Type]))
    answer, results = interpreted(data, types, blobs)
    frames.send(sys.stdout.buffer, answer, results)


if __name__ == "__main__":
    main()
