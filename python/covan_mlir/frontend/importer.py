"""The torch dialect module of an exported program, with the ledger in it and an action key in every location.

torch-mlir's importer does the operations; what it leaves to its users is here: who is a parameter, what becomes of
weights and state, and the locations.
"""

from __future__ import annotations

import io
import operator
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.fx import Node
from torch_mlir import ir
from torch_mlir.dialects import func
from torch_mlir.extras import fx_importer as fx

from covan_mlir import dialects
from covan_mlir.artifacts.signature import Signature
from covan_mlir.dialects import prov, prov_locations, prov_table
from covan_mlir.dialects.arguments import ArgumentFacts, write_arguments
from covan_mlir.dialects.prov_graph import functions
from covan_mlir.errors import ExportError
from covan_mlir.frontend import frames
from covan_mlir.frontend.capture import Capture
from covan_mlir.frontend.checks import Checks
from covan_mlir.frontend.constants import literals
from covan_mlir.frontend.control import Source
from covan_mlir.frontend.cost import work
from covan_mlir.frontend.decompose import decompose
from covan_mlir.frontend.describe import Description, describe
from covan_mlir.frontend.division_checks import check_divisors
from covan_mlir.frontend.equal_weights import unite_equal
from covan_mlir.frontend.held import held_by
from covan_mlir.frontend.identity import Identities
from covan_mlir.frontend.index_checks import check_indices
from covan_mlir.frontend.parts import ledger
from covan_mlir.frontend.refusals import plainly, refuse_random, refused
from covan_mlir.frontend.regions import RegionImporter
from covan_mlir.frontend.strided import index_strided
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.bodies import Held, resource_name
from covan_mlir.provenance.model import Action, Part
from covan_mlir.provenance.relation import KeptOperands

# torch-mlir's table lacks the two widest unsigned types; its lowering knows them.
fx.TORCH_DTYPE_TO_MLIR_TYPE_ASM.setdefault(torch.uint16, "ui16")
fx.TORCH_DTYPE_TO_MLIR_TYPE_ASM.setdefault(torch.uint64, "ui64")
fx.TORCH_DTYPE_TO_MLIR_TYPE.setdefault(torch.uint16, lambda: ir.IntegerType.get_unsigned(16))
fx.TORCH_DTYPE_TO_MLIR_TYPE.setdefault(torch.uint64, lambda: ir.IntegerType.get_unsigned(64))
# torch's own numbers of its types: torch-mlir's table takes that of complex128 for complex64, and lacks complex128.
fx.TORCH_DTYPE_TO_INT.update({torch.complex64: 9, torch.complex128: 10, torch.uint16: 27, torch.uint64: 29})


@dataclass(frozen=True)
class Imported:
    """What the compiler needs of a model.

    Attributes:
        bytecode: the module in the torch dialect.
        weights: tensors that the program reads from outside, by parameter name; they follow the parameters of
            ``signature`` in the function's argument list.
        actions: the ledger.
        results: what the program returns, in order.
        identity: whether a part gives back one of its operands, and which.
        held: what some weights hold, by name: those that compilers take apart (`covan_mlir.frontend.held`).
        flops, elements: work of one call; see `covan_mlir.frontend.cost`.
    """

    bytecode: bytes
    signature: Signature
    weights: Mapping[str, torch.Tensor] = field(repr=False)
    actions: tuple[Action, ...] = field(repr=False)
    results: tuple[Operand, ...] = field(repr=False)
    identity: KeptOperands = field(repr=False)
    held: Mapping[str, Held] = field(repr=False)
    flops: int
    elements: int


