"""The ``prov`` dialect: a module's provenance table and the traces in locations.

```mlir
"prov.table"() ({
  "prov.action"() {id = 1 : i64, name = "linear", op = "aten.linear.default", module = "mlp.0",
                   frames = [{file = "model.py", function = "forward", internal = false, line = 7 : i64}],
                   types = ["f32[2,3]"]} : () -> ()
  "prov.part"() {id = 2 : i64, action = 1 : i64, name = "mm", op = "aten.mm.default", inputs = [],
                 types = ["f32[2,3]"]} : () -> ()
}) : () -> ()
```

Reflected IR (the pass ``prov-reflect``) has each execution of an op as a value of its own, ``x → (op, x) → y``:

```mlir
%op = "prov.perform"() ({
^bb0(%inside: tensor<4xf32>):
  %r = math.exp %inside : tensor<4xf32>
  "prov.result"(%r) : (tensor<4xf32>) -> ()
}) {op = "math.exp", trace = #prov.trace<[3]>} : () -> !prov.state
%s = "prov.enter"(%op, %x) : (!prov.state, tensor<4xf32>) -> !prov.state
%y = "prov.leave"(%s) {index = 0 : i64} : (!prov.state) -> tensor<4xf32>
```

The rows as data are in ``prov_table``, reading and building locations in ``prov_locations``.
"""

# ext makes the bases and constructors of these classes at run time, where no type checker sees them.
# mypy: disable-error-code="misc,name-defined,call-arg"

# The field types below are evaluated by ext when the classes are made, which
# `from __future__ import annotations` would turn into strings.
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import ext

from covan_mlir.dialects.prov_states import verify_perform, verify_result, verify_step
from covan_mlir.dialects.prov_table import ActionRow, FrameRow, PartRow, Table
from covan_mlir.dialects.prov_verify import find_table, verify_table


class ProvDialect(ext.Dialect, name="prov"):
    """Where every operation of a module comes from."""


class TraceAttr(ProvDialect.Attribute, name="trace"):
    """``#prov.trace<[3, 4]>``: the ids of what an op performs, as metadata of a FusedLoc."""

    ids: ir.ArrayAttr


class StateType(ProvDialect.Type, name="state"):
    """``!prov.state``: an action state, ``(op, x)``: the execution of an op on its inputs."""


class TableOp(ProvDialect.Operation, name="table", traits=[ir.NoTerminatorTrait]):
    """The ledger of the module it stands in: one at most, holding ``prov.action`` and ``prov.part`` only."""

    body: ext.Region

    def verify_region_invariants(self) -> bool:
        """Checks the whole table, and every trace in the module against it, in one walk."""
        return verify_table(self.operation)


class ActionOp(ProvDialect.Operation, name="action"):
    """One call node of the exported graph as the user's code made it, before decompositions."""

    id: ir.IntegerAttr
    name: ir.StringAttr
    op: ir.StringAttr
    module: ir.StringAttr
    frames: ir.ArrayAttr
    types: ir.ArrayAttr


class PartOp(ProvDialect.Operation, name="part"):
    """One node that decompositions made of an action. Ids of actions and parts share one space.

    May have ``args``, what its operator is called with (a string, see `covan_mlir.provenance.arguments`), ``view``,
    whether its result is its input's memory (a bool), and ``also``, the ids of other actions whose work it does.
    """

    id: ir.IntegerAttr
    action: ir.IntegerAttr
    name: ir.StringAttr
    op: ir.StringAttr
    inputs: ir.ArrayAttr
    types: ir.ArrayAttr


# One operand and one result at a time, for IRDL wants all values of a variadic operand or result to be of one type.
class PerformOp(ProvDialect.Operation, name="perform", traits=[ir.IsIsolatedFromAboveTrait, ir.NoTerminatorTrait]):
    """``(op, ·)``: the execution of an op that waits for its inputs.

    Its region holds the op, which reads the block's arguments, those that its own regions read from outside last, and
    a ``prov.result`` for each result. ``op`` is its name, ``trace`` the actions that it performs.
    """

    op: ir.StringAttr
    trace: TraceAttr
    state: ext.Result[StateType]
    body: ext.Region

    def verify_region_invariants(self) -> bool:
        """Checks the op in the region, and the way through its action state."""
        return verify_perform(self.operation)


class EnterOp(ProvDialect.Operation, name="enter"):
    """``x → (op, x)``: gives an execution its next input. When it has all, its action state is reached."""

    waiting: ext.Operand[StateType]
    input: ext.Operand[Any]
    state: ext.Result[StateType]

    def verify_invariants(self) -> bool:
        """Checks that it goes on from a ``prov.perform``."""
        return verify_step(self.operation)


class LeaveOp(ProvDialect.Operation, name="leave"):
    """``(op, x) → y``: from an action state, silently, to the op's result number ``index``."""

    state: ext.Operand[StateType]
    index: ir.IntegerAttr
    value: ext.Result[Any]

    def verify_invariants(self) -> bool:
        """Checks that it goes on from a ``prov.perform``."""
        return verify_step(self.operation)


class ResultOp(ProvDialect.Operation, name="result"):
    """In a ``prov.perform``: the next result of the op, which ``prov.leave`` brings out."""

    value: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        """Checks where it stands."""
        return verify_result(self.operation)


# ext makes an accessor for each attribute, and that of `name` hides OpView.name:
# code that asks any op for its name would get a StringAttr for these two.
del ActionOp.name
del PartOp.name


