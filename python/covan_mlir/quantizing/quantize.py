"""From a model and calibration data to an exported program in fewer bits, and what that cost."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node
from torch.fx.traceback import preserve_node_meta
from torch.utils import _pytree as pytree

from covan_mlir.errors import InputError
from covan_mlir.frontend.capture import Capture
from covan_mlir.frontend.frontends import capture
from covan_mlir.frontend.in_place import WrittenElsewhere, functional_calls
from covan_mlir.frontend.quantized_operators import is_quantized
from covan_mlir.quantizing import data
from covan_mlir.quantizing.data import Calibration, Call, Checker
from covan_mlir.quantizing.noise import Simulated, measured, unwritten
from covan_mlir.quantizing.products import Left, written_to
from covan_mlir.quantizing.report import QuantizationReport, report
from covan_mlir.quantizing.scheme import NEEDED, Scheme, installed

if TYPE_CHECKING:
    from covan_mlir.quantizing.steps import Prepared

log = logging.getLogger(__name__)

_MEASURED = 8
"""Calls in which tensors are measured, at most."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Given:
    """What a caller has.

    Attributes:
        model: as `covan_mlir.compile_module` takes it, or a graph that was prepared.
        calibration: calls, or arrays of them; None: there are none.
        example: to export with.
        dynamic_shapes: as `covan_mlir.compile_module` takes them.
    """

    model: Any
    calibration: Calibration | None
    example: Call | None
    dynamic_shapes: Any = None


def quantized(given: Given, scheme: Scheme, tell: Tell) -> tuple[ExportedProgram, QuantizationReport]:
    """See `covan_mlir.quantize`."""
    if given.calibration is None and given.example is None:
        raise InputError(_NO_DATA)
    if _has_narrow_weights(given.model):
        raise InputError(_ALREADY)
    if _is_prepared(given.model):
        return _of_prepared(given, scheme, tell)
    if scheme.mode == "int8":
        if given.calibration is None:
            raise InputError(_NO_DATA)
        _torchao()
    module, calls, dynamic = _float(given, tell)
    checker = Checker(module)
    checked = (checker.check(call, index) for index, call in enumerate(calls))
    if scheme.mode != "int8":
        return _of_weights(module, checked, dynamic, scheme, tell)
    prepared = _torchao().prepared(module, scheme)
    seen, count = _calibrated(prepared.module, checked, tell)
    prepared.check()
    return _finished(prepared, seen, count, dynamic, scheme, tell)


_ALREADY = "the model is quantised already: give it to covan_mlir.compile_module as it is"
_NO_DATA = "there is no calibration data: give calls of the model, as in calibration=[(x,) for x in batches]"


def _torchao() -> Any:
    """What needs torchao, `covan_mlir.quantizing.steps`.

    Raises:
        InputError: it is not installed.
    """
    if not installed():
        raise InputError(NEEDED)
    told = logging.getLogger("torchao")
    level = told.level
    told.setLevel(logging.ERROR)  # it warns of libraries for GPUs that it does not find
    try:
        from covan_mlir.quantizing import steps
    finally:
        told.setLevel(level)
    return steps


def _has_narrow_weights(model: Any) -> bool:
    """Whether torchao has quantised a module's weights."""
    return isinstance(model, torch.nn.Module) and any(
        type(value).__module__.startswith("torchao.") for value in model.parameters()
    )


def _is_prepared(model: Any) -> bool:
    """Whether a model is what `prepare_pt2e` or `prepare_qat_pt2e` gave; told without torchao."""
    kinds = {type(one) for one in model.modules()} if isinstance(model, GraphModule) else set[type]()
    return any(base.__module__.startswith("torchao.quantization.pt2e.") for kind in kinds for base in kind.__mro__)


