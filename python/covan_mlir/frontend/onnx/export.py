"""An ONNX model as an exported program."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import onnx
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from covan_mlir.errors import ExportError, InputError
from covan_mlir.frontend.capture import Capture
from covan_mlir.frontend.lifted import lift_constants
from covan_mlir.frontend.onnx import inputs as arguments
from covan_mlir.frontend.onnx import reference
from covan_mlir.frontend.onnx.call import NeedsInput
from covan_mlir.frontend.onnx.module import OnnxModule
from covan_mlir.frontend.onnx.nodes import numbered, source_nodes
from covan_mlir.frontend.onnx.reading import Loaded, read
from covan_mlir.frontend.onnx.unsupported import check_supported
from covan_mlir.frontend.sources import remember
from covan_mlir.frontend.translation.tracing import exported, quiet

log = logging.getLogger(__name__)

Reference = Callable[[Sequence[Any]], list[torch.Tensor | None]]


def capture(
    model: str | os.PathLike[str] | onnx.ModelProto,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Mapping[str, arguments.Range] | None,
) -> Capture:
    """Translate a model, and export it.

    Args:
        args, kwargs: example arguments, by position or by the names of inputs; none at all to have zeros made, of
            sizes that the file tells.
        dynamic_shapes: by name of a symbolic dimension, one number that it is fixed to, or (at least, at most). Those
            that are not named stay open, as far as the model leaves them open.

    Raises:
        ExportError: the file is damaged, or nodes of it have no translation: all are told of.
        InputError: arguments contradict the file.
    """
    if dynamic_shapes is not None and not isinstance(dynamic_shapes, Mapping):
        raise InputError(
            "dynamic_shapes of an ONNX model is {name of a symbolic dimension: size, or (at least, at most)}"
        )
    return translated(read(model), args, kwargs, dynamic_shapes)


def translated(
    loaded: Loaded,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Mapping[str, arguments.Range] | None,
    *,
    pack: Callable[[Sequence[Any]], Any] | None = None,
    own: Reference | None = None,
) -> Capture:
    """As `capture`, of a model that was read.

    Args:
        pack: puts the results together; without, one result is itself and several are a tuple.
        own: what the model's own framework gives, if that is not ONNX (`Capture.reference`).
    """
    check_supported(loaded)
    declared = [arguments.declared(value) for value in loaded.inputs]
    ranges = dict(dynamic_shapes or {})
    places, nodes = numbered(loaded.model)
    names = OnnxModule(loaded, places, {}).names
    if args or kwargs or not declared:
        sizes: dict[str, int] = {}
        given = arguments.bound(loaded, names, args, kwargs or {})
        given = [arguments.checked(value, item, sizes) for value, item in zip(declared, given, strict=True)]
    else:
        given, sizes = arguments.examples(declared, ranges)
    fixed, used = settled(loaded, places, given)
    module = OnnxModule(loaded, places, fixed, pack)
    module.hold(used)
    module.marks = True
    shapes = arguments.dynamic(declared, ranges, sizes, frozenset(fixed))
    spec = dict(zip(names, shapes, strict=True)) if any(shape is not None for shape in shapes) else None
    program = exported(module, tuple(given), {}, spec)
    program = lift_constants(program)
    remember(program.graph, source_nodes(nodes, module.known_nodes, module.size_nodes))
    by_input = dict(zip((value.name for value in loaded.inputs), names, strict=True))
    for name in fixed:
        log.info("the input %s decides about shapes: it is built into the program as it is given", name)
    values = {by_input[name]: tensor for name, tensor in fixed.items()}
    return Capture(program, None, names, fixed=values, reference=own or partial(reference.results, loaded))


def settled(
    loaded: Loaded, places: Mapping[int, int], given: Sequence[Any]
) -> tuple[dict[str, torch.Tensor], list[str]]:
    """-> (inputs that have to be fixed, with their values; initializers that the program computes with)."""
    fixed: dict[str, torch.Tensor] = {}
    by_name = dict(zip((value.name for value in loaded.inputs), given, strict=True))
    while True:
        module = OnnxModule(loaded, places, fixed)
        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv(), static_shapes=True)
        fake = torch.utils._pytree.tree_map_only(torch.Tensor, mode.from_tensor, list(given))
        try:
            with mode, torch.no_grad(), quiet():
                module(*fake)
        except NeedsInput as needed:
            new = needed.names - fixed.keys()
            if not new:
                raise ExportError(f"{needed} is fixed, and still not known") from None
            fixed |= {name: by_name[name].clone() for name in sorted(new)}
        except torch._subclasses.fake_tensor.DynamicOutputShapeException as error:
            raise ExportError(f"the size of a result depends on values: {error}") from error
        else:
            return fixed, sorted(module.used)
