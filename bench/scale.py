"""How covan's own parts grow: tables, reports, browsing them, fusing chains, comparing systems.

    python bench/scale.py [tables reports frames fusing systems] [--rounds 5] [--json scale.json]

Seconds of one call, as median and least of some rounds. `frames` needs chromium: it selects a site in a report of 5,000
nodes and draws both graphs, with all nodes in view and with some. `systems` compares a transition system with a copy of
itself whose states stand in another order, each in a process of its own whose peak memory is told.
"""

from __future__ import annotations

import itertools
import multiprocessing
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import common

sys.path.insert(0, str(common.ROOT / "test" / "python"))
import plain_chains as chains
from browser import browser
from lineages import large
from systems import KINDS, Kind, permuted

from covan_mlir import Lineage, prov
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.fred.fuse import fuse
from covan_mlir.provenance.explain import table, table_json
from covan_mlir.provenance.model import Action, Frame, Part, Site
from covan_mlir.reporting import report

# Milliseconds of fifteen frames: selecting, drawing, and the pixels themselves.
FRAMES = """
const { action: graph, site } = covan.graphs;
const frame = (id, place) => {
  const start = performance.now();
  covan.select({ kind: "site", id });
  place();
  for (const one of [graph, site]) {
    one.draw();
    one.paint();
    one.lower.getContext("2d").getImageData(0, 0, 1, 1);
    one.upper.getContext("2d").getImageData(0, 0, 1, 1);
  }
  return performance.now() - start;
};
const frames = (place) => Array.from({ length: 15 }, (_, i) => frame(40 * i, place));
return { whole: frames(() => { graph.fit(); site.fit(); }), part: frames(() => graph.reveal(40)) };
"""


def main() -> None:
    assert __doc__
    parser = common.arguments(__doc__.splitlines()[0], rounds=5, seconds=0.0)
    options = parser.parse_args()
    rows: list[common.Row] = []
    for name in options.models or PARTS:
        if name not in PARTS:
            parser.error(f"no part {name!r}; there are {', '.join(PARTS)}")
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows += PARTS[name](options.rounds)
    host = common.machine()
    print(common.report("covan's own parts", host, ["part", "size", "median s", "least s", "MiB"], rows))
    if options.json:
        common.write_json(options.json, "scale", host, rows)


def tables(rounds: int) -> Iterator[common.Row]:
    """As text and as JSON."""
    actions = [marked(i) for i in range(20_000)]
    sites = [Site(i, f"dispatch_{i}", "call", tuple(range(4 * i, 4 * i + 4))) for i in range(5_000)]
    lineage = Lineage(actions, sites)
    yield timed("table", "20,000 actions, 5,000 sites", lambda: table(lineage, sites), rounds)
    yield timed("table, JSON", "20,000 actions, 5,000 sites", lambda: table_json(lineage, sites), rounds)


def marked(i: int) -> Action:
    name, types = f"n{i}", ("f32[8]",)
    part = Part(i, i, f"{name}_part", "aten.mul.Tensor", (), types)
    return Action(i, name, part.op, f"blocks.{i // 50}.attn", (Frame("/m.py", i % 300, "forward"),), types, (part,))


def reports(rounds: int) -> Iterator[common.Row]:
    whole = large(10_000)
    yield timed("report", "10,000 nodes", lambda: report.page(whole), rounds)


def frames(rounds: int) -> Iterator[common.Row]:
    if not shutil.which("chromedriver"):
        print("no chromium (Debian: apt-get install chromium chromium-driver)", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder, browser() as driver:
        page = Path(folder) / "report.html"
        report.write(page, large(5_000))
        driver.get(page.as_uri())
        samples: dict[str, list[float]] = {}
        for _ in range(rounds):
            for view, milliseconds in driver.execute_script(FRAMES).items():
                samples.setdefault(view, []).extend(1e-3 * value for value in milliseconds)
    for view, seconds in samples.items():
        yield row(f"frame, {view} in view", "5,000 nodes", seconds)


def fusing(rounds: int) -> Iterator[common.Row]:
    fuse(chains.softmax(n=2))  # imports
    for make in (chains.attention, chains.entropy, chains.weighted_variance, chains.norm_linear, chains.skewness):
        sizes = itertools.count(61)  # what was proved is kept: another chain each time
        size = f"{len(make(n=61).reductions)} reductions"
        yield timed(f"derivation and proof, {make.__name__}", size, partial(fused, make, sizes), rounds)


def fused(make: Callable[..., Chain], sizes: Iterator[int]) -> Fusion:
    return fuse(make(n=next(sizes)))


def systems(rounds: int) -> Iterator[common.Row]:
    for kind in KINDS:
        for compare in (prov.strong_bisimulation, prov.weak_bisimulation):
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                seconds, peak = pool.apply(compared, (kind, 50_000, compare.__name__, rounds))
            yield {**row(f"{compare.__name__}, {kind}", "100,000 states", seconds), "MiB": peak >> 20}


def compared(kind: Kind, n: int, name: str, rounds: int) -> tuple[list[float], int]:
    """Seconds of each comparison, and the peak of this process's memory in bytes."""
    left, right, _ = permuted(kind, n)
    samples = [common.once(lambda: getattr(prov, name)(left, right))[1] for _ in range(rounds)]
    return samples, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def timed(part: str, size: str, call: Callable[[], object], rounds: int) -> common.Row:
    return row(part, size, common.interleave({part: call}, rounds=rounds)[part].samples)


def row(part: str, size: str, samples: list[float] | tuple[float, ...]) -> common.Row:
    timing = common.Timing(tuple(samples))
    return {"part": part, "size": size, "median s": timing.median, "least s": min(samples), "samples": list(samples)}


PARTS: dict[str, Callable[[int], Iterator[common.Row]]] = {
    "tables": tables,
    "reports": reports,
    "frames": frames,
    "fusing": fusing,
    "systems": systems,
}


if __name__ == "__main__":
    main()
