"""`compile_training_step`: the steps that ``torch.optim`` makes in eager PyTorch, as one program."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from limits import SWEEP
from torch import Tensor, nn

import covan_mlir
from covan_mlir import InputError, compile_training_step

OPTIMIZERS: dict[str, Callable[[Iterable[Any]], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd, ascending": lambda p: torch.optim.SGD(p, lr=0.01, maximize=True),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.1, weight_decay=1e-2),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-2, weight_decay=1e-2, betas=(0.8, 0.95)),
    "amsgrad": lambda p: torch.optim.Adam(p, lr=1e-2, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1),
}
ADAMW = OPTIMIZERS["adamw"]
X, TARGETS = torch.randn(8, 6, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 3


def network(dropout: float = 0.0) -> nn.Sequential:
    """Layers with a state and with random numbers, a step of which takes long to compile."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, 3))


def layer() -> nn.Sequential:
    """For what is the same of any model."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 3))


def in_eager(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, clip: float | None = None) -> list[float]:
    """The losses of some steps."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(X), TARGETS)
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


def assert_same(step: covan_mlir.TrainingStep, twin: nn.Module) -> None:
    """What the step holds is what eager's model holds. The bias before a normalisation has a gradient of rounding
    alone, which some optimizers enlarge."""
    held = step.state_dict()["model"]
    assert held.keys() == twin.state_dict().keys()
    before_a_norm = {"0.bias", "1.running_mean"} if "1.running_mean" in held else set()
    for name, value in twin.state_dict().items():
        if name not in before_a_norm:
            torch.testing.assert_close(held[name], value, rtol=1e-4, atol=1e-5, msg=lambda text, name=name: name + text)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_same_steps_as_in_eager(name: str) -> None:
    model, make = network(dropout=0.2) if SWEEP or name == "adamw" else layer(), OPTIMIZERS[name]
    twin, weight = copy.deepcopy(model), model[0].weight.clone()
    step = compile_training_step(model, F.cross_entropy, make, (X, TARGETS))
    torch.manual_seed(4)
    losses = [step(X, TARGETS).item() for _ in range(6)]
    torch.manual_seed(4)
    assert losses == pytest.approx(in_eager(twin, make(twin.parameters()), 6), rel=1e-4)
    assert_same(step, twin)
    assert step.executable.verify()
    assert torch.equal(model[0].weight, weight)  # the model stays as it is


def test_groups_schedules_and_frozen_parameters() -> None:
    model = network()
    model[1].weight.requires_grad_(requires_grad=False)
    twin = copy.deepcopy(model)

    def make(model: nn.Sequential) -> torch.optim.Optimizer:
        return torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.2}, {"params": [model[4].weight]}], lr=0.05)

    own, other = make(model), make(twin)
    step = compile_training_step(model, F.cross_entropy, own, (X, TARGETS))
    schedules = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5) for optimizer in (own, other)]
    for _ in range(4):
        assert step(X, TARGETS).item() == pytest.approx(in_eager(twin, other, 1)[0], rel=1e-5)
        own.step()  # of no gradients: torch wants it before the schedule's
        for schedule in schedules:
            schedule.step()
    assert_same(step, twin)


def test_gradients_are_clipped() -> None:
    model = layer()
    twin, make = copy.deepcopy(model), OPTIMIZERS["momentum"]
    step = compile_training_step(model, F.cross_entropy, make, (X, TARGETS), clip_grad_norm=0.05)
    losses = [step(X, TARGETS).item() for _ in range(4)]
    assert losses == pytest.approx(in_eager(twin, make(twin.parameters()), 4, clip=0.05), rel=1e-5)


@pytest.mark.parametrize("name", ["momentum", "adamw"])
def test_state_goes_to_torch_and_back(name: str) -> None:
    model, make = network() if name == "adamw" else layer(), OPTIMIZERS[name]
    untrained = copy.deepcopy(model)
    step = compile_training_step(model, F.cross_entropy, make, (X, TARGETS))
    for _ in range(3):
        step(X, TARGETS)
    saved = step.state_dict()
    # Eager goes on from there,
    twin = untrained
    twin.load_state_dict(saved["model"])
    optimizer = make(twin.parameters())
    optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))  # torch takes the tensors themselves
    expected = in_eager(twin, optimizer, 3)
    assert [step(X, TARGETS).item() for _ in range(3)] == pytest.approx(expected, rel=1e-5)
    # so does the step itself,
    step.load_state_dict(saved)
    assert step.steps == 3
    assert [step(X, TARGETS).item() for _ in range(3)] == pytest.approx(expected, rel=1e-5)
    # and one that is compiled of a model and an optimizer that have learned already.
    twin.load_state_dict(saved["model"])
    optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))  # torch takes the tensors themselves
    again = compile_training_step(twin, F.cross_entropy, optimizer, (X, TARGETS))
    assert [again(X, TARGETS).item() for _ in range(3)] == pytest.approx(expected, rel=1e-5)


