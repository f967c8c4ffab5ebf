"""Models that are compiled, beside their calls, for the sizes that they are called with most."""

from __future__ import annotations

import gc
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import covan_mlir
from covan_mlir import Adaptive, InputError
from covan_mlir.compilation import learned_sizes
from covan_mlir.compilation.learned_sizes import LearnedSizes


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 512), nn.Linear(512, 64)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.down(nn.functional.gelu(self.up(x))), -1).squeeze(0)


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def adaptive(model: Any, folder: Path, **options: Any) -> Adaptive:
    batch = Dim("batch", max=64)
    settings = {"after": 3, "limit": 2, "folder": folder, **options}
    return covan_mlir.adaptive(model, (torch.randn(4, 64),), dynamic_shapes={"x": {0: batch}}, **settings)


def call(model: Adaptive, net: nn.Module, size: int, times: int = 1) -> None:
    for _ in range(times):
        x = torch.randn(size, 64)
        torch.testing.assert_close(model(x), net(x), rtol=1e-4, atol=1e-5)


def test_frequent_sizes_get_versions_and_the_oldest_gives_way(net: Net, tmp_path: Path) -> None:
    model = adaptive(net, tmp_path)
    call(model, net, 1, 3)
    call(model, net, 5, 2)
    model.settle()
    assert set(model.versions) == {(1,)}
    for size in (3, 2, 1):
        call(model, net, size, 3)
        model.settle()
    assert (1,) in model.versions
    assert len(model.versions) <= 2
    assert (3,) not in model.versions  # it was called least recently, if it ever had one


def test_results_are_right_while_versions_are_compiled(net: Net, tmp_path: Path) -> None:
    model = adaptive(net, tmp_path)
    failures: list[BaseException] = []

    def calls(first: int) -> None:
        try:
            for size in (first, 1, 2, 7) * 8:
                call(model, net, size)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=calls, args=(first,)) for first in (1, 2, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    model.settle()
    assert not failures
    call(model, net, 1)
    call(model, net, 7)


def test_what_was_learned_is_there_in_the_next_process(net: Net, tmp_path: Path) -> None:
    model = adaptive(net, tmp_path)
    call(model, net, 1, 3)
    model.settle()
    again = adaptive(net, tmp_path)
    again.settle()
    assert set(again.versions) == {(1,)}
    call(again, net, 1)


def test_a_version_that_fails_is_told_of_and_disturbs_nobody(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = adaptive(net, tmp_path)

    def fails(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no room")

    monkeypatch.setattr(model._specialiser, "version", fails)
    call(model, net, 6, 5)
    model.settle()
    call(model, net, 6, 5)
    assert dict(model.refused) == {(6,): "no room"}
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        "no version for batch=6: no room"
    ]


def test_without_a_program_for_all_sizes_the_model_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Fixed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * (2 if x.shape[0] == 4 else 3)

    model = adaptive(Fixed(), tmp_path)
    assert model.general is None
    assert "there is no program for all sizes" in caplog.text
    call(model, Fixed(), 4, 3)
    call(model, Fixed(), 5, 3)
    model.settle()
    assert set(model.versions) == {(4,), (5,)}
    call(model, Fixed(), 4)
    call(model, Fixed(), 5)
    call(model, Fixed(), 6)


def test_state_is_the_models_own(tmp_path: Path) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(64))

        def forward(self, x: Tensor) -> Tensor:
            self.total.add_(x.sum(0))
            return self.total + x

    own, other = Counter(), Counter()
    model = adaptive(own, tmp_path)
    for size in (1, 1, 1, 4, 1, 5):
        x = torch.randn(size, 64)
        torch.testing.assert_close(model(x), other(x), rtol=1e-4, atol=1e-5)
        model.settle()
    torch.testing.assert_close(own.total, other.total, rtol=1e-4, atol=1e-5)
    assert (1,) in model.versions


def test_sizes_that_are_not_allowed(net: Net, tmp_path: Path) -> None:
    model = adaptive(net, tmp_path)
    for _ in range(4):
        with pytest.raises(InputError, match="is 65"):
            model(torch.randn(65, 64))
    with pytest.raises(InputError):
        model(torch.randn(4, 64), torch.randn(4))
    model.settle()
    assert not model.versions


def test_the_thread_ends_with_the_model(net: Net, tmp_path: Path) -> None:
    model = adaptive(net, tmp_path)
    call(model, net, 1, 3)
    model.settle()
    thread = model._thread
    assert thread is not None
    del model
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("options", [{"after": 0}, {"limit": -1}, {"limit": True}])
def test_numbers_are_checked(net: Net, tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="positive whole number"):
        adaptive(net, tmp_path, **options)


def test_sizes_need_names(net: Net) -> None:
    with pytest.raises(InputError, match="no size is open by name"):
        covan_mlir.adaptive(net, (torch.randn(4, 64),), dynamic_shapes=None)


def test_files_of_learned_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_sizes, "FILES", 2)
    monkeypatch.setattr(learned_sizes, "ENTRIES", 3)
    for number in range(4):
        LearnedSizes(f"model {number}", tmp_path).write({(size,): size for size in range(9)})
    assert len(list(tmp_path.iterdir())) == 2
    assert LearnedSizes("model 3", tmp_path).read() == {(8,): 8, (7,): 7, (6,): 6}


def test_a_damaged_file_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sizes = LearnedSizes("model", tmp_path)
    sizes.write({(1,): 2})
    (path,) = tmp_path.iterdir()
    path.write_text("{}")
    assert sizes.read() == {}
    assert "is not used" in caplog.text
