"""What quantisation costs: signal-to-noise ratios of tensors and layers, and which layers to keep in float."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from covan_mlir.frontend.actions import source_actions
from covan_mlir.quantizing.machines import Multiplied
from covan_mlir.quantizing.noise import Measured, Simulated, decibels
from covan_mlir.quantizing.products import Left
from covan_mlir.quantizing.report_json import StoredLayerNoise, StoredLeft, StoredQuantization, StoredTensorNoise
from covan_mlir.quantizing.scheme import Scheme
from covan_mlir.reporting.comparison_json import stored
from covan_mlir.support.columns import aligned
from covan_mlir.support.fragments import folded, paragraph, table, whole


@dataclass(frozen=True)
class TensorNoise:
    """One action's tensor, everything quantised.

    Attributes:
        db: its signal-to-noise ratio: power of the float model's numbers over that of the difference, in dB.
    """

    name: str
    op: str
    module: str
    line: str
    db: float


@dataclass(frozen=True)
class LayerNoise:
    """One layer that is quantised.

    Attributes:
        name: as ``keep`` takes it: the path of its module, or else the action's name.
        action, op, line: of the source.
        db: signal-to-noise ratio of what it gives, everything quantised.
        alone_db: the same of the model's results, it alone quantised.
        share: of the power of noise that all layers alone make in the results, from 0 to 1.
    """

    name: str
    action: str
    op: str
    line: str
    db: float
    alone_db: float
    share: float


@dataclass(frozen=True)
class QuantizationReport:
    """The model in float beside the quantised one, in calls of the calibration data.

    Attributes:
        scheme: how it was quantised.
        results_db: signal-to-noise ratio of the results, in dB; of several, of their mean noise.
        calls: with which it was calibrated.
        measured: of those, in which tensors were measured; layers alone in the first.
        first: action whose tensor is the first below ``scheme.bound_db``; None: none is.
        suggested: for ``keep``: the fewest layers without which the results reach that bound, as far as noise adds up.
        layers: that are quantised, in source order.
        tensors: of all actions whose results are floats, in source order.
        left: layers that stay in float, and why.
        multiplied: how the target multiplies steps.
    """

    scheme: Scheme
    results_db: float
    calls: int
    measured: int
    first: str | None
    suggested: tuple[str, ...]
    layers: tuple[LayerNoise, ...]
    tensors: tuple[TensorNoise, ...]
    left: tuple[Left, ...]
    multiplied: Multiplied

    def worst(self) -> tuple[LayerNoise, ...]:
        """The layers, those that cost the results most first."""
        return tuple(sorted(self.layers, key=lambda layer: -layer.share))

    def to_json(self) -> dict[str, Any]:
        """The report as JSON (docs/quantised.md)."""
        report = StoredQuantization(
            mode=self.scheme.mode,
            activations=self.scheme.activations,
            observer=self.scheme.observer,
            bound_db=stored(self.scheme.bound_db),
            results_db=stored(self.results_db),
            calls=self.calls,
            measured=self.measured,
            first=self.first,
            suggested=self.suggested,
            layers=tuple(
                StoredLayerNoise(
                    row.name, row.action, row.op, row.line, stored(row.db), stored(row.alone_db), row.share
                )
                for row in self.layers
            ),
            tensors=tuple(
                StoredTensorNoise(row.name, row.op, row.module, row.line, stored(row.db)) for row in self.tensors
            ),
            left=tuple(StoredLeft(one.name, one.why) for one in self.left),
            target=self.scheme.target,
            multiplied=self.multiplied.by,
        )
        return report.to_json()

    def __str__(self) -> str:
        lines = [*self.verdict(), "", *aligned([_HEAD, *map(_cells, self.worst())], right=(3, 4, 5))]
        if self.left:
            lines += ["", "in float:", *(f"  {line}" for line in aligned([(one.name, one.why) for one in self.left]))]
        return "\n".join(lines) + "\n"

    def _repr_html_(self) -> str:
        """For notebooks: the verdict, the layers, and folded what stays in float."""
        first, *rest = self.verdict()
        return whole(
            "quantization",
            [
                paragraph(first, strong=True),
                *map(paragraph, rest),
                table(_HEAD, [list(_cells(row)) for row in self.worst()]),
                folded(
                    f"{len(self.left)} layers in float", table(("layer", "why"), [[o.name, o.why] for o in self.left])
                ),
            ],
        )

    def verdict(self) -> list[str]:
        """What it comes to, in lines of text."""
        layers = f"{len(self.layers)} layers in {self.scheme.mode}, {len(self.left)} in float"
        lines = [f"{layers}; the results have {_number(self.results_db)} dB over {_calls(self.measured)}"]
        bound = f"{self.scheme.bound_db:g} dB"
        if self.first is not None:
            row = next(row for row in self.tensors if row.name == self.first)
            where = f" at {row.line}" if row.line else ""
            module = f", in {row.module}" if row.module else ""
            lines.append(
                f"{row.name} ({row.op}){where}{module} is the first tensor below {bound}: {_number(row.db)} dB"
            )
        else:
            lines.append(f"no tensor is below {bound}")
        if self.suggested:
            lines.append(f"to reach {bound}, keep in float: keep={self.suggested!r}")
        if self.scheme.mode == "int8":
            lines.append(str(self.multiplied))
        return lines


_HEAD = ("layer", "op", "line", "dB", "results' dB, alone", "share of noise")


def _calls(count: int) -> str:
    return f"{count} call{'' if count == 1 else 's'}"


def _number(value: float) -> str:
    return f"{value:.1f}"


def _cells(row: LayerNoise) -> tuple[str, ...]:
    line = row.line.rpartition("/")[2]
    return (row.name, row.op, line, _number(row.db), _number(row.alone_db), f"{100 * row.share:.1f} %")


def report(
    simulated: Simulated, measured: Measured, scheme: Scheme, left: Sequence[Left], calls: int, seen: int
) -> QuantizationReport:
    """The report of what was measured.

    Args:
        calls: with which the model was calibrated.
        seen: in which tensors were measured.
    """
    actions = source_actions(simulated.module.graph)
    tensors = tuple(
        TensorNoise(name, action.op, action.module, action.line, noise.db)
        for name, noise in measured.tensors.items()
        if (action := actions.get(name)) is not None and action.live
    )
    total = sum(measured.alone.values())
    layers = tuple(
        LayerNoise(
            layer.name,
            layer.action.name,
            layer.action.op,
            layer.action.line,
            measured.tensors[layer.node.name].db,
            decibels(measured.alone[layer.node.name]),
            _share(measured.alone[layer.node.name], total),
        )
        for layer, _ in simulated.layers
    )
    return QuantizationReport(
        scheme=scheme,
        results_db=decibels(measured.results),
        calls=calls,
        measured=seen,
        first=next((row.name for row in tensors if row.db < scheme.bound_db), None),
        suggested=_suggested(layers, measured.results, scheme.bound_db),
        layers=layers,
        tensors=tensors,
        left=tuple(left),
        multiplied=Multiplied.on(scheme.target),
    )


def _share(alone: float, total: float) -> float:
    return alone / total if total and math.isfinite(total) else 0.0


def _suggested(layers: Sequence[LayerNoise], noise: float, bound_db: float) -> tuple[str, ...]:
    """Names of the fewest layers whose shares take enough of the noise away."""
    suggested: list[str] = []
    left = 1.0
    for layer in sorted(layers, key=lambda layer: -layer.share):
        if decibels(max(noise * left, 0.0)) >= bound_db or not layer.share:
            break
        suggested.append(layer.name)
        left -= layer.share
    return tuple(dict.fromkeys(suggested))
