"""A JAX function, jitted or plain, or what `jax.export` made of one, as an exported program."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from jax import export as jax_export

from covan_mlir.errors import ExportError, InputError
from covan_mlir.frontend.capture import Capture
from covan_mlir.frontend.jax.trees import register_containers
from covan_mlir.frontend.stablehlo import export, reading
from covan_mlir.frontend.stablehlo.files import contents
from covan_mlir.frontend.translation.arrays import to_numpy, to_torch
from covan_mlir.frontend.translation.refused import first_line

_PLATFORM = "cpu"
"""For which JAX lowers: what is particular to other platforms has no translation."""


def capture(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any) -> Capture:
    """Have JAX export a function, and translate what it gives.

    Args:
        model: a function of arrays, jitted or not; a `jax.export.Exported`; or the path of one that was serialised.
        args, kwargs: arrays (of JAX, numpy or torch), numbers, `jax.ShapeDtypeStruct`s; any pytree of them. Of what was
            exported already none are needed.
        dynamic_shapes: for ``args``, as `jax.export.symbolic_args_specs` takes it: ``"batch, ..."``, or a pytree.

    Raises:
        ExportError: JAX does not export it, or operations have no translation.
        InputError: the arguments do not fit, or sizes are open and no arrays tell an example.
    """
    function: Callable[..., Any] | None = None
    if isinstance(model, str | os.PathLike):
        exported = deserialised(Path(model))
    elif isinstance(model, jax_export.Exported):
        exported = model
    else:
        function = model
        exported = _exported(model, tuple(args), dict(kwargs or {}), dynamic_shapes)
        dynamic_shapes = None
    if dynamic_shapes is not None:
        raise InputError("dynamic_shapes cannot change what was exported: pass symbolic shapes to jax.export.export")
    if exported.ordered_effects or exported.unordered_effects:
        raise ExportError(f"{exported.fun_name} has effects beside its results (printing, callbacks): leave them out")
    if function is None and not args and not kwargs:
        args, kwargs = jax.tree_util.tree_unflatten(exported.in_tree, list(exported.in_avals))
    arguments = (tuple(args), dict(kwargs or {}))
    _check_structure(exported, arguments)
    register_containers(arguments)
    leaves = [
        _example(value, aval, index)
        for index, (value, aval) in enumerate(zip(jax.tree_util.tree_leaves(arguments), exported.in_avals, strict=True))
    ]
    example_args, example_kwargs = jax.tree_util.tree_unflatten(exported.in_tree, leaves)
    kept = exported.module_kept_var_idx

    def flat(own: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
        given = jax.tree_util.tree_leaves((own, named))
        return [given[index] for index in kept]

    names, signature = _parameters(function, example_args, example_kwargs)
    interface = export.Interface(
        example_args,
        example_kwargs,
        flat,
        lambda results: jax.tree_util.tree_unflatten(exported.out_tree, list(results)),
        _open(exported, signature),
        names,
        signature,
    )
    loaded = reading.read(exported.fun_name, bytes(exported.mlir_module_serialized))
    structure = torch.utils._pytree.tree_structure((example_args, example_kwargs))
    return export.capture(loaded, interface, partial(_reference, exported, structure))


def _exported(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> jax_export.Exported:
    args, kwargs = jax.tree_util.tree_map(
        lambda leaf: to_numpy(leaf) if isinstance(leaf, torch.Tensor) else leaf, (args, kwargs)
    )
    name = getattr(function, "__name__", type(function).__name__)
    try:
        specs = args if dynamic_shapes is None else jax_export.symbolic_args_specs(args, dynamic_shapes)
        jitted = function if hasattr(function, "trace") else jax.jit(function)
        return jax_export.export(jitted, platforms=[_PLATFORM])(*specs, **kwargs)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        where = _user_line(error)
        raise ExportError(f"{where}JAX does not export {name}: {type(error).__name__}: {first_line(error)}") from error


def _user_line(error: Exception) -> str:
    """The innermost line of the user's on the way to an error, which JAX has cut to these."""
    own = os.path.dirname(os.path.dirname(__file__)) + os.sep
    theirs = os.path.dirname(jax.__file__) + os.sep
    frames = []
    trace = error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    users = [f"{file}:{line}: " for file, line in frames if not file.startswith((own, theirs, "<"))]
    users = [text for text in users if "covan_mlir" not in text]
    return users[-1] if users else ""


