"""Fused reductions on an NVIDIA GPU: correctness, then times against torch, FlexAttention and hand-written Triton.

On a machine with the project and the extra ``cuda`` (no GPU needed), write the kernels; on the machine with the GPU
(torch, triton, iree-base-runtime and this folder; the project is not needed there) run them:

    python bench/gpu_fused_reductions.py --write kernels.pt [--architecture sm_90a] [--quick] [--tries 6]
    python bench/gpu_fused_reductions.py --run kernels.pt --json gpu.json [--minutes 8]
    for i in $(seq 0 11); do python bench/gpu_fused_reductions.py --run kernels.pt --warm $i/12 & done; wait  # sooner
    python bench/gpu_fused_reductions.py --check kernels.pt        (no GPU: the file is complete and its sources parse)

On a machine with both, measure what later compilations for that architecture take (docs/tuning.md):

    python bench/gpu_fused_reductions.py --tune records.sqlite [--minutes 8] [--simulate] [--quick] [--json tuned.json]

Times are by CUDA events, with a cold L2 (a buffer of twice its size is written before each sample), medians; the first
row of a case is this project's kernel with the best of its first schedules, tried on the device. Fractions are of the
matrix product and copy rates measured in the same run.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch
from gpu_baselines import ROWS, baselines, plain
from torch import Tensor

VARIANTS = ("global", "causal", "alibi", "softcap", "gqa")
PREFILL, DECODE, DEPTHS = (512, 1024, 2048, 4096, 8192, 16384), (1024, 4096, 16384, 65536, 131072), (64, 128)
ROW_SHAPES = ((16384, 1024), (65536, 128), (2048, 16384), (16384, 1000))
TOKENS, HEADS, SHARED = 16384, 16, 8
DTYPES = {"f16": torch.float16, "f32": torch.float32, "i64": torch.int64}


@dataclass
class Case:
    """A case as it is written to the file: plain data.

    Attributes:
        shapes: of the inputs, with element types.
        output: shape and element type.
        schedules: for each of several schedules, its launches (see `_launch`), the likeliest first.
        flops, bytes: of one call.
        program: the default schedule as a program for IREE's virtual machine, for one case of each kind.
    """

    name: str
    variant: str
    shapes: list[tuple[tuple[int, ...], str]]
    output: tuple[tuple[int, ...], str]
    schedules: list[list[dict[str, Any]]]
    flops: int
    traffic: int
    program: bytes = b""
    facts: dict[str, Any] = field(default_factory=dict)


# Writing: needs the project


def _cases(quick: bool) -> Iterator[tuple[str, str, Any]]:
    sys.path.insert(0, str(Path(__file__).parent.parent / "test" / "python"))
    from fred_chains import attention, row_cases

    for depth in DEPTHS[:1] if quick else DEPTHS:
        for variant in VARIANTS:
            groups = HEADS // (HEADS // SHARED) if variant == "gqa" else 1
            kind = "global" if variant == "gqa" else variant
            for size in PREFILL[1:2] if quick else PREFILL:
                heads = HEADS * max(1, TOKENS // size) // groups
                chain = attention(heads, size, size, depth, kind, groups=groups, dtype="f16")
                yield f"{variant} prefill {size} d{depth}", variant, chain
            for size in DECODE[1:2] if quick else DECODE:
                heads = HEADS * max(1, 4 * 131072 // size // 4) // groups
                chain = attention(heads, 1, size, depth, kind, groups=groups, dtype="f16")
                yield f"{variant} decode {size} d{depth}", variant, chain
    for kind in ROWS:
        for rows, length in ROW_SHAPES[:1] if quick else ROW_SHAPES:
            yield f"{kind} {rows}x{length}", kind, row_cases(rows, length)[kind][0]


def write(path: Path, architecture: str, quick: bool, tries: int) -> None:
    """Generates and compiles all cases into a file."""
    from covan_mlir.lowering.kernels.cuda.device import DEVICES
    from covan_mlir.lowering.kernels.cuda.target import CudaTarget
    from covan_mlir.lowering.kernels.cuda.templates.tiles import Tiles, TilesMatch
    from covan_mlir.lowering.kernels.standalone import compile_text, program
    from covan_mlir.lowering.targets.cuda import ARCHITECTURES, attribute

    target, cases, kinds = CudaTarget(DEVICES[architecture]), [], set()
    for name, variant, chain in _cases(quick):
        match = Tiles().match(chain, target)
        assert isinstance(match, TilesMatch), match
        schedules = match.schedules()[:tries]
        kernels = [match.write(schedule, "fred") for schedule in schedules]
        first, cost = kernels[0], match.cost(schedules[0])
        case = Case(
            name,
            variant,
            [(operand.shape, operand.dtype) for operand in first.inputs],
            (first.outputs[0].shape, first.outputs[0].dtype),
            [[_launch(launch) for launch in kernel.launches] for kernel in kernels],
            cost.flops,
            cost.bytes,
            facts={"predicted_ms": cost.seconds * 1e3},
        )
        kind = (variant, "decode" in name)
        if kind not in kinds:
            kinds.add(kind)
            text = program([match.emit(schedules[0], "fred", ())], attribute(ARCHITECTURES[architecture]))
            case.program = compile_text(text, target=())
        cases.append(case)
        print(name, schedules[0], file=sys.stderr)
    torch.save({"architecture": architecture, "cases": [vars(case) for case in cases]}, path)


def tune(
    records: Path, architecture: str, quick: bool, only: Sequence[str], minutes: float, simulate: bool, out: Path
) -> None:
    """Measures schedules of all cases, on the GPU or a simulated one; writes what became of each."""
    from covan_mlir.lowering.kernels.cuda.device import DEVICES
    from covan_mlir.lowering.kernels.cuda.target import CudaTarget
    from covan_mlir.lowering.kernels.database import Database
    from covan_mlir.tuning.gpu import CudaGpu, SimulatedGpu, tune_chains

    target = CudaTarget(DEVICES[architecture])
    device = SimulatedGpu(target.device) if simulate else CudaGpu(target.device)
    chains = {name: c for name, _, c in _cases(quick) if not only or any(part in name for part in only)}
    with Database(records) as database:
        end = time.monotonic() + 60 * minutes
        best = tune_chains(
            chains, target, device, database, end, lambda step: print(step, file=sys.stderr), time.monotonic
        )
    rows = [{"case": name, **vars(one), "candidate": str(one.candidate)} for name, one in best.items()]
    for row in rows:
        tried = f"{row['tried']}/{row['points']}"
        print(f"{row['case']:32} {row['seconds'] * 1e6:9.1f} us  {1 / row['ratio']:5.2f}x  {tried}")
    mean = geometric_mean(1 / one.ratio for one in best.values())
    print(f"{'simulated: ' if simulate else ''}{mean:.3f} times as fast as predicted schedules, geometric mean")
    out.write_text(json.dumps({"simulated": simulate, "architecture": architecture, "cases": rows}, indent=1))


def _launch(launch: Any) -> dict[str, Any]:
    operands = {o.name: (o.shape, o.dtype) for o in (*launch.inputs, *launch.outputs)}
    return {
        "name": launch.name,
        "source": launch.source,
        "inputs": [o.name for o in launch.inputs],
        "outputs": [o.name for o in launch.outputs],
        "operands": operands,
        "grid": launch.grid,
        "num_warps": launch.num_warps,
        "num_stages": launch.num_stages,
    }


def read(path: Path) -> tuple[str, list[Case]]:
    """-> (architecture, cases) of a file."""
    data = torch.load(path, weights_only=False)
    return data["architecture"], [Case(**one) for one in data["cases"]]


def check(path: Path) -> None:
    """Everything that can be checked without a GPU."""
    architecture, cases = read(path)
    for case in cases:
        assert case.schedules, case.name
        for launches in case.schedules:
            known = {f"input {n}" for n in range(len(case.shapes))}
            for launch in launches:
                functions = [n.name for n in ast.parse(launch["source"]).body if isinstance(n, ast.FunctionDef)]
                assert launch["name"] in functions, case.name
                assert launch["grid"] > 0
                known |= set(launch["outputs"])
    with_program = sum(bool(case.program) for case in cases)
    print(f"{len(cases)} cases for {architecture}, {with_program} with a program: complete")


# Running: torch, triton, iree.runtime


def _functions(case: Case, folder: Path) -> list[Callable[[list[Tensor]], Tensor]]:
    """A call for each schedule."""
    calls: list[Callable[[list[Tensor]], Tensor]] = []
    for number, launches in enumerate(case.schedules):
        kernels = []
        for launch in launches:
            stem = f"{launch['name']}_{abs(hash((case.name, number)))}"
            file = folder / f"{stem}.py"
            file.write_text(launch["source"])
            spec = importlib.util.spec_from_file_location(stem, file)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            kernels.append((getattr(module, launch["name"]), launch))
        names = list(kernels[0][1]["inputs"])
        buffers: dict[str, Tensor] = {}
        for _, launch in kernels:
            for name in launch["outputs"]:
                shape, dtype = launch["operands"][name]
                buffers[name] = torch.empty(shape, dtype=DTYPES[dtype], device="cuda")

        def call(inputs: list[Tensor], kernels: Any = kernels, buffers: Any = buffers, names: Any = names) -> Tensor:
            known = dict(zip(names, inputs, strict=True)) | buffers
            for function, launch in kernels:
                arguments = [known[name] for name in (*launch["inputs"], *launch["outputs"])]
                function[(launch["grid"],)](
                    *arguments, num_warps=launch["num_warps"], num_stages=launch["num_stages"], enable_fp_fusion=True
                )
            result: Tensor = known[kernels[-1][1]["outputs"][0]]
            return result

        calls.append(call)
    return calls


def _inputs(case: Case) -> list[Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    inputs = []
    for shape, dtype in case.shapes:
        if dtype == "i64":
            length = case.shapes[0][0][-1]
            inputs.append(torch.randint(0, length, shape, generator=generator, device="cuda"))
        else:
            inputs.append(torch.randn(shape, generator=generator, device="cuda").to(DTYPES[dtype]))
    return inputs


class Clock:
    """Times by CUDA events with a cold second-level cache."""

    def __init__(self) -> None:
        size = 2 * torch.cuda.get_device_properties(0).L2_cache_size
        self.flush = torch.empty(max(size, 1 << 26), dtype=torch.int8, device="cuda")

    def median(self, call: Callable[[], object], seconds: float = 0.08) -> float:
        """Seconds of a call."""
        call()
        torch.cuda.synchronize()
        samples: list[float] = []
        event: Any = torch.cuda.Event
        end = time.monotonic() + seconds
        while len(samples) < 5 or (time.monotonic() < end and len(samples) < 100):
            self.flush.zero_()
            a, b = (event(enable_timing=True) for _ in range(2))
            a.record()
            call()
            b.record()
            b.synchronize()
            samples.append(a.elapsed_time(b) * 1e-3)
        return median(samples)


def _peaks(clock: Clock) -> tuple[float, float]:
    """-> (FLOP/s of a matrix product in f16, bytes/s of a copy)."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.float16)
    x = torch.empty(1 << 30, dtype=torch.int8, device="cuda")
    y = torch.empty_like(x)
    return 2 * 8192**3 / clock.median(lambda: a @ a), 2 * x.numel() / clock.median(lambda: y.copy_(x))