def import_program(
    captured: Capture,
    *,
    provenance: bool,
    external_weight_bytes: int,
    random_numbers: bool = True,
    check_integers: bool = True,
) -> Imported:
    """Decompose and import.

    Args:
        random_numbers: whether the program may draw some of its own.
        check_integers: whether indices out of range and divisions by zero are errors, and no element is read or written
            by such indices.

    Raises:
        ExportError: an operation or type has no counterpart in the torch dialect; names the user's line.
    """
    decomposed = decompose(captured.program)
    index_strided(decomposed.graph)  # needs the storage of fake tensors, so before anything else
    if not random_numbers:
        refuse_random(decomposed.graph)
    description = describe(captured, decomposed)
    checks = Checks(captured.program.graph, decomposed.graph, description)
    check_divisors(decomposed.graph, checks, told=check_integers)
    if check_integers:
        check_indices(captured.program.graph, decomposed.graph, checks)
    description = checks.described()
    external = _external(description, external_weight_bytes)
    by_value = {node: tensor for node, (_, tensor) in description.weights.items() if node not in external}
    lifted = decomposed.graph_signature.inputs_to_lifted_tensor_constants
    unite_equal(by_value, {node for node in by_value if node.name in lifted})
    flops, elements = work(decomposed.graph)
    actions: tuple[Action, ...] = ()
    parts: Mapping[Source, Part] = {}
    if provenance:
        held = {node: name for node, (name, _) in description.weights.items()}
        actions, parts = ledger(captured.program.graph, decomposed.graph, description.parameters, held)

    context = ir.Context()
    dialects.load(context)
    importer = fx.FxImporter(
        context=context, hooks=_Weights({node: name for node, (name, _) in description.weights.items()})
    )
    importer._graph_node_importer_cls = RegionImporter
    importer._cc = _Locations(context, parts, provenance, importer._py_attr_tracker)
    try:
        _build(importer, decomposed.graph, description, external)
        _tell_arguments(importer.module, description, external)
    except ExportError:
        raise
    except Exception as error:  # whatever the importer stumbles over, it is at this node
        raise _import_error(error, importer._cc.node) from error
    if provenance:
        prov.write_table(importer.module, _table(actions))
    out = io.BytesIO()
    importer.module.operation.write_bytecode(out)
    weights = dict(external.values())
    return Imported(
        bytecode=out.getvalue(),
        signature=description.signature,
        weights=weights,
        actions=actions,
        results=tuple(
            ("p", parts[node].id) if node in parts else _outside(node, description) for node in description.results
        ),
        identity=Identities({part.id: part for part in parts.values()}),
        held=held_by(decomposed.graph, description.weights) if provenance else {},
        flops=flops,
        elements=elements,
    )


def _tell_arguments(
    module: ir.Module, description: Description, external: Mapping[Node, tuple[str, torch.Tensor]]
) -> None:
    """What the arguments of the program are, for passes."""
    sizes = description.signature.size_names
    rows = [ArgumentFacts(sizes=sizes[i] if i < len(sizes) else ()) for i in range(len(description.parameters))]
    rows += [ArgumentFacts(weight=name) for name, _ in external.values()]
    (main,) = functions(module.operation)
    write_arguments(main, rows)


def _outside(node: Node, description: Description) -> Operand:
    """A result that no part computes: an argument or a weight, returned as it is."""
    if node in description.parameters:
        return "a", description.parameters.index(node)
    return "w", description.weights[node][0] if node in description.weights else node.name


