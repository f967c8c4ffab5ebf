"""A model of TensorFlow's as an exported program: as the ONNX model that it is converted to."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from covan_mlir.errors import ExportError, InputError
from covan_mlir.frontend.capture import Capture
from covan_mlir.frontend.onnx import inputs as arguments
from covan_mlir.frontend.onnx.export import translated
from covan_mlir.frontend.onnx.info import facts
from covan_mlir.frontend.onnx.reading import Loaded, read
from covan_mlir.frontend.onnx.unsupported import Unsupported, check_supported, unsupported
from covan_mlir.frontend.tensorflow import apart, kinds
from covan_mlir.frontend.tensorflow.messages import Converted, Failure
from covan_mlir.frontend.translation.arrays import to_numpy, to_torch
from covan_mlir.frontend.translation.info import Info


def capture(
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Mapping[str, arguments.Range] | None,
) -> Capture:
    """Convert a model, translate what it is converted to, and export that.

    Args:
        model: the path of a SavedModel, of a Keras or TFLite file; a Keras model; a function or module of TensorFlow's.
        args, kwargs: example arguments, by position or by the names of inputs; none to have zeros made, if the model
            says what it takes.
        dynamic_shapes: as for ONNX models; a dimension without a name is called by its input and axis (``image:0``).

    Raises:
        ExportError: a file is damaged, TensorFlow fails, or nodes have no translation: all are told of.
        InputError: arguments contradict the model, or have to be given.
    """
    if dynamic_shapes is not None and not isinstance(dynamic_shapes, Mapping):
        raise InputError("dynamic_shapes of such a model is {dimension, such as image:0: size, or (at least, at most)}")
    ranges = dict(dynamic_shapes or {})
    if isinstance(model, str | os.PathLike):
        path = os.fspath(model)
        loaded, converted = _of_file(path)
        own = partial(_results_of_file, path)
    else:
        from covan_mlir.frontend.tensorflow import convert, functions

        function = functions.traced(model, args, kwargs or {}, ranges.keys())
        name = str(getattr(model, "name", None) or getattr(model, "__name__", None) or type(model).__name__)
        proto, converted = convert.converted(function, name)
        loaded = replace(read(proto), path=name)
        own = partial(_results, function)
        if function.given is not None:
            args, kwargs = (), function.given
    check_supported(loaded, _without_translation(loaded, converted.failures))
    values = [_plain(value) for value in _flat(args)]
    named = {name: _plain(value) for name, value in (kwargs or {}).items()}
    if not values and not named:
        named = _examples(loaded, ranges)
    return translated(loaded, values, named, ranges, pack=converted.results.pack, own=own)


def told(path: str) -> Info:
    """What a file is, before anything is compiled.

    Raises:
        ExportError: there is no such file, it is damaged, or TensorFlow fails.
    """
    loaded, converted = _of_file(path)
    return facts(loaded, _without_translation(loaded, converted.failures))


def _of_file(path: str) -> tuple[Loaded, Converted]:
    kind = kinds.of_file(path)
    assert kind is not None, path
    proto, converted = apart.converted(path, kind)
    return replace(read(proto), path=path), converted


def _without_translation(loaded: Loaded, failures: Sequence[Failure]) -> list[Unsupported]:
    """Nodes that tf2onnx does not convert, and others that are not translated."""
    told = {failure.name for failure in failures}
    rows: dict[tuple[str, str], list[str]] = {}
    for failure in failures:
        rows.setdefault((failure.op, failure.why), []).append(failure.name)
    for row in unsupported(loaded):
        left = [name for name in row.nodes if name not in told]
        rows.setdefault((row.op, row.why), []).extend(left)
    all_rows = [Unsupported(op, why, tuple(nodes)) for (op, why), nodes in rows.items() if nodes]
    return sorted(all_rows, key=lambda row: (-len(row.nodes), row.op))


def _results_of_file(path: str, given: Sequence[Any]) -> list[torch.Tensor | None]:
    kind = kinds.of_file(path)
    if kind is None:
        raise ExportError(f"{path}: no such file")
    return [to_torch(value) for value in apart.results(path, kind, [_array(value) for value in given])]


def _results(function: Any, given: Sequence[Any]) -> list[torch.Tensor | None]:
    values = function([_array(value) for value in given])
    return [to_torch(value) for value in values]


def _array(value: Any) -> np.ndarray[Any, Any]:
    return to_numpy(value) if isinstance(value, torch.Tensor) else np.asarray(value)


def _flat(value: Any) -> Iterator[Any]:
    """Leaves in the order in which TensorFlow has them."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from _flat(value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _plain(value: Any) -> Any:
    """TensorFlow's tensors as arrays; others are as they are."""
    return value.numpy() if kinds.is_tensorflow(value) and hasattr(value, "numpy") else value


def _examples(loaded: Loaded, ranges: Mapping[str, arguments.Range]) -> dict[str, torch.Tensor]:
    """Zeros for all inputs. Open dimensions at the same axis have the same size: most often they are one.

    Raises:
        InputError: how many dimensions an input has is not told, or it is too large to be made up.
    """
    declared = [arguments.declared(value) for value in loaded.inputs]
    sizes: dict[str, int] = {}
    for value in declared:
        for axis, size in enumerate(value.sizes or ()):
            if isinstance(size, int):
                continue
            name = size or f"{value.name}:{axis}"
            wanted = ranges.get(name)
            low, high = (wanted, wanted) if isinstance(wanted, int) else wanted or (None, None)
            example = max(low or 0, 2 + axis)
            sizes[name] = example if high is None else min(example, high)
    zeros, _ = arguments.examples(declared, {**ranges, **sizes})
    return dict(zip((value.name for value in declared), zeros, strict=True))
