"""The prov dialect beyond what lit shows: tables as data, and locations in both bindings."""

import importlib
import io
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_mlir import ir

from covan_mlir import dialects
from covan_mlir.dialects import prov
from covan_mlir.dialects import prov_locations as locations
from covan_mlir.dialects.prov_table import ActionRow, FrameRow, PartRow, Table

BINDINGS = ["torch_mlir.ir", "iree.compiler.ir"]

words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
ops = words.map(lambda word: f"aten.{word}")
types_ = st.lists(words, max_size=2).map(tuple)
frames = st.builds(FrameRow, words, st.integers(0, 2**31 - 1), words, st.booleans())


@st.composite
def tables(draw: st.DrawFn) -> Table:
    ids = draw(st.lists(st.integers(0, 2**63 - 1), unique=True, max_size=8))
    split = draw(st.integers(0, len(ids)))
    # Parts need an action to belong to.
    action_ids, part_ids = (ids[:split], ids[split:]) if split else (ids, [])
    actions = [
        ActionRow(
            i, draw(words), draw(ops), draw(st.text("a.0", max_size=4)), tuple(draw(st.lists(frames))), draw(types_)
        )
        for i in action_ids
    ]
    parts = []
    for i in part_ids:
        inputs = tuple(draw(st.lists(st.sampled_from(part_ids), max_size=3)))
        owner = draw(st.sampled_from(action_ids))
        parts.append(PartRow(i, owner, draw(words), draw(ops), inputs, draw(types_)))
    return Table(tuple(actions), tuple(parts))


@pytest.fixture(scope="module")
def context() -> ir.Context:
    context = ir.Context()
    context.allow_unregistered_dialects = True
    dialects.load(context)
    return context


def new_module(context: ir.Context, text: str = "module { func.func private @f() }") -> ir.Module:
    return ir.Module.parse(text, context)


def parse_location(bindings: Any, text: str, context: Any = None) -> Any:
    """The bindings cannot parse a location, only a module that has it."""
    context = context or bindings.Context()
    return bindings.Module.parse(f"module {{}} loc({text})", context).operation.location


@settings(max_examples=50)
@given(tables())
def test_table_round_trip(table: Table) -> None:
    context = ir.Context()
    dialects.load(context)
    module = new_module(context)
    prov.write_table(module, table)
    assert module.operation.verify()
    assert prov.read_table(module) == table

    text = module.operation.get_asm(enable_debug_info=True)
    assert prov.read_table(new_module(context, text)) == table
    bytecode = io.BytesIO()
    module.operation.write_bytecode(bytecode)
    assert prov.read_table(ir.Module.parse(bytecode.getvalue(), context)) == table

    prov.write_table(module, Table())
    assert prov.read_table(module) == Table()
    assert module.operation.verify()


def test_detach_and_park(context: ir.Context) -> None:
    module = new_module(context)
    before = str(module)
    assert prov.detach_table(module) == prov.read_table(module) == Table()
    table = Table((ActionRow(1, "mm", "aten.mm.default", frames=(FrameRow("model.py", 7, "forward"),)),))
    op = prov.write_table(module, table)
    assert locations.user_line(op.regions[0].blocks[0].operations[0].location) == ("model.py", 7)
    failure = RuntimeError("inside")
    with pytest.raises(RuntimeError, match="inside"), prov.parked_table(module):
        raise failure
    with prov.parked_table(module):
        assert not prov.has_table(module)
    assert prov.has_table(module)
    assert prov.detach_table(module) == table
    assert str(module) == before
    with prov.parked_table(module):
        pass
    assert not prov.has_table(module)


def test_rows_by_id() -> None:
    table = Table((ActionRow(1, "mm", "aten.mm.default"),), (PartRow(2, 1, "mm", "aten.mm.default"),))
    assert table.action_of(1) == table.action_of(2) == 1
    assert table.rows[2] is table.parts[0]
    with pytest.raises(KeyError):
        table.action_of(3)


def test_rows_keep_their_op_name(context: ir.Context) -> None:
    module = new_module(context)
    prov.write_table(module, Table((ActionRow(1, "mm", "aten.mm.default"),)))
    (row,) = module.body.operations[0].regions[0].blocks[0].operations
    assert isinstance(row, prov.ActionOp)
    assert row.name == "prov.action"
    assert row.attributes["name"].value == "mm"


def test_load_is_idempotent() -> None:
    first, second = ir.Context(), ir.Context()
    for context in (first, second, first, second):
        dialects.load(context)
    # Dynamic attributes belong to their context: both must read their own.
    for context in (first, second):
        assert locations.ids(parse_location(ir, 'fused<#prov.trace<[3]>>["a"]', context)) == {3}


def test_irdl_text_loads() -> None:
    from torch_mlir.dialects import irdl

    with ir.Context() as context:
        irdl.load_dialects(ir.Module.parse(dialects.irdl_text()))
        assert context.is_dialect_loaded("prov")
        assert locations.ids(parse_location(ir, 'fused<#prov.trace<[3]>>["a"]', context)) == {3}


@given(st.integers(0, 2**63 - 1), st.text(max_size=8))
def test_key(id_: int, name: str) -> None:
    assert locations.parse_key(locations.key(id_, name)) == id_


def test_what_is_no_key() -> None:
    for text in ("", "mm", "prov", "prov:", "prov:3", "prov:-3:mm", "prov:x:mm", "xprov:3:mm", "prov::mm"):
        assert locations.parse_key(text) is None
    with pytest.raises(ValueError, match="negative"):
        locations.key(-1, "mm")


