"""`python -m benchmarks.websocket`: costs of `tools/call` on a WebSocket.

The other rows are an echo of Channels, and HTTP. All rows of a server are measured in turns in the same run, as in
`python -m benchmarks`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import report, rounds
from benchmarks.processes import Command
from benchmarks.rounds import Results
from benchmarks.subjects import ADD_MANY, ADD_ONE, Cell, Family, Subject, Transport, served
from benchmarks.wire import Dialect, Work

ADD_AT_ONCE = Cell(work=Work.ADD, connections=1, in_flight=32)
CELLS = (ADD_ONE, ADD_AT_ONCE, ADD_MANY)
ECHO_AIM = 1.5
"""Maximum ratio of the CPU time of a `tools/call` to the echo's (docs/design/performance.md)."""
ONLY_ADD = frozenset({Work.ADD})


def subjects(server: str) -> list[Subject]:
    """Return the rows of one kind of server.

    The first one is the echo of Channels, with which the others are compared.
    """
    echo = Command(arguments=("-m", "benchmarks.servers.echo", server))
    plain, token = served("--server", server), served("--server", server, "--auth", "token", greets=True)
    constant, handshake = Dialect.CONSTANT, Dialect.HANDSHAKE

    def row(label: str, command: Command, path: str, dialect: Dialect = Dialect.STATELESS) -> Subject:
        return Subject(
            label=f"{server}: {label}",
            family=Family.CONSTANT if dialect is constant else Family.OURS,
            command=command,
            path=path,
            dialect=dialect,
            transport=Transport.HTTP if path == "/mcp" else Transport.WEBSOCKET,
            only=ONLY_ADD,
            short=label not in ("Channels echo of JSON", "ours, WebSocket, modern, token"),
        )

    return [
        row("Channels echo", echo, "/channels", constant),
        row("Channels echo of JSON", echo, "/json", constant),
        row("bare ASGI echo", echo, "/bare", constant),
        row("ours, WebSocket, modern", plain, "/mcp/ws"),
        row("ours, WebSocket, legacy", plain, "/mcp/ws", handshake),
        row("ours, WebSocket, modern, token", token, "/mcp/ws"),
        row("ours, HTTP, modern", plain, "/mcp"),
        row("ours, HTTP, legacy", plain, "/mcp", handshake),
    ]


def measure(rows: Sequence[Subject], *, number: int, seconds: float) -> Results:
    """Measure all rows."""
    return rounds.run(rows, CELLS, rounds=number, seconds=seconds, write_line=rounds.write_to_stderr)


def markdown(results: Results, rows: Sequence[Subject]) -> str:
    """Return the tables."""
    rows = [row for row in rows if any(results.of(row, cell) for cell in CELLS)]
    costs = [[row.label, *(report.spread(results.of(row, cell)) for cell in CELLS)] for row in rows]
    ratios, latencies, aims = [], [], []
    for row in rows:
        echo = next((other for other in rows if other.label == f"{row.label.partition(':')[0]}: Channels echo"), None)
        if echo is not None and row is not echo:
            found = [results.ratio(row, echo, cell) for cell in CELLS]
            ratios.append([row.label, *("" if ratio is None else f"{ratio:.2f}" for ratio in found)])
            if "ours, WebSocket" in row.label:
                aims += [_aim(row, cell, ratio) for cell, ratio in zip(CELLS, found, strict=True) if ratio is not None]
        latencies.append([row.label, *(_latency(results, row, cell) for cell in CELLS)])
    heading = ["", *(cell.label for cell in CELLS)]
    tables = {
        "WebSocket: CPU microseconds of the server process per request: median (fewest-most)": (heading, costs),
        "Times the echo of Channels on the same server": (heading, ratios),
        "As the client saw it: latency in microseconds, median, 99 of 100; per second; server busy": (
            heading,
            latencies,
        ),
        "The bar": (["", "column", "aim", "measured", ""], aims),
    }
    return "\n\n".join(f"{title}\n\n{report.table(*table)}" for title, table in tables.items() if table[1]) + "\n"


def _aim(row: Subject, cell: Cell, ratio: float) -> list[str]:
    reached = "reached" if ratio <= ECHO_AIM else "not reached"
    return [row.label, cell.label, f"{ECHO_AIM:g} times the echo", f"{ratio:.2f}", reached]


def _latency(results: Results, row: Subject, cell: Cell) -> str:
    found = results.of(row, cell)
    if found is None:
        return ""
    median, worst, number = (found.median(name) for name in ("p50_us", "p99_us", "per_second"))
    return f"{median:.0f}, {worst:.0f}; {number:.0f}; {found.median('busy') * 100:.0f} %"


def main(arguments: list[str] | None = None) -> int:
    """Run, and print the tables.

    Returns 1 if an answer was wrong or a server did not start, but never because of a figure.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.websocket", description=__doc__)
    parser.add_argument("--server", action="append", choices=["uvicorn", "daphne"], help="only this one")
    parser.add_argument("--only", action="append", metavar="TEXT", help="only rows with this in their label")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.35, help="length of one measurement")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every reading there")
    options = parser.parse_args(arguments)
    rows = [row for server in options.server or ["uvicorn", "daphne"] for row in subjects(server)]
    if options.only:
        rows = [row for row in rows if any(text.lower() in row.label.lower() for text in options.only)]
    results = measure(rows, number=options.rounds, seconds=options.seconds)
    print(markdown(results, rows))
    if options.json:
        options.json.write_text(report.as_json(results, rows, CELLS, None))
    for line in results.failures():
        rounds.write_to_stderr(f"FAILED {line}")
    return 1 if any(results.failures()) else 0


if __name__ == "__main__":
    sys.exit(main())
