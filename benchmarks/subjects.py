"""Rows and columns of the tables: measured subjects and kinds of work."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from benchmarks.processes import Command
from benchmarks.wire import EVERYWHERE, Ask, Dialect, Work

MANY_TOOLS = 200
_SERVERS = Path(__file__).resolve().parent / "servers"


class Family(Enum):
    """The package or application of a subject."""

    CONSTANT = "constant"
    OURS = "mcp_django"
    EMPTY_VIEW = "empty view"
    SDK = "mcp SDK"
    DRF = "Django REST framework"
    DJANGO_MCP_SERVER = "django-mcp-server"
    FASTMCP = "FastMCP"


class Transport(Enum):
    """The transport of a subject."""

    HTTP = "HTTP"
    WEBSOCKET = "WebSocket"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A column of a table.

    A column has a kind of request, the number of connections that send it and the number of tools of the server.
    """

    work: Work
    connections: int
    tools: int = 5
    in_flight: int = 1
    """Unanswered requests on each connection at any time. HTTP/1.1 allows one."""

    @property
    def label(self) -> str:
        """Return the heading of the column."""
        tools = f", {self.tools} tools" if self.tools != 5 else ""
        in_flight = f", {self.in_flight} in flight" if self.in_flight != 1 else ""
        return f"{self.work.value}, c={self.connections}{in_flight}{tools}"


ADD_ONE = Cell(work=Work.ADD, connections=1)
ADD_MANY = Cell(work=Work.ADD, connections=32)
ADD_AMONG_MANY = Cell(work=Work.ADD, connections=32, tools=MANY_TOOLS)
LIST_MANY = Cell(work=Work.LIST, connections=1, tools=MANY_TOOLS)
PROGRESS = Cell(work=Work.PROGRESS, connections=1)
CELLS = (ADD_ONE, ADD_MANY, ADD_AMONG_MANY, LIST_MANY, PROGRESS)
SHORT_CELLS = (ADD_ONE, ADD_MANY, LIST_MANY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A row of a table: an endpoint of a server, in one dialect."""

    label: str
    family: Family
    command: Command
    path: str = "/mcp"
    dialect: Dialect = Dialect.STATELESS
    transport: Transport = Transport.HTTP
    only: frozenset[Work] = frozenset(EVERYWHERE)
    """The kinds of work that it supports."""
    asks: tuple[Ask, ...] = ()
    """The requests of the kinds of work that differ from those of other subjects."""
    short: bool = False
    """True if it is measured in the short form."""

    def can(self, cell: Cell) -> bool:
        """Return True if it can be measured in this column."""
        return cell.work in self.only and (cell.in_flight == 1 or self.transport is Transport.WEBSOCKET)

    def path_for(self, work: Work) -> str:
        """Return the path of a kind of work. HTTP constants have a path for each kind."""
        constant = self.dialect is Dialect.CONSTANT and self.transport is Transport.HTTP
        return f"{self.path}/{work.value}" if constant else self.path


def served(*options: str, greets: bool = False) -> Command:
    return Command(arguments=("-m", "benchmarks.serve", "--port", "{port}", *options), greets=greets)


def _peer(name: str, *, json: bool = False, python: str = sys.executable) -> Command:
    return Command(
        arguments=(str(_SERVERS / f"{name}.py"),), environment=(("JSON", "1" if json else "0"),), python=python
    )


def _empty_view(label: str, command: Command) -> Subject:
    return Subject(
        label=label,
        family=Family.EMPTY_VIEW,
        command=command,
        path="/empty",
        dialect=Dialect.CONSTANT,
        only=frozenset({Work.ADD}),
    )


def _own_subjects() -> list[Subject]:
    plain, token = served(), served("--auth", "token", greets=True)
    logged = served("--auth", "token", "--log", greets=True)
    stock, daphne = served("--middleware", "stock"), served("--server", "daphne")
    handshake = Dialect.HANDSHAKE
    ours = Family.OURS
    return [
        Subject(label="ours, door, modern", family=ours, command=plain, short=True),
        Subject(label="ours, door, legacy", family=ours, command=plain, dialect=handshake, short=True),
        Subject(label="ours, door, modern, token", family=ours, command=token, short=True),
        Subject(label="ours, door, legacy, token", family=ours, command=token, dialect=handshake),
        Subject(label="ours, door, modern, token, log", family=ours, command=logged),
        Subject(label="ours, door, modern, records", family=ours, command=served("--records", "default")),
        Subject(label="ours, door, modern, records of all calls", family=ours, command=served("--records", "all")),
        Subject(label="ours, door on daphne, modern", family=ours, command=daphne),
        Subject(label="ours, door on daphne, legacy", family=ours, command=daphne, dialect=handshake),
        _empty_view("empty Django view", plain),
        Subject(label="ours, Django view, modern", family=ours, command=plain, path="/view/mcp"),
        Subject(label="ours, Django view, legacy", family=ours, command=plain, path="/view/mcp", dialect=handshake),
        _empty_view("empty Django view, stock middleware", stock),
        Subject(label="ours, Django view, stock middleware, modern", family=ours, command=stock, path="/view/mcp"),
    ]


def _peer_subjects(name: str, label: str, family: Family, python: str = sys.executable) -> list[Subject]:
    json, plain = _peer(name, json=True, python=python), _peer(name, python=python)
    handshake, short = Dialect.HANDSHAKE, family is Family.SDK
    # A peer in its JSON mode has no stream for progress notifications.
    silent = frozenset({Work.ADD, Work.LIST})
    return [
        Subject(label=f"{label} json, modern", family=family, command=json, only=silent, short=short),
        Subject(
            label=f"{label} json, legacy", family=family, command=json, only=silent, dialect=handshake, short=short
        ),
        Subject(label=f"{label} default, modern", family=family, command=plain),
        Subject(label=f"{label} default, legacy", family=family, command=plain, dialect=handshake),
    ]


def _of_another_checkout(directory: Path) -> list[Subject]:
    return [
        replace(subject, label=f"before: {subject.label}", command=replace(subject.command, directory=directory))
        for subject in _own_subjects()
        if subject.family is Family.OURS and not subject.label.endswith(", log")
    ]


def subjects(fastmcp_python: str | None, before: Path | None = None) -> list[Subject]:
    """Return all rows, in the order of the tables.

    Without its interpreter, FastMCP is left out. `before` is another checkout of this repository, whose rows are added.
    """
    constant = Subject(
        label="bare ASGI constant",
        family=Family.CONSTANT,
        command=_peer("constant"),
        path="",
        dialect=Dialect.CONSTANT,
        short=True,
    )
    earlier = [] if before is None else _of_another_checkout(before)
    rows = [constant, *_own_subjects(), *earlier, *_peer_subjects("official_sdk", "mcp SDK", Family.SDK)]
    if fastmcp_python is not None:
        rows += _peer_subjects("fast_mcp", "FastMCP", Family.FASTMCP, fastmcp_python)
    return rows