def _of_prepared(given: Given, scheme: Scheme, tell: Tell) -> tuple[ExportedProgram, QuantizationReport]:
    """A model that `prepare_pt2e` or `prepare_qat_pt2e` gave: its own choices count."""
    if scheme != Scheme(bound_db=scheme.bound_db, target=scheme.target):
        raise InputError("the model is prepared already: mode, activations, observer, keep and group are in it")
    if given.dynamic_shapes is not None:
        raise InputError("dynamic_shapes cannot change a prepared model: pass them to torch.export.export")
    prepared, trained = _torchao().adopted(given.model)
    calls: Iterable[Call] = [given.example] if given.example else []
    if given.calibration is not None:
        calls = data.calls(given.calibration, given.example)
    checker = Checker(prepared.module)
    checked = (checker.check(call, index) for index, call in enumerate(calls))
    if trained:  # its ranges are those of training
        seen = list(itertools.islice(checked, _MEASURED))
        count = 0
        if not seen:
            raise InputError(_NO_DATA)
    else:
        seen, count = _calibrated(prepared.module, checked, tell)
    prepared.check()
    return _finished(prepared, seen, count, _dynamic(prepared.module, {}), scheme, tell)


def _float(given: Given, tell: Tell) -> tuple[GraphModule, Iterable[Call], Any]:
    """The model as a graph, calls of it, and its open sizes."""
    example = given.example
    first: list[Call] = []
    calls: Iterator[Call] = iter(())
    if example is None and not _says_arguments(given.model):
        calls = data.calls(() if given.calibration is None else given.calibration)
        first = list(itertools.islice(calls, 1))
        if not first:
            raise InputError(_NO_DATA)
    exported_with = example or (first[0] if first else Call())
    tell("export")
    captured = capture(given.model, exported_with.args, exported_with.kwargs, given.dynamic_shapes)
    program = captured.program
    if is_quantized(program.graph):
        raise InputError(_ALREADY)
    module = program.module(check_guards=False)
    _check_inference(module)
    module = functional(module)
    if given.calibration is None:
        calls = iter([exported_with])
    elif not first:
        known = example or (Call(*program.example_inputs) if program.example_inputs else None)
        calls = data.calls(given.calibration, known, _names(captured))
    return module, itertools.chain(first, calls), _dynamic(module, program.range_constraints)


def _says_arguments(model: Any) -> bool:
    """Whether a model itself says what it takes."""
    return not callable(model) or isinstance(model, ExportedProgram)


def _names(captured: Capture) -> list[str]:
    """Of the model's arguments, in order."""
    specs = captured.program.graph_signature.input_specs
    return list(captured.parameters) or [spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT]


def functional(module: GraphModule) -> GraphModule:
    """A graph with calls that give values in the place of those that write to them, as far as all can be put so; and
    without those that nobody needs."""
    graph = module.graph
    try:
        written = functional_calls(graph)
    except WrittenElsewhere as error:
        log.warning("%s writes to what is read in another way: tensors that are written to stay in float", error)
        written = {}
    order = {node: index for index, node in enumerate(graph.nodes)}
    for call, (operation, same) in written.items():
        call.target = operation
        for value in same:
            value.replace_all_uses_with(call, delete_user_cb=partial(_comes_after, order, call))
    graph.eliminate_dead_code()
    module.recompile()
    for name in {str(node.target) for node in written_to(graph) if node.op == "get_attr"}:
        owner, _, own = name.rpartition(".")
        held = getattr(module.get_submodule(owner), own)
        module.get_submodule(owner).register_buffer(own, held.clone())  # the model's is its own
    return module


def _comes_after(order: Mapping[Node, int], call: Node, user: Node) -> bool:
    return order[user] > order[call]


def _check_inference(module: GraphModule) -> None:
    """Raises InputError: the model is in training mode."""
    flags = {torch.ops.aten.batch_norm.default: 5, torch.ops.aten.dropout.default: 2}
    for node in module.graph.nodes:
        place = flags.get(node.target)
        if place is not None and node.args[place]:
            raise InputError(f"the model is in training mode ({node.name}): call eval() on it first")


