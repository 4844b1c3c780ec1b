"""The log filter: every record names its call. Repeated failures are logged once in an interval."""

import logging
import logging.config
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from mcp_django import Server
from mcp_django.logs import FIELDS, CallFilter
from mcp_django.logs.records import RateLimitedLogger
from tests.server.client import PipelineClient, make_server
from tests.support.clock import Clock

FORMAT = " ".join(f"%({name})s" for name in FIELDS)
logger = logging.getLogger("tests.shop")


@pytest.fixture
def written() -> Iterator[StringIO]:
    """Record the output of a handler with the filter on the project's logger."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(CallFilter())
    handler.setFormatter(logging.Formatter(f"%(message)s: {FORMAT}"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream
    logger.removeHandler(handler)


def shop() -> Server:
    server = make_server()

    @server.tool
    async def buy(what: str) -> None:
        logger.info("bought")
        await sync_to_async(logger.info)("in a thread")

    @server.tool
    def sell(what: str) -> None:
        logger.info("sold")

    return server


async def test_records_made_during_a_call_name_it(written: StringIO) -> None:
    server = shop()
    await PipelineClient(server).call("buy", what="secret")
    params = {"name": "sell", "arguments": {"what": "x"}, "_meta": {"traceparent": f"00-{'a' * 32}-{'b' * 16}-00"}}
    await PipelineClient(server).request("tools/call", params)
    assert written.getvalue().splitlines() == [
        "bought: default tools/call buy local 1 -",
        "in a thread: default tools/call buy local 1 -",
        f"sold: default tools/call sell local 1 {'a' * 32}",
    ]


async def test_records_made_outside_of_calls_can_be_formatted_too(written: StringIO) -> None:
    await PipelineClient(shop()).call("sell", what="x")
    logger.info("idle")
    assert written.getvalue().splitlines()[-1] == "idle: - - - - - -"


def test_attributes_of_a_record_are_kept(written: StringIO) -> None:
    logger.info("mine", extra={"mcp_name": "of my own"})
    assert written.getvalue() == "mine: - - of my own - - -\n"


async def test_the_filter_can_be_named_in_logging(capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {"call": {"()": "mcp_django.logs.CallFilter"}},
        "formatters": {"call": {"format": "%(mcp_method)s %(mcp_name)s: %(message)s"}},
        "handlers": {"out": {"class": "logging.StreamHandler", "filters": ["call"], "formatter": "call"}},
        "loggers": {"tests.shop": {"handlers": ["out"], "level": "INFO", "propagate": False}},
    }
    logging.config.dictConfig(config)
    try:
        await PipelineClient(shop()).call("sell", what="x")
    finally:
        logger.handlers.clear()
        logger.propagate = True
    assert capsys.readouterr().err == "tools/call sell: sold\n"


async def test_the_configuration_in_the_documentation_works(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "run" / "observability.md").read_text(encoding="utf-8")
    written: dict[str, Any] = {}
    exec(page[page.index("LOGGING = {") :].partition("```")[0], written)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        logging.config.dictConfig(written["LOGGING"])
        await PipelineClient(shop()).call("sell", what="x")
        logger.info("idle")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    assert capsys.readouterr().err.splitlines() == [
        "INFO tests.shop [tools/call sell local] sold",
        "INFO tests.shop [- - -] idle",
    ]


async def test_a_repeated_failure_is_logged_once_in_an_interval(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    failures = RateLimitedLogger(logger, seconds=60)
    for number in (1, 2):
        failures.log(logging.ERROR, "failure %d", number)
    await clock.advance(61)
    failures.log(logging.ERROR, "failure %d", 3)
    assert [record.getMessage() for record in caplog.records] == ["failure 1", "failure 3"]
