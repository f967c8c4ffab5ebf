"""The theory of provenance: computation graphs as coalgebras, rewrites as bisimulations. See docs/theory.md.

After "Provenance Tracking in AI Compilers through the Lens of Coalgebra" (Tian & Liu, arXiv:2606.10937). Imports
numpy and nothing of a compiler.
"""

from covan_mlir.prov.abstraction import Abstraction, Path, Refined, refine
from covan_mlir.prov.bisimulation import Distinction, Relation, Verdict, strong_bisimulation, weak_bisimulation
from covan_mlir.prov.correctness import Correctness, observationally_correct
from covan_mlir.prov.formula import Can, Formula, Not, Terminates, satisfying
from covan_mlir.prov.play import Move, Play, Walk
from covan_mlir.prov.reflection import Reflected, project, reflect
from covan_mlir.prov.system import TAU, Coalgebra, Label, Operation, Transition, disjoint_union, from_dataflow

__all__ = [
    "TAU",
    "Abstraction",
    "Can",
    "Coalgebra",
    "Correctness",
    "Distinction",
    "Formula",
    "Label",
    "Move",
    "Not",
    "Operation",
    "Path",
    "Play",
    "Refined",
    "Reflected",
    "Relation",
    "Terminates",
    "Transition",
    "Verdict",
    "Walk",
    "disjoint_union",
    "from_dataflow",
    "observationally_correct",
    "project",
    "refine",
    "reflect",
    "satisfying",
    "strong_bisimulation",
    "weak_bisimulation",
]
