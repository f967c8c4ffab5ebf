"""`Lineage`: what a program's lineage answers, draws and tells, as methods."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from covan_mlir.provenance import bipartite, html, lineage_json, trail
from covan_mlir.provenance.explain import table
from covan_mlir.provenance.model import Action, LineageData, Site
from covan_mlir.provenance.operators import PlacedOperator, operators
from covan_mlir.reporting import model_explorer


class Lineage(LineageData):
    """Actions and sites of one compiled program, and the relation between them."""

    @classmethod
    def of(cls, data: LineageData) -> Lineage:
        """The lineage of data that the two share from now on: what the one is tagged with, the other is."""
        lineage = cls.__new__(cls)
        lineage.__dict__ = data.__dict__
        return lineage

    @cached_property
    def versions(self) -> dict[str, Lineage]:
        """Lineages of the program's versions for some sizes, by these sizes: ``{"batch=8": ...}``."""
        return {}

    def chain(self, what: Action | Site | int | str) -> trail.Trail:
        """Step by step, what the compiler made of an action, or what a site was made of.

        Args:
            what: an action, its id or its name; or a site, by itself or as ``site:7``.

        Raises:
            KeyError: there is no such action or site, or the name stands for several.
        """
        if isinstance(what, str) and (number := what.removeprefix("site:")) != what and number.isdecimal():
            what = self.site(int(number))
        if isinstance(what, Site):
            return trail.of_site(self, self.site(what))
        return trail.of_action(self, self.one(what))

    def operators(self) -> tuple[PlacedOperator, ...]:
        """What each kernel of covan's is, site by site: which integers it multiplies, what these stand for, how its
        results are quantised, and which actions it performs (docs/kir.md)."""
        return operators(self)

    def to_graphviz(self) -> str:
        """Actions and sites in Graphviz's language; `covan_mlir.provenance.bipartite.dot` draws parts of the graph."""
        return bipartite.dot(self, self.actions)

    def to_model_explorer(self) -> dict[str, Any]:
        """Source graph and compiled graph as JSON that Google's Model Explorer opens (docs/report.md)."""
        return model_explorer.collection(self)

    def explain(self, what: Action | int | str | None = None) -> str:
        """Text table of the sites and what each performs; of those of ``what`` alone, if given."""
        return table(self, self.sites if what is None else self.where(what))

    def __str__(self) -> str:
        return self.explain()

    def _repr_html_(self) -> str:
        """For notebooks."""
        return html.fragment(self)

    def to_json(self) -> dict[str, Any]:
        """Versioned JSON form (docs/artifact.md)."""
        return lineage_json.dump(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Lineage:
        """The inverse of `to_json`."""
        return Lineage.of(lineage_json.load(value))
