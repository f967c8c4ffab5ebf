"""A partition under refinement that remembers when each block came to be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from covan_mlir.prov.system import IntArray


class Partition:
    """Blocks of the states ``0 .. n - 1`` and the tree of the splits that made them.

    Of the parts of a split block the largest keeps the block's number, so that a state changes its number at most
    log n times (Hopcroft 1971). Every part gets a node of its own in the tree, with the time of the split: the tree
    tells the block of a state at any earlier time, from which distinguishing formulas are built (Cleaveland 1990).
    """

    def __init__(self, block: Sequence[int], blocks: int) -> None:
        self.block = list(block)
        self.members: list[set[int]] = [set() for _ in range(blocks)]
        for state, b in enumerate(self.block):
            self.members[b].add(state)
        # A node above the first blocks, so that any two states have a common ancestor.
        self.parent = [-1] + [0] * blocks
        self.birth = [-1] + [0] * blocks
        self.depth = [0] + [1] * blocks
        self.node = list(range(1, blocks + 1))
        self.time = 0

    def __len__(self) -> int:
        return len(self.members)

    def split(self, b: int, groups: list[list[int]]) -> list[int]:
        """Split block ``b`` into the groups and what they leave of it; returns the states whose number changed."""
        members = self.members[b]
        rest = len(members) - sum(map(len, groups))
        if rest == 0 and len(groups) == 1:
            return []
        largest = max(range(len(groups)), key=lambda g: len(groups[g]))
        if rest < len(groups[largest]):
            keeping = set(groups.pop(largest))
            if rest:
                groups.append(list(members.difference(keeping, *groups)))
            self.members[b] = keeping
        else:
            for group in groups:
                members.difference_update(group)
        above = self.node[b]
        self.node[b] = self._new_node(above)
        changed: list[int] = []
        for group in groups:
            for state in group:
                self.block[state] = len(self.members)
            self.members.append(set(group))
            self.node.append(self._new_node(above))
            changed += group
        return changed

    def _new_node(self, above: int) -> int:
        self.parent.append(above)
        self.birth.append(self.time)
        self.depth.append(self.depth[above] + 1)
        return len(self.parent) - 1

    def split_by(self, states: IntArray, key: IntArray) -> list[int]:
        """Split every block that the keys tell apart; ``states`` must hold all members of the blocks it touches."""
        block = np.array(self.block, dtype=np.int64)[states]
        order = np.lexsort((key, block))
        states, block, key = states[order], block[order], key[order]
        new_block = np.ones(states.size, dtype=np.bool_)
        new_block[1:] = block[1:] != block[:-1]
        cuts = np.flatnonzero(new_block | np.concatenate(([True], key[1:] != key[:-1])))
        owner = block[cuts]
        shared = np.zeros(cuts.size, dtype=np.bool_)  # groups that do not have their block for themselves
        shared[1:] |= owner[1:] == owner[:-1]
        shared[:-1] |= owner[1:] == owner[:-1]
        ends = np.append(cuts[1:], states.size)
        groups: dict[int, list[list[int]]] = {}
        for g in np.flatnonzero(shared).tolist():
            groups.setdefault(int(owner[g]), []).append(states[cuts[g] : ends[g]].tolist())
        return [state for b, parts in groups.items() for state in self.split(b, parts)]

    def block_at(self, state: int, time: int) -> int:
        """The tree node that held the state just before ``time``."""
        node = self.node[self.block[state]]
        while self.birth[node] >= time:
            node = self.parent[node]
        return node

    def parted(self, s: int, t: int) -> int:
        """The time of the split that told two states in different blocks apart; 0 if no block ever held both."""
        x, y = self.node[self.block[s]], self.node[self.block[t]]
        time = 0
        while x != y:
            if self.depth[x] >= self.depth[y]:
                time, x = self.birth[x], self.parent[x]
            else:
                time, y = self.birth[y], self.parent[y]
        return time