def _calibrated(module: GraphModule, calls: Iterable[Call], tell: Tell) -> tuple[list[Call], int]:
    """Observe the calls. Returns those that are measured, and how many there were."""
    seen: list[Call] = []
    count = 0
    for call in calls:
        count += 1
        tell(f"calibrating, call {count}")
        with torch.no_grad(), unwritten(module):
            module(*call.args, **call.kwargs)
        seen += [call] if len(seen) < _MEASURED else []
    if not seen:
        raise InputError(_NO_DATA)
    return seen, count


def _of_weights(
    module: GraphModule, calls: Iterable[Call], dynamic: Any, scheme: Scheme, tell: Tell
) -> tuple[ExportedProgram, QuantizationReport]:
    from covan_mlir.quantizing.weights import rewritten

    seen = list(itertools.islice(calls, _MEASURED))
    if not seen:
        raise InputError(_NO_DATA)
    changed = rewritten(module, scheme)
    told = _report(changed.simulated, seen, 0, changed.left, scheme, tell)
    return _exported(changed.module, seen[0], dynamic, tell), told


def _finished(
    prepared: Prepared, seen: list[Call], count: int, dynamic: Any, scheme: Scheme, tell: Tell
) -> tuple[ExportedProgram, QuantizationReport]:
    told = _report(prepared.simulated(), seen, count, prepared.left, scheme, tell)
    tell("converting")
    return _exported(prepared.converted(), seen[0], dynamic, tell), told


def _report(
    simulated: Simulated, seen: list[Call], count: int, left: list[Left], scheme: Scheme, tell: Tell
) -> QuantizationReport:
    return report(simulated, measured(simulated, seen, tell), scheme, left, count, len(seen))


def _exported(module: GraphModule, call: Call, dynamic: Any, tell: Tell) -> ExportedProgram:
    """The graph as a program, which holds no weights but those that it reads. Lines and modules of its calls stay those
    of the source."""
    tell("export again")
    read = {str(node.target) for node in module.graph.find_nodes(op="get_attr")}
    for name, _ in [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]:
        if name not in read:
            owner, _, own = name.rpartition(".")
            delattr(module.get_submodule(owner), own)
    args, kwargs = _not_of_one(module, call) if dynamic is not None else (call.args, dict(call.kwargs))
    with preserve_node_meta(), torch.no_grad():
        return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic)


def _not_of_one(module: GraphModule, call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a call, twice where an open size is 1: the exporter takes 1 for the only size there is."""

    def wide(node: Node, leaf: Any) -> Any:
        value = node.meta.get("val")
        if not isinstance(leaf, torch.Tensor) or not isinstance(value, torch.Tensor):
            return leaf
        open_sizes = [not isinstance(size, int) for size in value.shape]
        return leaf.repeat([2 if free and size == 1 else 1 for free, size in zip(open_sizes, leaf.shape, strict=True)])

    leaves, spec = pytree.tree_flatten((call.args, dict(call.kwargs)))
    nodes = module.graph.find_nodes(op="placeholder")
    args, kwargs = pytree.tree_unflatten([wide(*pair) for pair in zip(nodes, leaves, strict=True)], spec)
    return args, kwargs


def _dynamic(module: GraphModule, ranges: Mapping[Any, Any]) -> Any:
    """Open sizes of a graph's arguments, as `torch.export.export` takes them; None: there are none."""
    shapes: list[Any] = []
    for node in module.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        sizes: list[Any] = list(value.shape) if isinstance(value, torch.Tensor) else []
        shapes.append({axis: _open(size, ranges) for axis, size in enumerate(sizes) if not isinstance(size, int)})
    if not any(shapes):
        return None
    args, kwargs = pytree.tree_unflatten([one or None for one in shapes], module._in_spec)
    return (*args, *kwargs.values())


def _open(size: Any, ranges: Mapping[Any, Any]) -> Any:
    """An open size, within its bounds if they are known."""
    bounds = ranges.get(size.node.expr)
    least, most = (getattr(bounds, end, None) for end in ("lower", "upper"))
    known = {name: int(end) for name, end in (("min", least), ("max", most)) if isinstance(end, int | sympy.Integer)}
    return Dim.DYNAMIC(**known) if known else Dim.DYNAMIC