def deserialised(path: Path) -> jax_export.Exported:
    """What `jax.export` serialised.

    Raises:
        ExportError: the file cannot be read, or holds nothing such.
    """
    data = contents(path)
    try:
        return jax_export.deserialize(bytearray(data))
    except Exception as error:
        raise ExportError(f"{path} holds no exported JAX function: {first_line(error)}") from error


def _check_structure(exported: jax_export.Exported, arguments: Any) -> None:
    structure = jax.tree_util.tree_structure(arguments)
    if structure != exported.in_tree:
        raise InputError(
            f"{exported.fun_name} was exported for arguments of the structure {exported.in_tree}, and {structure} is "
            "given; bind static arguments with functools.partial"
        )


def _example(value: Any, aval: Any, index: int) -> torch.Tensor:
    """An argument as a tensor of the type that JAX gives it."""
    shape, dtype = aval.shape, aval.dtype
    if not isinstance(dtype, np.dtype):
        raise ExportError(
            f"argument {index} is of the type {dtype}: pass keys as arrays of numbers, such as PRNGKey(0)"
        )
    if isinstance(value, jax.ShapeDtypeStruct) or value is aval:
        sizes = [size for size in shape if isinstance(size, int)]
        if len(sizes) < len(shape):
            raise InputError(f"argument {index} has open sizes, {shape}: give arrays as examples, and dynamic_shapes")
        return to_torch(np.zeros(sizes, dtype))
    if isinstance(value, torch.Tensor):
        value = to_numpy(value)
    array = np.asarray(value)
    if len(array.shape) != len(shape) or any(
        isinstance(size, int) and size != own for size, own in zip(shape, array.shape, strict=False)
    ):
        raise InputError(f"argument {index} is of the shape {array.shape}, and {shape} was exported")
    return to_torch(np.array(array, dtype))


def _open(exported: jax_export.Exported, signature: inspect.Signature | None) -> Any:
    """Which sizes stay open, as torch takes it."""
    dims = [
        {axis: torch.export.Dim.AUTO for axis, size in enumerate(aval.shape) if not isinstance(size, int)} or None
        for aval in exported.in_avals
    ]
    if not any(dims):
        return None
    args, kwargs = jax.tree_util.tree_unflatten(exported.in_tree, dims)
    if signature is None:
        return {"args": tuple(args), **({"kwargs": kwargs} if kwargs else {})}
    return dict(signature.bind(*args, **kwargs).arguments)


def _parameters(
    function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[str, ...], inspect.Signature | None]:
    """-> (names of parameters that may be given by position, the signature); none where it takes any number."""
    try:
        signature = inspect.signature(function)
        signature.bind(*args, **kwargs)
    except (TypeError, ValueError):
        return (), None
    parameters = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY) for p in parameters):
        return (), None
    given = signature.bind(*args, **kwargs).arguments
    parameters = [parameter.replace(default=parameter.empty) for parameter in parameters if parameter.name in given]
    names = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
    return names, inspect.Signature(parameters)


def _reference(exported: jax_export.Exported, structure: Any, given: Sequence[Any]) -> list[torch.Tensor | None]:
    """What JAX gives, for arguments and with results in torch's order: dictionaries as they are, None in its place."""
    arrays = [to_numpy(value) if isinstance(value, torch.Tensor) else value for value in given]
    args, kwargs = torch.utils._pytree.tree_unflatten(arrays, structure)
    leaves = torch.utils._pytree.tree_leaves(exported.call(*args, **kwargs))
    return [None if leaf is None else to_torch(np.asarray(leaf)) for leaf in leaves]
