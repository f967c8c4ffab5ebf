"""Tensor programs as terms, and rules between them. Text of both: ``conv(x, concat(a, b, axis=0), stride=(1, s))``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from covan_mlir.subst.sizes import Poly, floor, of, poly

Attribute = tuple[Poly, ...]
"""A number, several numbers, or sizes that are only known by name."""

Shape = tuple[Poly, ...]


@dataclass(frozen=True)
class Var:
    """A tensor that the program is given."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Apply:
    """An operator, applied.

    Attributes:
        op: its name in `covan_mlir.subst.operators.OPERATORS`.
        attributes: by name, in the order that the operator gives them.
    """

    op: str
    args: tuple[Term, ...]
    attributes: tuple[tuple[str, Attribute], ...] = ()

    def __hash__(self) -> int:  # asked often, of terms that share most of what is in them
        known = self.__dict__.get("_hash")
        if known is None:
            known = hash((self.op, self.args, self.attributes))
            object.__setattr__(self, "_hash", known)
        return int(known)

    def __str__(self) -> str:
        shown = [str(arg) for arg in self.args]
        for name, value in self.attributes:
            inner = ", ".join(map(str, value))
            shown.append(f"{name}={inner}" if len(value) == 1 else f"{name}=({inner})")
        return f"{self.op}({', '.join(shown)})"


Term = Var | Apply


@dataclass(frozen=True)
class Rule:
    """``source`` may be replaced by ``target``: as many results as there are terms, the same on both sides.

    Attributes:
        shapes: of the variables, by name.
    """

    source: tuple[Term, ...]
    target: tuple[Term, ...]
    shapes: tuple[tuple[str, Shape], ...] = ()

    def __str__(self) -> str:
        lines = [f"where {name}[{', '.join(map(str, shape))}]" for name, shape in self.shapes]
        lines += [f"from  {term}" for term in self.source]
        lines += [f"to    {term}" for term in self.target]
        return "\n".join(lines)


def subterms(terms: tuple[Term, ...]) -> Iterator[Term]:
    """Each different term within them once, operands first."""
    seen: set[Term] = set()

    def walk(term: Term) -> Iterator[Term]:
        if term not in seen:
            seen.add(term)
            for arg in term.args if isinstance(term, Apply) else ():
                yield from walk(arg)
            yield term

    for term in terms:
        yield from walk(term)


def variables(terms: tuple[Term, ...]) -> list[str]:
    """Names of the tensors that are read, in the order in which they are first read."""
    return [term.name for term in subterms(terms) if isinstance(term, Var)]


def replace(term: Term, values: Mapping[str, Term], names: Mapping[str, Poly] | None = None) -> Term:
    """With terms for variables, and sizes for the names in attributes."""
    if isinstance(term, Var):
        return values.get(term.name, term)
    attributes = term.attributes
    if names:
        attributes = tuple((key, tuple(size.substitute(names) for size in value)) for key, value in attributes)
    return Apply(term.op, tuple(replace(arg, values, names) for arg in term.args), attributes)


def parse_term(text: str) -> Term:
    """What `str` made of a term.

    Raises:
        ValueError: it is no term.
    """
    try:
        return _term(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ValueError(f"no term: {text.strip()}") from error


def parse_size(text: str) -> Poly:
    """What `str` made of a polynomial.

    Raises:
        ValueError: it is no polynomial.
    """
    try:
        return _size(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError as error:
        raise ValueError(f"no size: {text.strip()}") from error


def _term(node: ast.expr) -> Term:
    if isinstance(node, ast.Name):
        return Var(node.id)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise ValueError(f"no term: {ast.unparse(node)}")
    attributes: list[tuple[str, Attribute]] = []
    for keyword in node.keywords:
        value = keyword.value
        sizes = [_size(item) for item in value.elts] if isinstance(value, ast.Tuple) else [_size(value)]
        attributes.append((str(keyword.arg), tuple(sizes)))
    return Apply(node.func.id, tuple(_term(arg) for arg in node.args), tuple(attributes))


def _size(node: ast.expr) -> Poly:
    match node:
        case ast.Name(id=name):
            return of(name)
        case ast.Constant(value=int(value)):
            return poly(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_size(operand)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _size(left) + _size(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _size(left) - _size(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _size(left) * _size(right)
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return floor(_size(left), _size(right))
    raise ValueError(f"no size: {ast.unparse(node)}")
