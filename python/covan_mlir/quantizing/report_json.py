"""What quantisation cost, as ``covan quantize --report`` writes it (docs/quantised.md)."""

from __future__ import annotations

from covan_mlir.quantizing.scheme import Activations, Mode, ObserverKind
from covan_mlir.reporting.comparison_json import StoredFloat
from covan_mlir.support.typed_json import JsonObject, Natural


class StoredTensorNoise(JsonObject, frozen=True):
    """As `covan_mlir.quantizing.report.TensorNoise`."""

    name: str
    op: str
    module: str
    line: str
    db: StoredFloat


class StoredLayerNoise(JsonObject, frozen=True):
    """As `covan_mlir.quantizing.report.LayerNoise`."""

    name: str
    action: str
    op: str
    line: str
    db: StoredFloat
    alone_db: StoredFloat
    share: float


class StoredLeft(JsonObject, frozen=True):
    """A layer that stays in float, and why."""

    name: str
    why: str


class StoredQuantization(JsonObject, frozen=True, kw_only=True):
    """The whole; see `covan_mlir.quantizing.report.QuantizationReport`."""

    mode: Mode
    activations: Activations
    observer: ObserverKind
    bound_db: StoredFloat
    results_db: StoredFloat
    calls: Natural
    measured: Natural
    first: str | None
    suggested: tuple[str, ...]
    layers: tuple[StoredLayerNoise, ...]
    tensors: tuple[StoredTensorNoise, ...]
    left: tuple[StoredLeft, ...]
    target: str
    multiplied: tuple[str, ...]
