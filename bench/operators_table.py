"""`docs/operators.md` from what `bench/operators.py` recorded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from opinfo_samples import DTYPES, Judged, Outcome, Record

TAKEN: tuple[Outcome, ...] = ("agrees", "differs", "refused", "fails")
"""Outcomes of samples that `torch.export` takes and that there is something to compare of."""
WORDS: dict[Outcome, str] = {
    "differs": "differs",
    "refused": "no",
    "fails": "fails",
    "not exported": "not exported",
    "random": "random numbers",
    "undefined": "undefined by PyTorch",
    "not run by eager": "eager raises an error, too",
}
WIDTH = 140

HEAD = """# Operators

What covan compiles of PyTorch's operators, by all of torch's own samples (`OpInfo`, which torch tests its operators
with). Made by `python bench/operators.py --write-docs` with torch {torch}. A row is of the last sweep of most samples
that its operator and dtype were in: most that agreed were not swept again on later changes. A row of the first table is
of the last sweep of all operators in its dtype. Dtypes without a row in the first table, and operators without one in
the second, were not swept.

A sample *agrees* if its results are eager's, within `torch.testing`'s tolerances for the dtype or those that torch's
own tests grant the operator, or as near to eager in f64 as eager is, within twice its error. A sample that does not
compile is refused with a `CompileError` or `ExportError` that gives the reason. Apart stand samples that
`torch.export` does not take, that draw random numbers, whose results PyTorch leaves undefined (`empty`), and those
for which eager raises an error. Where {alike} samples of an operator that lie far apart are refused for one reason, the
others count as refused for it.{partly}

| dtype | operators | exported | of these, all judged agree | samples | exported | agree | refused | differ | fail |
|---|---|---|---|---|---|---|---|---|---|
"""
PARTLY = """

Of operators with many samples some were judged, far apart: *samples* says how many, `12 of 90`. Nothing is said of the
others."""
ROWS = """
In *compiles* and *agrees*, of the samples that `torch.export` takes: all (yes), none (no) or how many.

| operator | dtypes | samples | compiles | agrees | reason |
|---|---|---|---|---|---|
"""


def page(records: Sequence[Record], alike: int, before: str = "") -> str:
    """The whole page.

    Args:
        before: the page as it was: rows of operators and dtypes that there is no record of stay.
    """
    by_dtype = {dtype: [record for record in records if record.dtype == dtype] for dtype in DTYPES}
    first, _, second = before.partition(ROWS)
    known = {cells[0]: line for line in first.splitlines() if (cells := _cells(line)) and cells[0] in DTYPES}
    totals = "".join(_whole(dtype, swept, known.get(dtype, "")) for dtype, swept in by_dtype.items())
    rows: dict[str, list[list[str]]] = {op: _rows(list(group)) for op, group in groupby(records, lambda r: r.op)}
    swept = {(record.op, record.dtype) for record in records}
    for line in second.splitlines():
        op, dtypes, *said = _cells(line)
        if left := [dtype for dtype in dtypes.split() if (op, dtype) not in swept]:
            rows.setdefault(op, []).append([op, " ".join(left), *said])
    versions = {record.torch for record in records} | set(re.findall(r"with torch (.*?)\. A row", before))
    joined = [cells for op in sorted(rows) for cells in _together(rows[op])]
    partly = PARTLY if any(" of " in samples for _, _, samples, *_ in joined) else ""
    head = HEAD.format(torch=", ".join(sorted(versions)), alike=alike, partly=partly)
    return head + totals + ROWS + "".join(map(_row, joined))


def _together(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The rows of one operator: those that say the same are one."""
    order = list(DTYPES)
    dtypes: dict[tuple[str, ...], list[str]] = {}
    for op, names, *said in rows:
        dtypes.setdefault((op, *said), []).extend(names.split())
    joined = [(op, sorted(names, key=order.index), said) for (op, *said), names in dtypes.items()]
    return [[op, " ".join(names), *said] for op, names, said in sorted(joined, key=lambda row: order.index(row[1][0]))]


def _cells(line: str) -> list[str]:
    """Those of a row; none of another line."""
    return [cell.strip() for cell in line.strip()[1:-1].split("|")] if line.startswith("|") else []


def _whole(dtype: str, records: Sequence[Record], before: str) -> str:
    """The row of a dtype: as it was, where fewer operators were swept than it counts."""
    if before and len(records) < int(_cells(before)[1]):
        return f"{before}\n"
    return _total(dtype, records) if records else ""


def counts(record: Record) -> Counter[Outcome]:
    """How many samples have which outcome."""
    outcomes: Counter[Outcome] = Counter(verdict.outcome for verdict in record.apart)
    outcomes["agrees"] = record.samples - len(record.apart)
    return outcomes


def _taken(outcomes: Counter[Outcome]) -> int:
    return sum(outcomes[outcome] for outcome in TAKEN)


def _total(dtype: str, records: Sequence[Record]) -> str:
    """One row of the first table."""
    taken = [outcomes for record in records if _taken(outcomes := counts(record))]
    agree = sum(outcomes["agrees"] == _taken(outcomes) for outcomes in taken)
    samples = sum(taken, Counter[Outcome]())
    cells: list[object] = [dtype, len(records), len(taken), f"{agree} ({100 * agree / max(1, len(taken)):.1f} %)"]
    cells += [_share_judged(sum(record.samples for record in records), sum(record.of for record in records))]
    cells += [_taken(samples), *(samples[outcome] for outcome in ("agrees", "refused", "differs", "fails"))]
    return _row(cells)


def _rows(records: Sequence[Record]) -> list[list[str]]:
    """The rows of one operator: a dtype each."""
    rows = []
    for record in records:
        outcomes = counts(record)
        taken = _taken(outcomes)
        compiles = _share(outcomes["agrees"] + outcomes["differs"], taken)
        rows.append(
            [
                record.op,
                record.dtype,
                _share_judged(record.samples, record.of),
                compiles,
                _share(outcomes["agrees"], taken),
                _reasons(record),
            ]
        )
    return rows


def _share_judged(judged: int, of: int) -> str:
    return str(of) if judged == of else f"{judged} of {of}"


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |\n"


def _share(some: int, all_: int) -> str:
    if not all_:
        return "-"
    return "yes" if some == all_ else "no" if not some else f"{some} of {all_}"


def _reasons(record: Record) -> str:
    """Why samples do not agree, each reason once, with how many samples it holds for where it is not all."""
    tally = Counter(_reason(verdict) for verdict in record.apart)
    said = (text if count == record.samples else f"{text} ({count})" for text, count in tally.most_common(3))
    more = ["..."] if len(tally) > 3 else []
    return "; ".join([*said, *more])


def _reason(verdict: Judged) -> str:
    text = re.sub(r"[|\n]", " ", verdict.reason)
    text = re.sub(r"\[in [\w:-]+\]$", "", text).strip()
    if len(text) > WIDTH:
        text = f"{text[:WIDTH].rsplit(' ', 1)[0]} ..."
    word = WORDS[verdict.outcome]
    return text if verdict.outcome == "refused" else f"{word}: {text}" if text else word
