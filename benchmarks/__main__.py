"""`python -m benchmarks`: measure everything, and print markdown."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks import peers, report, rounds, websocket
from benchmarks.subjects import CELLS, SHORT_CELLS, Subject, subjects


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--short", action="store_true", help="under a minute: ours, the constant and the official SDK")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every reading there")
    parser.add_argument("--rounds", type=int, help="how often each cell is measured (9; short form 4)")
    parser.add_argument("--seconds", type=float, help="length of one measurement (0.35; short form 0.2)")
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="only rows with this in their label; repeatable"
    )
    parser.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="another checkout of this repository, measured in the same run"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run, and print the tables.

    Returns 1 if an answer was wrong or a server did not start, but never because of a figure.
    """
    options = _options(arguments)
    if not hasattr(os, "sched_setaffinity"):
        print("the measurements read another process's CPU clock and pin cores: they need Linux", file=sys.stderr)
        return 2
    python = None
    wanted = not options.short and (not options.only or any("fastmcp" in text.lower() for text in options.only))
    if wanted:
        try:
            python = peers.fastmcp_python()
        except peers.Unavailable as error:
            rounds.write_to_stderr(f"without FastMCP: {error}")
    before = None if options.before is None else options.before.resolve()
    rows = [row for row in subjects(python, before) if _chosen(row, options)]
    cells = SHORT_CELLS if options.short else CELLS
    number, seconds = options.rounds or (4 if options.short else 9), options.seconds or (0.2 if options.short else 0.35)
    results = rounds.run(rows, cells, rounds=number, seconds=seconds, write_line=rounds.write_to_stderr)
    print(report.markdown(results, rows, cells, python))
    if options.json:
        options.json.write_text(report.as_json(results, rows, cells, python))
    failures = [*results.failures()]
    if sockets := [row for row in websocket.subjects("uvicorn") if _chosen(row, options)]:
        found = websocket.measure(sockets, number=number, seconds=seconds)
        print(websocket.markdown(found, sockets))
        failures += found.failures()
    for line in failures:
        rounds.write_to_stderr(f"FAILED {line}")
    return 1 if failures else 0


def _chosen(row: Subject, options: argparse.Namespace) -> bool:
    if options.short and not row.short:
        return False
    return not options.only or any(text.lower() in row.label.lower() for text in options.only)


if __name__ == "__main__":
    sys.exit(main())
