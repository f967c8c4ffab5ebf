"""Benchmarks build what they measure; what they measure is in docs/benchmarks.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from covan_mlir.machine.host import host

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))


def test_ceilings() -> None:
    from ceilings import Ceilings

    peaks = Ceilings(host(), copied=1 << 16)
    assert peaks.flops() > 0
    assert peaks.bandwidth() > 0


@pytest.mark.parametrize("variant", ["causal", "gqa"])
def test_attention(variant: str) -> None:
    from ceilings import Ceilings
    from fused_reductions import _attention, measure

    case = _attention(variant, 16, 16, 16)
    row = measure(case, ["compile", "flex", "stock"], 0.0, Ceilings(host(), copied=1 << 16))
    assert row["best"] in ("eager", "sdpa")
    assert row["difference"] < 1e-5
    assert not row["unable"]


def _times(**milliseconds: float) -> dict[str, Any]:
    from common import Timing

    return {name.replace("_", "."): Timing((ms / 1e3,) * 3) for name, ms in milliseconds.items()}


def test_gain_is_over_the_best_peer() -> None:
    import peers

    times = _times(eager=3.0, openvino=2.0, onnxruntime=2.5, covan=4.0, unfused=1.0)
    assert peers.best(times) == "openvino"
    assert peers.gain(times) == pytest.approx(0.5)
    assert peers.gain(_times(eager=3.0)) is None
    assert peers.gain(_times(covan=3.0)) is None


def test_summary() -> None:
    import peers

    first, second = peers.summary({"a": 0.5, "b": 8.0, "c": None}).splitlines()
    assert "over 2: geometric mean 2.00, least 0.500 (a), 1 below 1.0" in first
    assert second == "without a ratio: c"


def test_who_fails_or_is_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import peers

    def broken(*_: object) -> Callable[[], Any]:
        raise ValueError("no such operator")

    def wrong(model: nn.Module, args: tuple[Any, ...], kwargs: object) -> Callable[[], Any]:
        return lambda: model(*args) + 1.0

    def nothing(*_: object) -> Callable[[], Any]:
        return lambda: torch.full((2, 4), float("nan"))

    monkeypatch.setattr(peers, "_WAYS", {**peers._WAYS, "broken": broken, "wrong": wrong, "nothing": nothing})
    with torch.no_grad():
        lineup = peers.line_up(("eager", "broken", "wrong", "nothing"), (nn.Linear(3, 4), (torch.randn(2, 3),), {}))
    assert list(lineup.calls) == ["eager"]
    assert lineup.fails["broken"] == "no such operator"
    assert lineup.fails["wrong"].startswith("wrong result")
    assert lineup.fails["nothing"].startswith("wrong result")
    assert (ratio := lineup.error_over_eager("eager")) is not None
    assert ratio <= 1.0


@pytest.mark.parametrize("contender", ["onnxruntime", "openvino"])
def test_peers_compute_the_same(contender: str) -> None:
    pytest.importorskip(contender, reason="the extra `bench` is not installed")
    import dense
    import peers
    from layers import LAYERS

    layer = LAYERS["resnet50/conv1x1-512-2048-at7x7-bn-residual-relu"]
    with torch.no_grad():
        lineup = peers.line_up([contender], dense.build(layer.operation))
    assert not lineup.fails


def test_layers_count_what_torch_counts() -> None:
    import dense
    from layers import LAYERS, Bilinear

    for layer in LAYERS.values():
        operation = layer.operation
        with torch.device("meta"), FlopCounterMode(display=False) as counter:
            model, args, _ = dense.build(operation)
            result = model(*args)
        weights = [
            value for name, value in model.named_parameters() if re.fullmatch(r"(product\.|gate\.)?weight", name)
        ]
        assert operation.elements == sum(x.numel() for x in (*args, *weights, result)), layer.name
        if not isinstance(operation, Bilinear):  # which the counter does not know
            assert operation.flops == counter.get_total_flops(), layer.name


def test_choosing_layers() -> None:
    import dense
    from layers import LAYERS

    assert [layer.name for layer in dense.chosen(["resnet50/conv7x7"], None)] == [
        "resnet50/conv7x7s2-3-64-at224x224-bn-relu"
    ]
    assert len(dense.chosen([], None)) == len(LAYERS) >= 60
    assert {layer.model for layer in dense.chosen(["resnet50", "unet"], None)} == {"resnet50", "unet"}
    assert len({layer.name for layer in dense.chosen([], 20)}) == 20
    with pytest.raises(SystemExit, match="no layer has 'resnet51'"):
        dense.chosen(["resnet51"], None)


def test_lines_through_what_a_soak_held() -> None:
    import soak

    minutes = [0.0, 1.0, 2.0, 3.0]
    rising = soak.line(minutes, [1.0, 3.0, 5.0, 7.0])
    assert (rising.slope, rising.error, rising.growth) == pytest.approx((2.0, 0.0, 6.0))
    assert not rising.flat
    assert soak.line(minutes, [12.0, 12.0, 12.0, 12.0]).flat
    assert soak.line(minutes, [12.0, 14.0, 14.0, 12.0]).flat  # what comes goes


def test_turns_of_a_soak_hold_nothing(tmp_path: Path) -> None:
    import soak

    model = soak._models()[-1]
    held = []
    for _ in range(3):
        soak.turn(model, tmp_path / "turn", tmp_path / "kept.covan", compiles=False, isolated=False)
        sample = soak.sample(0.0)
        held.append((sample.files, sample.threads, sample.processes))
    assert held[1] == held[2]
    assert [path.name for path in tmp_path.iterdir()] == ["kept.covan"]


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed: int) -> None:
    from drawn_programs import write
    from random_programs import outcome

    assert outcome(write(seed)) == "right"


def test_random_programs_are_what_their_seed_says() -> None:
    """The same each time, without what nothing needs, and each value as large as it was planned."""
    from drawn_programs import write

    for seed in range(200):
        program = write(seed)
        assert program.source == write(seed).source
        names: dict[str, Any] = {}
        exec(program.source, names)
        given = names["program"](*program.arguments())
        results = given if isinstance(given, tuple) else (given,)
        assert [tuple(result.shape) for result in results] == [program.planned[name] for name in program.results]
