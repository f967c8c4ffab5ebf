"""Checking a fused form that somebody claims computes a chain, without trusting how it was made.

The claims are the repairs. Each is proved from the chain; then the loop that follows from the chain and the repairs is
written, and the loop at hand has to be that, line by line, guards being whatever it has; and rows of special values
have to give NaN and infinities where the chain gives them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from covan_mlir.fred.certificate import Certificate
from covan_mlir.fred.chain import Chain, Map, Reduce, Step
from covan_mlir.fred.expression import Apply, Const, Expr, numbered, reads
from covan_mlir.fred.forms import Fusion, Local, Repair, Rolling, SplitK, Update
from covan_mlir.fred.guards import Trial
from covan_mlir.fred.repair import NoRepairError, in_loop_maps, verify
from covan_mlir.fred.rolling import Loop, write


class ClaimError(ValueError):
    """A fused form does not compute its chain, or nobody can say that it does; ``name`` is the line at fault."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name


def check(fusion: Fusion) -> dict[str, Certificate]:
    """Proves that the stages of a fused form compute its chain -> certificates of the repairs, by their targets.

    Raises:
        ClaimError: they do not, or it cannot be proved.
    """
    certificates: dict[str, Certificate] = {}
    for stage in fusion.stages:
        for step in (*stage.elements, *stage.rows):
            _check_element(fusion.chain, step)
        if stage.rolling is not None:
            certificates |= check_loop(fusion.chain, stage.rolling, stage.split)
    return certificates


def check_loop(chain: Chain, rolling: Rolling, split: SplitK | None) -> dict[str, Certificate]:
    """As `check`, for one loop."""
    for step in rolling.elements:
        _check_element(chain, step)
    loop = recover(chain, rolling)
    if split is not None:
        _check_lines(write(loop)[1].merge, split.merge)
    certificates = {
        r.name: _certificate(chain, loop, r) for r in loop.reductions if loop.repairs[r.name].kind != "none"
    }
    if certificates and (difference := Trial(chain, loop).differs(loop, [r.name for r in loop.reductions])):
        raise ClaimError(difference.rpartition(": ")[2].partition(" ")[0], f"special values are lost: {difference}")
    return certificates


def recover(chain: Chain, rolling: Rolling) -> Loop:
    """What a loop was written from.

    Raises:
        ClaimError: it is not what is written for its repairs and guards.
    """
    reductions = tuple(_reduction(chain, state.name) for state in rolling.state if state.name != "count")
    repairs = {repair.target: repair for repair in rolling.repairs}
    for reduction in reductions:
        _check_statistics(chain, reductions, reduction, repairs[reduction.name])
    loop = Loop(chain, reductions, repairs, rolling.elements, rolling.guards, _poisoned(rolling))
    plain, careful = write(loop)[0], write(replace(loop, careful=frozenset(repairs)))[0]
    lines, gentle = _by_name(rolling.body), _by_name(careful.body)
    simple = _by_name(plain.body)
    chosen = frozenset(
        name
        for name in repairs
        if (line := f"{name}.new") in lines
        and not _same(lines[line], simple[line])
        and _same(lines[line], gentle[line])
    )
    loop = replace(loop, careful=chosen)
    expected = write(loop)[0]
    _check_lines(expected.body, rolling.body)
    _check_lines(expected.finish, rolling.finish)
    for wanted, state in zip(expected.state, rolling.state, strict=False):
        if (wanted.name, wanted.axes, wanted.dtype, repr(wanted.initial)) != (
            state.name,
            state.axes,
            state.dtype,
            repr(state.initial),
        ):
            raise ClaimError(state.name, f"starts from {state.initial.value}, not from {wanted.initial.value}")
    if len(expected.state) != len(rolling.state):
        raise ClaimError(rolling.state[-1].name, "is carried without need, or another state is missing")
    return loop


def _reduction(chain: Chain, name: str) -> Reduce:
    value = chain.values.get(name)
    if not isinstance(value, Reduce):
        raise ClaimError(name, "is no reduction of the chain")
    return value


