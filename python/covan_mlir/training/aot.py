"""Forward and backward graphs of a function, by AOTAutograd, compiled as they are called."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch._functorch import config
from torch._functorch._aot_autograd.descriptors import GradAOTOutput, PlainAOTInput
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn.attention import SDPBackend, sdpa_kernel

from covan_mlir.compilation.captured import EXPORT_LOCK
from covan_mlir.errors import CovanError, ExportError
from covan_mlir.training.graphs import described, program_of, results_of
from covan_mlir.training.roles import tell_roles
from covan_mlir.training.whole_operators import differentiated_whole
from covan_mlir.training.wide_values import recompute_wide_values

log = logging.getLogger(__name__)

Compile = Callable[[torch.export.ExportedProgram], Callable[..., Sequence[Any]]]
"""From a program to what runs it."""
Take = Callable[[GraphModule], Callable[..., Sequence[Any]]]
"""From a graph to what runs it."""


def differentiable(
    graph: torch.nn.Module, arguments: Sequence[Any], names: Sequence[str], compile_program: Compile
) -> Callable[..., Any]:
    """What computes a graph, and its gradients where torch asks for them, by compiled programs.

    The backward graph is compiled when it is first called. A graph that cannot be compiled is run by PyTorch, and a
    warning says why.

    Args:
        graph: of functions of tensors.
        arguments: of a first call; those of later calls have the same shapes.
        names: of the arguments.
    """
    forwards: list[_OnDemand] = []

    def forward(module: GraphModule) -> Callable[..., Sequence[Any]]:
        forwards.append(_OnDemand(module, compile_program))
        return forwards[-1]

    def backward(module: GraphModule) -> Callable[..., Sequence[Any]]:
        return _OnDemand(module, compile_program)

    compiled = partitioned(graph, arguments, names, forward, backward)
    for graph_of_results in forwards:  # now: where it is called, torch differentiates, and nothing can be traced
        graph_of_results.prepare()
    return compiled


def partitioned(
    graph: torch.nn.Module, arguments: Sequence[Any], names: Sequence[str], forward: Take, backward: Take
) -> Callable[..., Any]:
    """What computes a graph, and its gradients, by what is given for the two graphs: the forward graph keeps what the
    cheapest backward graph needs (the minimal cut of AOTAutograd). Their calls tell what they are for.

    Raises:
        ExportError: AOTAutograd does not take the graph.
    """

    def taken(take: Take) -> Any:
        def compiler(gm: GraphModule, example_inputs: Any) -> Any:
            tell_roles(gm.graph, {node: names[k] for k, node in gradients(gm.graph).items() if k < len(names)})
            return make_boxed_func(take(gm))

        return compiler

    # With sizes that are known, and a place for those that depend on values: decompositions ask for it.
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    shown = [mode.from_tensor(x, static_shapes=True) if isinstance(x, torch.Tensor) else x for x in arguments]
    context = TracingContext(mode)
    # Attention is differentiated as what it is composed of, which fuses; torch's own kernels have no parts.
    with (
        EXPORT_LOCK,  # for what follows changes torch's own tables meanwhile, which whoever exports reads
        tracing(context),
        sdpa_kernel(SDPBackend.MATH),
        differentiated_whole(),
        config.patch(force_non_lazy_backward_lowering=True),
    ):
        try:
            compiled: Callable[..., Any] = aot_module_simplified(
                cast(GraphModule, graph),
                shown,
                fw_compiler=taken(forward),
                bw_compiler=taken(backward),
                inference_compiler=taken(forward),
                partition_fn=_cut,
                keep_inference_input_mutations=False,
            )
        except CovanError:
            raise
        except Exception as error:  # of any kind: what no kernel of torch's says the sizes of, or says wrongly
            first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
            raise ExportError(f"AOTAutograd has no derivatives: {type(error).__name__}: {first}") from error
    if context.fw_metadata is not None:  # no memory of saved tensors is taken for results: gradients may be asked again
        context.fw_metadata.bw_donated_idxs = []
    return compiled


def _cut(joint: GraphModule, *arguments: Any, **options: Any) -> tuple[GraphModule, GraphModule]:
    """A graph of a function and its gradients as one of each."""
    recompute_wide_values(joint.graph)
    joint.recompile()
    forward, backward = min_cut_rematerialization_partition(joint, *arguments, **options)
    return forward, backward


def gradients(graph: Graph) -> dict[int, Node]:
    """The results of a graph that are gradients, by the position of the argument that they are with respect to."""
    return {
        told.grad_of.idx: node
        for told, node in zip(described(graph), results_of(graph), strict=True)
        if isinstance(told, GradAOTOutput) and isinstance(told.grad_of, PlainAOTInput) and isinstance(node, Node)
    }


class _OnDemand:
    """A graph that is compiled when it is first called, or before."""

    def __init__(self, module: GraphModule, compile_program: Compile) -> None:
        self._module = module
        self._compile = compile_program
        self._run: Callable[[Sequence[Any]], Sequence[Any]] | None = None

    def __call__(self, *arguments: Any) -> Sequence[Any]:
        self.prepare()
        assert self._run is not None
        return self._run(arguments)

    def prepare(self) -> None:
        """Compile it, if that has not been done."""
        if self._run is None:
            self._run = self._compiled()

    def _compiled(self) -> Callable[[Sequence[Any]], Sequence[Any]]:
        try:
            program = program_of(self._module)
            run = self._compile(program.program)
        except CovanError as error:
            log.warning("a graph of derivatives runs in eager mode: %s", error)
            return lambda arguments: self._module(*arguments)
        return lambda arguments: program.call(run, arguments)
