"""Settings of the control room, and the database router that one of them needs."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any
from urllib.parse import urlsplit

from mcp_django.conf import register_settings
from mcp_django.conf.issuers import WrongSecret
from mcp_django.conf.readers import Count, Seconds, WrongValue, find_closest

APP_LABEL = "mcp_control_room"
KINDS = ("failed", "slow", "asked")
DEFAULT_KEEP = {"calls": 30.0, "minutes": 2.0, "hours": 90.0, "days": 730.0}
MAX_KEEP_DAYS = 36_500
MIN_TOKEN_CHARACTERS = 24
TRACE_ID_FIELD = "{trace_id}"
"""Place of the trace id in `TRACE_URL`."""


@dataclass(frozen=True, slots=True)
class CallSelection:
    """Calls that get a row."""

    failed: bool = True
    slow: bool = True
    asked: bool = True
    """Calls that ask the client or its user, and all further rounds of them."""
    share: float = 0.0
    """Share of all calls, from 0 to 1."""

    def __str__(self) -> str:
        kinds = [name for name in KINDS if getattr(self, name)]
        return repr(self.share) if self.share else repr(kinds)


NO_CALLS = CallSelection(failed=False, slow=False, asked=False)
"""Selection of no calls."""


def _parse_selection(raw: Any) -> CallSelection:
    if raw == "all":
        return CallSelection(share=1.0)
    if raw == "none":
        return NO_CALLS
    if isinstance(raw, int | float) and not isinstance(raw, bool) and 0 <= raw <= 1:
        return CallSelection(share=float(raw))
    if not isinstance(raw, list | tuple):
        raise WrongValue('must be "all", "none", a share from 0 to 1, or a list of "failed", "slow" and "asked"')
    for name in raw:
        if name not in KINDS:
            raise WrongValue(f"contains {name!r}, which is not one of {', '.join(KINDS)}", find_closest(name, KINDS))
    return CallSelection(**{name: name in raw for name in KINDS})


def _parse_keep(raw: Any) -> Mapping[str, float]:
    if not isinstance(raw, Mapping):
        raise WrongValue("must be a dict of days")
    for name, days in raw.items():
        if name not in DEFAULT_KEEP:
            raise WrongValue(f"contains the unknown key {name!r}", find_closest(name, DEFAULT_KEEP))
        if not isinstance(days, int | float) or isinstance(days, bool) or not 0 < days <= MAX_KEEP_DAYS:
            raise WrongValue(f"must have a number of days above 0 for {name!r}")
    return MappingProxyType({**DEFAULT_KEEP, **{name: float(days) for name, days in raw.items()}})


@dataclass(frozen=True, slots=True)
class ToolRecording:
    """Exception for one tool."""

    calls: CallSelection | None = None
    """Selection in place of `CALLS`; None for the same."""
    arguments: tuple[str, ...] = ()
    """Names of the arguments that rows keep."""
    questions: frozenset[str] = frozenset()
    """Names of the questions that rows keep."""


def _parse_tools(raw: Any) -> Mapping[str, ToolRecording]:
    if not isinstance(raw, Mapping):
        raise WrongValue("must be a dict by names of tools")
    return MappingProxyType({str(name): _parse_tool(name, options) for name, options in raw.items()})


def _parse_tool(name: Any, options: Any) -> ToolRecording:
    if not isinstance(options, Mapping) or set(options) - {"CALLS", "ARGUMENTS", "QUESTIONS"}:
        raise WrongValue(f"must have a dict with CALLS, ARGUMENTS and QUESTIONS for {name!r}")
    calls = _parse_selection(options["CALLS"]) if "CALLS" in options else None
    arguments = _parse_names(name, options, "ARGUMENTS")
    return ToolRecording(calls, arguments, frozenset(_parse_names(name, options, "QUESTIONS")))


def _parse_names(tool: Any, options: Mapping[str, Any], key: str) -> tuple[str, ...]:
    names = options.get(key, ())
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise WrongValue(f"must have a list of names in {key} of {tool!r}")
    return tuple(names)


def _parse_database(raw: Any) -> str:
    if not isinstance(raw, str):
        raise WrongValue("must be the alias of a database")
    return raw


def _parse_anchor(raw: Any) -> str:
    if raw == "":
        return ""
    if not isinstance(raw, str | os.PathLike) or not Path(raw).is_absolute():
        raise WrongValue("must be the absolute path of a file")
    return os.fspath(raw)


def _parse_trace_url(raw: Any) -> str:
    if raw == "":
        return ""
    if not isinstance(raw, str) or TRACE_ID_FIELD not in raw:
        raise WrongValue(f"must be a URL that contains {TRACE_ID_FIELD}")
    parts = urlsplit(raw)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise WrongValue("must start with http:// or https:// and a host")
    return raw


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """`MCP["RECORD"]`: counts and rows of calls."""

    rollups: bool = True
    """Count all calls: by minute with their durations, by hour and caller."""
    calls: Annotated[CallSelection, _parse_selection] = CallSelection()
    """Calls that get a row.

    A list of "failed", "slow" and "asked", "all", "none", or the share of all calls from 0 to 1. "asked" are calls that
    ask the client or its user, with all their rounds. With a share, these three get a row as well.
    """
    slow: Seconds = 1.0
    """Seconds from which a call is slow."""
    tools: Annotated[Mapping[str, ToolRecording], _parse_tools] = field(default_factory=dict)
    """Exceptions by the name of the tool.

    `CALLS` as above; `ARGUMENTS`, the names of arguments that rows keep; and `QUESTIONS`, the `key=` of questions whose
    names rows keep. No other arguments and names are kept.
    """
    keep: Annotated[Mapping[str, float], _parse_keep] = field(
        default_factory=lambda: MappingProxyType(dict(DEFAULT_KEEP))
    )
    """Days for which rows are kept, by kind: "calls", "minutes", "hours" and "days"."""
    running: bool = True
    """Report the process every few seconds, and its running calls that are older than a second."""
    database: Annotated[str, _parse_database] = ""
    """Alias of the database for the rows; empty for the default one.

    It needs `RecordRouter` in `DATABASE_ROUTERS`.
    """
    flush: Seconds = 2.0
    """Seconds between two writes of a process."""
    buffer: Count = 10_000
    """Maximum calls that a process keeps until they are written.

    Above it, the oldest are dropped and counted.
    """
    trace_url: Annotated[str, _parse_trace_url] = ""
    """URL of a trace in your tracing system, with {trace_id} in place of the id; empty for no link."""
    chain: bool = False
    """Add a hash chain to the rows of calls, which `manage.py mcp_audit verify` checks."""
    anchor: Annotated[str, _parse_anchor] = ""
    """Absolute path of a file to which each write with `CHAIN` appends the end of its chain; or empty.

    `mcp_audit verify` compares the rows with it. A person with access to the database must not be able to
    write it.
    """
    calls_per_minute: Count = 600
    """Maximum rows of single calls that a process writes each minute.

    Further ones are dropped and counted. The limit does not apply to the selection "all".
    """


get_settings = register_settings("RECORD", RecordSettings)


def _parse_token(raw: Any) -> str | None:
    if raw is None:
        return None
    if not isinstance(raw, str) or len(raw) < MIN_TOKEN_CHARACTERS or not raw.isascii() or not raw.isprintable():
        raise WrongSecret(f"must be a text of {MIN_TOKEN_CHARACTERS} ASCII characters or more, or None")
    return raw


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """`MCP["METRICS"]`: the view of metrics in OpenMetrics format."""

    enabled: bool = False
    """Serve the view where the project's URLs include it."""
    token: Annotated[str | None, _parse_token] = field(default=None, repr=False)
    """Bearer token of the scraper, of 24 characters or more.

    Staff with the permission `mcp_control_room.view_controlroom` need none.
    """


get_metrics_settings = register_settings("METRICS", MetricsSettings)


class RecordRouter:
    """Router of the tables of this app to `MCP["RECORD"]["DATABASE"]`.

    It keeps other tables out of that database.
    """

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        """Return the alias for the tables of this app."""
        return self._get_alias() if model._meta.app_label == APP_LABEL else None

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        """Return the alias for the tables of this app."""
        return self.db_for_read(model)

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        """Return True or False for the pairs that this router decides."""
        alias = self._get_alias()
        if alias is None:
            return None
        if app_label == APP_LABEL:
            return db == alias
        return False if db == alias else None

    def _get_alias(self) -> str | None:
        return get_settings().database or None
