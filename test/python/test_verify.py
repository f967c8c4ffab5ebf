"""Verification accepts what compilers made and rejects lies, each with a counterexample that names the place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st
from limits import part, some
from torch import nn

import covan_mlir
from covan_mlir.artifacts import artifact
from covan_mlir.checking.verdict import Verification
from covan_mlir.checking.verify import verify
from covan_mlir.lineage import Lineage
from covan_mlir.provenance.model import Fate, Site
from covan_mlir.provenance.program_graph import Unknown
from covan_mlir.tools import cli


class Twins(nn.Module):
    """A value computed twice, a dead one, a view, a folded constant, an operation that changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = torch.relu(x)
        again = torch.relu(x)
        other = torch.sigmoid(x)
        dead = torch.tanh(x)  # noqa: F841
        scaled = (first + other) * (torch.ones(8) * 3)
        return torch.softmax(self.linear(scaled * 1.0).transpose(0, 1) + again.transpose(0, 1), -1).max(-1).values


@pytest.fixture(scope="module")
def twins() -> Lineage:
    return covan_mlir.compile_module(Twins(), (torch.randn(4, 8),)).lineage


@pytest.fixture(scope="module")
def cnn() -> Lineage:
    module, args, kwargs = zoo.build("cnn")
    return covan_mlir.compile_module(module, args, kwargs).lineage


def edited(lineage: Lineage, **changes: Any) -> Lineage:
    fields = (
        "actions",
        "sites",
        "commands",
        "fates",
        "part_fates",
        "history",
        "results",
        "phases",
        "bodies",
        "fusions",
    )
    return Lineage(**({name: getattr(lineage, name) for name in fields} | changes))


def with_site(lineage: Lineage, *sites: Site) -> Lineage:
    new = {site.id: site for site in sites}
    return edited(lineage, sites=[new.get(site.id, site) for site in lineage.sites])


def performing(lineage: Lineage, site: Site, parts: tuple[int, ...]) -> Site:
    trace = tuple(sorted({lineage.parts[part].action for part in parts}))
    return replace(site, parts=parts, trace=trace)


def rejected(lineage: Lineage, *words: str, site: int | None = None, action: str | None = None) -> None:
    """The lineage is refused with a counterexample that has the words, and is about the site and the action."""
    verdict = verify(lineage)
    assert verdict.outcome == "no"
    assert not verdict
    for example in verdict.counterexamples:
        fits = all(word in str(example) for word in words)
        if fits and site in (None, example.site) and (action is None or action in example.actions):
            return
    raise AssertionError(f"no counterexample for {words}, site {site}, {action}:\n{verdict}")


