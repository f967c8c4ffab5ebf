"""Rules applied by the compiler: results stay, lineages say by which rule, and lies about it are found."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn

import covan_mlir
from covan_mlir.checking.verify import verify
from covan_mlir.provenance.model import LineageData
from covan_mlir.provenance.substitution import AppliedRule, Substitution
from covan_mlir.subst.rule_file import UnprovedRuleError, shipped


class Gated(nn.Module):
    """Two products of one input, whose results meet element by element; a product whose factors are scaled."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(32, 24, bias=False)
        self.up = nn.Linear(32, 24, bias=False)
        self.down = nn.Linear(24, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.sigmoid(self.gate(x)) * self.up(x))


OPTIONS = covan_mlir.CompileOptions(superoptimise=30, cache=False)


@pytest.fixture(scope="module")
def model() -> Gated:
    torch.manual_seed(0)
    return Gated().eval()


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.randn(4, 32, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def exe(model: Gated, x: torch.Tensor) -> covan_mlir.Executable:
    return covan_mlir.compile_module(model, (x,), options=OPTIONS)


def done(exe: covan_mlir.Executable) -> Substitution:
    substitution = exe.lineage.substitution
    assert substitution is not None
    return substitution


def test_results_are_those_of_eager(model: Gated, x: torch.Tensor, exe: covan_mlir.Executable) -> None:
    with torch.no_grad():
        torch.testing.assert_close(exe(x), model(x), rtol=1e-5, atol=1e-6)


def test_products_of_one_operand_are_one_and_their_weights_constant(exe: covan_mlir.Executable) -> None:
    lineage = exe.lineage
    assert [step.rule for step in done(exe).steps] == ["matmul-2"]
    assert done(exe).after < done(exe).before
    (gate, up) = (lineage.where(name)[0] for name in ("gate", "up"))
    both = [site for site in lineage.where("gate") if site in lineage.where("up") and "32" in site.kernel]
    assert both, (gate.kernel, up.kernel)
    (joined,) = (part for part in lineage.parts.values() if part.op == "aten.cat.default")
    assert lineage.part_fates[joined.id].kind == "folded"


def test_fates_and_chains_name_the_rule(exe: covan_mlir.Executable) -> None:
    gate = exe.lineage.find("gate")[0]
    fate = exe.lineage.fate(gate)
    assert fate.rewritten_by == ("matmul-2",)
    assert str(fate) == "rewritten by matmul-2; dispatched"
    assert "superoptimise/matmul-2" in str(exe.lineage.chain(gate))
    down = exe.lineage.fate(exe.lineage.find("down")[0])
    assert down.rewritten_by == ()


def test_explain_shows_the_graph_before_and_after(exe: covan_mlir.Executable) -> None:
    text = exe.explain()
    assert "matmul-2" in text
    assert "2 × aten.mm" in text
    assert "aten.cat" in text


def test_the_lineage_is_verified_and_survives_being_saved(exe: covan_mlir.Executable, tmp_path: Path) -> None:
    exe.save(tmp_path / "gated.covan")
    again = covan_mlir.load(tmp_path / "gated.covan")
    assert again.lineage.substitution == exe.lineage.substitution
    verification = again.verify()
    assert verification, verification
    assert "substitutions" in {check.phase for check in verification.checks}


def forged(exe: covan_mlir.Executable, **changes: Any) -> LineageData:
    lineage = copy.copy(exe.lineage)
    lineage.substitution = replace(done(exe), **changes)
    return lineage


def with_step(exe: covan_mlir.Executable, **changes: Any) -> LineageData:
    (step,) = done(exe).steps
    return forged(exe, steps=(replace(step, **changes),))


def _shipped(name: str) -> AppliedRule:
    (rule,) = (rule for rule in shipped() if rule.name == name)
    return AppliedRule(name, str(rule))


def another_name(exe: covan_mlir.Executable) -> LineageData:
    (rule,) = done(exe).rules
    text = rule.text.replace("matmul-2", "matmul-1")
    lineage = with_step(exe, rule="matmul-1")
    assert lineage.substitution is not None
    lineage.substitution = replace(lineage.substitution, rules=(AppliedRule("matmul-1", text),))
    return lineage


def another_rule(exe: covan_mlir.Executable) -> LineageData:
    lineage = with_step(exe, rule="matmul-3")
    assert lineage.substitution is not None
    lineage.substitution = replace(lineage.substitution, rules=(_shipped("matmul-3"),))
    return lineage


def unproved(exe: covan_mlir.Executable) -> LineageData:
    (rule,) = done(exe).rules
    text = rule.text.replace("matmul-2", "mine").replace("concat(b, c, axis=1)", "concat(c, b, axis=1)")
    lineage = with_step(exe, rule="mine")
    assert lineage.substitution is not None
    lineage.substitution = replace(lineage.substitution, rules=(AppliedRule("mine", text),))
    return lineage


def exchanged(exe: covan_mlir.Executable) -> LineageData:
    (step,) = done(exe).steps
    return with_step(exe, bindings={**step.bindings, "b": step.bindings["c"], "c": step.bindings["b"]})


def elsewhere(exe: covan_mlir.Executable) -> LineageData:
    (step,) = done(exe).steps
    return with_step(exe, results=step.results[::-1])


def others_did_it(exe: covan_mlir.Executable) -> LineageData:
    return with_step(exe, actions=(exe.lineage.find("down")[0].id,))


def no_step(exe: covan_mlir.Executable) -> LineageData:
    (step,) = done(exe).steps
    return forged(exe, steps=(step, step))


def another_source(exe: covan_mlir.Executable) -> LineageData:
    parts = tuple(
        replace(part, op="aten.tanh.default") if part.op == "aten.sigmoid.default" else part for part in done(exe).parts
    )
    return forged(exe, parts=parts)


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (another_name, "matmul-1 is another rule than covan has by this name"),
        (another_rule, "step 0 is no application of matmul-3"),
        (unproved, "mine does not hold"),
        (exchanged, "is not what stands at"),
        (elsewhere, "is not what stands at"),
        (others_did_it, "the actions that did what it replaces are not"),
        (no_step, "step 1 is no application of matmul-2"),
        (another_source, "the steps do not lead to"),
    ],
)
def test_lies_are_found(
    exe: covan_mlir.Executable, lie: Callable[[covan_mlir.Executable], LineageData], why: str
) -> None:
    verification = verify(lie(exe), operators=False)
    assert not verification
    (check,) = (check for check in verification.checks if check.phase == "substitutions")
    assert check.outcome == "no"
    assert why in str(verification), verification


