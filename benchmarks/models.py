"""`python -m benchmarks.models`: costs of rows of a model as JSON.

A ModelToolset, a view of DRF and django-mcp-server return a page of a hundred airports, or one airport by its key. A
thousand airports of eleven fields are in SQLite. All rows of the tables are measured in turns in the same run, as in
`python -m benchmarks`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import peers, report, rounds
from benchmarks.processes import Command
from benchmarks.rounds import Results
from benchmarks.subjects import Cell, Family, Subject
from benchmarks.wire import Ask, Dialect, Expected, Work

PAGE = 100
KEY = 7
LIST = Cell(work=Work.ROWS, connections=1)
LIST_MANY = Cell(work=Work.ROWS, connections=8)
GET = Cell(work=Work.ROW, connections=1)
GET_MANY = Cell(work=Work.ROW, connections=8)
CELLS = (LIST, LIST_MANY, GET, GET_MANY)
BOTH = frozenset({Work.ROWS, Work.ROW})
PEER_AIM = 3.0
"""Factor by which a call has to be cheaper than with django-mcp-server (docs/design/performance.md)."""


def subjects(peer_python: str | None) -> list[Subject]:
    """Return the rows. Without its interpreter, django-mcp-server is left out."""
    here = Command(arguments=("-m", "benchmarks.data.serve", "--port", "{port}"))
    calls = (
        _call(Work.ROWS, "airport_list", {"limit": PAGE}, times=2 * PAGE),
        _call(Work.ROW, "airport_get", {"pk": KEY}, times=2),
    )
    rest = (
        Ask(work=Work.ROWS, path=f"/rest/airports/?limit={PAGE}", expected=_holding(PAGE)),
        Ask(work=Work.ROW, path=f"/rest/airports/{KEY}/", expected=_holding(1)),
    )
    ours = Family.OURS
    rows = [
        Subject(label="DRF view", family=Family.DRF, command=here, dialect=Dialect.CONSTANT, asks=rest, only=BOTH),
        Subject(label="ours, door, modern", family=ours, command=here, asks=calls, only=BOTH),
        Subject(
            label="ours, door, legacy", family=ours, command=here, dialect=Dialect.HANDSHAKE, asks=calls, only=BOTH
        ),
        Subject(label="ours, Django view, modern", family=ours, command=here, path="/view/mcp", asks=calls, only=BOTH),
    ]
    if peer_python is not None:
        rows.append(_peer_row(peer_python))
    return rows


def _peer_row(python: str) -> Subject:
    """Return the row of django-mcp-server's query tool.

    Its other feature, a view of DRF as a tool, returns all rows, because it ignores the pages of the view.
    """
    command = Command(arguments=("-m", "benchmarks.data.serve", "--port", "{port}", "--peer"), python=python)
    query = "query_data_collections"
    page, one = [{"$limit": PAGE}], [{"$match": {"id": KEY}}]
    return Subject(
        label="django-mcp-server, query tool",
        family=Family.DJANGO_MCP_SERVER,
        command=command,
        dialect=Dialect.HANDSHAKE,
        only=BOTH,
        asks=(
            _call(Work.ROWS, query, {"collection": "airport", "search_pipeline": page}, times=PAGE),
            _call(Work.ROW, query, {"collection": "airport", "search_pipeline": one}, times=1),
        ),
    )


def _call(work: Work, tool: str, arguments: dict[str, Any], *, times: int) -> Ask:
    """Return the request of a call, whose result has each row `times` times.

    A result of this package has each row twice, as text and as structured content.
    """
    return Ask(work=work, tool=tool, arguments=json.dumps(arguments), expected=_holding(times))


def _holding(times: int) -> Expected:
    return Expected((b"Airport number 7",), b"longitude", times)


def markdown(results: Results, rows: Sequence[Subject]) -> str:
    """Return the tables."""
    rows = [row for row in rows if any(results.of(row, cell) for cell in CELLS)]
    heading = ["", *(cell.label for cell in CELLS)]
    costs = [[row.label, *(report.spread(results.of(row, cell)) for cell in CELLS)] for row in rows]
    ratios = [[row.label, *(_times(results, row, rows[0], cell) for cell in CELLS)] for row in rows[1:]]
    tables = {
        "Rows of a model: CPU microseconds of the server process per request: median (fewest-most)": (heading, costs),
        "Times the view of DRF": (heading, ratios),
        "The bar": (["", "column", "aim", "measured", ""], list(_aims(results, rows))),
    }
    return "\n\n".join(f"{title}\n\n{report.table(*table)}" for title, table in tables.items() if table[1]) + "\n"


def _times(results: Results, row: Subject, other: Subject, cell: Cell) -> str:
    ratio = results.ratio(row, other, cell)
    return "" if ratio is None else f"{ratio:.2f}"


def _aims(results: Results, rows: Sequence[Subject]) -> Iterator[list[str]]:
    """Yield the lines that compare the ASGI door with the view of DRF and the peer."""
    drf = next((row for row in rows if row.family is Family.DRF), None)
    for row in rows:
        if not row.label.startswith("ours, door"):
            continue
        for cell in CELLS:
            ratio = results.ratio(row, drf, cell)
            if ratio is not None:
                yield [row.label, cell.label, "less than DRF", f"{ratio:.2f} of it", _reached(ratio < 1)]
            found = (results.ratio(peer, row, cell) for peer in rows if peer.family is Family.DJANGO_MCP_SERVER)
            against = min((ratio for ratio in found if ratio is not None), default=None)
            if against is not None:
                aim = f"1/{PEER_AIM:g} of django-mcp-server"
                yield [row.label, cell.label, aim, f"1/{against:.1f}", _reached(against >= PEER_AIM)]


def _reached(reached: bool) -> str:
    return "reached" if reached else "not reached"


def main(arguments: list[str] | None = None) -> int:
    """Run, and print the tables.

    Returns 1 if an answer was wrong or a server did not start, but never because of a figure.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("--only", action="append", metavar="TEXT", help="only rows with this in their label")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="length of one measurement")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every reading there")
    options = parser.parse_args(arguments)
    python: str | None = None
    try:
        python = peers.django_mcp_server_python()
    except peers.Unavailable as error:
        rounds.write_to_stderr(f"without django-mcp-server: {error}")
    rows = subjects(python)
    if options.only:
        rows = [row for row in rows if any(text.lower() in row.label.lower() for text in options.only)]
    results = rounds.run(rows, CELLS, rounds=options.rounds, seconds=options.seconds, write_line=rounds.write_to_stderr)
    print(markdown(results, rows))
    if options.json:
        options.json.write_text(report.as_json(results, rows, CELLS, None))
    for line in results.failures():
        rounds.write_to_stderr(f"FAILED {line}")
    return 1 if any(results.failures()) else 0


if __name__ == "__main__":
    sys.exit(main())
