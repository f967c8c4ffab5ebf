"""ONNX models: compiled, told of by node, verified; against onnx's own evaluator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import onnx
import pytest
import torch
from onnx_models import encoder, model, node, reference

import covan_mlir
from covan_mlir import Executable
from covan_mlir.errors import InputError
from covan_mlir.frontend.actions import distinct, source_actions
from covan_mlir.frontend.frontends import capture
from covan_mlir.frontend.onnx import registry
from covan_mlir.frontend.onnx.operators.control import UNROLLED
from covan_mlir.frontend.onnx.registry import Operator


@cache
def compiled() -> Executable:
    return covan_mlir.compile_module(encoder(), dynamic_shapes={"batch": (1, 64)})


def test_results_for_any_batch() -> None:
    for batch in (1, 5, 64):
        x = np.random.default_rng(batch).standard_normal((batch, 16), np.float32)
        np.testing.assert_allclose(compiled()(x=x), reference(encoder(), x=x)[0], rtol=1e-4, atol=1e-6)
    with pytest.raises(InputError, match="the model was exported for 1 ≤"):
        compiled()(np.zeros((65, 16), np.float32))


def test_every_node_is_an_action_and_has_a_fate() -> None:
    lineage = compiled().lineage
    nodes = [(a.name, a.op, a.module) for a in lineage.actions if a.translated]
    assert nodes == [
        ("/layers_0/MatMul", "onnx.MatMul", "layers.0"),
        ("/layers_0/Add", "onnx.Add", "layers.0"),
        ("Relu_r", "onnx.Relu", ""),
        ("Mul_s", "onnx.Mul", ""),
        ("Shape_shape", "onnx.Shape", ""),
        ("Gather_batch", "onnx.Gather", ""),
        ("Concat_sizes", "onnx.Concat", ""),
        ("Reshape_flat", "onnx.Reshape", ""),
        ("Identity_same", "onnx.Identity", ""),
        ("probabilities", "onnx.Softmax", ""),
    ]
    kinds = {a.name: lineage.fate(a).kind for a in lineage.actions if a.translated}
    assert kinds["/layers_0/MatMul"] == kinds["probabilities"] == "dispatched"
    assert kinds["Shape_shape"] == kinds["Gather_batch"] == kinds["Reshape_flat"] == "view"
    assert kinds["Identity_same"] == "merged"
    assert {site.id for site in lineage.where("layers.0")} == {
        site.id for name in ("/layers_0/MatMul", "/layers_0/Add") for site in lineage.where(name)
    }


def test_the_lineage_holds() -> None:
    verdict = compiled().verify()
    assert verdict, verdict


def test_every_tensor_against_eager() -> None:
    comparison = compiled().compare(np.ones((3, 16), np.float32))
    rows = {row.action.name: row.status for row in comparison.rows}
    assert comparison.first is None
    assert rows["/layers_0/MatMul"] == rows["probabilities"] == "agrees"


def test_a_wrong_translation_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Operator("Relu", "", 6, None, lambda call: torch.sigmoid(call.tensor(0)))
    monkeypatch.setitem(registry._OPERATORS, ("", "Relu"), [wrong])
    built = model([node("Relu", ["x"], ["y"])], {"x": ("float32", [4])}, ["y"])
    exe = covan_mlir.compile_module(built)
    comparison = exe.compare(np.array([-1, 0, 1, 2], np.float32))
    assert not comparison
    assert any("the translation of the model is wrong" in note for note in comparison.notes)


def test_what_is_known_is_no_call() -> None:
    """Constants and what is computed of them are nodes without calls; a dimension that is fixed is known, too."""
    captured = capture(encoder(), (), None, {"batch": 4})
    actions = {a.name: a for a in distinct(source_actions(captured.program.graph))}
    assert len(actions) == 10
    assert actions["Concat_sizes"].inputs == ()
    assert [node.target for node in captured.program.graph.nodes if node.op == "call_function"] == [
        torch.ops.aten.matmul.default,
        torch.ops.aten.add.Tensor,
        torch.ops.aten.relu.default,
        torch.ops.aten.mul.Tensor,
        torch.ops.aten.reshape.default,
        torch.ops.aten.softmax.int,
    ]


def test_names_and_lines_that_exporters_leave() -> None:
    built = encoder()
    named = built.graph.node[2]
    stack = 'File "/home/me/net.py", line 3, in <module>\n  run()\nFile "/home/me/net.py", line 12, in forward\n  f(x)'
    for key, value in (("stack_trace", stack), ("name_scopes", "['', 'blocks.1', 'blocks.1.act', 'relu']")):
        named.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=value)
    built.graph.node[3].name = "/layers.0/Add"  # a name that is used twice
    captured = capture(built, (), None, None)
    actions = {a.name: a for a in distinct(source_actions(captured.program.graph))}
    assert actions["Relu_r"].module == "blocks.1.act"
    assert actions["Relu_r"].line == "/home/me/net.py:12"
    assert actions["/layers_0/Add_1"].op == "onnx.Mul"


def test_inputs_that_decide_about_shapes_are_fixed() -> None:
    built = model([node("Reshape", ["x", "s"], ["y"])], {"x": ("float32", [6]), "s": ("int64", [2])}, ["y"])
    x = np.arange(6, dtype=np.float32)
    exe = covan_mlir.compile_module(built, (x, np.array([2, -1])))
    assert exe(x, np.array([2, -1])).shape == (2, 3)
    with pytest.raises(InputError, match=r"argument s is \[3, 2\], but was \[2, -1\] when the model was compiled"):
        exe(x, np.array([3, 2]))


def _verified(
    built: onnx.ModelProto,
    inputs: Sequence[Mapping[str, np.ndarray]],
    oracle: Callable[..., Sequence[np.ndarray]] | None = None,
) -> Executable:
    """The model's program, whose results are those of onnx's evaluator, and whose lineage holds."""
    exe = covan_mlir.compile_module(built, (), dict(inputs[0]))
    for given in inputs:
        results = exe(**given)
        expected = oracle(**given) if oracle else reference(built, **given)
        for result, wanted in zip(results if isinstance(results, tuple) else (results,), expected, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6)
    verdict = exe.verify()
    assert verdict, verdict
    return exe


def test_branches_of_the_program() -> None:
    branches = [
        onnx.helper.make_graph([node(op, ["x"], [f"{op}y"])], op, [], [onnx.ValueInfoProto(name=f"{op}y")])
        for op in ("Neg", "Abs")
    ]
    nodes = [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Greater", ["most", "zero"], ["c"]),
        node("If", ["c"], ["y"], name="choice", then_branch=branches[0], else_branch=branches[1]),
    ]
    built = model(nodes, {"x": ("float32", [4])}, ["y"], {"zero": np.array(0, np.float32)})
    _verified(built, [{"x": np.array([1, -2, 3, 4], np.float32)}, {"x": -np.ones(4, np.float32)}])


def test_loops_of_the_program() -> None:
    """A loop whose end depends on values, and whose body reads from outside."""
    body = onnx.helper.make_graph(
        [
            node("Mul", ["v", "two"], ["w"]),
            node("Add", ["w", "x"], ["u"]),
            node("ReduceMax", ["u"], ["most"], keepdims=0),
            node("Less", ["most", "limit"], ["go"]),
        ],
        "body",
        [onnx.helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in (
            ("i", onnx.TensorProto.INT64, []), ("c", onnx.TensorProto.BOOL, []), ("v", onnx.TensorProto.FLOAT, [3]))],
        [onnx.ValueInfoProto(name="go"), onnx.ValueInfoProto(name="u")],
    )  # fmt: skip
    weights = {"two": np.array(2, np.float32), "limit": np.array(100, np.float32), "yes": np.array(True)}
    built = model([node("Loop", ["", "yes", "x"], ["y"], body=body)], {"x": ("float32", [3])}, ["y"], weights)
    exe = _verified(built, [{"x": np.array([1, 2, 3], np.float32)}, {"x": np.array([1, 2, 90], np.float32)}])
    operations = ("Mul", "Add", "ReduceMax", "Less", "Loop")
    assert {action.op for action in exe.lineage.actions} == {f"onnx.{op}" for op in operations}
    # As long as a number says as well, of which only a call knows.
    nodes = [node("ReduceSum", ["ns"], ["n"], keepdims=0), node("Loop", ["n", "yes", "x"], ["y"], body=body)]
    built = model(nodes, {"x": ("float32", [3]), "ns": ("int64", [100])}, ["y"], weights)
    x = np.array([1, 2, 3], np.float32)
    _verified(built, [{"x": x, "ns": (np.arange(100) < count).astype(np.int64)} for count in (2, 50, 0)])


def test_loops_that_keep_what_each_turn_gives() -> None:
    """More turns than are written out, of which each reads its number; and a scan over as many elements."""
    turns = 5000
    body = onnx.helper.make_graph(
        [
            node("Cast", ["i"], ["number"], to=onnx.TensorProto.FLOAT),
            node("Add", ["v", "number"], ["w"]),
            node("Identity", ["c"], ["go"]),
            node("Sin", ["v"], ["each"]),
        ],
        "body",
        [onnx.helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in (
            ("i", onnx.TensorProto.INT64, []), ("c", onnx.TensorProto.BOOL, []), ("v", onnx.TensorProto.FLOAT, [2]))],
        [onnx.ValueInfoProto(name=name) for name in ("go", "w", "each")],
    )  # fmt: skip
    weights = {"turns": np.array(turns), "yes": np.array(True), "half": np.array(0.5, np.float32)}
    over = onnx.helper.make_graph(
        [
            node("Mul", ["s", "half"], ["damped"]),
            node("Add", ["damped", "e"], ["after"]),
            node("Neg", ["e"], ["minus"]),
        ],
        "over",
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in ("s", "e")],
        [onnx.ValueInfoProto(name=name) for name in ("after", "minus")],
    )
    loop = node("Loop", ["turns", "yes", "x"], ["last", "all"], body=body)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(2, np.float32)
    _verified(model([loop], {"x": ("float32", [2])}, ["last", "all"], weights), [{"x": x}])

    steps = 2 * UNROLLED  # of three nodes each: more than are written out
    xs = rng.standard_normal((steps, 2), np.float32)
    inputs = {"x": ("float32", [2]), "xs": ("float32", [steps, 2])}

    def scan(backwards: int) -> onnx.ModelProto:
        turned = {"scan_input_directions": [backwards], "scan_output_directions": [0]} if backwards else {}
        scan = node("Scan", ["x", "xs"], ["final", "kept"], body=over, num_scan_inputs=1, **turned)
        return model([scan], inputs, ["final", "kept"], weights)

    # onnx's evaluator knows forward scans alone: backwards is forwards over what is turned.
    _verified(scan(1), [{"x": x, "xs": xs}], lambda x, xs: reference(scan(0), x=x, xs=xs[::-1]))