@pytest.mark.parametrize("name", BINDINGS)
def test_trace_reader(name: str) -> None:
    bindings = importlib.import_module(name)
    context = bindings.Context()
    reader = locations.TraceReader()
    expected: dict[str, tuple[set[int], tuple[str, int] | None]] = {
        "unknown": (set(), None),
        '"mm"': (set(), None),
        '"model.py":7:0': (set(), ("model.py", 7)),
        '"prov:3:mm"("model.py":7:0)': ({3}, ("model.py", 7)),
        '"layer"("prov:3:mm")': ({3}, None),
        '"prov:3:mm"("prov:4:mul"("model.py":7:0))': ({3, 4}, ("model.py", 7)),
        'fused["prov:3:mm", "prov:4:mul"("model.py":8:0)]': ({3, 4}, ("model.py", 8)),
        'fused<"tag">["prov:3:mm"]': ({3}, None),
        'callsite("prov:3:mm"("inner.py":1:0) at callsite("prov:4:mul"("outer.py":2:0) at "x"))': (
            {3, 4},
            ("inner.py", 1),
        ),
        'callsite("a" at "outer.py":2:0)': (set(), ("outer.py", 2)),
    }
    for _ in range(2):  # the second time from the cache
        for text, (ids, line) in expected.items():
            location = parse_location(bindings, text, context)
            assert reader.ids(location) == locations.ids(location) == ids, text
            assert reader.user_line(location) == locations.user_line(location) == line, text


def test_trace_metadata(context: ir.Context) -> None:
    def ids(text: str) -> frozenset[int]:
        return locations.ids(parse_location(ir, text, context))

    assert ids('fused<#prov.trace<[3, 4]>>["prov:5:mm"]') == {3, 4, 5}
    assert ids('fused<#prov.trace<[]>>["a"]') == frozenset()
    assert ids('callsite("a" at fused<#prov.trace<[3]>>["a"])') == {3}
    with pytest.raises(ValueError, match="not an integer"):
        ids('fused<#prov.trace<["3"]>>["a"]')


@given(st.data())
def test_fuse_is_a_union_that_does_not_grow(data: st.DataObject) -> None:
    context = ir.Context()
    dialects.load(context)
    leaves = st.one_of(
        st.integers(0, 5).map(lambda i: f'"prov:{i}:n{i}"("model.py":{i}:0)'),
        st.integers(0, 5).map(lambda i: f'"model.py":{i}:0'),
        st.just("unknown"),
    )
    text = st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda many: f"fused[{', '.join(many)}]"),
            st.tuples(st.integers(0, 5), inner).map(lambda two: f"fused<#prov.trace<[{two[0]}]>>[{two[1]}]"),
        ),
        max_leaves=6,
    )
    parts = [parse_location(ir, t, context) for t in data.draw(st.lists(text, min_size=1, max_size=4))]
    fused = locations.fuse(parts, context)
    trace = frozenset[int]().union(*map(locations.ids, parts))
    assert locations.ids(fused) == trace
    assert locations.fuse([fused], context) == fused
    assert locations.fuse([fused, *parts, fused], context) == fused
    if trace:
        assert locations.trace_of(fused) == tuple(sorted(trace))
        assert not any(type(member).__name__ == "FusedLoc" for member in fused.locations)
    lowered = locations.lower(fused, {})
    assert locations.ids(lowered) == trace
    assert "#prov.trace" not in str(lowered)
    assert not locations.ids(locations.strip(fused))


def test_fuse_keeps_foreign_metadata(context: ir.Context) -> None:
    foreign = parse_location(ir, 'fused<"scope">["prov:3:mm"]', context)
    fused = locations.fuse([foreign, parse_location(ir, '"prov:4:add"', context)], context)
    assert locations.trace_of(fused) == (3, 4)
    assert fused.locations[0] == foreign


@pytest.mark.parametrize("name", BINDINGS)
def test_strip_everywhere(name: str) -> None:
    bindings = importlib.import_module(name)
    context = bindings.Context()
    text = 'module { func.func @f(%x: i32 loc("prov:3:x")) { return loc("prov:4:r"("model.py":1:0)) } }'
    module = bindings.Module.parse(text, context)
    locations.rewrite_locations(module.operation, locations.strip)
    assert "prov:" not in module.operation.get_asm(enable_debug_info=True)
    assert '"model.py":1:0' in module.operation.get_asm(enable_debug_info=True)


def test_lines_between_bindings() -> None:
    """Lowered locations read the same on the other side."""
    context = ir.Context()
    dialects.load(context)
    location = parse_location(ir, 'fused<#prov.trace<[3, 4]>>["mm"("model.py":7:0)]', context)
    lowered = locations.lower(location, {3: "mm", 4: "add"})
    iree = importlib.import_module("iree.compiler.ir")
    other = parse_location(iree, str(lowered).removeprefix("loc(").removesuffix(")"))
    assert locations.ids(other) == {3, 4}
    assert locations.user_line(other) == ("model.py", 7)


def test_imports_stay_small() -> None:
    """Data and locations need no bindings, and covan-opt no torch."""
    script = (
        "import sys, covan_mlir.dialects.prov_table, covan_mlir.dialects.prov_locations\n"
        "assert not any(m.split('.')[0] in ('torch_mlir', 'iree', 'torch') for m in sys.modules)\n"
        "import covan_mlir.tools.opt, covan_mlir.dialects.prov\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
