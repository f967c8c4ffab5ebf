"""What tuning brings: models with kernels that were measured, beside predicted ones; and what is learned of them.

    python bench/tuning.py resnet50 mobilenet_v2 --minutes 5 [--records tuned.sqlite] [--json tuning.json]
    python bench/tuning.py --layers resnet50/conv3x3 unet --minutes 5 --records tuned.sqlite
    python bench/tuning.py --learned tuned.sqlite      how well the cost model ranks schedules that it has not seen

Layers are those of `bench/dense.py`, by parts of their names; all of them are tuned as one. Without `--records` each
run begins with none. A model's times are those of its programs in turns; the peers of
`bench/models.py` take part there with `COVAN_RECORDS=tuned.sqlite`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median

import common
import dense
import torch
from layers import LAYERS
from scipy.stats import spearmanr
from workloads import build

import covan_mlir
from covan_mlir.fred import chain_json
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.database import Database, Setting
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.machine.host import host
from covan_mlir.tuning.cost_model import CostModel, Sample
from covan_mlir.tuning.space import space_of

FEWEST = 4
"""Schedules of a kernel, held out, that a rank correlation is computed of."""
SPLITS = 5


def tune(name: str, minutes: float, records: Path) -> common.Row:
    """One model."""
    built, args, kwargs = build(name)
    start = time.perf_counter()
    with torch.no_grad():
        tuning = covan_mlir.tune(built, args, kwargs, minutes=minutes, records=records, progress=_tell)
    print(f"{name}\n{tuning}")
    return {"model": name, "took_s": time.perf_counter() - start, **asdict(tuning)}


def tune_layers(parts: list[str], minutes: float, records: Path) -> list[common.Row]:
    """Dense layers whose names have one of some parts, as one."""
    layers = [layer for layer in LAYERS.values() if any(part in layer.name for part in parts)]
    start = time.perf_counter()
    with torch.no_grad():
        models = [dense.build(layer.operation) for layer in layers]
        tunings = covan_mlir.tune_models(models, minutes=minutes, records=records, progress=_tell)
    took = time.perf_counter() - start
    return [
        {"model": layer.name, "took_s": took, **asdict(tuning)} for layer, tuning in zip(layers, tunings, strict=True)
    ]


def _tell(step: str) -> None:
    if " " in step:
        print(step, file=sys.stderr, flush=True)


def learned(records: Path) -> dict[str, float]:
    """Rank correlations of times of schedules that were held out, a fifth of all, with what is expected of them: of the
    schedules of one kernel, on average over kernels, by the cost model and by the templates' predictions alone; and of
    all schedules of all kernels."""
    samples = _samples(records)
    rows: dict[str, list[float]] = defaultdict(list)
    for seed in range(SPLITS):
        order = random.Random(seed).sample(range(len(samples)), len(samples))
        cut = len(order) * 4 // 5
        model = CostModel()
        model.learn([samples[n][1] for n in order[:cut]])
        held: dict[str, list[Sample]] = defaultdict(list)
        for n in order[cut:]:
            held[samples[n][0]].append(samples[n][1])
        expected: list[float] = []
        for group in held.values():
            own = model.seconds(group[0].chain, [sample.point for sample in group])
            expected += own
            if len(group) >= FEWEST:
                right = [sample.seconds for sample in group]
                rows["learned"].append(_correlation(own, right))
                rows["predicted"].append(_correlation([sample.point.predicted for sample in group], right))
        rows["learned, of all"].append(
            _correlation(expected, [sample.seconds for group in held.values() for sample in group])
        )
    return {"schedules": len(samples), **{name: fmean(values) for name, values in rows.items()}}


def _correlation(first: list[float], second: list[float]) -> float:
    if len(set(first)) < 2 or len(set(second)) < 2:
        return 0.0  # it is not defined
    return float(spearmanr(first, second).statistic)


def _samples(records: Path) -> list[tuple[str, Sample]]:
    """What was measured on this machine, with the name of what each computes."""
    target, samples = CpuTarget(host()), []
    with Database(records, "read") as database:
        chains = {name: chain_json.load(json.loads(text)) for name, text in database.workloads().items()}
        for name, chain in chains.items():
            space = space_of(chain, target)
            if isinstance(space, Refusal):
                continue
            against = str(space.default.candidate)
            known = database.measurements(Setting.of("cpu", host()), name)
            rows = [row for row in known if row.reference and row.against == against]
            if not rows:
                continue
            base = median(row.reference for row in rows if row.reference is not None)
            for row in rows:
                point = space.point(Candidate(row.template, row.schedule))
                if point is not None and row.seconds is not None and row.reference is not None:
                    seconds = row.seconds / row.reference * base
                    samples.append((name, Sample(chain, point, seconds, min(1.0, base / seconds))))
    return samples


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--minutes", type=float, default=5.0, help="for each model")
    parser.add_argument("--records", type=Path, help="kept, and taken into account")
    parser.add_argument("--learned", type=Path, metavar="RECORDS", help="rank correlations of the cost model")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--layers", nargs="+", metavar="PART", help="of the names of dense layers")
    options = parser.parse_args()
    rows: list[common.Row] = []
    if options.learned:
        for name, value in learned(options.learned).items():
            print(f"{name}: {value:.3g}")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            rows.append(tune(name, options.minutes, options.records or Path(folder) / f"{name}.sqlite"))
        if options.layers:
            rows += tune_layers(options.layers, options.minutes, options.records or Path(folder) / "layers.sqlite")
    if rows:
        print(common.table("Calls with what was measured", ["model", "seconds", "ratio", "took_s"], rows))
    if options.json:
        common.write_json(options.json, "tuning", common.machine(), rows)


if __name__ == "__main__":
    main()
