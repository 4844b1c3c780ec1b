"""`python -m benchmarks.access`: costs of authentication and permissions.

A user with one group and one permission calls a tool with each kind of credential, on one uvicorn worker. The first row
is the same call without authentication. A "known" credential is one that the worker has verified in the last seconds,
as most calls have; a "new" one is verified for each request. "guarded" calls also require a scope and a Django
permission.

`--statements KIND` makes one call with a new credential, in process, and prints each SQL statement. The statement that
records the use of a personal token runs at most once a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import credentials, report, rounds
from benchmarks.processes import free_port
from benchmarks.rounds import Results
from benchmarks.subjects import ADD_MANY, ADD_ONE, Family, Subject, served
from benchmarks.wire import Dialect

CELLS = (ADD_ONE, ADD_MANY)
AIM = 40.0
"""Microseconds that a known credential may add to a call (docs/design/performance.md)."""
STATEMENTS_AIM = 2
"""Statements that a new credential may take."""


def subjects() -> list[Subject]:
    """Return the rows: no authentication, then each kind of credential."""
    rows = [Subject(label="no authentication", family=Family.OURS, command=served())]
    for kind in credentials.KINDS:
        forms: dict[str, tuple[str, ...]] = {
            f"{kind}, known": (),
            f"{kind}, known, guarded": ("--guarded",),
            f"{kind}, new": ("--uncached",),
        }
        if kind == "session":  # looked up for each request, because the user may have logged out
            forms = {"session, new": (), "session, new, guarded": ("--guarded",)}
        for label, options in forms.items():
            command = served("--auth", kind, *options, greets=True)
            rows.append(Subject(label=label, family=Family.OURS, command=command))
    return rows


def markdown(results: Results, rows: Sequence[Subject]) -> str:
    """Return the tables: the cost of each row, and its difference to the first row."""
    plain = rows[0]
    costs = [[row.label, *(report.spread(results.of(row, cell)) for cell in CELLS)] for row in rows]
    over = [[row.label, *(_more(results.over(row, plain, cell)) for cell in CELLS)] for row in rows[1:]]
    aims = [
        [row.label, cell.label, f"+{AIM:.0f}", f"{added:+.0f}", "reached" if added <= AIM else "not reached"]
        for row in rows[1:]
        for cell in CELLS
        if ", known" in row.label and (added := results.over(row, plain, cell)) is not None
    ]
    labels = [cell.label for cell in CELLS]
    tables = {
        "CPU microseconds of the server process per call: median (fewest-most)": (["", *labels], costs),
        "Microseconds more than without authentication": (["", *labels], over),
        "The bar": (["", "column", "aim", "measured", ""], aims),
    }
    return "\n\n".join(f"{title}\n\n{report.table(*table)}" for title, table in tables.items() if table[1]) + "\n"


def _more(added: float | None) -> str:
    return "" if added is None else f"{added:+.0f}"


def statements(kind: str) -> list[str]:
    """Return the SQL of one call with a new credential, of a tool for all users."""
    from benchmarks.serve import project

    issuer = credentials.Issuer(free_port()) if kind == "external" else None
    with project(auth=kind, issuer="" if issuer is None else issuer.name):
        from django.db import connections
        from django.db.backends.signals import connection_created

        from benchmarks.inprocess import Caller
        from benchmarks.site.asgi import application
        from benchmarks.wire import Work

        said: list[str] = []

        def listen(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            said.append(sql)
            return execute(sql, params, many, context)

        def listen_on(*, connection: Any, **_: Any) -> None:
            connection.execute_wrappers.append(listen)

        connection_created.connect(listen_on)  # connections of the threads
        # The first of two calls makes the statements that a process makes once. They are no cost of the credential.
        both = [credentials.make(kind, issuer) for _ in range(2)]

        async def call() -> None:
            for headers in both:
                caller = Caller(application, Work.ADD, Dialect.STATELESS, headers=headers)
                await caller.open()
                said.clear()
                await caller.call()

        try:
            asyncio.run(call())
        finally:
            connection_created.disconnect(listen_on)
            connections.close_all()
    return said


def main(arguments: list[str] | None = None) -> int:
    """Run, and print the tables.

    Returns 1 if an answer was wrong or a server did not start, but never because of a figure.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.access", description=__doc__)
    parser.add_argument(
        "--statements", choices=credentials.KINDS, help="print the SQL of one call, and measure nothing"
    )
    parser.add_argument("--only", action="append", metavar="TEXT", help="only rows with this in their label")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.35, help="length of one measurement")
    options = parser.parse_args(arguments)
    if options.statements:
        found = statements(options.statements)
        print("\n".join([*found, f"{len(found)} statements; the aim is at most {STATEMENTS_AIM}"]))
        return 0
    first, *others = subjects()
    chosen = [row for row in others if not options.only or any(text in row.label for text in options.only)]
    rows = [first, *chosen]
    results = rounds.run(rows, CELLS, rounds=options.rounds, seconds=options.seconds, write_line=rounds.write_to_stderr)
    print(markdown(results, rows))
    for line in results.failures():
        rounds.write_to_stderr(f"FAILED {line}")
    return 1 if any(results.failures()) else 0


if __name__ == "__main__":
    sys.exit(main())
