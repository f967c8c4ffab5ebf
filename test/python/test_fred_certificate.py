"""Proof obligations: what is proved, what is refuted, and that nothing wrong slips through."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import plain_chains as chains
import pytest

from covan_mlir.fred import guards, repair, simplify, transport
from covan_mlir.fred.algebra import compare, f
from covan_mlir.fred.certificate import Certificate, NoCertificateError
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Const, Expr, Read
from covan_mlir.fred.forms import Local
from covan_mlir.fred.formulas import text
from covan_mlir.fred.fuse import fuse
from covan_mlir.fred.obligation import Law, Obligation
from covan_mlir.fred.provers import ask_sympy, ask_z3, refute
from covan_mlir.fred.proving import certify, prove
from covan_mlir.fred.repair import verify
from covan_mlir.fred.rolling import Loop


def r(name: str) -> Expr:
    return Read(name, "f32")


def number(value: float) -> Expr:
    return Const(value, "f32")


X, OLD, NEW = r("x"), r("m.old"), r("m.new")
SHIFT = chains.sub(OLD, NEW)
EXP_SUM = Law("exp-sum", (chains.sub(X, OLD), SHIFT))
RESCALED = Obligation(
    "one element",
    chains.exp(chains.sub(X, NEW)),
    chains.mul(chains.exp(chains.sub(X, OLD)), chains.exp(SHIFT)),
    laws=(EXP_SUM,),
)


def test_three_provers_look_at_each_obligation() -> None:
    assert refute(RESCALED) == ""
    assert ask_z3(RESCALED)[0] == "proved"
    assert ask_sympy(RESCALED)
    (proof,) = prove("rescaling", [RESCALED]).proofs
    assert proof.provers == ("z3", "sympy")
    assert proof.axioms == ("exp(a + b) = exp(a) * exp(b)",)


def test_without_its_law_z3_does_not_know_exp() -> None:
    assert ask_z3(replace(RESCALED, laws=()))[0] == "unknown"


@pytest.mark.parametrize(
    "wrong",
    [
        chains.mul(chains.exp(chains.sub(X, OLD)), chains.exp(chains.sub(NEW, OLD))),
        chains.exp(chains.sub(X, OLD)),
        chains.mul(chains.exp(chains.sub(X, OLD)), SHIFT),
        chains.add(chains.exp(chains.sub(X, OLD)), chains.exp(SHIFT)),
    ],
)
def test_wrong_factors_are_refuted(wrong: Expr) -> None:
    certificate = prove("wrong", [replace(RESCALED, right=wrong)])
    assert certificate.result == "refuted"
    assert "x = " in certificate.proofs[0].counterexample
    with pytest.raises(NoCertificateError):
        certify("wrong", [replace(RESCALED, right=wrong)])


def test_z3_refutes_what_numbers_miss() -> None:
    a = r("a")
    rare = Obligation(
        "equal but for one value", f("divf", chains.mul(a, chains.sub(a, number(7.25))), chains.sub(a, number(7.25))), a
    )
    assert prove("where it is defined", [rare]).result == "proved"
    step = Obligation("small numbers", f("maximumf", a, number(-1e6)), a)
    assert refute(step) == ""
    assert prove("not for all", [step]).result == "refuted"


def test_hypotheses_are_used_and_shown() -> None:
    a, b, c = r("a"), r("b"), r("c")
    law = Obligation("scaled", f("maximumf", chains.mul(c, a), chains.mul(c, b)), chains.mul(c, f("maximumf", a, b)))
    assert prove("any factor", [law]).result == "refuted"
    positive = replace(law, given=(compare("ogt", c, number(0.0)),))
    certificate = prove("a positive factor", [positive])
    assert certificate.result == "proved"
    assert "given c > 0" in str(certificate)


def test_json_round_trip() -> None:
    for certificate in fuse(chains.entropy()).certificates:
        data = json.loads(json.dumps(certificate.to_json()))
        assert Certificate.from_json(data) == certificate
    assert fuse(chains.entropy()).certificates


def variance_update(wrong: str) -> Expr:
    d = chains.sub(r("mean.old"), r("mean.new"))
    square = chains.mul(d, d)
    count, m2 = r("count.old"), r("m2.old")
    cross = chains.mul(chains.mul(number(2.0), d), r("m2_0.old"))
    right = chains.add(chains.add(m2, chains.mul(count, square)), cross)
    return {
        "right": right,
        "sign": chains.add(chains.sub(m2, chains.mul(count, square)), cross),
        "factor": chains.add(chains.add(m2, square), cross),
        "no helper": chains.add(m2, chains.mul(count, square)),
        "half": chains.add(chains.add(m2, chains.mul(count, square)), chains.mul(d, r("m2_0.old"))),
        "nothing": m2,
    }[wrong]


@pytest.mark.parametrize("case", ["right", "sign", "factor", "no helper", "half", "nothing"])
def test_claimed_variance_repairs(case: str) -> None:
    chain = simplify.normalise(chains.variance()).chain
    s, m2 = chain.reductions
    certificate = verify(chain, m2, [s], frozenset({"mean"}), variance_update(case))
    assert certificate.result == ("proved" if case == "right" else "refuted"), str(certificate)


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (chains.mul(r("l.old"), chains.exp(chains.sub(OLD, NEW))), "proved"),
        (chains.mul(r("l.old"), chains.exp(chains.sub(NEW, OLD))), "refuted"),
        (r("l.old"), "refuted"),
        (chains.mul(chains.mul(r("l.old"), chains.exp(SHIFT)), chains.exp(SHIFT)), "refuted"),
    ],
)
def test_claimed_softmax_repairs(update: Expr, expected: str) -> None:
    chain = simplify.normalise(chains.softmax()).chain
    m, total = chain.reductions
    assert verify(chain, total, [m], frozenset({"m"}), update).result == expected


def test_a_derivation_with_a_wrong_sign_gives_no_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = transport.Transport._shifted

    def wrong(self: transport.Transport, node: Expr, term: Expr) -> transport.Pair:
        return honest(self, node, f("negf", term))

    monkeypatch.setattr(transport.Transport, "_shifted", wrong)
    with pytest.raises(NoCertificateError, match="refuted"):
        fuse(chains.softmax(n=43))


def test_a_derivation_that_forgets_a_helper_gives_no_fusion(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = repair._decompose

    def wrong(change: transport.Transport, *pair: object) -> object:
        kept, terms = honest(change, *pair)  # type: ignore[arg-type]
        return kept, terms[:1]

    monkeypatch.setattr(repair, "_decompose", wrong)
    with pytest.raises(NoCertificateError, match="refuted"):
        fuse(chains.variance(n=43))


def loop_of(chain: Chain) -> Loop:
    (stage, *_) = fuse(chain).stages
    rolling = stage.rolling
    assert rolling is not None
    normal = fuse(chain).chain
    poisoned = {
        r.target: tuple(g.statistic for g in rolling.guards if g.statistic in r.statistics) for r in rolling.repairs
    }
    reductions = tuple(step for step in normal.reductions if step.name in stage.reductions)
    return Loop(normal, reductions, {r.target: r for r in rolling.repairs}, rolling.elements, rolling.guards, poisoned)


def test_wrong_guards_are_found_out() -> None:
    loop = loop_of(chains.attention())
    names = [step.name for step in loop.reductions]
    trial = guards.Trial(loop.chain, loop)
    assert trial.differs(loop, names) == ""
    assert "would be nan" in trial.differs(replace(loop, guards=(), poisoned={}), names)
    assert "the chain has nan" in trial.differs(replace(loop, poisoned={}), names)
    (guard,) = loop.guards
    for condition, instead in [
        (compare("oeq", NEW, number(0.0)), guard.instead),
        (compare("une", NEW, guard.when.args[1]), guard.instead),  # type: ignore[union-attr]
        (guard.when, Const(float("-inf"), "f32")),
    ]:
        wrong = replace(guard, when=condition, instead=instead)
        assert trial.differs(replace(loop, guards=(wrong,)), names), text(condition)


def test_guards_say_which_row_needs_them() -> None:
    rolling = fuse(chains.softmax()).stages[0].rolling
    assert rolling is not None
    (guard,) = rolling.guards
    assert text(guard.when) == "m.new == -inf"
    assert guard.reason == "x = [-inf, -inf, 0.0]: l would be nan, the chain has 1"


def test_hoists_are_proved() -> None:
    fusion = fuse(chains.attention())
    rules = {rewrite.target: rewrite for rewrite in fusion.rewrites}
    assert rules["o"].rule == "hoist"
    assert rules["o"].certificate.result == "proved"
    assert "o = o_sum / l" in rules["o"].text


def test_what_overflows_is_not_hoisted() -> None:
    (stage,) = fuse(chains.cosine()).stages
    assert stage.rolling is not None
    local = next(line for line in stage.rolling.body if isinstance(line, Local) and line.name == "y.local")
    assert text(local.reduce.expr) == "a / na.new * (b / nb.new)"


def test_the_document_shows_what_is_printed() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "fused-reductions.md").read_text()
    fusion = fuse(chains.attention())
    certificate = next(c for c in fusion.certificates if c.claim.startswith("repair of l ="))
    assert str(certificate) in page
    rolling = fusion.stages[0].rolling
    assert rolling is not None
    for entry in rolling.repairs[1:]:
        assert " ".join(f"{entry.target}.new = {text(entry.update)} + {entry.target}.local".split()) in " ".join(
            page.split()
        )
