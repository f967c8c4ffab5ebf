"""A sketch as a loop nest, for people."""

from __future__ import annotations

from covan_mlir.fred.chain import Map, Reduce
from covan_mlir.fred.formulas import text
from covan_mlir.lowering.kernels.reductions.hoist import Scope
from covan_mlir.tuning.sketches.derive import Sketch


def nest_text(sketch: Sketch) -> str:
    """Its loops, one a line: ``.0`` is the outermost part of an axis."""
    return "\n".join({"tiles": _tiles, "rows": _rows, "rolling": _rolling}[sketch.structure.loops](sketch))


def _reductions(sketch: Sketch, depth: int) -> list[str]:
    scope = Scope(sketch.chain, {})
    lines = []
    for step in sketch.chain.reductions:
        term = text(scope.inlined(step.expr))
        value = f"{step.name}[{', '.join(step.axes)}]"
        lines.append(f"{'  ' * depth}{value} = {step.combine}({value}, {term})")
    return lines


def _results(sketch: Sketch, depth: int) -> list[str]:
    fused = {stage.step for stage in sketch.stages if stage.place == "fused"}
    scope = Scope(sketch.chain, {})
    steps = [step for step in sketch.chain.steps if isinstance(step, Map) and step.name in fused]
    return [f"{'  ' * depth}{step.name}[{', '.join(step.axes)}] = {text(scope.inlined(step.expr))}" for step in steps]


def _tiles(sketch: Sketch) -> list[str]:
    chain, structure = sketch.chain, sketch.structure
    step: Reduce = chain.reductions[-1]
    kept = list(dict.fromkeys(axis for one in chain.reductions for axis in one.axes))
    over = list(dict.fromkeys(axis for one in chain.reductions for axis in one.over))
    lines = [f"{name} = packed ahead of time" for name in structure.packed]
    lines.append(f"parallel for {', '.join(f'{axis}.0' for axis in kept)}:")
    depth = 1
    if structure.held:
        lines.append(f"{'  ' * depth}for {over[0]}.0:")
        depth += 1
    lines += [f"{'  ' * depth}scratch = {name}" for name in structure.cached]
    if structure.algorithm == "winograd":
        lines.append(f"{'  ' * depth}transform the window's tiles; then for each of their points:")
        depth += 1
    lines.append(f"{'  ' * depth}for {', '.join(f'{axis}.1' for axis in kept)}:")
    inner = ", ".join(f"{axis}.1" if structure.held and axis == over[0] else axis for axis in over)
    lines.append(f"{'  ' * (depth + 1)}for {inner}:")
    lanes = f", lanes along {over[-1]}" if structure.factored == "lanes" else ""
    lines.append(f"{'  ' * (depth + 2)}registers {', '.join(f'{axis}.2' for axis in kept)}{lanes}:")
    lines += _reductions(sketch, depth + 3)
    if structure.factored:
        lines.append(f"{'  ' * (depth + 1)}lanes of {step.name} are combined")
    if structure.held:
        lines.append(f"{'  ' * (depth + 1)}accumulators = combined with those in scratch")
    return lines + _results(sketch, 1)


def _rows(sketch: Sketch) -> list[str]:
    chain = sketch.chain
    rows = [axis.name for axis in chain.axes if axis.name not in chain.swept]
    over = [axis.name for axis in chain.axes if axis.name in chain.swept]
    partial = ", lanes have partial results" if sketch.structure.factored else ""
    lines = [f"parallel for {', '.join(f'{axis}.0' for axis in rows) or 'one'}:"]
    lines.append(f"  for {', '.join(f'{axis}.1' for axis in rows) or 'one'}, one sweep after the other:")
    lines.append(f"    for {', '.join(over)}{partial}:")
    return [*lines, *_reductions(sketch, 3), *_results(sketch, 2)]


def _rolling(sketch: Sketch) -> list[str]:
    chain, structure = sketch.chain, sketch.structure
    rows = [axis.name for axis in chain.axes if axis.name not in chain.swept]
    over = [axis.name for axis in chain.axes if axis.name in chain.swept]
    parts = f", {over[-1]}.0" if structure.factored == "parts" else ""
    lines = [f"parallel for {', '.join(f'{axis}.0' for axis in rows) or 'one'}{parts}:"]
    lanes = "lanes along them" if structure.factored else "lanes along rows"
    lines.append(f"  for blocks of {', '.join(over)}, {lanes}, each reduction repaired where one before it changes:")
    lines += _reductions(sketch, 2)
    if structure.factored == "parts":
        lines.append("then the states of all parts are merged")
    return lines + _results(sketch, 1)
