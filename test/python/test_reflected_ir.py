"""``prov-reflect`` on IR is action reflection: the coalgebra of the reflected IR is the reflected coalgebra."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from torch_mlir import ir

from covan_mlir import dialects
from covan_mlir.dialects.prov_states import read_execution
from covan_mlir.passes.framework.pipeline import parse_pipeline
from covan_mlir.prov import TAU, Coalgebra, reflect

Edge = tuple[str, object, str]


def _executions(module: ir.Module) -> list[ir.Operation]:
    executions: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "prov.perform":
            executions.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return executions


def _reflected(module: ir.Module) -> list[Edge]:
    """The transitions that the reflected IR shows, between its values."""
    edges: list[Edge] = []
    for perform in _executions(module):
        execution = read_execution(perform)
        (enter,), (leave,) = execution.enters, execution.leaves
        state = f"[{enter.results[0].get_name()}]"
        edges.append((enter.operands[1].get_name(), execution.action.name, state))
        edges.append((state, TAU, leave.results[0].get_name()))
    return edges


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["exp", "sin", "cos"])), min_size=1, max_size=10))
def test_unary_graphs(steps: list[tuple[int, str]]) -> None:
    context = ir.Context()
    dialects.load(context)
    lines, transitions = [], []
    for i, (read, op) in enumerate(steps):
        source = read % (i + 1)
        lines.append(f'%v{i + 1} = math.{op} %v{source} : f32 loc("prov:{i}:{op}")')
        transitions.append((source, f"math.{op}", i + 1))
    results, types = (", ".join(many) for many in ([f"%v{i + 1}" for i in range(len(steps))], ["f32"] * len(steps)))
    text = "\n".join(lines)
    module = ir.Module.parse(f"func.func @f(%v0: f32) -> ({types}) {{\n{text}\nreturn {results} : {types}\n}}", context)
    before = module.operation.get_asm(enable_debug_info=True)

    parse_pipeline("builtin.module(prov-reflect)").run(module)
    edges = _reflected(module)
    # Control states are numbered in the order of the ops, action states after them in that of the transitions.
    system = Coalgebra.of(transitions, states=range(len(steps) + 1))
    canonical = [tuple(transition) for transition in system.transitions()]
    states = {"%arg0": 0}
    for i, transition in enumerate(transitions):
        (_, _, state), (_, _, value) = edges[2 * i : 2 * i + 2]
        states[value] = i + 1
        states[state] = len(transitions) + 1 + canonical.index(transition)
    shown = [(states[source], label, states[target]) for source, label, target in edges]
    assert Coalgebra.of(shown, states=range(len(states)), initial=0) == reflect(system).system

    parse_pipeline("builtin.module(prov-project)").run(module)
    assert module.operation.get_asm(enable_debug_info=True) == before
