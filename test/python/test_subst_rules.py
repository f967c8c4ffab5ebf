"""Rules: those that are published are proved under the weakest conditions, false ones are refuted, files are
checked."""

from __future__ import annotations

from pathlib import Path

import pytest
from published_rules import PUBLISHED, SEVERAL, conv, join, pool

from covan_mlir.subst.prove import lift, prove
from covan_mlir.subst.rule_file import NamedRule, RuleFileError, UnprovedRuleError, load, named, read, shipped
from covan_mlir.subst.sizes import ONE
from covan_mlir.subst.terms import Rule, parse_term, variables

RANKS = {**dict.fromkeys("xyvw", 4), **dict.fromkeys("abc", 2), "s": 0}


def rule(source: str, target: str) -> Rule:
    sides = (parse_term(source),), (parse_term(target),)
    return Rule(*sides, tuple((name, (ONE,) * RANKS[name]) for name in variables(sides[0] + sides[1])))


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda rule: "; ".join(map(str, rule.source))[:60])
def test_published_rules_are_proved(published: Rule) -> None:
    proved = prove(lift(published), points=16)
    assert proved.certificate.status == "proved", proved


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("matmul(a, b)", "matmul(b, a)"),
        ("mul(a, relu(b))", "relu(mul(a, b))"),
        ("relu(scale(a, s))", "scale(relu(a), s)"),
        (pool("max", "add(x, y)"), f"add({pool('max', 'x')}, {pool('max', 'y')})"),
        (conv("relu(x)", "v"), f"relu({conv('x', 'v')})"),
        (join(1, conv("x", "v"), conv("y", "w")), conv(join(1, "y", "x"), join(0, "v", "w"), groups=2)),
        ("softmax(add(a, b), axis=1)", "add(softmax(a, axis=1), softmax(b, axis=1))"),
        ("matmul(a, concat(b, c, axis=1))", "concat(matmul(a, c), matmul(a, b), axis=1)"),
    ],
)
def test_false_rules_are_refuted(source: str, target: str) -> None:
    certificate = prove(lift(rule(source, target))).certificate
    assert certificate.status == "refuted"
    assert "=" in certificate.counterexample


@pytest.mark.parametrize(
    ("source", "target", "parameter"),
    [
        # Outputs are concatenated: in several groups they would stand elsewhere.
        (join(1, conv("x", "v"), conv("x", "w")), conv("x", join(0, "v", "w")), "groups=1"),
        # Two convolutions are one in twice as many groups.
        (
            join(1, conv("x", "v"), conv("y", "w")),
            conv(join(1, "x", "y"), join(0, "v", "w"), groups=2),
            "groups=2*groups0",
        ),
        # The kernel's border is the padding's.
        (
            conv("x", "v", pad=0),
            conv("x", "enlarge(v, border=(1, 1))"),
            "pad=(border0*dilation0 + pad0, border1*dilation1 + pad1)",
        ),
        # A pooling is a convolution of each channel by itself.
        (pool("avg", "x"), conv("x", "pool_constant(size=(2, 3, 3))", groups=2), "groups=n1"),
        ("add(a, matmul(a, b))", "matmul(a, add(b, eye(size=3)))", "eye(size=n1)"),
    ],
)
def test_conditions_come_out_by_themselves(source: str, target: str, parameter: str) -> None:
    proved = prove(lift(rule(source, target)))
    assert proved.certificate.status == "proved"
    assert parameter in str(proved.rule).replace("\n", " ")


USER = """
rule mine  # a comment
where a[n, m]
where b[n, k]
from concat(relu(a), relu(b), axis=1)
to relu(concat(a, b, axis=1))
"""


def test_a_users_rule_is_proved_where_it_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "rules.txt"
    path.write_text(USER)
    (mine,) = load(path)
    assert (mine.name, mine.certificate.status) == ("mine", "proved")


def test_what_is_not_proved_is_taken_only_if_assumed(tmp_path: Path) -> None:
    path = tmp_path / "rules.txt"
    path.write_text(USER.replace("relu(concat(a, b", "relu(concat(b, a").replace("[n, k]", "[n, m]"))
    with pytest.raises(UnprovedRuleError, match=r"mine is not proved: refuted; not where m = \d"):
        load(path)
    (mine,) = load(path, assume=True)
    assert mine.certificate.status == "assumed"


def test_a_proof_that_is_none_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "rules.txt"
    path.write_text(USER.replace("relu(concat(a", "tanh(concat(a") + "proof 0123456789abcdef, 64 points\n")
    with pytest.raises(UnprovedRuleError):
        load(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("from concat", "from concat(", "line 5, rule mine: no term"),
        ("where a", "when a", "line 3, rule mine: not understood: when a"),
        ("to relu", "# to relu", "line 2, rule mine: 1 results on one side, 0 on the other"),
        ("rule mine", "", "line 3: no rule begins before"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "rules.txt"
    path.write_text(USER.replace(old, new))
    with pytest.raises(RuleFileError, match=message):
        load(path)


def test_rules_are_read_as_they_were_written() -> None:
    rules = named([prove(lift(several), points=16) for several in SEVERAL[:1]])
    assert read("\n".join(map(str, rules)), again=False) == rules


SAMPLE = 12


def test_a_sample_of_the_shipped_rules_is_proved_again() -> None:
    rules = shipped()
    assert len({rule.name for rule in rules}) == len(rules) > 100
    again = read("\n".join(map(str, _sample(rules))), again=True)
    assert all(rule.certificate.status == "proved" for rule in again)


def _sample(rules: list[NamedRule]) -> list[NamedRule]:
    return rules[:: max(len(rules) // SAMPLE, 1)]
