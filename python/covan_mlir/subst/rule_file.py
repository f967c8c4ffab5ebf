"""Rules in a text file: what is shipped, and what users write.

    rule relu-concat
    where a[n0, n1]
    where b[n0, n2]
    from concat(relu(a), relu(b), axis=1)
    to relu(concat(a, b, axis=1))
    proof 0123456789abcdef, 64 points
    floats exact

Several results are several lines ``from`` and as many ``to``. ``if SIZE >= 0`` is a condition on sizes. ``proof`` is
what `write` puts there: a digest of the normal form that both sides have. Rules that are read without it are proved.
``floats`` is what `covan_mlir.subst.floating` measures: ``exact``, the factor by which errors may grow, or
``unbounded``. Rules that are read without it are measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from covan_mlir.errors import CovanError
from covan_mlir.subst.certificate import Certificate
from covan_mlir.subst.floating import growth
from covan_mlir.subst.inference import infer
from covan_mlir.subst.prove import Proved, certify
from covan_mlir.subst.shaping import NoShapesError
from covan_mlir.subst.terms import Apply, Rule, Shape, Term, parse_size, parse_term

SHIPPED = "rules.txt"

HEADER = """\
# Substitutions of tensor programs, generated and proved for all sizes: docs/superoptimiser.md says how, and what the
# lines mean. Written by bench/superoptimiser.py.
"""


class RuleFileError(CovanError):
    """A file of rules does not say what such files say; the message has the line."""


class UnprovedRuleError(CovanError):
    """A rule could not be proved.

    Attributes:
        certificate: what was tried.
    """

    def __init__(self, name: str, certificate: Certificate) -> None:
        super().__init__(f"rule {name} is not proved: {certificate}".replace("\n", "; "))
        self.certificate = certificate


@dataclass(frozen=True)
class NamedRule:
    """A rule of a file.

    Attributes:
        certificate: ``assumed`` where nothing was proved and somebody wanted it all the same.
        floats: by how much errors in floating point may grow (`covan_mlir.subst.floating.growth`).
    """

    name: str
    rule: Rule
    certificate: Certificate
    floats: float

    def __str__(self) -> str:
        lines = [f"rule {self.name}", str(self.rule)]
        lines += [f"if {condition} >= 0" for condition in self.certificate.conditions]
        if self.certificate.status == "proved":
            lines.append(f"proof {self.certificate.normal_form}, {self.certificate.points} points")
        lines.append(f"floats {in_words(self.floats)}")
        return re.sub(r" +", " ", "\n".join(lines))


def in_words(floats: float) -> str:
    """``exact``, a factor, or ``unbounded``."""
    return "exact" if floats == 0 else "unbounded" if floats == math.inf else f"{floats:g}"


def measured(name: str, rule: Rule, certificate: Certificate) -> NamedRule:
    """A rule with what is measured of it in floating point."""
    typed = infer(rule)
    conditions = tuple(map(parse_size, certificate.conditions))
    return NamedRule(name, rule, certificate, growth(replace(typed, conditions=(*typed.conditions, *conditions))))


def named(rules: Iterable[Proved]) -> list[NamedRule]:
    """Rules with names: their operators, and a number where others have the same."""
    counts: dict[str, int] = {}
    result = []
    for proved in rules:
        assert proved.rule is not None
        name = "-".join(dict.fromkeys(_operators(proved.rule.source) or ["tensor"]))
        counts[name] = counts.get(name, 0) + 1
        result.append(measured(f"{name}-{counts[name]}", proved.rule, proved.certificate))
    return result


def _operators(terms: Iterable[Term]) -> list[str]:
    names = []
    for term in terms:
        if isinstance(term, Apply):
            names += [term.op, *_operators(term.args)]
    return names


def write(rules: Iterable[NamedRule]) -> str:
    """The text of a file."""
    return HEADER + "\n" + "\n\n".join(map(str, rules)) + "\n"


def read(text: str, *, assume: bool = False, again: bool = False) -> list[NamedRule]:
    """The rules of a file.

    Args:
        assume: take rules that cannot be proved, too.
        again: prove those again that say they are proved, and measure all again.

    Raises:
        RuleFileError: it is no such file.
        UnprovedRuleError: a rule is not proved, or not with the normal form that it says.
    """
    rules: list[NamedRule] = []
    for number, block in _blocks(text):
        name, rule, certificate, floats = _parse(number, block)
        if certificate.status == "proved" and not again:
            if floats is None:
                rules.append(measured(name, rule, certificate))
            else:
                rules.append(NamedRule(name, rule, certificate, floats))
            continue
        checked = check(rule, certificate)
        if checked.status != "proved":
            if not assume:
                raise UnprovedRuleError(name, checked)
            checked = replace_status(checked, certificate)
        rules.append(_assumed(name, rule, checked))
    return rules


def replace_status(checked: Certificate, said: Certificate) -> Certificate:
    """What is assumed of a rule that is not proved."""
    return Certificate("assumed", points=checked.points, conditions=checked.conditions or said.conditions)


def _assumed(name: str, rule: Rule, certificate: Certificate) -> NamedRule:
    """A rule as far as it can be measured: one whose sides have no shapes cannot."""
    try:
        return measured(name, rule, certificate)
    except NoShapesError:
        return NamedRule(name, rule, certificate, math.inf)


def check(rule: Rule, said: Certificate) -> Certificate:
    """What can be proved of a rule as it stands; what is said of it has to be the same where something is said."""
    try:
        typed = infer(rule)
    except NoShapesError as reason:
        return Certificate("refuted", counterexample=f"no sizes: {reason}")
    if typed.rule != rule:
        return Certificate("refuted", counterexample=f"it holds only with these sizes:\n{typed.rule}")
    conditions = tuple(map(parse_size, said.conditions))
    typed = replace(typed, conditions=tuple(dict.fromkeys(typed.conditions + conditions)))
    checked = certify(typed)
    if said.normal_form and checked.normal_form != said.normal_form:
        return Certificate("undecided", counterexample=f"its normal form is {checked.normal_form or 'none'}")
    return checked


def shipped() -> list[NamedRule]:
    """The rules that come with the package. That they are proved is tested where they are made."""
    return read(resources.files(__package__).joinpath(SHIPPED).read_text())


def load(path: Path, *, assume: bool = False) -> list[NamedRule]:
    """The rules of a user's file: all are proved again.

    Raises:
        OSError, RuleFileError, UnprovedRuleError: see `read`.
    """
    return read(path.read_text(), assume=assume, again=True)


def _blocks(text: str) -> list[tuple[int, list[str]]]:
    blocks: list[tuple[int, list[str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].strip()
        if words.startswith("rule "):
            blocks.append((number, []))
        if words:
            if not blocks:
                raise RuleFileError(f"line {number}: no rule begins before: {line}")
            blocks[-1][1].append(words)
    return blocks


def _parse(number: int, block: list[str]) -> tuple[str, Rule, Certificate, float | None]:
    shapes: list[tuple[str, Shape]] = []
    source: list[Term] = []
    target: list[Term] = []
    conditions: list[str] = []
    form, points = "", 0
    floats: float | None = None
    name = block[0].removeprefix("rule ").strip()
    for offset, line in enumerate(block[1:], 1):
        word, _, rest = line.partition(" ")
        try:
            if word == "where" and (tensor := re.fullmatch(r"(\w+)\[(.*)\]", rest)):
                sizes = [size for size in tensor[2].split(",") if size.strip()]
                shapes.append((tensor[1], tuple(map(parse_size, sizes))))
            elif word in ("from", "to"):
                (source if word == "from" else target).append(parse_term(rest))
            elif word == "if" and rest.endswith(">= 0"):
                conditions.append(str(parse_size(rest.removesuffix(">= 0"))))
            elif word == "proof" and (proof := re.fullmatch(r"([0-9a-f]{16}), (\d+) points", rest)):
                form, points = proof[1], int(proof[2])
            elif word == "floats" and (growing := _FLOATS.fullmatch(rest)):
                floats = {"exact": 0.0, "unbounded": math.inf}.get(rest) if growing[1] is None else float(rest)
            else:
                raise ValueError(f"not understood: {line}")
        except ValueError as error:
            raise RuleFileError(f"line {number + offset}, rule {name}: {error}") from error
    if not source or len(source) != len(target):
        raise RuleFileError(
            f"line {number}, rule {name}: {len(source)} results on one side, {len(target)} on the other"
        )
    status = "proved" if form else "assumed"
    certificate = Certificate(status, form, points, tuple(conditions))  # type: ignore[arg-type]  # one of both
    return name, Rule(tuple(source), tuple(target), tuple(shapes)), certificate, floats


_FLOATS = re.compile(r"exact|unbounded|(\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
