"""Taking silent steps out of a system before weak bisimilarity is computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covan_mlir.prov.system import Coalgebra, IntArray


@dataclass(frozen=True, eq=False)
class Reduced:
    """A system whose silent steps form no cycle, weakly bisimilar to the one it was made of.

    Attributes:
        system: the reduced system; its states are in no particular order.
        state: shape (states of the original,): the reduced state that stands for each.
        tau: silent successors of each reduced state.
        visible: (label, successor) pairs of each reduced state by visible transitions.
        order: every reduced state after its silent successors.
    """

    system: Coalgebra
    state: IntArray
    tau: list[list[int]]
    visible: list[list[tuple[int, int]]]
    order: list[int]


def reduce_silent(system: Coalgebra) -> Reduced:
    """Merge the states of each silent cycle, and each state that can do nothing but one silent step with its successor.

    All states of a strongly connected component of silent steps are weakly bisimilar, whether or not the system can
    stay in it for ever: the equivalence is insensitive to divergence. So are ``x`` and ``y`` if ``x --TAU--> y`` is
    all that ``x`` can do.
    """
    state = np.arange(system.states)
    current = system
    components = _silent_components(system)
    if components is not None:
        current, state = _quotient(current, components), components
    while (target := _forced(current)) is not None:
        current, state = _quotient(current, target), target[state]
    tau: list[list[int]] = [[] for _ in range(current.states)]
    visible: list[list[tuple[int, int]]] = [[] for _ in range(current.states)]
    for s, a, t in zip(current.src.tolist(), current.label.tolist(), current.dst.tolist(), strict=True):
        if a == 0:
            tau[s].append(t)
        else:
            visible[s].append((a, t))
    return Reduced(current, state, tau, visible, _bottom_up(current))


def _quotient(system: Coalgebra, state: IntArray) -> Coalgebra:
    """The system with states renumbered, silent loops dropped."""
    src, dst = state[system.src], state[system.dst]
    keep = (system.label != 0) | (src != dst)
    count = int(state.max()) + 1
    terminating = np.zeros(count, dtype=np.bool_)
    terminating[state[system.terminating]] = True
    return Coalgebra.from_arrays(
        count,
        src[keep],
        system.label[keep],
        dst[keep],
        labels=system.labels,
        terminating=terminating,
        initial=int(state[system.initial]),
    )


def _forced(system: Coalgebra) -> IntArray | None:
    """For each state the end of its forced silent steps, renumbered; None if there are none."""
    count = np.diff(system.first)
    only = np.flatnonzero((count == 1) & ~system.terminating)
    edge = system.first[only]
    silent = system.label[edge] == 0
    only, edge = only[silent], edge[silent]
    if only.size == 0:
        return None
    target = np.arange(system.states)
    target[only] = system.dst[edge]
    while not np.array_equal(further := target[target], target):  # doubling; silent steps form no cycle here
        target = further
    return np.unique(target, return_inverse=True)[1].astype(np.int64)


def _silent_components(system: Coalgebra) -> IntArray | None:
    """The strongly connected component of each state by silent steps; None if each state is its own.

    Tarjan, Depth-first search and linear graph algorithms (1972), without recursion, on what is left after peeling
    off, again and again, states without silent steps into or out of them.
    """
    silent = system.label == 0
    src, dst = system.src[silent], system.dst[silent]
    order = _topological(system.states, src, dst)
    if len(order) == system.states:
        return None
    core = np.ones(system.states, dtype=np.bool_)
    core[np.array(order, dtype=np.int64)] = False
    within = core[src] & core[dst]
    src, dst = src[within], dst[within]
    first = np.searchsorted(src, np.arange(system.states + 1)).tolist()
    out = dst.tolist()

    component = [-1] * system.states
    index = [-1] * system.states
    low = [0] * system.states
    stack: list[int] = []
    clock = components = 0
    for root in np.flatnonzero(core).tolist():
        if index[root] >= 0:
            continue
        path = [root]
        following = [first[root]]
        index[root] = low[root] = clock
        clock += 1
        stack.append(root)
        while path:
            s, i = path[-1], following[-1]
            if i < first[s + 1]:
                following[-1] += 1
                t = out[i]
                if index[t] < 0:
                    index[t] = low[t] = clock
                    clock += 1
                    stack.append(t)
                    path.append(t)
                    following.append(first[t])
                elif component[t] < 0:
                    low[s] = min(low[s], index[t])
                continue
            path.pop()
            following.pop()
            if path:
                low[path[-1]] = min(low[path[-1]], low[s])
            if low[s] == index[s]:
                while component[s] < 0:
                    component[stack.pop()] = components
                components += 1
    for s in order:
        component[s] = components
        components += 1
    return np.array(component, dtype=np.int64)


def _topological(states: int, src: IntArray, dst: IntArray) -> list[int]:
    """States all of whose walks along the edges end, each after its successors and by length of its longest walk.

    Kahn, Topological sorting of large networks (1962).
    """
    left = np.bincount(src, minlength=states).tolist()
    by_target = np.argsort(dst, kind="stable")
    before = src[by_target].tolist()
    first = np.searchsorted(dst[by_target], np.arange(states + 1)).tolist()
    order = [s for s, count in enumerate(left) if count == 0]
    for t in order:  # grows while it is walked
        for i in range(first[t], first[t + 1]):
            s = before[i]
            left[s] -= 1
            if left[s] == 0:
                order.append(s)
    return order


def _bottom_up(system: Coalgebra) -> list[int]:
    silent = system.label == 0
    return _topological(system.states, system.src[silent], system.dst[silent])


def layers(system: Coalgebra) -> tuple[list[int], IntArray, list[int]]:
    """States from which no cycle can be reached; those on a cycle or between cycles; and those before all cycles.

    The first and the last are in an order in which each comes after its successors.
    """
    below = _topological(system.states, system.src, system.dst)
    rest = np.ones(system.states, dtype=np.bool_)
    rest[np.array(below, dtype=np.int64)] = False
    above = [s for s in reversed(_topological(system.states, system.dst, system.src)) if rest[s]]
    rest[np.array(above, dtype=np.int64)] = False
    return below, np.flatnonzero(rest), above