def _difference(got: Tensor, case: Case, inputs: list[Tensor]) -> tuple[float, float]:
    """-> (largest difference from torch in f32, what is allowed), on a slice of the heads or rows."""
    few = min(4, inputs[0].shape[0])
    shared = {"g", "b"} if case.variant in ("layer_norm", "rms_norm") else set()
    cut = [x if shared and n else x[:few] for n, x in enumerate(inputs)]
    exact = plain(case.variant)(*(x.float() if x.is_floating_point() else x for x in cut))
    error = (got[:few].float().reshape(exact.shape) - exact).abs().max().item()
    scale = max(1.0, exact.abs().max().item())
    return error, scale * (4e-3 if got.dtype == torch.float16 else 2e-5)


def run(path: Path, out: Path, minutes: float) -> None:
    """Correctness of every case, then times, until the minutes are over; writes as it goes."""
    architecture, cases = read(path)
    stop = time.monotonic() + 60 * minutes
    clock = Clock()
    flops, bandwidth = _peaks(clock)
    report: dict[str, Any] = {
        "device": torch.cuda.get_device_name(0),
        "architecture": architecture,
        "torch": torch.__version__,
        "peak_flops": flops,
        "copy_bytes_per_second": bandwidth,
        "cases": [],
    }
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for case in cases:
            record: dict[str, Any] = {"case": case.name, **case.facts}
            report["cases"].append(record)
            try:
                inputs = _inputs(case)
                calls = _functions(case, Path(folder))
                got = calls[0](inputs)
                record["difference"], record["allowed"] = _difference(got, case, inputs)
                record["right"] = record["difference"] <= record["allowed"]
            except Exception as error:  # whatever it raises is the finding
                record["right"], record["error"] = False, repr(error)[:300]
            print(case.name, "right" if record["right"] else f"WRONG {record}", flush=True)
            out.write_text(json.dumps(report, indent=1))
            torch.cuda.empty_cache()
            if time.monotonic() > stop - 30 * minutes:
                break  # half of the time is for measuring
        report["launch_overhead_us"] = _overhead(cases)
        ratios: list[float] = []
        for case, record in zip(cases, report["cases"], strict=False):
            if time.monotonic() > stop:
                record["skipped"] = "out of time"
                continue
            if record["right"]:
                _measure(case, record, clock, Path(folder), flops, bandwidth)
                ratios += [record["ratio"]] if record.get("ratio") else []
            out.write_text(json.dumps(report, indent=1))
            torch.cuda.empty_cache()
    report["geometric_mean_ratio"] = geometric_mean(ratios) if ratios else None
    out.write_text(json.dumps(report, indent=1))


