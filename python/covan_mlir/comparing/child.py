"""Runs one program in a process of its own: a program that crashes takes nobody with it.

``python -m covan_mlir.comparing.child FOLDER``: the folder holds ``program.covan`` and ``inputs.json``; the results are
written beside them. Needs no torch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from covan_mlir.artifacts import pytree
from covan_mlir.runtime import values
from covan_mlir.runtime.loading import load


def main(folder: Path) -> None:
    """Run the program in ``folder``."""
    executable = load(folder / "program.covan")
    rows = json.loads((folder / "inputs.json").read_text())
    args, kwargs = pytree.unflatten(executable.signature.in_tree, [_read(folder, row) for row in rows])
    results = pytree.flatten(executable.call_with_attachments(*args, **kwargs))[0]
    outputs = (*executable.signature.outputs, *executable.signature.tap_leaves)
    written: list[dict[str, Any]] = []
    for index, (leaf, value) in enumerate(zip(outputs, results, strict=True)):
        if leaf.kind != "tensor":
            written.append({"value": None})
            continue
        array = np.ascontiguousarray(value)
        name = f"output{index}.bin"
        array.reshape(-1).view(np.uint8).tofile(folder / name)
        written.append({"file": name, "dtype": leaf.dtype, "shape": list(np.shape(value))})
    (folder / "outputs.json").write_text(json.dumps(written))


def _read(folder: Path, row: dict[str, Any]) -> Any:
    if "file" not in row:
        return row["value"]
    array = np.fromfile(folder / row["file"], np.uint8)
    return array.view(values.numpy_dtype(row["dtype"])).reshape(row["shape"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
