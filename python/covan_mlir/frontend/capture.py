"""Export: whatever the user brings becomes a `torch.export.ExportedProgram`, tied to the user's own objects."""

from __future__ import annotations

import inspect
import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.fx.traceback import preserve_node_meta

from covan_mlir.errors import ExportError, InputError
from covan_mlir.frontend.attention_masks import not_looked_at
from covan_mlir.frontend.derivatives import recorded_behind, stands_in_derivatives, takes_derivatives
from covan_mlir.frontend.dropouts import OfCopies
from covan_mlir.frontend.frames import user_frame, whole_stacks
from covan_mlir.frontend.lifted import lift_constants
from covan_mlir.frontend.open_sizes import fixed_sizes, fixing_line
from covan_mlir.frontend.quantized_operators import declared
from covan_mlir.frontend.refusals import depends_on_data, export_failure

log = logging.getLogger(__name__)

Model = torch.nn.Module | Callable[..., Any] | ExportedProgram | str | os.PathLike[str]


@dataclass(frozen=True)
class Capture:
    """An exported program and where it came from.

    Attributes:
        program: as exported, before decompositions.
        owner: the module whose buffers a call updates, or None when the program itself holds its state.
        parameters: names of the model's positional-or-keyword parameters.
        taps: names and structures of what attached operators give beside the model's own results: the program returns
            ``(results, {name: tap})`` if there are any.
        fixed: by placeholder, values of arguments that are built into the program: shapes depend on them.
        reference: of a model that was translated, what its own framework gives for flat arguments; None for results
            that are no tensors. It raises whatever that raises.
    """

    program: ExportedProgram
    owner: torch.nn.Module | None
    parameters: tuple[str, ...]
    taps: tuple[tuple[str, torch.utils._pytree.TreeSpec], ...] = ()
    fixed: Mapping[str, torch.Tensor] = field(default_factory=dict)
    reference: Callable[[Sequence[Any]], list[torch.Tensor | None]] | None = None
    states: dict[str, torch.Tensor] | None = None

    def state(self, name: str) -> torch.Tensor:
        """The tensor that holds the buffer ``name`` now: the module's own where there is one."""
        if self.states is not None and name in self.states:
            return self.states[name]
        if self.owner is not None:
            try:
                return self.owner.get_buffer(name)
            except AttributeError:
                pass  # an attribute that is no buffer: export lifted it into the program
        held = self.program.state_dict.get(name, self.program.constants.get(name))
        assert isinstance(held, torch.Tensor), name
        return held


class _Function(torch.nn.Module):
    """A plain function as a module: ``forward`` is the function itself, so its signature and frames are the user's."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        try:
            inspect.signature(function)
        except (TypeError, ValueError):  # a builtin such as torch.exp, which export cannot look into
            self.forward = lambda *args, **kwargs: function(*args, **kwargs)
        else:
            self.forward = function


def capture(
    model: Model,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
) -> Capture:
    """Export ``model`` for the example arguments.

    Raises:
        ExportError: the model does not export; torch's reason is the cause and ends the message.
        InputError: ``args`` is no tuple, or shapes are given for a program that is exported already.
    """
    if not isinstance(args, tuple | list):
        raise InputError(f"args is a tuple of example arguments, not a {type(args).__name__}: write args=(x,)")
    if isinstance(model, str | os.PathLike):
        model = _load(Path(model))
    if isinstance(model, ExportedProgram):
        if dynamic_shapes is not None:
            raise InputError("dynamic_shapes cannot change an exported program: pass them to torch.export.export")
        return Capture(lift_constants(model), None, ())
    if not callable(model):
        raise InputError(
            f"cannot compile a {type(model).__name__}: pass an nn.Module, a function, an ExportedProgram or a .pt2 path"
        )
    module = model if isinstance(model, torch.nn.Module) else _Function(model)
    example_args, example_kwargs = torch.utils._pytree.tree_map_only(
        np.ndarray, torch.from_numpy, (tuple(args), dict(kwargs or {}))
    )
    example_args, example_kwargs = _told_apart(module, (example_args, example_kwargs))
    name = getattr(model, "__name__", type(model).__name__)
    try:
        program = _exported(module, example_args, example_kwargs, dynamic_shapes, name)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        where = user_frame(error)
        if fixed_sizes(error):
            again = partial(_exported, module, example_args, example_kwargs, dynamic_shapes, name)
            where = fixing_line(again) or where
        raise ExportError(f"{f'{where}: ' if where else ''}{export_failure(name, error)}") from error
    return Capture(lift_constants(program), module if isinstance(model, torch.nn.Module) else None, _parameters(module))


def _told_apart(module: torch.nn.Module, examples: Any) -> Any:
    """The example arguments, a tensor that is given twice, or that ``module`` holds, copied.

    Export knows a tensor by its identity: of ``f(x, x)`` it makes a program that reads one of its two arguments in the
    place of both, and of ``m(m.weight)`` one that reads no argument. Later calls bring other tensors.
    """
    return apart(examples, {id(tensor) for tensor in (*module.parameters(), *module.buffers())})


def apart(examples: Any, known: set[int]) -> Any:
    """Arguments of which each tensor is one of its own, and none of those that are known by their identity."""

    def own(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) in known:
            return tensor.detach().clone().requires_grad_(tensor.requires_grad)
        known.add(id(tensor))
        return tensor

    return torch.utils._pytree.tree_map_only(torch.Tensor, own, examples)


def _exported(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any, name: str
) -> ExportedProgram:
    """By running the model; where it asks for the value of a tensor, by reading its code, which knows open numbers."""

    def export(strict: bool) -> ExportedProgram:
        with OfCopies(), not_looked_at():
            try:
                program = torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)
            except Exception as error:
                if strict or not stands_in_derivatives(error):
                    raise
            else:
                if not takes_derivatives(program):
                    return program
            log.info("%s takes derivatives: it is recorded as the operators that compute them", name)
            return recorded_behind(module, args, kwargs, dynamic_shapes)

    # preserve_node_meta: what `covan_mlir.group` says in the model's code
    with whole_stacks(), preserve_node_meta(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own pytree classes
        try:
            return export(strict=False)
        except Exception as error:
            if not depends_on_data(error):
                raise
            try:
                with torch._dynamo.config.patch(capture_scalar_outputs=True):
                    program = export(strict=True)
            except Exception:  # the first reason is the one in the model's own words
                raise error from None
        log.info("%s asks for values of tensors: its code is read by TorchDynamo instead of run", name)
        return program


def _load(path: Path) -> ExportedProgram:
    if not path.exists():
        raise ExportError(f"{path}: no such file")
    if path.suffix != ".pt2":
        raise ExportError(f"{path}: not a .pt2 file; save one with torch.export.save(program, 'model.pt2')")
    declared()
    try:
        return torch.export.load(path)
    except Exception as error:
        raise ExportError(f"{path} is no exported program that this torch can read: {error}") from error


def _parameters(module: torch.nn.Module) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature: calls keep the form of the example
        return ()
    return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
