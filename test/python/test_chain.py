"""Chains: what each step of the compiler made of an action, and of what a site was made.

What is expected follows from what the passes are documented to do (torch-mlir's ``convert-torch-to-linalg``, IREE's
``fold-unit-extent-dims`` ...), and from lineages written by hand.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import nn

import covan_mlir
from covan_mlir import CompileOptions, Lineage
from covan_mlir.artifacts import machine_code
from covan_mlir.lowering.history import LAST
from covan_mlir.lowering.pass_history import SINGLE
from covan_mlir.provenance.model import Action, Fate, Part, Site


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.register_buffer("scale", torch.arange(1.0, 9.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        unused = x.cos()  # noqa: F841
        y = self.fc(x).transpose(0, 1)
        return torch.softmax(y.relu(), -1) * torch.exp(self.scale).unsqueeze(1)


NET, X = Net().eval(), torch.randn(4, 8)


@pytest.fixture(scope="module")
def phases() -> covan_mlir.Executable:
    return covan_mlir.compile_module(NET, (X,))


@pytest.fixture(scope="module")
def passes() -> covan_mlir.Executable:
    return covan_mlir.compile_module(NET, (X,), options=CompileOptions(trace="passes"))


def part(index: int, action: int, op: str) -> Part:
    return Part(index, action, f"p{index}", op, (), (), twin=index)


def by_hand() -> Lineage:
    """Two actions fused into site 0, a view, a twin, and an action that vanished in decomposition."""
    actions = [
        Action(
            0,
            "layer",
            "aten.linear.default",
            "",
            (),
            (),
            (part(10, 0, "aten.mm.default"), part(11, 0, "aten.add.Tensor")),
        ),
        Action(1, "relu", "aten.relu.default", "", (), (), (part(12, 1, "aten.relu.default"),)),
        Action(2, "view", "aten.view.default", "", (), (), (part(13, 2, "aten.view.default"),), view=True),
        Action(3, "again", "aten.relu.default", "", (), (), (part(14, 3, "aten.relu.default"),)),
        Action(4, "dropout", "aten.dropout.default", "", (), ()),
    ]
    mm, add, relu = {"torch.aten.mm": 1}, {"torch.aten.add.Tensor": 1}, {"torch.aten.relu": 1}
    generic = {"linalg.generic": 1}
    history: list[tuple[str, Mapping[int, Mapping[str, int] | None]]] = [
        ("first", {10: mm, 11: add, 12: relu, 13: {"torch.aten.view": 1}, 14: relu}),
        ("cse", {14: None}),
        ("lower", {10: {"linalg.matmul": 1}, 11: generic, 12: generic, 13: {"tensor.expand_shape": 1}}),
        ("quiet", {}),
        ("fuse", {11: None, 13: None}),
        (LAST, {10: {"linalg.matmul": 1, "flow.dispatch.workgroups": 1}}),
    ]  # fmt: skip
    fates = [
        Fate("dispatched", (0,), LAST),
        Fate("dispatched", (0,), LAST),
        Fate("view", (0,), "fuse"),
        Fate("merged", (0,), "cse", 1),
        Fate("merged", (0,), "decompose", 1),
    ]
    return Lineage(actions, [Site(0, "main", "call", (0, 1), (10, 11, 12), views=(13,))], [], fates, history=history)


def test_the_chain_of_an_action_lists_what_changed_it_and_where_it_ended() -> None:
    chain = by_hand().chain("layer")
    assert [(link.step, link.before, link.after) for link in chain.links] == [
        ("decompose", {"aten.linear": 1}, {"aten.mm": 1, "aten.add.Tensor": 1}),
        ("lower", {"aten.mm": 1, "aten.add.Tensor": 1}, {"linalg.matmul": 1, "linalg.generic": 1}),
        ("fuse", {"linalg.matmul": 1, "linalg.generic": 1}, {"linalg.matmul": 1}),
        (LAST, {"linalg.matmul": 1}, {}),
    ]
    assert chain.fate == Fate("dispatched", (0,), LAST)
    assert [site.id for site in chain.sites] == [0]
    assert str(chain).splitlines()[-1].endswith("linalg.matmul → one of 2 actions of site 0 (call, main)")


@pytest.mark.parametrize(
    ("name", "step", "before", "end"),
    [
        ("view", "fuse", {"tensor.expand_shape": 1}, "view: only how site 0 indexes"),
        ("again", "cse", {"aten.relu": 1}, "merged: the value of relu, site 0"),
        ("dropout", "decompose", {"aten.dropout": 1}, "merged: the value of relu, site 0"),
    ],
)
def test_what_no_site_performs_ends_with_its_fate(name: str, step: str, before: dict[str, int], end: str) -> None:
    last = by_hand().chain(name).links[-1]
    assert (last.step, last.before, last.end) == (step, before, end)


def test_the_chain_of_a_site_runs_back_to_its_actions() -> None:
    lineage = by_hand()
    chain = lineage.chain("site:0")
    assert chain == lineage.chain(lineage.sites[0])
    assert [(link.step, link.before) for link in chain.links] == [
        (LAST, {"linalg.matmul": 1, "linalg.generic": 1}),
        ("fuse", {"linalg.matmul": 1, "linalg.generic": 2}),
        ("lower", {"aten.mm": 1, "aten.add.Tensor": 1, "aten.relu": 1}),
        ("decompose", {"aten.linear": 1, "aten.relu": 1}),
    ]
    assert [action.name for action in chain.actions] == ["layer", "relu"]
    assert str(chain).splitlines()[-1].split() == ["actions", "layer,", "relu"]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(KeyError, match="no site 9: the program has 1"):
        by_hand().chain("site:9")
    with pytest.raises(KeyError, match="nothing in the model is called 'rely'"):
        by_hand().chain("rely")


def test_links_fit_together(passes: covan_mlir.Executable) -> None:
    """Each starts where the one before ended, and none leaves things as they were."""
    lineage = passes.lineage
    for action in lineage.actions:
        links = lineage.chain(action).links
        assert links[-1].step == lineage.fate(action).decided_by
        assert all(a.after == b.before for a, b in itertools.pairwise(links))
        assert all(link.before != link.after for link in links[:-1])


def test_a_history_of_single_passes_holds(passes: covan_mlir.Executable) -> None:
    verdict = passes.verify()
    assert verdict, str(verdict)


def test_single_passes_are_named(passes: covan_mlir.Executable) -> None:
    """torch decomposes softmax into maximum, difference, exponential, sum and quotient, of which torch-mlir makes
    linalg.generic; these become one chain, then the call of its kernel, then a dispatch."""
    links = {link.step: link for link in passes.lineage.chain("softmax").links}
    decomposed = links["decompose"]
    assert decomposed.before == {"aten.softmax.int": 1}
    assert {"aten.exp": 1, "aten.sub.Tensor": 1, "aten.div.Tensor": 1}.items() <= decomposed.after.items()
    assert set(links["torch-to-linalg/convert-torch-to-linalg"].after) >= {"linalg.generic"}
    assert links["fred-raise"].after.keys() == {"fred.chain"}
    assert links["fred-kernels"].after.keys() == {"func.call"}
    assert links["iree:embed"].after.keys() == {"flow.dispatch"}
    (site,) = passes.lineage.where("softmax")
    assert passes.lineage.chain("softmax").sites == (site,)


def test_constants_end_where_they_were_evaluated(passes: covan_mlir.Executable) -> None:
    """exp of a buffer is hoisted into a global by one pass and evaluated by the next."""
    chain = passes.lineage.chain("exp")
    assert chain.fate is not None
    assert chain.fate.kind == "folded"
    steps = [link.step.rpartition("/")[2] for link in chain.links]
    assert "iree-util-hoist-into-globals" in steps


def test_dead_actions_end_before_lowering(passes: covan_mlir.Executable) -> None:
    chain = passes.lineage.chain("cos")
    assert chain.fate is not None
    assert chain.fate.kind == "dead"
    assert "dead" in chain.links[-1].end
    assert not chain.links[-1].step.startswith("iree:")


def test_passes_refine_phases(phases: covan_mlir.Executable, passes: covan_mlir.Executable) -> None:
    """The same sites and fates, the same state after each phase; only the steps are finer."""
    coarse, fine = phases.lineage, passes.lineage
    assert coarse.sites == fine.sites
    assert [(f.kind, f.sites, f.twin) for f in coarse.fates] == [(f.kind, f.sites, f.twin) for f in fine.fates]
    assert states(fine) == states(coarse)
    for one, other in zip(coarse.fates, fine.fates, strict=True):
        assert other.decided_by.partition("/")[0] in (one.decided_by, "import")
    assert {step.partition("/")[0] for step, _ in fine.history} == {step for step, _ in coarse.history} | {"import"}


def states(lineage: Lineage) -> dict[str, dict[int, Mapping[str, int]]]:
    """What each part is after each phase."""
    now: dict[int, Mapping[str, int]] = {}
    after: dict[str, dict[int, Mapping[str, int]]] = {}
    for step, changed in lineage.history:
        now |= {i: names for i, names in changed.items() if names is not None}
        now = {i: names for i, names in now.items() if changed.get(i, names) is not None}
        if "/" not in step and step != "import":
            after[step] = dict(now)
    return after


def test_the_phase_has_nothing_left_when_all_passes_were_seen(passes: covan_mlir.Executable) -> None:
    single = {*SINGLE, "import"}
    assert all(not changed for step, changed in passes.lineage.history if "/" not in step and step not in single)


def test_the_machine_code_is_the_same(phases: covan_mlir.Executable, passes: covan_mlir.Executable) -> None:
    code = machine_code.text_sections(phases.variant.program)
    assert code
    assert machine_code.text_sections(passes.variant.program) == code


def test_iree_torch_input_is_traced_too() -> None:
    options = CompileOptions(trace="passes", frontend="torch")
    lineage = covan_mlir.compile_module(NET, (X,), options=options).lineage
    assert any(step.startswith("iree:input/") for step, _ in lineage.history)
    assert lineage.chain("softmax").links[-1].end


def test_the_log_counts_what_could_not_be_seen(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from covan_mlir.lowering import pool

    compile_program = pool.compile_program

    def blind(*args: object, **kwargs: object) -> object:
        result, program = compile_program(*args, **kwargs)  # type: ignore[arg-type]
        return replace(result, unseen={"iree:input": 3}), program

    monkeypatch.setattr(pool, "compile_program", blind)
    with caplog.at_level(logging.INFO, "covan_mlir.compile"):
        covan_mlir.compile_module(nn.ReLU(), (X,), options=CompileOptions(trace="passes"))
    assert "iree:input: what became of 3 parts could not be told pass by pass" in caplog.text


def test_errors_are_those_of_the_phase() -> None:
    """What the compiler says about folders that are kept from it does not stand in messages."""
    options = CompileOptions(trace="passes", iree_flags=("--iree-llvmcpu-target-cpu=nonsense",))
    with pytest.raises(covan_mlir.CompileError) as error:
        covan_mlir.compile_module(NET, (X,), options=options)
    assert "directory" not in str(error.value)
    covan_mlir.compile_module(nn.ReLU(), (X,), options=CompileOptions(trace="passes"))  # the worker goes on


def test_options() -> None:
    with pytest.raises(ValueError, match="trace is 'phases' or 'passes', not 'all'"):
        CompileOptions(trace="all")  # type: ignore[arg-type]


def test_saved_chains_are_the_same(passes: covan_mlir.Executable) -> None:
    again = Lineage.from_json(json.loads(json.dumps(passes.lineage.to_json())))
    assert [str(again.chain(a)) for a in again.actions] == [
        str(passes.lineage.chain(a)) for a in passes.lineage.actions
    ]
