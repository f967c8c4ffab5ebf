"""Action reflection: executions of operators as states of their own, so that they can be related like values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covan_mlir.prov.system import Coalgebra, Transition


@dataclass(frozen=True, eq=False)
class Reflected:
    """An action-reflected system.

    Attributes:
        system: states ``0 .. controls - 1`` are the control states, numbered as before; the others are action states.
            ``x --op--> [op] --TAU--> y`` stands for ``x --op--> y``: an action state is entered by its operator's
            label and left silently. Silent transitions stay as they were: nothing is executed.
        controls: number of control states.
    """

    system: Coalgebra
    controls: int

    def is_action(self, state: int) -> bool:
        """Whether the state is an action state."""
        return state >= self.controls

    def action(self, state: int) -> Transition:
        """The execution that an action state stands for, as a transition between control states."""
        if not self.is_action(state):
            raise ValueError(f"state {self.system.name(state)} is a control state")
        system = self.system
        entering = int(np.flatnonzero(system.dst == state)[0])
        leaving = int(system.first[state])
        return Transition(int(system.src[entering]), system.labels[system.label[entering]], int(system.dst[leaving]))


def reflect(system: Coalgebra) -> Reflected:
    """Make every visible transition an action state; action states are numbered in the order of the transitions.

    A conservative extension: two states are bisimilar, strongly or weakly, exactly when they are as control states
    of the reflected system. This is why the way out of an action state is silent. Were it observable, the moment
    between an operator and the silent steps after it would be too, and weak bisimilarity would not be kept: it is
    not a congruence for action refinement (van Glabbeek & Goltz, Refinement of actions and equivalence notions for
    concurrent systems, 2001).
    """
    visible = np.flatnonzero(system.label != 0)
    silent = np.flatnonzero(system.label == 0)
    n = system.states
    actions = n + np.arange(visible.size)

    def name(state: int) -> str:
        if state < n:
            return system.name(state)
        x, op, y = system.transition(int(visible[state - n]))
        return f"[{op}: {system.name(x)} → {system.name(y)}]"

    reflected = Coalgebra.from_arrays(
        n + visible.size,
        np.concatenate((system.src[silent], system.src[visible], actions)),
        np.concatenate((system.label[silent], system.label[visible], np.zeros_like(actions))),
        np.concatenate((system.dst[silent], actions, system.dst[visible])),
        labels=system.labels,
        terminating=np.concatenate((system.terminating, np.zeros(visible.size, dtype=np.bool_))),
        initial=system.initial,
        naming=name,
    )
    return Reflected(reflected, n)


def project(reflected: Reflected) -> Coalgebra:
    """Forget the action states: the left inverse of ``reflect``.

    Raises:
        ValueError: if an action state is not entered by one visible transition and left by one silent one.
    """
    system, n = reflected.system, reflected.controls
    actions = np.arange(n, system.states)
    entering = np.flatnonzero(system.dst >= n)
    leaving = np.flatnonzero(system.src >= n)
    entering = entering[np.argsort(system.dst[entering], kind="stable")]
    if (
        not np.array_equal(system.dst[entering], actions)
        or not np.array_equal(system.src[leaving], actions)
        or (system.src[entering] >= n).any()
        or (system.label[entering] == 0).any()
        or (system.label[leaving] != 0).any()
    ):
        raise ValueError("an action state must have one visible transition into it and one silent one out of it")
    rest = np.flatnonzero((system.src < n) & (system.dst < n))
    return Coalgebra.from_arrays(
        n,
        np.concatenate((system.src[rest], system.src[entering])),
        np.concatenate((system.label[rest], system.label[entering])),
        np.concatenate((system.dst[rest], system.dst[leaving])),
        labels=system.labels,
        terminating=system.terminating[:n],
        initial=system.initial,
        naming=system.naming,
    )
