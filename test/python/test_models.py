"""Whole models: the compiled program computes what eager does, and its lineage holds together."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from limits import part
from oracle import assert_same, depth_of
from zoo import ZOO, build

import covan_mlir
from covan_mlir.artifacts import machine_code

# Of each architecture one is enough, and the two kinds of attention are seen in BERT.
ALIKE = {
    *("distilbert-sdpa", "distilbert-eager", "mobilenet_v2_hf", "gpt2-eager", "llama-eager"),
    *("t5_encoder-sdpa", "vit-eager", "whisper_encoder-eager"),
}

# The class scope makes pytest finish one model before it starts the next, so that a small cache of compiled
# programs is enough.
every_model = pytest.mark.parametrize("name", part(ZOO, ZOO.keys() - ALIKE), scope="class")


@functools.lru_cache(maxsize=4)
def compiled(name: str) -> tuple[Any, Any, int]:
    """The executable, eager's result and the depth of the exported graph."""
    module, args, kwargs = build(name)
    with torch.no_grad():
        expected = module(*args, **kwargs)
        depth = depth_of(torch.export.export(module, args, kwargs, strict=False))
    return covan_mlir.compile_module(module, args, kwargs), expected, depth


def calls(module: torch.fx.GraphModule, path: str = "") -> list[str]:
    """The calls of a graph by name, those of functions that one takes before it."""
    names: list[str] = []
    for node in module.graph.nodes:
        if node.op == "call_function":
            taken = [n.target for n in node.all_input_nodes if n.op == "get_attr"]
            bodies = [t for t in taken if isinstance(getattr(module, t, None), torch.fx.GraphModule)]
            names += [call for t in bodies for call in calls(getattr(module, t), f"{path}{t}.")] + [path + node.name]
    return names


@every_model
class TestModel:
    def test_agrees_with_eager(self, name: str) -> None:
        exe, expected, depth = compiled(name)
        _, args, kwargs = build(name)
        assert_same(exe(*args, **kwargs), expected, depth=depth)

    def test_result_does_not_depend_on_earlier_calls(self, name: str) -> None:
        exe, expected, depth = compiled(name)
        _, args, kwargs = build(name)
        first = exe(*args, **kwargs)
        exe(*args, **kwargs)
        assert_same(first, expected, depth=depth)  # a second call must not overwrite what the first returned

    def test_every_site_that_computes_has_a_trace(self, name: str) -> None:
        lineage = compiled(name)[0].lineage
        sites, nodes = lineage.sites, lineage.phases[-1].graph.nodes
        assert any(s.phase == "call" for s in sites)
        assert {s.phase for s in sites} <= {"call", "init"}
        untraced = [s for s in sites if s.phase == "call" and s.kind == "dispatch" and not s.trace]
        assert not [s for s in untraced if s.node is None or not nodes[s.node].hands_on_pieces]  # but moves

    def test_ids_are_unique_and_known(self, name: str) -> None:
        lineage = compiled(name)[0].lineage
        actions = [a.id for a in lineage.actions]
        assert len(set(actions)) == len(actions)
        assert len({s.id for s in lineage.sites}) == len(lineage.sites)
        assert {a for s in lineage.sites for a in s.trace} <= set(actions)

    def test_why_and_where_are_inverse(self, name: str) -> None:
        lineage = compiled(name)[0].lineage
        why = {(a.id, s.id) for s in lineage.sites for a in lineage.why(s)}
        where = {(a.id, s.id) for a in lineage.actions for s in lineage.where(a)}
        assert why == where
        assert why == {(a, s.id) for s in lineage.sites for a in s.trace}

    def test_a_name_finds_what_its_action_finds(self, name: str) -> None:
        lineage = compiled(name)[0].lineage
        names = {a.name for a in lineage.actions}
        for action in lineage.actions:
            sites = {s.id for s in lineage.where(action)}
            assert {s.id for s in lineage.where(action.name)} == sites
            # A module's sites contain those of each of its actions. Where an action bears the module's name,
            # as Whisper's first `layer_norm` does, the name means the action.
            if action.module and action.module not in names:
                assert {s.id for s in lineage.where(action.module)} >= sites

    def test_actions_are_the_calls_of_the_exported_graph(self, name: str) -> None:
        module, args, kwargs = build(name)
        exported = torch.export.export(module, args, kwargs, strict=False).graph_module
        assert [a.name for a in compiled(name)[0].lineage.actions] == calls(exported)

    def test_every_action_has_a_fate(self, name: str) -> None:
        lineage = compiled(name)[0].lineage
        assert len(lineage.fates) == len(lineage.actions)
        performed = {a for s in lineage.sites for a in s.trace}
        for action, fate in zip(lineage.actions, lineage.fates, strict=True):
            assert (fate.kind == "dispatched") == (action.id in performed)
            assert set(fate.sites) >= {s.id for s in lineage.where(action)}
            assert fate.decided_by
            assert (fate.kind == "dead") == (not fate.sites) or fate.kind in ("view", "merged", "folded")

    def test_lineage_holds(self, name: str) -> None:
        verdict = compiled(name)[0].verify()
        assert verdict, str(verdict)
        phases = [check.phase for check in verdict.checks]
        assert phases[0] == "source"
        assert phases[phases.index("program") + 1 :] == ["sites", "fates", "history", "fusions", "operators"]
        assert {"torch-to-linalg", "iree:global-optimization"} <= {check.phase for check in verdict.checks}
        assert all(check.related > 0 for check in verdict.checks[1 : phases.index("program") + 1])

    def test_explain_names_every_call_site(self, name: str) -> None:
        exe = compiled(name)[0]
        text = exe.explain()
        assert not [s for s in exe.lineage.sites if s.phase == "call" and s.kernel not in text]


def test_saved_and_loaded(tmp_path: Any) -> None:
    exe, expected, depth = compiled("gpt2-sdpa")  # a cache in a dataclass: from a file, a list
    _, args, kwargs = build("gpt2-sdpa")
    path = tmp_path / "model.covan"
    exe.save(str(path))
    loaded = covan_mlir.load(str(path))
    leaves = torch.utils._pytree.tree_leaves
    assert_same(leaves(loaded(*args, **kwargs)), leaves(expected), depth=depth)
    assert loaded.lineage.actions == exe.lineage.actions
    assert loaded.lineage.sites == exe.lineage.sites


def test_kernels_have_code() -> None:
    exe, _, _ = compiled("cnn")
    dispatches = [site for site in exe.lineage.sites if site.kind == "dispatch"]
    assert all(exe.kernel_code(site) for site in dispatches)
    assert len({exe.kernel_code(site) for site in dispatches}) > 1


@pytest.mark.parametrize("name", ["two_blocks", "cnn", "gpt2-sdpa"])
def test_provenance_changes_no_kernel(name: str) -> None:
    """Observing must not perturb: byte for byte the same machine code runs with and without."""
    module, args, kwargs = build(name)
    plain = covan_mlir.compile_module(module, args, kwargs, provenance=False)
    exe = compiled(name)[0]
    assert plain.lineage.actions == plain.lineage.sites == ()
    code = machine_code.text_sections(exe.variant.program)
    assert code
    assert machine_code.text_sections(plain.variant.program) == code
