"""Eager PyTorch as the judge: the exported graph, run node by node in the model's precision and in float64."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.export.graph_signature import InputKind
from torch.fx import Interpreter, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from covan_mlir.comparing.measure import Measured, Tolerance, measure
from covan_mlir.comparing.taps import longest
from covan_mlir.errors import InputError
from covan_mlir.frontend.capture import Capture
from covan_mlir.frontend.identity import contents
from covan_mlir.frontend.rebuild import mutates, observable

log = logging.getLogger(__name__)

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
Observed = Mapping[str, Callable[[], torch.Tensor]]
"""Tensors of the compiled program by node name, read when they are needed."""


@dataclass(frozen=True)
class Judged:
    """A tensor of the compiled program beside eager's.

    Attributes:
        measured: against eager, run from the model's arguments.
        local: against eager, run from what the compiled program had computed before; only of what is beyond tolerance.
    """

    measured: Measured
    local: Measured | None = None

    @property
    def beyond(self) -> bool:
        return self.measured.beyond

    @property
    def inherited(self) -> bool:
        """Beyond tolerance, but right for what the compiled program had computed before."""
        return self.beyond and self.local is not None and not self.local.beyond


@dataclass
class Survey:
    """What one run in the model's precision says beforehand.

    Attributes:
        sizes: bytes of each observable tensor, by node name, in source order.
        shapes: their shapes.
        random: nodes whose values are drawn at random, or depend on such values.
        undefined: nodes that return memory as it is (``aten.empty``).
    """

    sizes: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    random: set[str] = field(default_factory=set)
    undefined: set[str] = field(default_factory=set)


class Eager:
    """Runs one exported model for one list of arguments; leaves the model and the arguments as they are."""

    def __init__(self, captured: Capture, leaves: Sequence[Any], tolerance: Tolerance) -> None:
        """``leaves``: the model's arguments, flat, in the order of its signature; torch, numpy or plain values."""
        self._captured = captured
        self._program = captured.program
        self._graph = captured.program.graph
        self._leaves = leaves
        self._tolerance = tolerance
        self._mutates = mutates(self._graph)
        self._last_use = _last_uses(self._graph)

    def survey(self) -> Survey:
        """Raises InputError if eager PyTorch fails on these arguments."""
        survey = Survey()
        tainted: set[Node] = set()
        run = _Run(self, wide=False)
        for node in self._graph.nodes:
            if node.op == "output":
                break
            before = torch.get_rng_state() if _may_draw(node) else None
            try:
                value = run.step(node)
            except Exception as error:
                raise InputError(f"eager PyTorch fails at {node.name} ({node.target}): {error}") from error
            drew = before is not None and not torch.equal(before, torch.get_rng_state())
            if drew or any(n in tainted for n in node.all_input_nodes):
                tainted.add(node)
                survey.random.add(node.name)
            if _undefined(node):
                survey.undefined.add(node.name)
            if observable(node):
                survey.sizes[node.name] = value.numel() * value.element_size()
                survey.shapes[node.name] = tuple(value.shape)
            run.forget(self._last_use.get(node, ()))
        return survey

    def equal(self) -> list[list[str]]:
        """Names of tensors of more than one number that have the same values, in source order, by value."""
        alike: dict[str, list[str]] = {}
        run = _Run(self, wide=False)
        for node in self._graph.nodes:
            if node.op == "output":
                break
            value = run.step(node)
            if observable(node) and value.numel() > 1:
                alike.setdefault(contents(value), []).append(node.name)
            run.forget(self._last_use.get(node, ()))
        return [names for names in alike.values() if len(names) > 1]

    def judge(self, observed: Observed, strides: Mapping[str, int] | None = None) -> dict[str, Judged]:
        """Measure tensors where they are made, in source order."""
        strides = strides or {}
        wanted = [node for node in self._graph.nodes if node.name in observed]
        last = wanted[-1] if wanted else None
        narrow, wide = _Run(self, wide=False), _Run(self, wide=True)
        judged: dict[str, Judged] = {}
        for node in self._graph.nodes:
            if last is None or node.op == "output":
                break
            value = narrow.step(node)
            reference = wide.step(node, value)
            if node.name in observed:
                got = observed[node.name]()
                stride = strides.get(node.name, 1)
                truth = reference if node not in wide.inexact else None
                measured = measure(got, *_every(stride, value, truth), self._tolerance)
                local = self._local(node, got, observed, strides, narrow) if measured.beyond else None
                judged[node.name] = Judged(measured, local)
            if node is last:
                break
            for run in (narrow, wide):
                run.forget(self._last_use.get(node, ()))
        return judged

    def outputs(self, got: Sequence[torch.Tensor | None]) -> list[Judged | None]:
        """Measure the model's results, given flat; None for those that are no tensors."""
        narrow, wide = _Run(self, wide=False), _Run(self, wide=True)
        for node in self._graph.nodes:
            if node.op == "output":
                break
            wide.step(node, narrow.step(node))
            for run in (narrow, wide):
                run.forget(self._last_use.get(node, ()))
        judged: list[Judged | None] = []
        for node, value in zip(self.output_nodes(), got, strict=True):
            if value is None or not isinstance(node, Node):
                judged.append(None)
                continue
            truth = wide.env[node] if node not in wide.inexact else None
            judged.append(Judged(measure(value, narrow.env[node], truth, self._tolerance)))
        return judged

    def output_nodes(self) -> list[Any]:
        """What the model returns, flat."""
        kinds = [spec.kind.name for spec in self._program.graph_signature.output_specs]
        returned: Any = self._graph.output_node().args[0]
        return [node for node, kind in zip(returned, kinds, strict=True) if kind in ("USER_OUTPUT", "LOSS_OUTPUT")]

    def _local(
        self, node: Node, got: torch.Tensor, observed: Observed, strides: Mapping[str, int], eager: _Run
    ) -> Measured | None:
        """The tensor against eager on the compiled program's own values; None where that cannot be said."""
        if self._mutates:
            return None  # a value may have been written to since
        known: dict[Node, Any] = {}

        def compiled(operand: Node) -> Any:
            if operand not in known:
                if operand.name in observed and operand.name not in strides and operand is not node:
                    known[operand] = observed[operand.name]()
                elif operand.op != "call_function":
                    known[operand] = eager.env[operand]
                else:
                    known[operand] = eager.call(operand, {n: compiled(n) for n in operand.all_input_nodes})
            return known[operand]

        try:
            inputs = {n: compiled(n) for n in node.all_input_nodes}
            value = eager.call(node, inputs)
            wider = _Run(self, wide=True)
            reference = wider.call(node, {n: _widened(v) for n, v in inputs.items()})
        except Exception as error:
            log.info("%s cannot be run by itself: %s", node.name, error)
            return None
        return measure(got, *_every(strides.get(node.name, 1), value, reference), self._tolerance)

    def placeholders(self) -> dict[Node, Any]:
        """Values of the graph's arguments; copies, as far as a run may write to them."""
        given = iter(self._leaves)
        values: dict[Node, Any] = {}
        nodes = [node for node in self._graph.nodes if node.op == "placeholder"]
        for node, spec in zip(nodes, self._program.graph_signature.input_specs, strict=True):
            if spec.kind is InputKind.USER_INPUT:
                value = _torch(next(given))
            else:
                assert spec.target is not None
                value = self._captured.state(spec.target)
            if isinstance(value, torch.Tensor):
                value = value.detach()
                if self._mutates and spec.kind is not InputKind.PARAMETER:
                    value = value.clone()
            values[node] = value
        return values