def _build(
    importer: fx.FxImporter, graph: torch.fx.Graph, description: Description, external: Mapping[Node, Any]
) -> None:
    """One function: parameters, then external weights, to results."""
    cache = importer._cc
    arguments = [*description.parameters, *external]
    with importer._c, cache.named("main"):
        types = [cache.node_val_to_type(node) for node in arguments]
        results = [cache.node_val_to_type(node) for node in description.results]
        function = func.FuncOp("main", ir.FunctionType.get(types, results), ip=importer._m_ip)
        # What torch.export guarantees about symbolic shapes lets broadcasts stay broadcasts.
        function.attributes["torch.assume_strict_symbolic_shapes"] = ir.UnitAttr.get()
        locations = [cache.named(f"{'weight' if n in external else 'input'}:{n.name}") for n in arguments]
        block = ir.Block.create_at_start(function.body, types, locations)
        nodes = importer._graph_node_importer_cls(importer, importer._c, cache, block)
        for node, argument in zip(arguments, block.arguments, strict=True):
            nodes.bind_node_value(node, argument)
        for node, (name, tensor) in description.weights.items():
            if node not in external:
                nodes.lazy_import_parameter(cache.named(f"weight:{name}"), node, tensor, _info(node))
        for node in graph.nodes:
            if node.op == "placeholder" and (node, 0) not in nodes._v and node.users:
                raise ExportError(f"argument {node.name} of the exported graph has no value")
        inline = {node: tensor for node, (_, tensor) in description.weights.items() if node not in external}
        constants = literals(graph, inline)
        for node, tensor in constants.items():
            nodes.lazy_import_parameter(cache.get_node_location(node), node, tensor, _info(node))
        skipped = {*constants, *_behind(graph, constants)}
        calls = [node for node in graph.nodes if node.op == "call_function" and node not in skipped]
        nodes.import_nodes(calls, skip_placeholders_outputs=True)
        nodes.return_node_values(cache.named("main"), list(description.results), {})
        importer.symbol_table.insert(function)


def _behind(graph: torch.fx.Graph, constants: Container[Node]) -> set[Node]:
    """The operations that nobody reads but constants, whose values are known.

    Not all of them would go by themselves: a reciprocal asserts that what it divides by is not zero.
    """
    behind: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "call_function" and node.users and all(u in constants or u in behind for u in node.users):
            behind.add(node)
    return behind


def _info(node: Node) -> fx.InputInfo:
    # The importer's lazy binding wants to know only that nobody stores to the weight.
    return fx.InputInfo(program=None, input_spec=None, node=node, ir_type=None)


def _external(description: Description, threshold: int) -> dict[Node, tuple[str, torch.Tensor]]:
    """Weights that stay outside the program, tied ones under one name. bool is excluded: its bytes are not its bits."""
    chosen: dict[Node, tuple[str, torch.Tensor]] = {}
    for node, (name, tensor) in description.weights.items():
        if node.users and tensor.nbytes >= max(threshold, 1) and tensor.dtype is not torch.bool:
            chosen[node] = (name, tensor.contiguous())
    return chosen


class _Locations(fx.ContextCache):  # type: ignore[misc]  # the bindings are untyped
    """Locations of imported operations: the part's key around the user's innermost line."""

    __slots__ = ("_made", "_parts", "_provenance", "node")

    def __init__(self, context: Any, parts: Mapping[Source, Part], provenance: bool, tracker: Any) -> None:
        super().__init__(context, py_attr_tracker=tracker)
        self._parts = parts
        self._provenance = provenance
        self._made: dict[Node, Any] = {}
        self.node: Node | None = None
        """The node being imported; for error messages."""

    def get_node_location(self, node: Node) -> Any:
        # Never None: the importer would go on with the previous node's location.
        self.node = node
        if node not in self._made:
            self._made[node] = self._location(node)
        return self._made[node]

    def passage_location(self, node: Node, key: Source) -> Any:
        """That of what goes into a function that an operator takes, or out of it."""
        part = self._parts.get(key)
        line = self.get_node_location(node)
        return line if part is None else ir.Location.name(prov_locations.key(part.id, part.name), line, context=self._c)

    def _location(self, node: Node) -> Any:
        if node.target is operator.getitem and isinstance(node.args[0], Node):
            # The importer unpacks a list where its first element is taken; unpacking is the list's operation.
            return self.get_node_location(node.args[0])
        user = next(iter(frames.parse(node.meta.get("stack_trace"))), None)
        if user is None:
            line = ir.Location.unknown(context=self._c)
        else:
            line = ir.Location.file(user.file, user.line, 0, context=self._c)
        part = self._parts.get(node)
        if part is not None:
            return ir.Location.name(prov_locations.key(part.id, part.name), line, context=self._c)
        return line if not self._provenance else ir.Location.name(node.name, line, context=self._c)

    def get_vtensor_type(self, shape: Any, dtype: torch.dtype, **options: Any) -> Any:
        """The type of a tensor; sizes that torch keeps as expressions although they are known are known."""
        known = [int(size) if isinstance(size, torch.SymInt) and size.node.expr.is_number else size for size in shape]
        return super().get_vtensor_type(known, dtype, **options)

    def named(self, name: str) -> Any:
        return ir.Location.name(name, context=self._c)


