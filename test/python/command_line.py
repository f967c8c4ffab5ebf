"""What tests of the command line share: models in a file, and ways to run covan."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from covan_mlir.tools import cli

MODELS = textwrap.dedent("""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 8)

        def forward(self, x, scale=None):
            y = torch.softmax(self.linear(x), -1)
            return {"y": y.view(-1) if scale is None else y * scale, "half": x.to(torch.bfloat16)}

    class Two(nn.Module):
        def forward(self, x, index):
            return x[index], x + 1

    class Branches(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    class Drops(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout()

        def forward(self, x):
            return self.drop(x)

    def double(x):
        return 2 * x

    torch.manual_seed(0)
    net = Net()
    number = 3

    def make():
        print("hello from the factory")
        return net, (torch.ones(2, 4),)

    def make_scaled():
        return net, torch.ones(2, 4), {"scale": 2.0}

    def make_function():
        return double

    def broken():
        raise RuntimeError("no weights here\\nat all")

    def leaves():
        raise SystemExit(3)

    def make_four():
        return 1, 2, 3, 4

    def make_text():
        return "text"
""")


def covan(*args: str, cwd: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    code = f"import sys\n{before}\nfrom covan_mlir.tools.cli import main\nsys.exit(main())"
    return subprocess.run([sys.executable, "-c", code, *args], cwd=cwd, capture_output=True, text=True, check=False)


def said(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    """Run a command in this process; what it writes to standard output, and to standard error where it fails."""
    capsys.readouterr()
    assert cli.main(args) == code
    out, err = capsys.readouterr()
    return out + err if code else out


def fails(capsys: pytest.CaptureFixture[str], *args: str, code: int = 1) -> tuple[str, str]:
    """Run a command that fails; its error and its hint, without their labels."""
    capsys.readouterr()
    assert cli.main(args) == code
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.startswith("covan: ") or "error" in line]
    assert len(lines) == 2, err
    assert lines[0].startswith("covan: error: ")
    assert lines[1].startswith("hint: ")
    assert "Traceback" not in out + err
    return lines[0].removeprefix("covan: error: "), lines[1].removeprefix("hint: ")
