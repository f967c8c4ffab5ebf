"""Composite operations while a program is decomposed: those with a rule are overridden, the others decompose as always.

torch has two kinds of decomposition: of operations that reach autograd, by table, and of composite ones
(``CompositeImplicitAutograd``), which are taken apart before and whose kernels it has to override for the time of a
decomposition. Its own division of a table overrides all five hundred of them, mostly by what they do anyway, and asks
the dispatcher for all that there are each time: a fifth of the time that a small program takes to compile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import exported_program

Decomposition = Callable[..., Any]
Divided = tuple[dict[OpOverload, Decomposition], dict[OpOverload, Decomposition]]

_DIVIDE = "_split_decomp_table_to_cia_and_python_decomp"


@contextmanager
def overridden_only_by_rules() -> Iterator[None]:
    """Have torch override those composite operations alone that a table treats in another way than their kernels do."""
    torchs: Callable[[dict[OpOverload, Decomposition]], Divided] | None = getattr(exported_program, _DIVIDE, None)
    if torchs is None:  # another torch: it divides its tables in its own way
        yield
        return

    def divide(table: Mapping[OpOverload, Decomposition]) -> Divided:
        composite, others = _divided(torchs, frozenset(table.items()))
        return dict(composite), dict(others)

    setattr(exported_program, _DIVIDE, divide)
    try:
        yield
    finally:
        setattr(exported_program, _DIVIDE, torchs)


@functools.lru_cache(maxsize=4)
def _divided(
    torchs: Callable[[dict[OpOverload, Decomposition]], Divided], rules: frozenset[tuple[OpOverload, Decomposition]]
) -> Divided:
    table = dict(rules)
    composite, others = torchs(dict(table))
    overridden = {
        op: rule
        for op, rule in composite.items()
        # An operation of another library without a rule would be kept whole, and nothing could lower it.
        if not _is_own_kernel(op, rule) and (op in table or op.namespace == "aten")
    }
    # What has a kernel of its own, too, is not composed when it is called: a graph of derivatives holds it.
    called = {op for op in overridden if torch._C._dispatch_has_kernel_for_dispatch_key(_name(op), "CPU")}
    others.update({op: overridden.pop(op) for op in called})
    return overridden, others


def _is_own_kernel(op: OpOverload, rule: Decomposition) -> bool:
    """Whether torch made the rule of the operation's own kernel."""
    return isinstance(rule, functools.partial) and rule.keywords == {"kernel": op}


def _name(op: OpOverload) -> str:
    name: str = op.name()  # type: ignore[no-untyped-call]  # torch's
    return name
