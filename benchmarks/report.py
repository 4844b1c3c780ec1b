"""Tables of CPU times, of ratios, and of the aims of the design."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version

from benchmarks.rounds import Figures, Results
from benchmarks.subjects import ADD_AMONG_MANY, ADD_MANY, ADD_ONE, LIST_MANY, Cell, Family, Subject

PACKAGES = ("mcp", "django", "asgiref", "uvicorn", "uvloop", "httptools", "daphne", "orjson", "pydantic")
OVER_CONSTANT = {ADD_ONE: 65.0, ADD_MANY: 45.0}
"""Microseconds that the ASGI door on uvicorn may cost more than the constant."""
PART_OF_SDK = {ADD_ONE: 2.5, ADD_MANY: 4.0, LIST_MANY: 10.0}
"""Factor by which the ASGI door has to be cheaper than the official SDK's best mode."""
OVER_EMPTY_VIEW = 60.0


def markdown(results: Results, rows: Sequence[Subject], cells: Sequence[Cell], fastmcp_python: str | None) -> str:
    """Return the report as markdown."""
    rows = [row for row in rows if any(results.of(row, cell) for cell in cells)]
    loads = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    tables = {
        "CPU microseconds of the server process per request: median (fewest-most)": _cpu_table(results, rows, cells),
        "Against the bare constant, and against the official SDK's best mode of each column": _ratio_table(
            results, rows, cells
        ),
        "As the client saw it": _client_table(results, rows),
        "The bar (docs/design/performance.md)": _bar(results, rows, cells),
    }
    parts = [", ".join(f"{name} {number}" for name, number in versions(fastmcp_python).items())]
    parts.append(f"{platform.platform()}, {os.cpu_count()} cores, load at the end {loads}")
    parts += [f"{heading}\n\n{table}" for heading, table in tables.items() if table]
    return "\n\n".join(parts) + "\n"


def as_json(results: Results, rows: Sequence[Subject], cells: Sequence[Cell], fastmcp_python: str | None) -> str:
    """Return all readings as JSON."""
    readings = [
        {
            "subject": row.label,
            "family": row.family.value,
            "work": cell.work.value,
            "connections": cell.connections,
            "in_flight": cell.in_flight,
            "tools": cell.tools,
            "failure": figures.failure or None,
            "readings": [asdict(reading) for reading in figures.readings],
        }
        for row in rows
        for cell in cells
        if (figures := results.figures.get((row, cell)))
    ]
    memory = {row.label: round(size, 1) for row, size in results.memory_mb.items()}
    whole = {"versions": versions(fastmcp_python), "machine": _machine(), "memory_mb": memory, "cells": readings}
    return json.dumps(whole, indent=1) + "\n"


def versions(fastmcp_python: str | None) -> dict[str, str]:
    """Return the versions of the measured packages."""
    found = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if fastmcp_python is not None:
        script = "from importlib.metadata import version; print(version('fastmcp'), version('mcp'))"
        said = subprocess.run([fastmcp_python, "-c", script], capture_output=True, text=True, check=True).stdout.split()
        found["fastmcp"], found["mcp under it"] = said
    return found


def _machine() -> dict[str, object]:
    return {"system": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count()}


