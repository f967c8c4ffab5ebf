"""`Profile`: what a profile tells, as rows, tables, files and the formats of other tools."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any, Protocol

from covan_mlir.artifacts.variant import Variant
from covan_mlir.profiling import exports, html, store, text, views
from covan_mlir.profiling.model import By, ProfileData


class Programs(Protocol):
    """What a saved profile may be of: an executable, or what an artifact holds."""

    @property
    def variants(self) -> Sequence[Variant]:
        """The program for each target."""


class Profile(ProfileData):
    """Times of one program's sites, call by call."""

    @classmethod
    def of(cls, data: ProfileData) -> Profile:
        """The profile of data."""
        return cls(**{field.name: getattr(data, field.name) for field in dataclasses.fields(data)})

    def rows(self, by: By = "line") -> list[views.ProfileRow]:
        """What a call's time went to, by source line, module or site; see `covan_mlir.profiling.views`."""
        return views.rows(self, by)

    def table(self, by: By = "line") -> str:
        """The same as a text table."""
        return text.table(self, by)

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """For notebooks."""
        return html.fragment(self)

    def to_json(self) -> dict[str, Any]:
        """JSON-able form: samples, and the tables by line, module and site."""
        return store.dump(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON form; `load` reads it.

        Raises:
            OSError: the file cannot be written.
        """
        store.save(self, path)

    @staticmethod
    def load(path: str | os.PathLike[str], exe: Programs) -> Profile:
        """Read a saved profile of a program of an executable, or of what an artifact holds.

        Raises:
            ProfileError: the file cannot be read, is no profile, or is one of another program.
        """
        return Profile.of(store.load(path, exe.variants))

    def to_chrome_trace(self) -> dict[str, Any]:
        """The median call as Chrome's trace events, which ui.perfetto.dev and chrome://tracing open."""
        return exports.chrome_trace(self)

    def to_speedscope(self) -> dict[str, Any]:
        """A flame graph by module, as speedscope.app opens it."""
        return exports.speedscope(self)

    def to_collapsed(self) -> str:
        """A flame graph by module, as collapsed stacks: ``module;action;kernel nanoseconds``."""
        return exports.collapsed(self)

    def to_csv(self, by: By = "line") -> str:
        """The rows as comma-separated values, with a header."""
        return exports.csv_text(self, by)