def test_a_state_of_another_model_changes_nothing() -> None:
    step = compile_training_step(layer(), F.cross_entropy, ADAMW, (X, TARGETS))
    step(X, TARGETS)
    before, wrong = step.state_dict(), step.state_dict()
    wrong["model"]["0.weight"] = torch.zeros(3, 17)
    with pytest.raises(InputError, match=r"0\.weight is f32\[3, 17\], and the model's f32\[3, 6\]"):
        step.load_state_dict(wrong)
    wrong = step.state_dict()
    del wrong["optimizer"]["state"][1]
    with pytest.raises(InputError, match=r"the optimizer's exp_avg of 0\.bias is NoneType, not f32"):
        step.load_state_dict(wrong)
    assert all(
        torch.equal(a, b) for a, b in zip(before["model"].values(), step.state_dict()["model"].values(), strict=True)
    )


def test_lineage_of_a_step() -> None:
    step = compile_training_step(network(), F.cross_entropy, ADAMW, (X, TARGETS))
    roles = {action.role for site in step.lineage.sites for action in step.lineage.why(site)}
    assert "gradient of 4 with respect to weight" in roles
    assert "update of 4.weight by AdamW" in roles
    (action,) = {a.name for a in step.lineage.actions if a.op == "aten.tanh.default" and not a.role}
    assert step.lineage.where(action)
    assert step.lineage.where("module:4")


def test_tied_parameters_are_one() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(11, 6)
            self.head = nn.Linear(6, 11, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, indices: Tensor) -> Tensor:
            return self.head(self.embedding(indices))

    torch.manual_seed(0)
    model, indices = Tied(), torch.arange(8)
    twin = copy.deepcopy(model)
    step = compile_training_step(model, F.cross_entropy, ADAMW, (indices, indices))
    optimizer = ADAMW(twin.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.cross_entropy(twin(indices), indices)
        loss.backward()
        optimizer.step()
        torch.testing.assert_close(step(indices, indices), loss.detach())
    state = step.state_dict()["model"]
    torch.testing.assert_close(state["head.weight"], twin.head.weight.detach())
    torch.testing.assert_close(state["embedding.weight"], twin.head.weight.detach())


def test_a_step_goes_on_from_a_file(tmp_path: Path) -> None:
    step = compile_training_step(layer(), F.cross_entropy, lambda p: torch.optim.SGD(p, lr=0.1), (X, TARGETS))
    step(X, TARGETS)
    step.executable.save(tmp_path / "step.covan")
    loaded = covan_mlir.load(tmp_path / "step.covan")
    (loss,) = loaded(X, TARGETS, torch.tensor(0.1))
    torch.testing.assert_close(loss, step(X, TARGETS))


def test_what_is_refused() -> None:
    model = network()
    with pytest.raises(InputError, match="Adagrad is not compiled: use one of SGD, Adam, AdamW"):
        compile_training_step(model, F.cross_entropy, torch.optim.Adagrad, (X, TARGETS))
    with pytest.raises(InputError, match="capturable=True"):
        compile_training_step(model, F.cross_entropy, lambda p: torch.optim.Adam(p, capturable=True), (X, TARGETS))
    with pytest.raises(InputError, match=r"the loss is a tensor \[8\] of torch.float32"):
        compile_training_step(model, lambda y, t: F.cross_entropy(y, t, reduction="none"), ADAMW, (X, TARGETS))
    with pytest.raises(InputError, match=r"parameter 0 of the optimizer, f32\[2\], is none of the model's"):
        compile_training_step(model, F.cross_entropy, torch.optim.SGD([nn.Parameter(torch.ones(2))]), (X, TARGETS))
    with pytest.raises(InputError, match="the loss depends on no parameter"):
        compile_training_step(model, lambda y, t: F.cross_entropy(X[:, :3], t), ADAMW, (X, TARGETS))
    with pytest.raises(InputError, match="example is a pair"):
        compile_training_step(model, F.cross_entropy, ADAMW, X)  # type: ignore[arg-type]  # as a user might


def test_calls_that_do_not_fit() -> None:
    model = layer()
    optimizer = ADAMW(model.parameters())
    step = compile_training_step(model, F.cross_entropy, optimizer, (X, TARGETS))
    with pytest.raises(InputError, match="the step was compiled for"):
        step((X, X), TARGETS)
    with pytest.raises(InputError, match=r"inputs_0 is f32\[7, 6\]; the step was compiled for f32\[8, 6\]"):
        step(X[:7], TARGETS)
    optimizer.param_groups[0]["weight_decay"] = 0.5
    with pytest.raises(InputError, match="the optimizer's weight_decay cannot change any more"):
        step(X, TARGETS)
    assert step.steps == 0


def test_time_by_stage() -> None:
    step = compile_training_step(network(), F.cross_entropy, lambda p: torch.optim.SGD(p, lr=0.1), (X, TARGETS))
    profile = step.executable.profile(X, TARGETS, torch.tensor(0.1), repeat=3)
    rows = profile.rows("stage")
    names = [row.name for row in rows]
    assert {"4, forward", "4, gradient", "4, update"} <= {*names}
    modules = [name.partition(",")[0] for name in names[:-1]]
    assert len([m for m, before in zip(modules, ["", *modules], strict=False) if m != before]) == len({*modules})
    assert sum(row.own for row in rows) == pytest.approx(profile.total)
