"""A schedule that was measured to be the best for what a chain computes, on a machine.

Which these are is told a program by an attribute of its module: so the compiler and covan-opt choose alike, and what a
program was compiled with stands in its IR.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import msgspec

from covan_mlir.fred import chain_json
from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.kernel import Executable
from covan_mlir.support.typed_json import Amount

RECORDS = "covan.records"
"""Attribute of a module: what `dump` gives."""


@dataclass(frozen=True)
class Condition:
    """What has to hold where a schedule is taken that was measured on another machine.

    Attributes:
        against: template and schedule that are predicted to be the best: it was measured to be faster than these.
        code: digest of its kernel (`code_digest`).
        against_code: the same of the kernel that is predicted to be the best.
    """

    against: str
    code: str
    against_code: str


@dataclass(frozen=True)
class Recorded:
    """The schedule for a workload.

    Attributes:
        workload: see `workload`.
        template: name of the template whose schedule it is.
        schedule: as JSON, keys in order.
        seconds: that its kernel took.
        condition: without which it is not taken; None: it was measured on this machine, by this version.
    """

    workload: str
    template: str
    schedule: str
    seconds: Amount
    condition: Condition | None = None


def workload(chain: Chain) -> str:
    """The name of what a chain computes, whatever parts of a model it comes from: SHA-256, as hexadecimal digits."""
    return hashlib.sha256(compact(chain_json.dump(chain)).encode()).hexdigest()


def code_digest(executable: Executable) -> str:
    """SHA-256 of a kernel's code and operands, whatever it is called, as hexadecimal digits."""
    text = compact(executable.to_json()).replace(executable.name, "kernel")
    return hashlib.sha256(text.encode()).hexdigest()


def compact(value: object) -> str:
    """JSON, the same text for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def dump(records: Iterable[Recorded]) -> str:
    """As an attribute holds them."""
    return compact([asdict(record) for record in records])


def load(text: str) -> Mapping[str, Recorded]:
    """By workload; the inverse of `dump`.

    Raises:
        ValueError: it is no such text.
    """
    return {record.workload: record for record in msgspec.json.decode(text, type=tuple[Recorded, ...])}
