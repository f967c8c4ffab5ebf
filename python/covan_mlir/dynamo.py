"""``torch.compile(model, backend="covan")``.

Dynamo hands over the graphs between graph breaks. Each is compiled for the shapes that it is called with, and again for
others; weights are arguments, read where torch holds them.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from covan_mlir.compilation.options import CompileOptions
from covan_mlir.compile import compile_module
from covan_mlir.executable import Executable

log = logging.getLogger(__name__)

_lock = threading.Lock()
_executables: list[weakref.ref[Executable]] = []


def last_compiled() -> tuple[Executable, ...]:
    """The executables behind ``torch.compile(backend="covan")``, the latest last: one per graph between graph breaks
    and set of shapes that it was called with. Dynamo keeps them; ``torch.compiler.reset()`` lets them go."""
    with _lock:
        _executables[:] = [reference for reference in _executables if reference() is not None]
        return tuple(exe for reference in _executables if (exe := reference()) is not None)


def backend(
    graph: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """The backend, as Dynamo calls it.

    Args:
        graph: torch operations between two graph breaks.
        example_inputs: fake or real; their shapes may be symbolic.
        options: ``torch.compile(options=...)``: ``target``, and what `CompileOptions` takes.

    Raises:
        CovanError: from the first call of the result, see `compile_module`.
    """
    return _Compiled(graph, **dict(options or {}))


class _Compiled:
    """One graph: an executable for each set of shapes."""

    def __init__(self, graph: GraphModule, target: str | Sequence[str] = "cpu", **options: Any) -> None:
        self._graph = graph
        self._target = target
        self._options = CompileOptions(**options)
        self._executables: dict[Any, Executable] = {}
        self._told = False

    def __call__(self, *args: Any) -> Any:
        if torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):
            self._tell()
            return self._graph(*args)
        key = tuple(_key(a) for a in args)
        with _lock:
            exe = self._executables.get(key)
            if exe is None:
                with torch.no_grad():
                    exe = compile_module(self._graph, args, target=self._target, options=self._options)
                self._executables[key] = exe
                _executables.append(weakref.ref(exe))
        return exe(*args)

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            log.warning(
                "covan compiles for inference: a graph of %d operations whose arguments require gradients runs in "
                "eager mode. Call the model under torch.no_grad(), or freeze its parameters, to have it compiled",
                sum(node.op not in ("placeholder", "output") for node in self._graph.graph.nodes),
            )


def _key(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype, value.device
    return type(value), value
