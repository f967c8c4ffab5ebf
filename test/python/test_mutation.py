"""Traces against a ground truth: change an operation, and see which machine code changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from limits import part, sweep

# In a process of its own: the oracle compiles where it runs, and the compiler does not give its memory back.
PROGRAM = """
import sys
import torch
from mutation import Verdict, settle, verdicts
from zoo import build

module, args, kwargs = build(sys.argv[1])
program = torch.export.export(settle(module), args, kwargs, strict=False)
found = [v for v in verdicts(program, int(sys.argv[2])) if isinstance(v, Verdict)]
right = sum(len(v.truth & v.claimed) for v in found)
print(len(found), right, sum(len(v.claimed) for v in found), sum(len(v.truth) for v in found))
"""


@pytest.mark.parametrize(("name", "limit"), part([("two_blocks", 5), ("cnn", 4)], kept=[("cnn", 4)]))
def test_sites_that_change_are_the_sites_of_the_trace(name: str, limit: int) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, str(limit)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    count, right, claimed, true = map(int, result.stdout.split()[-4:])
    assert count >= limit // 2
    assert right >= 0.95 * claimed
    assert right >= 0.95 * true


# A number changed in each fused kernel (a norm's epsilon, the scale of the scores, which stands in repairs, too), all
# in one program: their traces share no site.
FUSED = """
import torch
from mutation import Oracle, Verdict, settle
from zoo import build

module, args, kwargs = build("two_blocks")
oracle = Oracle(torch.export.export(settle(module), args, kwargs, strict=False), fuse=True)
sites = oracle.base.lineage.sites
claims = [oracle._claimed(index, frozenset()) for index in range(len(oracle))]
inside = [i for i, claim in enumerate(claims) if claim and all(sites[s].kernel.startswith("fred_") for s in claim)]
groups = oracle.groups([i for i in inside if oracle._told(i)[1] == "number"], 7, 0)
found = [verdict for group in groups for verdict in oracle.judge_together(group)]
told = [verdict for verdict in found if isinstance(verdict, Verdict)]
print(len(told), sum(verdict.truth == verdict.claimed for verdict in told), len({s for v in told for s in v.truth}))
"""


def test_a_change_inside_of_a_fused_kernel_shows_at_its_site_alone() -> None:
    command = [sys.executable, "-c", FUSED]
    result = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    count, right, places = map(int, result.stdout.split()[-3:])
    assert count >= 7
    assert right == count
    assert places == 7  # five norms, two attentions


# Two mutants whose traces share no site, as they are and with the first trace given a third site.
TOGETHER = """
import dataclasses
import torch
from mutation import Oracle, settle
from torch import nn

layers = nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 12), nn.Sigmoid(), nn.Linear(12, 4), nn.Tanh()
oracle = Oracle(torch.export.export(settle(nn.Sequential(*layers)), (torch.randn(4, 8),), strict=False))
number = {oracle._told(index)[0]: index for index in range(len(oracle))}
pair = [number["relu"], number["sigmoid"]]
build, builds = oracle.build, []
oracle.build = lambda: builds.append(1) or build()
print([v.truth == v.claimed for v in oracle.judge_together(pair)], len(builds))
(part,), (third,) = oracle._parts(pair[0]), oracle._claimed(number["tanh"], frozenset())
oracle._fates = {**oracle._fates, part: dataclasses.replace(oracle._fates[part], sites=(third,))}
print([v.truth == v.claimed for v in oracle.judge_together(pair)], len(builds))
"""


@sweep
def test_mutants_built_together_tell_a_wrong_trace() -> None:
    command = [sys.executable, "-c", TOGETHER]
    result = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-2:] == ["[True, True] 1", "[False, True] 4"]
