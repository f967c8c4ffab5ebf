"""What the algebra hands to code generation: sweeps with repaired accumulators, states that merge, and their proofs.

Everything is straight-line data over names; nothing here has to be interpreted with rules of its own. A name carries
the moment that it belongs to as a suffix:

====================  ====================================================================================
``m.old``             value before the block (in a merge: ``m.a`` and ``m.b``, the two states)
``m.local``           what the block alone gives
``m.new``             value after the block (after the merge)
``m.safe``            ``m.new`` with a guard: a value that no infinity minus infinity comes from
``m.from_old``        ``m.old`` with a guard: ``m.safe`` where ``m.old`` says nothing yet (in a merge ``m.from_a``, ..)
``m``                 the final value, after the last block, as the chain means it
``count.local``       number of positions in the block (given by whoever writes the loop); ``count.old`` before it
====================  ====================================================================================

A fused softmax row, as `Rolling.body`, reads::

    m.local = reduce(max, j, x)              # Local
    m.new   = max(m.old, m.local)            # Update
    m.safe  = select(m.new == -inf, 0, m.new)
    m.from_old = select(m.old == -inf, m.safe, m.old)
    l.local = reduce(add, j, exp(x - m.safe))
    l.new   = l.old * exp(m.from_old - m.safe) + l.local
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from covan_mlir.fred.chain import Chain, Reduce, Step
from covan_mlir.fred.expression import Const, Expr

if TYPE_CHECKING:
    from covan_mlir.fred.certificate import Certificate

RepairKind = Literal["none", "multiplicative", "additive", "polynomial", "monotone"]
"""How a partial result follows its statistic: not at all, by a factor, by a term, by both with helpers, through the
inverse of a monotone function."""


@dataclass(frozen=True)
class State:
    """One value carried from block to block, for each position on ``axes``.

    Attributes:
        initial: its value before the first block: the neutral state of the merge.
    """

    name: str
    axes: tuple[str, ...]
    dtype: str
    initial: Const


@dataclass(frozen=True)
class Local:
    """``name = reduce(...)`` over the positions of the current block; its expression reads element values by their
    plain names and statistics by suffixed ones."""

    name: str
    reduce: Reduce


@dataclass(frozen=True)
class Update:
    """``name[axes] = expr``, once per row and block, over suffixed names."""

    name: str
    axes: tuple[str, ...]
    expr: Expr
    dtype: str
    trace: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Guard:
    """Where a statistic has an infinite value that would make infinity minus infinity, another value is read.

    Attributes:
        statistic: plain name; ``<statistic>.safe`` is what the body reads.
        when: i1, over ``<statistic>.new``.
        instead: what is read there.
        reason: a row of inputs on which the form without the guard differs from the chain.
    """

    statistic: str
    when: Expr
    instead: Const
    reason: str


@dataclass(frozen=True)
class Repair:
    """How the partial result of ``target`` follows a change of the statistics that it was computed with.

    ``update`` is ``h`` in ``r(s.new) = h(r(s.old), s.old, s.new, ...)``, where ``r(s)`` is the reduction over the
    positions seen so far with the statistics ``s``.

    Attributes:
        statistics: plain names of the values that change.
        helpers: plain names of the other accumulators whose ``.old`` the update reads (``count`` is one).
        update: over ``<target>.old``, ``<statistic>.old``, ``<statistic>.new`` and ``<helper>.old``, without guards.
        certificate: proof that one element obeys the law and that the combine carries it over to a block.
    """

    target: str
    kind: RepairKind
    statistics: tuple[str, ...]
    helpers: tuple[str, ...]
    update: Expr
    certificate: Certificate


@dataclass(frozen=True)
class UnfusedReduction:
    """Why a reduction does not run in the sweep of one that it depends on."""

    target: str
    statistics: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Rolling:
    """Reductions over the same axes in one loop over blocks of positions.

    Before the loop every `State` has its initial value under ``<name>.old``. Per block: the ``elements`` are computed,
    for the positions of the block; then the ``body``, line by line; then ``.new`` becomes ``.old``. After the loop
    ``finish`` defines, line by line, plain names from ``<name>.new`` (that is ``initial`` where the axis has no
    positions).

    Attributes:
        axes: what is swept.
        elements: steps of the chain with a position on a swept axis that the body reads, inner reductions (the scores
            of attention) among them; none reads a statistic of this loop.
    """

    axes: tuple[str, ...]
    state: tuple[State, ...]
    elements: tuple[Step, ...]
    body: tuple[Local | Update, ...]
    finish: tuple[Update, ...]
    repairs: tuple[Repair, ...]
    guards: tuple[Guard, ...] = ()

    @property
    def dependent(self) -> bool:
        """Whether some partial result has to be repaired; if not, partial copies may simply be combined."""
        return any(repair.kind != "none" for repair in self.repairs)


@dataclass(frozen=True)
class SplitK:
    """Partial states of disjoint parts of the axes, and how two of them merge.

    Each part runs ``rolling`` up to, not including, ``finish`` and keeps its state; ``merge`` computes ``<name>.new``
    from ``<name>.a`` and ``<name>.b``. It is associative, and the initial state is neutral on both sides. ``finish`` is
    the rolling form's.
    """

    rolling: Rolling
    merge: tuple[Update, ...]
    certificates: tuple[Certificate, ...] = ()


@dataclass(frozen=True)
class Stage:
    """One sweep over ``axes``, or, with no axes, a computation per row between sweeps.

    Attributes:
        reductions: plain names of the reductions that end with this stage.
        rolling: the loop; None where the stage only computes elements.
        split: its states and their merge; there whenever ``rolling`` is.
        elements: steps that need a position on a swept axis for ``writes``, in order.
        writes: outputs of the chain, or values that a later stage reads, that this stage computes position by position.
        rows: steps without a swept axis, computed once after the sweep from plain names, in order.
        why: why it is not part of the stage before it; empty for the first.
    """

    axes: tuple[str, ...]
    reductions: tuple[str, ...]
    rolling: Rolling | None
    split: SplitK | None
    elements: tuple[Step, ...]
    writes: tuple[str, ...]
    rows: tuple[Step, ...]
    why: str = ""


@dataclass(frozen=True)
class Rewrite:
    """A step of normalisation: what became of which value, and the proof that it may."""

    target: str
    rule: str
    text: str
    certificate: Certificate


@dataclass(frozen=True)
class Fusion:
    """A chain as a minimal sequence of sweeps.

    Attributes:
        source: the chain as it was given.
        chain: the chain that the stages compute: normalised, with helpers. Its outputs are the source's.
        refusals: the dependences that no repair was found for: each begins a new stage.
    """

    source: Chain
    chain: Chain
    stages: tuple[Stage, ...]
    rewrites: tuple[Rewrite, ...] = ()
    refusals: tuple[UnfusedReduction, ...] = ()
    certificates: tuple[Certificate, ...] = field(default=(), compare=False)