class _Run(Interpreter):
    """The values of one run so far.

    Attributes:
        inexact: in float64: nodes that ran in the model's precision, for they fail in float64, and what reads them.
    """

    def __init__(self, eager: Eager, *, wide: bool) -> None:
        super().__init__(eager._program.graph_module, garbage_collect_values=False)
        self._wide = wide
        self.inexact: set[Node] = set()
        self.env = dict(eager.placeholders())
        if wide:
            self.env = {node: _widened(value) for node, value in self.env.items()}

    def step(self, node: Node, narrow: Any = None) -> Any:
        """Run one node; ``narrow`` is its value in the model's precision, for when it fails in float64."""
        if node.op == "placeholder":
            return self.env[node]
        if any(n in self.inexact for n in node.all_input_nodes):
            self.inexact.add(node)
        try:
            self.env[node] = self.call(node, self.env)
        except Exception as error:
            if not self._wide:
                raise
            log.info("%s does not run in float64: %s", node.name, error)
            self.inexact.add(node)
            self.env[node] = _widened(narrow)
        return self.env[node]

    def call(self, node: Node, values: Mapping[Node, Any]) -> Any:
        """The value of a node for given values of what it reads."""
        args = map_arg(node.args, lambda n: values[n])
        kwargs: Any = map_arg(node.kwargs, lambda n: values[n])
        if self._wide:
            args, kwargs = pytree.tree_map_only(torch.dtype, _wide_type, (args, kwargs))
        with torch.no_grad():
            value = getattr(self, node.op)(node.target, args, kwargs)
        if self._wide and isinstance(value, torch.fx.GraphModule):
            return _Inner(value)
        return _widened(value) if self._wide else value

    def forget(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if node.op == "call_function":
                self.env.pop(node, None)


class _Inner(torch.nn.Module):
    """A graph that an operator is given, in float64."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__()
        self._held = [module]  # in a list: not a submodule of this one

    def forward(self, *args: Any) -> Any:
        return _InnerRun(self._held[0]).run(*args)


class _InnerRun(Interpreter):
    def run_node(self, n: Node) -> Any:
        if n.op == "call_function" and n.target is torch.ops.aten._assert_tensor_metadata.default:
            return None  # it asks for the model's precision
        return super().run_node(n)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return _Inner(value) if isinstance(value, torch.fx.GraphModule) else _widened(value)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map_only(torch.dtype, _wide_type, (args, kwargs))
        return _widened(super().call_function(target, args, kwargs))


def _wide_type(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype in _NARROW else dtype


def _widened(value: Any) -> Any:
    def wide(item: Any) -> Any:
        return item.to(torch.float64) if isinstance(item, torch.Tensor) and item.dtype in _NARROW else item

    return pytree.tree_map(wide, value)


def _last_uses(graph: torch.fx.Graph) -> dict[Node, list[Node]]:
    """By node, the nodes that nobody reads after it."""
    last: dict[Node, Node] = {}
    for node in graph.nodes:
        last[node] = node
        for read in node.all_input_nodes:
            last[read] = node
    last_reads: dict[Node, list[Node]] = {}
    for read, node in last.items():
        last_reads.setdefault(node, []).append(read)
    return last_reads


def _may_draw(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _undefined(node: Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    name = node.target._schema.name.removeprefix("aten::")
    return name.startswith(("empty", "new_empty"))


def _every(stride: int, value: torch.Tensor, reference: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The elements that a sampled tensor has."""
    if stride > 1:
        at = [slice(None)] * value.dim()
        at[longest(value.shape)] = slice(None, None, stride)
        return value[tuple(at)], reference[tuple(at)] if isinstance(reference, torch.Tensor) else None
    return value, reference


def _torch(value: Any) -> Any:
    if not isinstance(value, np.ndarray | np.generic):
        return value
    array = np.ascontiguousarray(value)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).reshape(array.shape)
    return torch.from_numpy(array.copy()).reshape(value.shape)
