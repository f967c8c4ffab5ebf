"""Fused forms on numpy arrays, block by block: what a code generator has to reproduce."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from covan_mlir.fred.chain import Map
from covan_mlir.fred.forms import Fusion, Local, Rolling, SplitK, Update
from covan_mlir.fred.interpret import Space, Value, inputs_of, run_step, sizes_of
from covan_mlir.fred.scalars import DTYPES, Array

Env = dict[str, Value]


def run_fusion(
    fusion: Fusion, arrays: Mapping[str, Array], block: int = 16, parts: int = 1, wide: str | None = None
) -> dict[str, Array]:
    """The outputs of the chain, computed stage by stage.

    Args:
        fusion: from `covan_mlir.fred.fuse.fuse`.
        arrays: the inputs by name.
        block: positions per step of each loop, on its last axis.
        parts: into how many parts that axis is split, each with a state of its own.
        wide: as for `covan_mlir.fred.interpret.interpret`.
    """
    chain = fusion.chain
    space = Space(sizes_of(chain, arrays), {}, wide)
    env = inputs_of(chain, arrays, space)
    for stage in fusion.stages:
        if stage.rolling is not None:
            assert stage.split is not None
            env |= run_loop(stage.rolling, stage.split, env, space, block, parts)
        for step in stage.elements:
            env[step.name] = run_step(step, env, space)
        for step in stage.rows:
            env[step.name] = run_step(step, env, space)
    return {name: env[name].data for name in chain.outputs}


def run_loop(rolling: Rolling, split: SplitK, env: Mapping[str, Value], space: Space, block: int, parts: int) -> Env:
    """The final values of a loop's reductions, under their plain names."""
    axis = rolling.axes[-1]
    size = space.sizes[axis]
    edges = [size * k // parts for k in range(parts + 1)]
    states = [run_part(rolling, env, space, _blocks(a, b, block)) for a, b in itertools.pairwise(edges)]
    total = states[0]
    for state in states[1:]:
        total = merge(split, total, state, env, space)
    current = {**env, **{f"{name}.new": value for name, value in total.items()}}
    for line in rolling.finish:
        current[line.name] = _update(line, current, space)
    return {line.name: current[line.name] for line in rolling.finish if line.name in total}


def _blocks(start: int, stop: int, block: int) -> Iterator[slice]:
    for at in range(start, stop, block):
        yield slice(at, min(at + block, stop))


def initial_state(rolling: Rolling, space: Space) -> Env:
    """The neutral state."""
    state: Env = {}
    for value in rolling.state:
        shape = [space.sizes[axis] for axis in value.axes]
        state[value.name] = Value(np.full(shape, value.initial.value, DTYPES[space.dtype(value.dtype)]), value.axes)
    return state


def run_part(rolling: Rolling, env: Mapping[str, Value], space: Space, blocks: Iterable[slice]) -> Env:
    """The state after some blocks of positions on the last axis."""
    axis = rolling.axes[-1]
    state = initial_state(rolling, space)
    for positions in blocks:
        here = Space(space.sizes, {axis: positions}, space.wide)
        current: Env = {name: value.part({axis: positions}) for name, value in env.items()}
        current |= {f"{name}.old": value for name, value in state.items()}
        length = (positions.stop - positions.start) * np.prod([space.sizes[a] for a in rolling.axes if a != axis])
        current["count.local"] = Value(np.asarray(length, np.float64), ())
        for step in rolling.elements:
            current[step.name] = run_step(step, current, here)
        for line in rolling.body:
            current[line.name] = (
                run_step(line.reduce, current, here) if isinstance(line, Local) else _update(line, current, here)
            )
        state = {name: current[f"{name}.new"] for name in state}
    return state


def merge(split: SplitK, a: Env, b: Env, env: Mapping[str, Value], space: Space) -> Env:
    """Two states as one."""
    current: Env = {**env}
    for suffix, state in (("a", a), ("b", b)):
        current |= {f"{name}.{suffix}": value for name, value in state.items()}
    for line in split.merge:
        current[line.name] = _update(line, current, space)
    return {name: current[f"{name}.new"] for name in a}


def _update(line: Update, env: Mapping[str, Value], space: Space) -> Value:
    return run_step(Map(line.name, line.axes, line.expr, line.dtype), env, space)
