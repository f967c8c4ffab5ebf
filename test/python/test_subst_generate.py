"""Generation: programs are enumerated as a naive enumeration does, and what remains are the laws that one would write
down."""

from __future__ import annotations

import itertools

import pytest
import torch

from covan_mlir.subst.derive import Derivation, derive, several_results
from covan_mlir.subst.families import Family
from covan_mlir.subst.generate import Enumerator
from covan_mlir.subst.guards import Facts
from covan_mlir.subst.inference import infer, result
from covan_mlir.subst.normal import Normalizer
from covan_mlir.subst.operators import in_torch
from covan_mlir.subst.rewriting import Rewriting, Shapes, greater
from covan_mlir.subst.sizes import Poly, of
from covan_mlir.subst.terms import Apply, Rule, Term, Var, parse_size, parse_term, subterms

SMALL = Family(
    "small",
    tensors=(("a", (2, 2)), ("b", (2, 2)), ("s", ())),
    constants=(),
    operators=("add", "matmul", "scale", "transpose", "relu", "concat", "head", "tail"),
    base=(2, 2),
    longest=(4, 4),
)


def naive(operators: int) -> set[tuple[object, ...]]:
    """Values of all programs of up to so many operator nodes, by torch, from texts."""
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.randn((6, *shape) if shape else (6,), generator=generator, dtype=torch.float64)
        for name, shape in SMALL.tensors
    }
    shapes: dict[Term, tuple[int, ...]] = {Var(name): shape for name, shape in SMALL.tensors}
    levels: list[Term] = list(shapes)
    for _ in range(operators):
        made = list(levels)
        for op in SMALL.operators:
            for left in levels:
                for attributes in SMALL.unary(op, shapes[left]):
                    made.append(_apply(op, (left,), attributes))
            for left, right in itertools.product(levels, repeat=2):
                for attributes in SMALL.binary(op, shapes[left], shapes[right]):
                    made.append(_apply(op, (left, right), attributes))
        levels = [term for term in dict.fromkeys(made) if _nodes(term) <= operators]
        known = Shapes(dict(SMALL.tensors))
        shapes = {term: known(term) for term in levels}
    values = set()
    for term in levels:
        text = in_torch(term, {})
        points = [eval(text, {"torch": torch}, {n: t[at] for n, t in tensors.items()}) for at in range(6)]
        value = torch.stack(points).mul(1e6).round().long()
        values.add((tuple(value.shape), *value.flatten().tolist()))
    return values


def _apply(op: str, args: tuple[Term, ...], attributes: object) -> Term:
    return Apply(op, args, attributes)  # type: ignore[arg-type]  # as the family gives them


def _nodes(term: Term) -> int:
    return sum(not isinstance(node, Var) for node in subterms((term,)))


@pytest.mark.parametrize("operators", [1, 2])
def test_no_value_is_missed_and_none_is_there_twice(operators: int) -> None:
    enumerator = Enumerator(SMALL, lambda op, attributes, kinds: False)
    for count in range(1, operators + 1):
        enumerator.level(count, last=False)
    assert len(SMALL.tensors) + sum(enumerator.kept) == len(naive(operators))


@pytest.fixture(scope="module")
def derivation() -> Derivation:
    return derive(SMALL, 3)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("matmul(a, add(a, b))", "add(matmul(a, a), matmul(a, b))"),
        ("matmul(matmul(a, b), a)", "matmul(a, matmul(b, a))"),
        ("add(add(a, b), b)", "add(b, add(b, a))"),
        ("transpose(matmul(a, b), axes=(1, 0))", "matmul(transpose(b, axes=(1, 0)), transpose(a, axes=(1, 0)))"),
        ("matmul(scale(a, s), scale(b, s))", "scale(matmul(scale(a, s), b), s)"),
        ("relu(transpose(relu(a), axes=(1, 0)))", "transpose(relu(a), axes=(1, 0))"),
        ("matmul(a, concat(b, a, axis=1))", "concat(matmul(a, b), matmul(a, a), axis=1)"),
        ("tail(relu(concat(a, b, axis=0)), axis=0, size=2)", "relu(b)"),
    ],
)
def test_laws_follow_from_what_remains(derivation: Derivation, left: str, right: str) -> None:
    rewriting = Rewriting(Shapes(dict(SMALL.tensors)))
    for proved in derivation.rules:
        assert proved.rule is not None
        rewriting.add(proved.rule, tuple(map(parse_size, proved.certificate.conditions)))
    assert rewriting.normal(parse_term(left)) == rewriting.normal(parse_term(right))


def test_pruning_leaves_few(derivation: Derivation) -> None:
    levels = derivation.levels
    assert all(level.initial >= level.renaming >= level.common >= level.dominance for level in levels)
    assert len(derivation.rules) < sum(level.common for level in levels) < sum(level.programs for level in levels)
    assert sum(level.undecided for level in levels) == 0


def test_results_are_computed_together(derivation: Derivation) -> None:
    several = [proved.rule for proved in several_results(derivation.rules)]
    sources = {tuple(map(str, rule.source)) for rule in several if rule is not None}
    assert ("matmul(a, b)", "matmul(a, a)") in sources or ("matmul(a, a)", "matmul(a, b)") in sources


def test_the_order_is_stable_under_what_tensors_stand_for() -> None:
    assert greater(parse_term("add(a, add(b, c))"), parse_term("add(a, b)"))
    assert greater(parse_term("matmul(matmul(a, b), c)"), parse_term("matmul(a, matmul(b, c))"))
    # More of b than there was: b may be anything.
    assert not greater(parse_term("matmul(a, matmul(c, b))"), parse_term("add(b, b)"))
    assert not greater(parse_term("add(a, b)"), parse_term("add(b, a)"))


def test_normal_forms_are_equal_where_values_are_and_nowhere_else() -> None:
    """For matrices of any size: programs of up to two operators have one normal form if, and only if, they have one
    value."""
    enumerator = Enumerator(SMALL, lambda op, attributes, kinds: False)
    candidates = [rule for count in (1, 2) for rule in enumerator.level(count, last=False)]
    texts: dict[str, Term] = {}
    for term in enumerator.terms:
        text = _normal_form(term)
        assert text not in texts, f"{term} is not {texts[text]}"
        texts[text] = term
    for rule in candidates:
        assert _normal_form(rule.source[0]) == _normal_form(rule.target[0]), str(rule)


def _normal_form(term: Term) -> str:
    n = of("n")
    shapes = tuple((name, (n,) * len(shape)) for name, shape in SMALL.tensors)
    typed = infer(Rule((_of_size(term, n),), (_of_size(term, n),), shapes))
    (whole,) = typed.rule.source
    names = [f"%o{axis}" for axis in range(len(typed.shapes[whole]))]
    value, ranges = result(whole, typed.shapes, names)
    return f"{typed.shapes[whole]} {Normalizer(Facts()).normal(value, ranges)}"


def _of_size(term: Term, size: Poly) -> Term:
    """With a name for the size of which a split takes one part."""
    if isinstance(term, Var):
        return term
    attributes = tuple((name, (size,) if name == "size" else value) for name, value in term.attributes)
    return Apply(term.op, tuple(_of_size(arg, size) for arg in term.args), attributes)