def warm(path: Path, part: int, parts: int) -> None:
    """Has Triton and torch compile every so-manieth case, for their caches."""
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for case in read(path)[1][part::parts]:
            inputs = _inputs(case)
            for call in _functions(case, Path(folder)):
                _tried(partial(call, inputs))
            for _, build in baselines(case.variant, inputs):
                _tried(partial(_first, build))


def _first(build: Callable[[], Callable[[], Tensor]]) -> None:
    build()()


def _tried(call: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):  # told when it is measured
        call()


def _measure(case: Case, record: dict[str, Any], clock: Clock, folder: Path, flops: float, bandwidth: float) -> None:
    inputs = _inputs(case)
    times = []
    for call in _functions(case, folder):
        try:
            times.append(clock.median(partial(call, inputs)))
        except Exception as error:  # a schedule that does not fit after all
            times.append(math.inf)
            record.setdefault("schedule_errors", []).append(repr(error)[:200])
    ours = min(times)
    record |= {"ours_ms": ours * 1e3, "default_ms": times[0] * 1e3, "schedule": times.index(ours)}
    record |= {"of_peak": case.flops / ours / flops, "of_copy": case.traffic / ours / bandwidth, "baselines_ms": {}}
    for name, build in baselines(case.variant, inputs):
        try:
            record["baselines_ms"][name] = clock.median(build()) * 1e3
        except Exception as error:  # cannot express it, or has not the memory
            record.setdefault("unable", {})[name] = repr(error)[:200]
    compilers = [t for name, t in record["baselines_ms"].items() if not name.startswith("sdpa") and name != "eager"]
    vendors = [t for name, t in record["baselines_ms"].items() if name in ("sdpa flash", "sdpa cudnn")]
    record["ratio"] = min(compilers) / record["ours_ms"] if compilers else None
    record["vendor_ratio"] = min(vendors) / record["ours_ms"] if vendors else None
    print(
        {k: v for k, v in record.items() if k in ("case", "ours_ms", "ratio", "vendor_ratio", "of_peak", "of_copy")},
        flush=True,
    )