def table(heading: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table in markdown, with numbers aligned to the right."""
    rule = ["---", *("--:" for _ in heading[1:])]
    return "\n".join("| " + " | ".join(line) + " |" for line in (heading, rule, *lines))


def spread(figures: Figures | None) -> str:
    """Return a cell of CPU time: the median, the minimum and the maximum."""
    if figures is None:
        return ""
    costs = figures.all("cpu_us")
    return f"**{figures.median('cpu_us'):.0f}** ({min(costs):.0f}-{max(costs):.0f})"


def _cpu_table(results: Results, rows: Sequence[Subject], cells: Sequence[Cell]) -> str:
    lines = []
    for row in rows:
        memory = results.memory_mb.get(row)
        costs = [spread(results.of(row, cell)) for cell in cells]
        lines.append([row.label, *costs, f"{memory:.0f}" if memory else ""])
    return table(["", *(cell.label for cell in cells), "memory MB"], lines) if lines else ""


def _ratio_table(results: Results, rows: Sequence[Subject], cells: Sequence[Cell]) -> str:
    grows = ADD_AMONG_MANY in cells
    heading = ["", *(f"over constant, {cell.label}" for cell in OVER_CONSTANT)]
    heading += [f"of SDK, {cell.label}" for cell in cells if cell is not ADD_AMONG_MANY]
    heading += ["add, 200 tools : 5"] if grows else []
    lines = []
    for row in rows:
        if row.family is Family.CONSTANT:
            continue
        line = [row.label]
        for cell in OVER_CONSTANT:
            over = results.over(row, _best(results, rows, cell, Family.CONSTANT), cell)
            line.append("" if over is None else f"{over:+.0f}")
        line += [
            _fraction(results.ratio(row, _best(results, rows, cell, Family.SDK), cell))
            for cell in cells
            if cell is not ADD_AMONG_MANY
        ]
        if grows:
            many, few = results.cpu(row, ADD_AMONG_MANY), results.cpu(row, ADD_MANY)
            line.append(f"{many / few:.2f}" if many and few else "")
        lines.append(line)
    return table(heading, lines) if lines else ""


def _client_table(results: Results, rows: Sequence[Subject]) -> str:
    lines = []
    for row in rows:
        one, many = results.of(row, ADD_ONE), results.of(row, ADD_MANY)
        if one and many:
            lines.append(
                [
                    row.label,
                    f"{one.median('p50_us'):.0f}",
                    f"{one.median('p99_us'):.0f}",
                    f"{many.median('per_second'):.0f}",
                    f"{many.median('p99_us') / 1000:.1f}",
                    f"{many.median('busy') * 100:.0f}",
                ]
            )
    heading = ["add", "p50 us, c=1", "p99 us, c=1", "per second, c=32", "p99 ms, c=32", "server busy %, c=32"]
    return table(heading, lines) if lines else ""


def _fraction(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"1/{1 / ratio:.1f}" if ratio < 1 else f"{ratio:.1f}x"


def _best(results: Results, rows: Sequence[Subject], cell: Cell, family: Family) -> Subject | None:
    """Return the cheapest row of a family in this column."""
    costs = [(cost, row.label, row) for row in rows if row.family is family and (cost := results.cpu(row, cell))]
    return min(costs)[2] if costs else None


def _bar(results: Results, rows: Sequence[Subject], cells: Sequence[Cell]) -> str:
    """Return the table of the aims, with a line for each aim and row."""
    lines: list[list[str]] = []
    for row in rows:
        if row.family is not Family.OURS or "daphne" in row.label:
            continue
        if "Django view" in row.label:
            lines += _view_lines(results, rows, row)
            continue
        for cell in cells:
            over = results.over(row, _best(results, rows, cell, Family.CONSTANT), cell)
            ratio = results.ratio(row, _best(results, rows, cell, Family.SDK), cell)
            if over is not None and cell in OVER_CONSTANT:
                aim = OVER_CONSTANT[cell]
                lines.append(_line(row, cell, f"constant + {aim:.0f} us", f"{over:+.0f}", over <= aim))
            if ratio is not None and cell in PART_OF_SDK:
                part = PART_OF_SDK[cell]
                lines.append(_line(row, cell, f"1/{part:g} of the SDK", _fraction(ratio), ratio * part <= 1))
        few, many = results.cpu(row, ADD_MANY), results.cpu(row, ADD_AMONG_MANY)
        if few and many:
            lines.append(_line(row, ADD_AMONG_MANY, "as with 5 tools", f"{many / few:.2f}x", many <= few * 1.1))
    return table(["", "column", "aim", "measured", ""], lines) if lines else ""


def _view_lines(results: Results, rows: Sequence[Subject], row: Subject) -> list[list[str]]:
    """Return the lines that compare a view with the empty view of the same server."""
    empty = next((other for other in rows if other.family is Family.EMPTY_VIEW and other.command == row.command), None)
    aim = f"empty view + {OVER_EMPTY_VIEW:.0f} us"
    overs = [(cell, results.over(row, empty, cell)) for cell in (ADD_ONE, ADD_MANY)]
    return [_line(row, cell, aim, f"{over:+.0f}", over <= OVER_EMPTY_VIEW) for cell, over in overs if over is not None]


def _line(row: Subject, cell: Cell, aim: str, measured: str, reached: bool) -> list[str]:
    return [row.label, cell.label, aim, measured, "reached" if reached else "not reached"]
