"""A profile as a text table, as wide as its names need and at most 120 columns."""

from __future__ import annotations

from collections.abc import Sequence

from covan_mlir.profiling.model import By, ProfileData
from covan_mlir.profiling.views import ProfileRow, rows

_WIDTH = 120
_NAMES = 48  # widest name of a line, module or kernel


def table(profile: ProfileData, by: By) -> str:
    """Header, rows and notes; times in the unit that suits the total."""
    shown = rows(profile, by)
    unit, scale = _unit(profile.total)
    lines = header(profile)
    lines.append("")
    if by == "site":
        lines += _grid(_site_cells(profile, shown, unit, scale), right=range(6))
    else:
        lines += _grid(_cells(profile, shown, by, unit, scale), right=range(3))
    if any(row.estimated for row in shown):
        lines += ["", f"≈ of sites that several {by}s share: how much is of which is an estimate (FLOPs and bytes)"]
    return "\n".join(lines) + "\n"


def header(profile: ProfileData) -> list[str]:
    """What was measured, in sentences."""
    unit, scale = _unit(profile.total)
    whole = profile.statistics()
    kernels = profile.total - profile.outside
    lines = [
        f"{len(profile.totals)} calls on {profile.driver}: {profile.total / scale:.3f} {unit} a call "
        f"(min {whole.min / scale:.3f}, median {whole.median / scale:.3f}, p90 {whole.p90 / scale:.3f}); "
        f"{_percent(kernels, profile.total)} in kernels, {_percent(profile.outside, profile.total)} outside of them"
    ]
    if profile.unprofiled:
        lines.append(f"called from Python without the profiler: {profile.unprofiled / scale:.3f} {unit}")
    return [*lines, *profile.notes]


def _cells(profile: ProfileData, shown: Sequence[ProfileRow], by: By, unit: str, scale: float) -> list[tuple[str, ...]]:
    cells: list[tuple[str, ...]] = [(unit, "%", "shared", by, "what")]
    for row in shown:
        shared = f"≈{_percent(row.estimated, row.time)}" if row.estimated else ""
        name = _fit("  " * row.depth + row.name, _NAMES)
        cells.append((f"{row.time / scale:.3f}", _number(row.time, profile.total), shared, name, _what(profile, row)))
    return cells


def _site_cells(profile: ProfileData, shown: Sequence[ProfileRow], unit: str, scale: float) -> list[tuple[str, ...]]:
    cells: list[tuple[str, ...]] = [(unit, "%", "median", "p90", "GFLOP/s", "GB/s", "of roof", "site", "what")]
    for row in shown:
        middle = high = compute = moved = roof = ""
        if row.statistics:
            middle, high = f"{row.statistics.median / scale:.3f}", f"{row.statistics.p90 / scale:.3f}"
        if row.roofline and row.time:
            compute, moved = f"{row.roofline.flops / row.time:.1f}", f"{row.roofline.bytes / row.time:.1f}"
            if row.roofline.peak is not None and row.roofline.bandwidth is not None:
                higher = max(row.roofline.peak, row.roofline.bandwidth)
                roof = f"{100 * higher:.0f} % {'peak' if row.roofline.peak == higher else 'memory'}"
        name = f"{row.name.removeprefix('site ')} {row.kernel}".strip()
        cells.append(
            (
                f"{row.time / scale:.3f}",
                _number(row.time, profile.total),
                middle,
                high,
                compute,
                moved,
                roof,
                _fit(name, _NAMES),
                _what(profile, row),
            )
        )
    return cells


def _what(profile: ProfileData, row: ProfileRow) -> str:
    return ", ".join(profile.lineage.actions[i].name for i in row.actions)


def _grid(cells: Sequence[tuple[str, ...]], right: range) -> list[str]:
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) - 1)]
    room = max(_WIDTH - sum(widths) - 2 * len(widths), 12)
    lines = []
    for row in cells:
        columns = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row[:-1], widths, strict=True))
        ]
        lines.append("  ".join([*columns, _fit(row[-1], room)]).rstrip())
    return lines


def _unit(nanoseconds: float) -> tuple[str, float]:
    return ("ms", 1e6) if nanoseconds >= 1e6 else ("us", 1e3)


def _percent(part: float, whole: float) -> str:
    return f"{_number(part, whole)} %"


def _number(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole else "0.0"


def _fit(text: str, width: int) -> str:
    """Without control characters; what is too long loses its end, a name its middle."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= width else f"{text[: width // 2 - 1]}…{text[len(text) - (width - width // 2) :]}"
