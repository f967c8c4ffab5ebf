"""Strong bisimilarity by signature refinement.

Kanellakis & Smolka (CCS expressions, finite state processes, and three problems of equivalence, 1990) give the
scheme: refine until no block holds states that reach different blocks. The signature of a state is its set of (label,
block of next state), as in Blom & Orzan (A distributed algorithm for strong bisimulation reduction of state spaces,
2002). Only states with a successor whose block has a new number are looked at again, and the largest part of a split
block keeps the number (Hopcroft 1971; Paige & Tarjan 1987 for relations), so that a transition is looked at because of
its target O(log n) times.
"""

from __future__ import annotations

import numpy as np

from covan_mlir.prov.partition import Partition
from covan_mlir.prov.system import Coalgebra, IntArray

_MANY = 2000  # above so many states numpy sorts signatures faster than Python makes sets
_HUB = 64  # blocks with a state of more transitions wait until the others have settled


def strong_partition(system: Coalgebra) -> Partition:
    """The partition of the states into classes of strong bisimilarity; TAU counts as a label like any other.

    Time O(d m log n) at worst, d being the greatest number of transitions of one state; on the graphs of the tests
    close to O(m log n). Memory O(n + m).
    """
    n, shift = system.states, len(system.labels)
    first = system.first.tolist()
    label, dst = system.label.tolist(), system.dst.tolist()
    by_target = np.argsort(system.dst, kind="stable")
    before = system.src[by_target].tolist()
    first_before = np.searchsorted(system.dst[by_target], np.arange(n + 1)).tolist()

    partition = Partition([0] * n, 1)
    everything = np.arange(n)
    changed = partition.split_by(everything, system.terminating.astype(np.int64))
    dirty: dict[int, set[int]] = {b: set(members) for b, members in enumerate(partition.members) if len(members) > 1}
    while dirty:
        partition.time += 1
        ready = [b for b, states in dirty.items() if all(first[s + 1] - first[s] <= _HUB for s in states)]
        batch = {b: dirty.pop(b) for b in (ready or list(dirty))}
        block = partition.block
        groups: dict[int, dict[object, list[int]]] = {}
        if sum(map(len, batch.values())) > _MANY:
            states = np.array([s for some in batch.values() for s in some], dtype=np.int64)
            for s, signature in zip(states.tolist(), _signatures(system, states, block), strict=True):
                groups.setdefault(block[s], {}).setdefault(signature, []).append(s)
        else:
            for b, some in batch.items():
                parts = groups.setdefault(b, {})
                for s in some:
                    span = range(first[s], first[s + 1])
                    parts.setdefault(frozenset([label[i] + shift * block[dst[i]] for i in span]), []).append(s)
        # A state that is not dirty reaches no new number, a dirty one does: they differ without looking.
        changed = [s for b, parts in groups.items() for s in partition.split(b, list(parts.values()))]
        for state in changed:
            for i in range(first_before[state], first_before[state + 1]):
                s = before[i]
                b = block[s]
                if len(partition.members[b]) > 1:
                    dirty.setdefault(b, set()).add(s)
    return partition


def _signatures(system: Coalgebra, states: IntArray, block: list[int]) -> list[bytes]:
    """The signature of each state, as the bytes of its sorted codes."""
    counts = system.first[states + 1] - system.first[states]
    owner = np.repeat(np.arange(states.size), counts)
    offsets = np.cumsum(counts) - counts
    edges = np.arange(owner.size) - offsets[owner] + system.first[states][owner]
    code = system.label[edges] + len(system.labels) * np.array(block, dtype=np.int64)[system.dst[edges]]
    order = np.lexsort((code, owner))
    owner, code = owner[order], code[order]
    keep = np.ones(code.size, dtype=np.bool_)
    keep[1:] = (owner[1:] != owner[:-1]) | (code[1:] != code[:-1])
    owner, code = owner[keep], code[keep]
    cuts = (np.searchsorted(owner, np.arange(states.size + 1)) * code.itemsize).tolist()
    raw = code.tobytes()
    return [raw[cuts[i] : cuts[i + 1]] for i in range(states.size)]
