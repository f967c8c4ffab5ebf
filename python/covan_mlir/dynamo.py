"""``torch.compile(model, backend="covan")``.

Dynamo hands over the graphs between graph breaks. Each is compiled for the shapes that it is called with, and again for
others; weights are arguments, read where torch holds them. Where torch asks for gradients, a graph and the one that
computes its gradients are compiled (docs/training.md).
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
from covan_mlir.errors import CovanError
from covan_mlir.executable import Executable
from covan_mlir.training.aot import differentiable
from covan_mlir.training.roles import path_in_model

log = logging.getLogger(__name__)

_lock = threading.RLock()
_executables: list[weakref.ref[Executable]] = []


def last_compiled() -> tuple[Executable, ...]:
    """The executables behind ``torch.compile(backend="covan")``, the latest last: one per graph between graph breaks
    and set of shapes that it was called with; where gradients are asked for, two, the second when ``backward`` is first
    called. Dynamo keeps them; ``torch.compiler.reset()`` lets them go."""
    with _lock:
        _executables[:] = [reference for reference in _executables if reference() is not None]
        return tuple(exe for reference in _executables if (exe := reference()) is not None)


def backend(
    graph: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """The backend, as Dynamo calls it. A graph that cannot be compiled runs in eager mode; a warning says why.

    Args:
        graph: torch operations between two graph breaks.
        example_inputs: fake or real; their shapes may be symbolic.
        options: ``torch.compile(options=...)``: ``target``, and what `CompileOptions` takes.

    Raises:
        ValueError, TypeError: there are no such options.
    """
    return _Compiled(graph, **dict(options or {}))


class _Compiled:
    """One graph: what runs it, for each set of shapes."""

    def __init__(self, graph: GraphModule, target: str | Sequence[str] = "cpu", **options: Any) -> None:
        self._graph = graph
        self._target = target
        self._options = CompileOptions(**options)
        self._runs: dict[Any, Callable[..., Any]] = {}
        self._names = [
            path_in_model(source.name) if (source := getattr(node, "_dynamo_source", None)) is not None else node.name
            for node in graph.graph.find_nodes(op="placeholder")
        ]

    def __call__(self, *args: Any) -> Any:
        learns = torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)
        key = (learns, *(_key(a, learns) for a in args))
        run = self._runs.get(key)
        if run is None:
            with _lock:
                run = self._runs.get(key)
                if run is None:
                    run = self._runs[key] = self._learning(args) if learns else self._fixed(args)
        return run(*args)

    def _fixed(self, args: Sequence[Any]) -> Callable[..., Any]:
        """What runs the graph where nobody asks for gradients."""
        try:
            with torch.no_grad():
                return self._compile(self._graph, *args)
        except CovanError as error:
            return self._eager(error)

    def _learning(self, args: Sequence[Any]) -> Callable[..., Any]:
        """What runs the graph where gradients may be asked for."""
        try:
            return differentiable(self._graph, args, self._names, self._compile)
        except CovanError as error:
            return self._eager(error)

    def _eager(self, error: CovanError) -> Callable[..., Any]:
        log.warning("a graph of %d operations runs in eager mode: %s", _operations(self._graph), error)
        return self._graph

    def _compile(self, model: Any, *args: Any) -> Executable:
        exe = compile_module(model, args, target=self._target, options=self._options)
        with _lock:
            _executables.append(weakref.ref(exe))
        return exe


def _operations(graph: GraphModule) -> int:
    return sum(node.op not in ("placeholder", "output") for node in graph.graph.nodes)


def _key(value: Any, learns: bool) -> Any:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype, value.device, learns and value.requires_grad
    return type(value), value