def _check_statistics(chain: Chain, reductions: Sequence[Reduce], target: Reduce, repair: Repair) -> None:
    moving = {r.name for r in reductions} | in_loop_maps(chain, reductions).keys()
    needed = sorted(reads(target.expr) & moving)
    if sorted(repair.statistics) != needed:
        have, want = (", ".join(names) or "nothing" for names in (repair.statistics, needed))
        raise ClaimError(target.name, f"depends on {want}, and is repaired for {have}")


def _poisoned(rolling: Rolling) -> dict[str, tuple[str, ...]]:
    """For each state the statistics whose guard makes its final value NaN, as ``finish`` has it."""
    numbers: dict[object, int] = {}
    guards = {numbered(guard.when, numbers): guard.statistic for guard in rolling.guards}
    statistics: dict[str, tuple[str, ...]] = {}
    for line in rolling.finish:
        expr, names = line.expr, []
        while (guard := _poison(expr)) is not None:
            names.append(guards.get(numbered(guard.args[0], numbers), ""))
            expr = guard.args[2]
        if "" in names:
            raise ClaimError(line.name, "is NaN under a condition that is no guard's")
        statistics[line.name] = tuple(reversed(names))
    return statistics


def _poison(expr: Expr) -> Apply | None:
    """The choice of NaN or something else that an expression is."""
    if not isinstance(expr, Apply) or expr.op != "arith.select":
        return None
    value = expr.args[1]
    return expr if isinstance(value, Const) and value.value != value.value else None


def _certificate(chain: Chain, loop: Loop, target: Reduce) -> Certificate:
    repair = loop.repairs[target.name]
    before = loop.reductions[: loop.reductions.index(target)]
    helpers = [r for r in loop.reductions if r.name in repair.helpers and r not in before]
    try:
        certificate = verify(chain, target, [*before, *helpers], frozenset(repair.statistics), repair.update)
    except NoRepairError as error:
        raise ClaimError(target.name, f"no repair is known: {error}") from error
    if certificate.result != "proved":
        raise ClaimError(target.name, f"the repair is {certificate.result}:\n{certificate}")
    return certificate


Line = Local | Update | Step
_FLOATS = ("addf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf")
_INTEGERS = ("addi", "muli", "maxsi", "minsi", "andi", "ori", "xori")
_COMMUTATIVE = frozenset(f"arith.{op}" for op in (*_FLOATS, *_INTEGERS))
"""Cleaning up puts their constants last; the value is the same, bit for bit."""


def _by_name(lines: Sequence[Local | Update]) -> Mapping[str, Line]:
    return {line.name: line for line in lines}


def _key(line: Line, numbers: dict[object, int]) -> tuple[object, ...]:
    """What a line computes, wherever it comes from."""
    if isinstance(line, Local):
        return _key(line.reduce, numbers)
    rest = (line.over, line.combine, repr(line.initial)) if isinstance(line, Reduce) else ()
    return (line.name, line.axes, line.dtype, rest, numbered(line.expr, numbers, _COMMUTATIVE))


def _same(a: Line, b: Line) -> bool:
    numbers: dict[object, int] = {}
    return _key(a, numbers) == _key(b, numbers)


def _check_element(chain: Chain, step: Step) -> None:
    known = chain.values.get(step.name)
    if not isinstance(known, Map | Reduce) or not _same(known, step):
        raise ClaimError(step.name, "is not computed as in the chain")


def _check_lines(expected: Sequence[Local | Update], lines: Sequence[Local | Update]) -> None:
    wanted = _by_name(expected)
    if len(wanted) != len(expected) or len(_by_name(lines)) != len(lines):
        raise ClaimError(lines[-1].name, "is defined twice")
    for line in lines:
        if line.name not in wanted:
            raise ClaimError(line.name, "does not follow from the chain and its repairs")
        if not _same(line, wanted[line.name]):
            raise ClaimError(line.name, "is not what follows from the chain and its repairs")
    for name in wanted:
        if name not in _by_name(lines):
            raise ClaimError(name, "is missing")
