"""Branches and loops as values: the operators of their parts.

=====================  ================================================================================
``control.carried``    a value that goes round in a loop: what it is at first; behind that, what it is in the next
                       iteration, which is computed later (`following`)
``control.element``    an element of what a loop goes over
``control.stacked``    an element put into its place, and memory for all
``control.branch``     a result of a branch: the condition, what is given if it holds, and if not
``control.while``      a result of a loop: whether there is a first iteration, and another one; what it is at first, and
                       after an iteration
``control.for``        a result of a loop over elements: what it is at first, and after an iteration
=====================  ================================================================================

Their arguments have the operator's name and a position in front: a value of one loop is none of another's, unless all
that the two carry is the same, first and after each iteration. A branch is what it is given and no more.
"""

from __future__ import annotations

import json
from typing import Any

from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.model import Part

CARRIED = "control.carried"
ELEMENT = "control.element"
STACKED = "control.stacked"
BRANCH = "control.branch"
WHILE = "control.while"
FOR = "control.for"
PREFIX = "control."
JOINS = frozenset({CARRIED, BRANCH, WHILE, FOR})
"""Those that no site performs: where control goes decides which of some values they are."""


def following(part: Part) -> Operand | None:
    """What a carried value is in the next iteration; None of anything else."""
    return _operand(json.loads(part.args)[0][3]["n"]) if part.op == CARRIED else None


def renamed(part: Part, name: str) -> str:
    """The arguments of a part that is a value of a loop, as those of a loop of another name; without what comes later
    (`following`)."""
    (_, *read), named = json.loads(part.args)
    now = [item for item in read if not (isinstance(item, dict) and "n" in item)]
    return json.dumps([[name, *now], named], separators=(",", ":"))


def nameless(op: str, args: str) -> str:
    """The arguments of a part; of a branch without its operator's name and the position of the result."""
    if op != BRANCH:
        return args
    (_, _, *read), named = json.loads(args)
    return json.dumps([read, named], separators=(",", ":"))


def loop(part: Part) -> str | None:
    """What the loop is called that a part is a value of; None of others."""
    return str(json.loads(part.args)[0][0]) if part.op.startswith(PREFIX) and part.op != BRANCH else None


def positions(part: Part) -> list[Operand | None]:
    """The values that a join may be, and those that decide, by position; None of one that is no value of the graph."""
    read = json.loads(part.args)[0][2:]
    return [_operand(item["n"] if isinstance(item, dict) and "n" in item else item) for item in read]


def _operand(item: Any) -> Operand | None:
    if not isinstance(item, dict):
        return None
    return next(((kind, held) for kind, held in item.items() if kind in ("p", "a", "w")), None)
