"""Runs one program in a process of its own: a program that crashes takes nobody with it.

``python -m covan_mlir.comparing.child FOLDER``: the folder holds ``program.covan`` and ``inputs.json``; the results are
written beside them. Needs no torch.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from covan_mlir.artifacts import pytree
from covan_mlir.comparing import exchange
from covan_mlir.comparing.exchange import Passed, PlainValue
from covan_mlir.runtime import values
from covan_mlir.runtime.loading import load
from covan_mlir.support.typed_json import scalar


def main(folder: Path) -> None:
    """Run the program in ``folder``."""
    executable = load(folder / exchange.PROGRAM)
    leaves = [_value(folder, passed) for passed in exchange.read(folder / exchange.INPUTS)]
    args, kwargs = pytree.unflatten(executable.signature.in_tree, leaves)
    results = pytree.flatten(executable.call_with_attachments(*args, **kwargs))[0]
    outputs = (*executable.signature.outputs, *executable.signature.tap_leaves)
    given: list[Passed] = []
    for index, (leaf, value) in enumerate(zip(outputs, results, strict=True)):
        if leaf.kind != "tensor":
            given.append(PlainValue(None))
            continue
        data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        given.append(exchange.save(folder / f"output{index}.bin", data, leaf.dtype, np.shape(value)))
    exchange.write(folder / exchange.OUTPUTS, given)


def _value(folder: Path, passed: Passed) -> Any:
    if isinstance(passed, PlainValue):
        return scalar(passed.value)
    data = np.fromfile(folder / passed.file, np.uint8)
    return data.view(values.numpy_dtype(passed.dtype)).reshape(passed.shape)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