WRONG = """
rule mine
where a[n, m]
where b[m, k]
where c[m, k]
from mul(sigmoid(matmul(a, b)), matmul(a, c))
to sigmoid(matmul(a, b))
"""


def test_an_unproved_rule_is_refused_unless_it_is_assumed(model: Gated, x: torch.Tensor, tmp_path: Path) -> None:
    path = tmp_path / "rules.txt"
    path.write_text(WRONG)
    options = covan_mlir.CompileOptions(superoptimise=30, cache=False, rules=str(path))
    with pytest.raises(UnprovedRuleError, match="rule mine is not proved"):
        covan_mlir.compile_module(model, (x,), options=options)
    exe = covan_mlir.compile_module(model, (x,), options=dataclasses.replace(options, assume=True))
    with torch.no_grad():
        torch.testing.assert_close(exe(x), model.down(torch.sigmoid(model.gate(x))), rtol=1e-5, atol=1e-6)
    assert [rule.name for rule in done(exe).rules if rule.assumed] == ["mine"]
    fate = exe.lineage.fate("mul")
    assert (fate.kind, fate.decided_by, fate.rewritten_by) == ("merged", "superoptimise", ("mine",))
    assert exe.lineage.fate("linear_1").rewritten_by == ("mine",)
    assert "superoptimise/mine" in str(exe.lineage.chain("mul"))
    assert "mine (assumed, not proved)" in exe.explain()
    verification = exe.verify()
    (check,) = (check for check in verification.checks if check.phase == "substitutions")
    assert (check.outcome, check.missing) == ("incomplete", ("rule mine is assumed, and was not proved",))
    assert {check.outcome for check in verification.checks} <= {"yes", "incomplete"}, verification


BROKEN = """
from covan_mlir.lowering.kernels.passes import torch_superoptimise


def broken(*arguments):
    raise RuntimeError("on purpose")


torch_superoptimise.rewrite = broken
"""


def test_where_the_pass_fails_the_program_is_as_it_is_and_a_warning_says_so(
    model: Gated, x: torch.Tensor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "broken.py"
    path.write_text(BROKEN)
    options = dataclasses.replace(OPTIONS, extensions=(str(path),))
    exe = covan_mlir.compile_module(model, (x,), options=options)
    assert "no rules were applied, for torch-superoptimise failed" in caplog.text
    assert "on purpose" in caplog.text
    assert exe.lineage.substitution is None
    with torch.no_grad():
        torch.testing.assert_close(exe(x), model(x), rtol=1e-5, atol=1e-6)


def test_an_action_may_be_done_by_what_a_later_one_does() -> None:
    """The first product becomes the second one, whose result is scaled."""
    torch.manual_seed(0)
    w, x = torch.randn(256, 128), torch.randn(64, 256)

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return ((x * 3) @ w) * 2 + x @ w

    exe = covan_mlir.compile_module(scaled, (x,), options=OPTIONS)
    assert len(done(exe).steps) == 1
    torch.testing.assert_close(exe(x), scaled(x), rtol=1e-4, atol=1e-3)
    assert exe.verify()


def test_without_steps_the_program_is_as_it_is(x: torch.Tensor) -> None:
    exe = covan_mlir.compile_module(lambda x: torch.relu(x), (x,), options=OPTIONS)
    assert done(exe).steps == ()
    torch.testing.assert_close(exe(x), torch.relu(x))
    assert exe.verify()


def test_where_rules_know_nothing_a_warning_says_so(x: torch.Tensor, caplog: pytest.LogCaptureFixture) -> None:
    """Sizes are open."""
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    exe = covan_mlir.compile_module(Gated().eval(), (x,), dynamic_shapes=dynamic, options=OPTIONS)
    assert done(exe).steps == ()
    assert "rules know none of the program's operations" in caplog.text


def test_it_says_what_it_did_without_a_lineage_and_computes_the_same(
    model: Gated, x: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[str] = []
    with caplog.at_level(logging.INFO):
        exe = covan_mlir.compile_module(model, (x,), options=OPTIONS, provenance=False, progress=said.append)
    assert "superoptimise: 1 substitutions (matmul-2)" in caplog.text
    assert any(text.startswith("superoptimise: window 1 of 1") for text in said)
    with torch.no_grad():
        torch.testing.assert_close(exe(x), model(x), rtol=1e-5, atol=1e-6)


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="superoptimise is a number of seconds or False"):
        covan_mlir.CompileOptions(superoptimise=True)
    with pytest.raises(ValueError, match="rules are applied by superoptimise"):
        covan_mlir.CompileOptions(rules="rules.txt")
    with pytest.raises(ValueError, match="assume is about rules of your own"):
        covan_mlir.CompileOptions(superoptimise=1, assume=True)
