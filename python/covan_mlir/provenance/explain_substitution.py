"""What rules made of a model's graph before it was compiled, in words and as JSON: the graph before and after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from covan_mlir.provenance.model import LineageData
from covan_mlir.provenance.substitution import Substitution


def text(lineage: LineageData) -> str:
    """All steps: the rule, the actions, what the rule says; and which operations went and came. Empty where there are
    none."""
    done = lineage.substitution
    if done is None or not done.steps:
        return ""
    gone, new = changed(lineage, done)
    assumed = {rule.name for rule in done.rules if rule.assumed}
    lines = [
        f"{len(done.steps)} substitutions, {_microseconds(done.after)} predicted instead of "
        f"{_microseconds(done.before)}, of what rules are about"
    ]
    for number, step in enumerate(done.steps):
        names = ", ".join(lineage.actions[action].name for action in step.actions)
        held = "assumed, not proved" if step.rule in assumed else "proved"
        lines.append(f"  step {number}  {step.rule}{', backwards' if step.backward else ''} ({held}): {names}")
    lines += [f"  before  {gone}", f"  after   {new}"]
    return "\n".join(lines) + "\n"


def as_json(lineage: LineageData) -> dict[str, Any] | None:
    """The same as JSON, with the rules as files have them; None where nobody asked for substitutions."""
    done = lineage.substitution
    if done is None:
        return None
    gone, new = changed(lineage, done)
    return {
        "before": done.before,
        "after": done.after,
        "states": done.states,
        "costed": done.costed,
        "finished": done.finished,
        "seconds": done.seconds,
        "rules": {rule.name: {"text": rule.text, "assumed": rule.assumed} for rule in done.rules},
        "steps": [
            {
                "rule": step.rule,
                "backward": step.backward,
                "sizes": dict(step.sizes),
                "actions": [lineage.actions[action].name for action in step.actions],
            }
            for step in done.steps
        ],
        "gone": gone,
        "new": new,
    }


def changed(lineage: LineageData, done: Substitution) -> tuple[str, str]:
    """The operations that went, and those that came, with how many of each there are."""
    if not done.steps:
        return "none", "none"
    before = {(part.name, part.op) for part in done.parts}
    after = {(part.name, part.op) for part in lineage.parts.values()}
    return _counted(op for _, op in sorted(before - after)), _counted(op for _, op in sorted(after - before))


def _counted(operators: Iterable[str]) -> str:
    counts = Counter(op.removesuffix(".default") for op in operators)
    shown = [op if count == 1 else f"{count} × {op}" for op, count in sorted(counts.items())]
    return " + ".join(shown) or "none"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"