def _overhead(cases: list[Case]) -> float | str:
    """Microseconds between the end of a call through IREE's runtime and of the same launches without it."""
    try:
        import iree.runtime as rt
        import numpy as np

        case = next(c for c in cases if c.program and c.variant == "softmax")
        config = rt.Config("cuda")
        module = rt.VmModule.copy_buffer(config.vm_instance, case.program)
        context = rt.VmContext(config.vm_instance, [*config.default_vm_modules, module])
        call = rt.FunctionInvoker(context, config.device, module.lookup_function("fred_main"))
        shape, _ = case.shapes[0]
        x = np.random.default_rng(0).standard_normal(shape, np.float32)
        buffer = rt.asdevicearray(config.device, x)
        got = np.asarray(call(buffer).to_host())
        want = torch.softmax(torch.from_numpy(x), -1).numpy()
        assert np.abs(got - want).max() < 1e-5, "IREE's dispatch gives something else"
        samples = []
        for _ in range(50):
            start = time.perf_counter()
            call(buffer)
            samples.append(time.perf_counter() - start)
        return median(samples) * 1e6
    except Exception as error:  # no IREE runtime, or no such case: the rest is worth having
        return repr(error)[:300]


def main() -> None:
    """See the module."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, help="generate and compile all cases into this file")
    parser.add_argument("--check", type=Path, help="check a file without a GPU")
    parser.add_argument("--run", type=Path, help="run the cases of a file")
    parser.add_argument("--tune", type=Path, metavar="RECORDS", help="measure schedules into this file of records")
    parser.add_argument("--simulate", action="store_true", help="of --tune: with a model of a GPU instead of one")
    parser.add_argument("--architecture", default="sm_90a")
    parser.add_argument("--quick", action="store_true", help="one size of each case")
    parser.add_argument("--only", nargs="*", default=(), help="of --tune: cases whose name has one of these in it")
    parser.add_argument("--tries", type=int, default=4, help="schedules that are tried on the device, of each case")
    parser.add_argument(
        "--warm", metavar="I/N", help="with --run: only fill the compilers' caches, with a part of the cases"
    )
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--json", type=Path, default=Path("gpu_fused_reductions.json"))
    options = parser.parse_args()
    if options.write:
        write(options.write, options.architecture, options.quick, options.tries)
    if options.tune:
        tune(
            options.tune,
            options.architecture,
            options.quick,
            options.only,
            options.minutes,
            options.simulate,
            options.json,
        )
    if options.check:
        check(options.check)
    if options.run:
        if not torch.cuda.is_available():
            raise SystemExit("no CUDA device here; --check is what can be done without one")
        if options.warm:
            warm(options.run, *map(int, options.warm.split("/")))
        else:
            run(options.run, options.json, options.minutes)


if __name__ == "__main__":
    main()