class Heads(nn.Module):
    """Attention whose heads lie behind the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Parameter(0.3 * torch.randn(16, 2, 8)) for _ in range(3))
        self.out = nn.Parameter(0.3 * torch.randn(2, 8, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (torch.einsum("abc,cde->abde", x, weight) for weight in (self.q, self.k, self.v))
        shares = torch.softmax(torch.einsum("aecd,abcd->acbe", k, q * 8**-0.5), -1)
        return torch.einsum("abcd,cde->abe", torch.einsum("acbe,aecd->abcd", shares, v), self.out)


def _placed(x: torch.Tensor, first: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, torch.arange(2) + first] = row[:, :1]
    y[torch.arange(2), :, torch.arange(2) + first] = row[0, 0, 0]
    return y


S = torch.export.Dim("s", min=2, max=64)
ODD: dict[str, tuple[Any, tuple[torch.Tensor, ...], Any]] = {
    "sizes at run time": (
        lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        tuple(torch.randn(1, 2, 8, 16) for _ in range(3)),
        tuple({2: S} for _ in range(3)),
    ),
    "several results of one operator": (lambda x: torch.topk(x, 3), (torch.randn(4, 8),), None),
    "steps that two operators share": (
        lambda x: -(torch.softmax(x, -1) * torch.log_softmax(x, -1)).sum(-1),
        (torch.randn(4, 8),),
        None,
    ),
    "a step of an operator, and an operator that is that step": (
        lambda x: (torch.trunc(x) + torch.sign(x), torch.amax(x, (0, 1)) - torch.amax(x, 1)),
        (torch.randn(4, 8),),
        None,
    ),
    "heads behind positions, an open batch": (
        Heads(),
        (torch.randn(3, 7, 16),),
        ({0: torch.export.Dim("batch")},),
    ),
    "some places of whole axes, written": (
        _placed,
        (torch.randn(2, 6, 5), torch.tensor(1), torch.randn(2, 2, 5)),
        None,
    ),
    "bits returned as integers": (
        lambda x: (x.view(torch.int32), (x + 1).view(torch.int32)),
        (torch.randn(4, 8),),
        None,
    ),
    "pieces of an open length, joined": (
        lambda x: torch.cat([piece.reshape(x.shape[0], -1) for piece in x.chunk(2, 1)], 0).exp(),
        (torch.randn(3, 4, 5),),
        ({0: torch.export.Dim("batch")},),
    ),
    "an argument returned": (lambda x: (x, x + 1, x.t()), (torch.randn(4, 8),), None),
    "a constant returned": (lambda x: (torch.ones(3), x * 2), (torch.randn(4, 8),), None),
    "random numbers": (lambda x: x + torch.rand_like(x), (torch.randn(4),), None),
    "work for a side effect": (nn.Sequential(nn.Linear(4, 4), nn.Dropout()), (torch.randn(2, 4),), None),
    "arguments changed in place": (lambda x: x.add_(1).mul_(2), (torch.randn(4, 8),), None),
    "fills of the compiler's own": (nn.EmbeddingBag(10, 4), (torch.randint(0, 10, (3, 5)),), None),
    "an operand checked where it is made": (
        nn.CrossEntropyLoss(label_smoothing=0.1),
        (torch.randn(8, 33), torch.randint(0, 33, (8,))),
        None,
    ),
}


FUSED = ("sizes at run time", "steps that two operators share", "an operand checked where it is made")


@pytest.mark.parametrize(
    ("name", "fused"),
    [*((name, True) for name in ODD), *part(((name, False) for name in FUSED), kept=[(FUSED[1], False)])],
)
def test_odd_programs_hold(name: str, fused: bool) -> None:
    model, args, shapes = ODD[name]
    options = covan_mlir.CompileOptions(fuse_reductions=fused, random_numbers=True)
    verdict = covan_mlir.compile_module(model, args, dynamic_shapes=shapes, options=options).verify()
    assert verdict, str(verdict)


def test_programs_through_iree_torch_input_hold() -> None:
    """Its functions come in pairs, one of which waits for the other; results go through a barrier together."""
    options = covan_mlir.CompileOptions(frontend="torch")
    exe = covan_mlir.compile_module(lambda x: (torch.softmax(x, -1), x @ x.t()), (torch.randn(4, 8),), options=options)
    verdict = exe.verify()
    assert verdict, verdict


def test_every_kind_of_fate_holds(twins: Lineage) -> None:
    assert {fate.kind for fate in twins.fates} >= {"dispatched", "merged", "dead", "view", "folded"}
    verdict = verify(twins)
    assert verdict, str(verdict)


def test_saved_lineage_holds(twins: Lineage) -> None:
    assert verify(Lineage.from_json(twins.to_json()))


def test_swapped_traces(cnn: Lineage) -> None:
    first, *others = [site for site in cnn.sites if site.kind == "dispatch" and site.phase == "call"]
    second = next(site for site in others if site.parts != first.parts)
    rejected(with_site(cnn, performing(cnn, first, second.parts), performing(cnn, second, first.parts)), site=first.id)


def test_every_dropped_action(cnn: Lineage) -> None:
    performed = [(site, action) for site in cnn.sites for action in site.trace]
    for site, action in some(performed, 6):
        rest = tuple(part for part in site.parts if cnn.parts[part].action != action)
        rejected(with_site(cnn, performing(cnn, site, rest)), action=cnn.actions[action].name)


@settings(max_examples=8)
@given(data=st.data())
def test_added_action(cnn: Lineage, data: st.DataObject) -> None:
    site = data.draw(st.sampled_from(cnn.sites), "site")
    known = {*site.trace, *(cnn.parts[p].action for p in (*site.views, *site.folds))}
    action = data.draw(st.sampled_from([a for a in cnn.actions if a.id not in known and a.parts]), "action")
    parts = tuple(sorted({*site.parts, *(part.id for part in action.parts)}))
    rejected(with_site(cnn, performing(cnn, site, parts)), site=site.id, action=action.name)


def test_reordered_dependent_parts(cnn: Lineage) -> None:
    dependent = [
        (site, i, j)
        for site in cnn.sites
        for i, own in enumerate(site.parts)
        for j, other in enumerate(site.parts)
        if own in cnn.parts[other].inputs
    ]
    assert dependent
    for site, i, j in some(dependent, 4):
        order = list(site.parts)
        order[i], order[j] = order[j], order[i]
        rejected(with_site(cnn, replace(site, parts=tuple(order))), "only afterwards", site=site.id)


def test_reordered_dependent_actions(twins: Lineage) -> None:
    site = next(s for s in twins.sites if {"relu", "add"} <= {twins.actions[a].name for a in s.trace})
    ids = {twins.actions[a].name: a for a in site.trace}
    trace = [{ids["relu"]: ids["add"], ids["add"]: ids["relu"]}.get(a, a) for a in site.trace]
    rejected(with_site(twins, replace(site, trace=tuple(trace))), "add comes before relu", site=site.id, action="add")


def test_trace_without_its_parts(cnn: Lineage) -> None:
    site = next(s for s in cnn.sites if len(s.trace) > 1)
    name = cnn.actions[site.trace[0]].name
    rejected(with_site(cnn, replace(site, trace=site.trace[1:])), "not in the trace", site=site.id, action=name)


def lying(lineage: Lineage, name: str, change: Callable[[Fate], Fate], *, parts: bool) -> Lineage:
    """A lie about the fate of an action; ``parts``: told of its parts as well."""
    action = lineage.find(name)[0]
    fates = [change(fate) if index == action.id else fate for index, fate in enumerate(lineage.fates)]
    ids = {part.id for part in action.parts} if parts else set()
    part_fates = {i: change(fate) if i in ids else fate for i, fate in lineage.part_fates.items()}
    return edited(lineage, fates=fates, part_fates=part_fates)


@pytest.mark.parametrize("parts", [False, True])
def test_dead_for_a_live_action(twins: Lineage, parts: bool) -> None:
    lie = lying(twins, "sigmoid", lambda fate: Fate("dead", (), fate.decided_by), parts=parts)
    rejected(lie, "sigmoid", "dead", action="sigmoid")


def test_dead_for_a_live_action_that_no_site_performs(twins: Lineage) -> None:
    site = next(s for s in twins.sites if "sigmoid" in {a.name for a in twins.why(s)})
    gone = twins.find("sigmoid")[0].id
    lie = lying(twins, "sigmoid", lambda fate: Fate("dead", (), fate.decided_by), parts=True)
    rest = tuple(part for part in site.parts if twins.parts[part].action != gone)
    rejected(with_site(lie, performing(twins, site, rest)), "the results need it", action="sigmoid")


def test_live_for_a_dead_action(twins: Lineage) -> None:
    lie = lying(twins, "tanh", lambda fate: Fate("dispatched", (0,), fate.decided_by), parts=True)
    rejected(lie, "tanh", "dead", action="tanh")


def test_twin_with_another_value(twins: Lineage) -> None:
    kept = next(part for part, fate in twins.part_fates.items() if fate.kind == "merged")
    other = twins.find("sigmoid")[0].parts[0].id
    fates = dict(twins.part_fates)
    fates[kept] = replace(fates[kept], twin=other, sites=fates[other].sites)
    owner = twins.actions[twins.parts[kept].action].name
    rejected(edited(twins, part_fates=fates), "another value", action=owner)


def test_twins_are_work_of_all_who_are_read(twins: Lineage) -> None:
    for first, second in (("relu", "relu_1"), ("relu_1", "relu")):
        assert twins.fate(first) == twins.fate(second)
        (site,) = twins.where(first)
        assert site in twins.where(second)
        rest = tuple(part for part in site.parts if part != twins.find(first)[0].parts[0].id)
        rejected(with_site(twins, performing(twins, site, rest)), action=first)


def test_twin_of_an_action_alone(twins: Lineage) -> None:
    other = twins.find("sigmoid")[0].id
    lie = lying(twins, "relu_1", lambda fate: replace(fate, twin=other), parts=False)
    rejected(lie, "relu_1", action="relu_1")


def test_folded_for_what_depends_on_arguments(twins: Lineage) -> None:
    lie = lying(twins, "transpose", lambda fate: Fate("folded", (), fate.decided_by), parts=True)
    rejected(lie, "depends on the arguments", action="transpose")


def test_part_that_changes_its_input_is_no_identity() -> None:
    # relu gives back positive numbers, clamp small ones: neither may pass for a value that was merely handed on.
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x).exp() + x.clamp(-1000, 1000).sin()

    lineage = covan_mlir.compile_module(model, (torch.randn(64),)).lineage
    for name in ("relu", "clamp"):
        for site in lineage.where(name):
            rest = tuple(p for p in site.parts if lineage.actions[lineage.parts[p].action].name != name)
            rejected(with_site(lineage, performing(lineage, site, rest)), action=name)


def test_nothing_to_check_is_no_yes() -> None:
    verdict = covan_mlir.compile_module(torch.relu, (torch.randn(4),), provenance=False).verify()
    assert (verdict.outcome, bool(verdict)) == ("incomplete", False)
    assert "provenance" in str(verdict)
    assert not Verification(())


def test_unknown_inputs_leave_the_check_incomplete(twins: Lineage) -> None:
    *before, program = twins.phases
    nodes = tuple(msgspec.structs.replace(node, inputs=(Unknown(),)) for node in program.graph.nodes)
    graph = msgspec.structs.replace(program.graph, nodes=nodes)
    blind = edited(twins, phases=[*before, replace(program, graph=graph)])
    verdict = verify(blind)
    assert verdict.outcome == "incomplete"
    assert "not known" in str(verdict)


def test_without_torch_identities_stay_unchecked(twins: Lineage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("covan_mlir.checking.subject.operators", lambda lineage: None)
    verdict = verify(twins)
    assert not verdict


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], twins: Lineage) -> None:
    path = str(tmp_path / "model.covan")
    covan_mlir.compile_module(torch.relu, (torch.randn(4),)).save(path)
    assert cli.main(["verify", path]) == 0
    assert capsys.readouterr().out.startswith("yes: ")
    held = artifact.read(path)
    lineage = held.variant().lineage
    site = lineage.sites[0]
    lie = with_site(lineage, performing(lineage, site, ()))
    artifact.write(path, _with(held, lie))
    assert cli.main(["verify", path, "--json"]) == 1
    verdict = json.loads(capsys.readouterr().out)
    (program,) = (check for check in verdict["checks"] if check["phase"] == "program")
    assert verdict["outcome"] == program["outcome"] == "no"
    assert next((e["site"], e["actions"]) for e in program["counterexamples"]) == (site.id, ["relu"])
    nowhere = [replace(site, node=None) for site in lineage.sites]
    artifact.write(path, _with(held, edited(lineage, phases=(), sites=nowhere, bodies=None)))
    assert cli.main(["verify", path]) == 3
    assert cli.main(["verify", path, "--values"]) == 2
    assert "--model" in capsys.readouterr().err


def _with(held: artifact.Contents, lineage: Lineage) -> artifact.Contents:
    return replace(held, variants=(replace(held.variant(), lineage=lineage),))


@pytest.mark.parametrize("emptied", [("actions", "parts"), ("actions", "parts", "results"), ("actions", "sites")])
def test_a_ledger_without_actions_is_no_ledger(emptied: tuple[str, ...]) -> None:
    told = covan_mlir.compile_module(lambda x: x.sin(), (torch.randn(3),)).lineage.to_json()
    assert verify(Lineage.from_json(told | {section: [] for section in emptied})).outcome == "no"
