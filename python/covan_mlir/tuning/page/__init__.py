"""What became of tuning, as one HTML file: the best time of each kernel as schedules were tried, and the roofline."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from importlib import resources
from typing import Any

from covan_mlir.reporting.document import document, save
from covan_mlir.tuning.report import Row, Tuning


def write(path: str | os.PathLike[str], tunings: Mapping[str, Tuning]) -> None:
    """Write the page of some models, by name.

    Raises:
        CovanError: the file cannot be written.
    """
    save(path, page(tunings))


def page(tunings: Mapping[str, Tuning]) -> str:
    """The text of the page; see `write`."""
    models = [{"model": name, **_model(tuning)} for name, tuning in tunings.items()]
    return document(resources.files(__package__), f"{', '.join(tunings)}: covan tune", ("page.js",), models)


def _model(tuning: Tuning) -> dict[str, Any]:
    rows = sorted(tuning.rows, key=lambda row: -(row.seconds or 0.0) * row.count)
    return {
        **asdict(tuning),
        "left": dict(tuning.left),
        "rows": [{**asdict(r), "roof": _roof(r, tuning)} for r in rows],
    }


def _roof(row: Row, tuning: Tuning) -> float | None:
    """Seconds below which a kernel cannot get as the roofline has it; None: it is not known."""
    if not tuning.peak or not tuning.bandwidth:
        return None
    return max(row.flops / tuning.peak, row.moved / tuning.bandwidth)