_CLONED = 256
"""Bytes of the largest constant that IREE puts into the kernels that read it. There it rewrites bf16 as the bits of it,
which it can do with constants that are written out and not with resources."""


class _Weights(fx.FxImporterHooks):  # type: ignore[misc]  # the bindings are untyped
    """Weights become resource attributes straight from torch's memory; equal storage becomes one attribute.

    Resources are called after the weights, or the constants of the graph, so that it is known later which of them a
    kernel reads (`resource_name`).
    """

    def __init__(self, names: Mapping[Node, str]) -> None:
        self._names = names
        self._made: dict[Any, Any] = {}
        self._alive: list[Any] = []

    def resolve_literal(self, gni: Any, literal: Any, info: Any) -> Any:
        if not isinstance(literal, torch.Tensor) or literal.numel() == 1:
            return None  # torch-mlir folds single elements as splats
        tensor = literal.detach()
        key = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()) if tensor.numel() else None
        value = self._made.get(key)
        if value is None:
            kind = fx.create_mlir_tensor_type(tensor)
            if key is None:
                value = ir.Attribute.parse(f"dense<> : {kind}")
            elif _may_fold(tensor, info) and bool((tensor == tensor.flatten()[0]).all()):
                value = _splat(kind, tensor.flatten()[0].item())
            else:
                # Flat: a dimension of one element may have any stride, which a view of bytes would mind.
                data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
                if tensor.dtype is torch.bfloat16 and data.nbytes <= _CLONED:
                    value = ir.Attribute.parse(f'dense<"0x{data.tobytes().hex().upper()}"> : {kind}')
                else:
                    node = info.node if info is not None else None
                    name = resource_name(self._names.get(node, node.name) if node is not None else "")
                    value = ir.DenseResourceElementsAttr.get_from_buffer(np.ascontiguousarray(data), name, kind)
                self._made[key] = value
                self._alive.append(tensor)  # the key holds an address: the memory must not be reused meanwhile
        return ir.Operation.create(
            "torch.vtensor.literal",
            results=[gni._cc.tensor_to_vtensor_type(tensor)],
            attributes={"value": value},
        ).result


def _may_fold(tensor: torch.Tensor, info: Any) -> bool:
    """Whether a literal is a constant of the graph's own, and no weight; or one of integers, as zero points are."""
    own = info is not None and info.node is not None and info.node.op == "call_function"
    return own or not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)


def _splat(kind: Any, number: float) -> Any:
    """One number everywhere, which compilers fold."""
    element = ir.ShapedType(kind).element_type
    is_float = isinstance(number, float)
    attribute = ir.FloatAttr.get(element, number) if is_float else ir.IntegerAttr.get(element, int(number))
    return ir.DenseElementsAttr.get_splat(kind, attribute)


def _table(actions: tuple[Action, ...]) -> prov_table.Table:
    return prov_table.Table(
        actions=tuple(
            prov_table.ActionRow(
                id=a.id,
                name=a.name,
                op=a.op,
                module=a.module,
                frames=tuple(prov_table.FrameRow(f.file, f.line, f.function, f.internal) for f in a.frames),
                types=a.types,
            )
            for a in actions
        ),
        parts=tuple(
            prov_table.PartRow(p.id, p.action, p.name, p.op, p.inputs, p.types, p.args, p.view)
            for a in actions
            for p in a.parts
        ),
    )


def _import_error(error: Exception, node: Node | None) -> ExportError:
    why = f"{type(error).__name__}: {plainly(str(error))}"
    return ExportError(f"torch-mlir cannot import the model: {why}") if node is None else refused(node, why)
