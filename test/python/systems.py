"""Transition systems of any size, each with a copy of itself whose states stand in another order."""

from __future__ import annotations

import math
from typing import Literal, get_args

import numpy as np

from covan_mlir.prov import TAU, Coalgebra

Kind = Literal["chain", "grid", "dag", "silent-dag", "cyclic"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LABELS = (TAU, "a", "b", "c")
SILENT: dict[Kind, float] = {"dag": 0.3, "silent-dag": 0.7, "cyclic": 0.3}


def permuted(kind: Kind, n: int) -> tuple[Coalgebra, Coalgebra, list[int]]:
    """A system of ``n`` states and about three times as many transitions, its copy, and each state's place there."""
    rng = np.random.default_rng(7)
    last = n - 1
    if kind == "chain":  # steps of one, two and three; every other one of the steps of one is silent
        s = np.arange(n - 3)
        src, dst = np.tile(s, 3), np.concatenate((s + 1, s + 2, s + 3))
        label = np.concatenate((s % 2, s * 0 + 1, s * 0 + 2))
    elif kind == "grid":  # right is silent
        side = math.isqrt(n)
        s = np.arange(side * (side - 1))
        s = s[s % side < side - 1]
        src, dst = np.tile(s, 3), np.concatenate((s + 1, s + side, s + side + 1))
        label, last = np.repeat([0, 1, 2], s.size), side * side - 1
    else:
        src, dst = rng.integers(0, n, 3 * n), rng.integers(0, n, 3 * n)
        if kind != "cyclic":
            src, dst = np.minimum(src, dst), np.maximum(src, dst)
            src, dst = src[src < dst], dst[src < dst]
        label = np.where(rng.random(src.size) < SILENT[kind], 0, rng.integers(1, len(LABELS), src.size))
    places = rng.permutation(n)
    system = Coalgebra.from_arrays(n, src, label, dst, labels=LABELS, terminating=[last])
    copy = Coalgebra.from_arrays(
        n, places[src], label, places[dst], labels=LABELS, terminating=places[[last]], initial=int(places[0])
    )
    return system, copy, places.tolist()
