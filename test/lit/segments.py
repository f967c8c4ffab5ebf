"""Adds the segment sizes that the generic form of ``fred.chain``, ``fred.fused`` and ``fred.rolling`` asks for, so that
tests need not show them: ``segments.py FILE | covan-opt``. Lines stay where they are.

IRDL wants a place of its own for each operand and result, and the sizes say which are taken (see ``dialects/fred.py``).
They follow from the type at the end of each operation.
"""

import re
import sys
from pathlib import Path

from covan_mlir.dialects.fred_limits import MAX_INPUTS, MAX_OUTPUTS, MAX_STATES

_END = re.compile(r"\}\) \{(?P<attributes>.*)\} : \((?P<inputs>.*?)\) -> (?P<outputs>.*)$")


def filled(line: str) -> str:
    """A line of a test with the sizes, if it ends such an operation and has none."""
    end = _END.search(line)
    if end is None or "SegmentSizes" in line:
        return line
    attributes = end["attributes"]
    inputs, outputs = _count(end["inputs"]), _count(end["outputs"].strip("()"))
    if re.search(r"\bnames = ", attributes):
        sizes = f"{_sizes('operand', inputs, MAX_INPUTS)}, {_sizes('result', outputs, MAX_OUTPUTS)}"
    elif re.search(r"\bstates = ", attributes):
        sizes = _sizes("result", outputs, MAX_STATES)
    else:
        return line
    return f"{line[: end.start('attributes')]}{attributes}, {sizes}{line[end.end('attributes') :]}"


def _count(types: str) -> int:
    return types.count("tensor<")


def _sizes(side: str, count: int, places: int) -> str:
    return f"{side}SegmentSizes = array<i32: {', '.join(['1'] * count + ['0'] * (places - count))}>"


if __name__ == "__main__":
    print("\n".join(map(filled, Path(sys.argv[1]).read_text().splitlines())))