def _module_op(module: ir.Module | ir.Operation) -> ir.Operation:
    return module.operation


def has_table(module: ir.Module | ir.Operation) -> bool:
    """Whether the module carries a provenance table."""
    return find_table(_module_op(module)) is not None


def read_table(module: ir.Module | ir.Operation) -> Table:
    """The module's table as data; an empty one if it carries none. The module is taken to be verified."""
    op = find_table(_module_op(module))
    if op is None:
        return Table()
    actions: list[ActionRow] = []
    parts: list[PartRow] = []

    def visit(row: ir.Operation) -> ir.WalkResult:
        attributes = row.attributes
        if row.name == "prov.part":
            parts.append(
                PartRow(
                    attributes["id"].value,
                    attributes["action"].value,
                    attributes["name"].value,
                    attributes["op"].value,
                    tuple([i.value for i in attributes["inputs"]]),
                    tuple([t.value for t in attributes["types"]]),
                    attributes["args"].value if "args" in attributes else "",
                    bool(attributes["view"].value) if "view" in attributes else False,
                    tuple([i.value for i in attributes["also"]]) if "also" in attributes else (),
                )
            )
        elif row.name == "prov.action":
            actions.append(
                ActionRow(
                    attributes["id"].value,
                    attributes["name"].value,
                    attributes["op"].value,
                    attributes["module"].value,
                    tuple([_read_frame(frame) for frame in attributes["frames"]]),
                    tuple([t.value for t in attributes["types"]]),
                )
            )
        return ir.WalkResult.ADVANCE

    op.walk(visit)
    return Table(tuple(actions), tuple(parts))


def _read_frame(frame: ir.DictAttr) -> FrameRow:
    return FrameRow(frame["file"].value, frame["line"].value, frame["function"].value, bool(frame["internal"].value))


def write_table(module: ir.Module | ir.Operation, table: Table) -> ir.Operation:
    """Gives the module ``table``, in place of the one it may carry, and returns the new ``prov.table``.

    An action stands at the location of its innermost frame in the user's code,
    and a part at that of its action, so that diagnostics point there. Nothing is verified here.
    """
    op = _module_op(module)
    erase_table(op)
    context = op.context
    unknown = ir.Location.unknown(context)
    i64 = ir.IntegerType.get_signless(64, context)

    def integer(value: int) -> ir.IntegerAttr:
        return ir.IntegerAttr.get(i64, value)

    def string(value: str) -> ir.StringAttr:
        return ir.StringAttr.get(value, context)

    def strings(values: tuple[str, ...]) -> ir.ArrayAttr:
        return ir.ArrayAttr.get([string(value) for value in values], context)

    def dictionary(frame: FrameRow) -> ir.DictAttr:
        fields = {
            "file": string(frame.file),
            "line": integer(frame.line),
            "function": string(frame.function),
            "internal": ir.BoolAttr.get(frame.internal, context),
        }
        return ir.DictAttr.get(fields, context)

    with context, unknown:
        created = ir.Operation.create("prov.table", regions=1, ip=ir.InsertionPoint.at_block_begin(_body(op)))
        place = ir.InsertionPoint(created.regions[0].blocks.append())
        locations: dict[int, ir.Location] = {}
        for action in table.actions:
            frame = next((f for f in action.frames if not f.internal), None)
            if frame is not None:
                locations[action.id] = ir.Location.file(frame.file, frame.line, 0, context)
            attributes = {
                "id": integer(action.id),
                "name": string(action.name),
                "op": string(action.op),
                "module": string(action.module),
                "frames": ir.ArrayAttr.get([dictionary(frame) for frame in action.frames], context),
                "types": strings(action.types),
            }
            location = locations.get(action.id, unknown)
            ir.Operation.create("prov.action", attributes=attributes, loc=location, ip=place)
        for part in table.parts:
            attributes = {
                "id": integer(part.id),
                "action": integer(part.action),
                "name": string(part.name),
                "op": string(part.op),
                "inputs": ir.ArrayAttr.get([integer(i) for i in part.inputs], context),
                "types": strings(part.types),
            }
            if part.args:
                attributes["args"] = string(part.args)
            if part.view:
                attributes["view"] = ir.BoolAttr.get(True, context)
            if part.also:
                attributes["also"] = ir.ArrayAttr.get([integer(i) for i in part.also], context)
            location = locations.get(part.action, unknown)
            ir.Operation.create("prov.part", attributes=attributes, loc=location, ip=place)
    return created


def _body(module: ir.Operation) -> ir.Block:
    return module.regions[0].blocks[0]


def erase_table(module: ir.Operation) -> None:
    """Removes the module's table, if it carries one."""
    table = find_table(module)
    if table is not None:
        table.erase()


def detach_table(module: ir.Module | ir.Operation) -> Table:
    """Removes the module's table and returns it as data; an empty one if the module carries none."""
    table = read_table(module)
    erase_table(_module_op(module))
    return table


@contextmanager
def parked_table(module: ir.Module | ir.Operation) -> Iterator[None]:
    """Takes the table out of the module for the duration of the block and puts the same op back afterwards.

    For pipelines that reject foreign ops at module level, as torch-mlir's
    backend contracts do. Much cheaper than reading and writing the table.
    """
    op = _module_op(module)
    table = find_table(op)
    view: Any = table.detach_from_parent() if table is not None else None
    try:
        yield
    finally:
        if view is not None:
            with op.context:
                ir.InsertionPoint.at_block_begin(_body(op)).insert(view)
