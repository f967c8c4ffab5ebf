"""The sketches of a program's kernels, as text: each as a loop nest, with what writes it."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from random import Random

from covan_mlir.fred import chain_json
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.scaled_weights import scaled
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.select import choices
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.provenance.model import LineageData
from covan_mlir.tuning.sketches.derive import Sketch, sketch_of, sketches
from covan_mlir.tuning.sketches.nest_text import nest_text

MOST = 100_000
"""Schedules that are counted."""


def written(chain: Chain, target: KernelTarget, derived: tuple[Sketch, ...]) -> dict[Sketch, Counter[str]]:
    """How many listed schedules of which templates each sketch covers: 0 of those that only have others. Templates that
    say nothing count nowhere."""
    counts: dict[Sketch, Counter[str]] = {sketch: Counter() for sketch in derived}
    listed = choices(chain, target)
    if isinstance(listed, Refusal):
        return counts
    for candidate, schedule in islice(listed.schedules(), MOST):
        structure = candidate.match.structure(schedule)
        sketch = sketch_of(structure, derived) if structure is not None else None
        if sketch is not None:
            counts[sketch][candidate.template.name] += 1
    for candidate in listed.candidates:
        for sketch in derived:
            if candidate.template.name not in counts[sketch]:
                more = sum(1 for _ in islice(candidate.match.structured(sketch.structure), MOST))
                if more or candidate.match.sampled(sketch.structure, Random(0)) is not None:
                    counts[sketch][candidate.template.name] = more
    return counts


def listing(lineage: LineageData, target: KernelTarget) -> str:
    """The sketches of all kernels of a program."""
    seen: dict[str, str] = {}
    for record in lineage.fusions:
        if not record.kernel or record.kernel in seen:
            continue
        chain = scaled(chain_json.load(record.source)).chain
        names = dict.fromkeys(
            lineage.actions[owner].name
            for i in record.parts
            if (part := lineage.parts.get(i)) is not None
            for owner in part.owners
        )
        derived = sketches(chain)
        head = f"{', '.join(names)}: {len(derived)} sketches ({record.kernel})"
        seen[record.kernel] = "\n\n".join([head, *_texts(chain, target, derived)])
    return "\n\n".join(seen.values()) + "\n" if seen else "no kernel of the program is covan's own\n"


def _texts(chain: Chain, target: KernelTarget, derived: tuple[Sketch, ...]) -> list[str]:
    counts = {} if chain.extents else written(chain, target, derived)
    texts = []
    for number, sketch in enumerate(derived, 1):
        known = sorted(counts.get(sketch, Counter()).items())
        by = ", ".join(f"{name} ({count} listed)" if count else name for name, count in known)
        lines = [f"  {number}. {sketch.structure}"]
        lines.append(f"     by the rules {', '.join(sketch.derivation)}")
        lines.append(f"     written by {by or 'no template'}")
        lines += [f"     | {line}" for line in nest_text(sketch).splitlines()]
        texts.append("\n".join(lines))
    return texts
