"""The settings say that they hold every key: people copy from them."""

from dataclasses import fields
from typing import Any

import pytest
from django.conf import settings

from mcp_django.conf.options import Limits, ServerSettings, Settings
from mcp_django.contrib.control_room.alerts.options import AlertSettings
from mcp_django.contrib.control_room.options import RecordSettings


@pytest.mark.parametrize(
    ("options", "written"),
    [
        (Settings, settings.MCP),
        (ServerSettings, settings.MCP["SERVERS"]["default"]),
        (Limits, settings.MCP["LIMITS"]),
        (RecordSettings, settings.MCP["RECORD"]),
        (AlertSettings, settings.MCP["ALERTS"]),
    ],
    ids=["MCP", "server", "limits", "record", "alerts"],
)
def test_every_key_is_there(options: Any, written: dict[str, Any]) -> None:
    sections = {"ALERTS", "APPS_PREVIEW", "RECORD", "TASKS"} if options is Settings else set()  # of the installed apps
    assert set(written) == {field.name.upper() for field in fields(options)} | sections


def test_limits_that_are_said_to_be_default_are() -> None:
    other = {"BODY"}  # its comment says why
    assert {name: value for name, value in settings.MCP["LIMITS"].items() if name not in other} == {
        field.name.upper(): field.default for field in fields(Limits) if field.name.upper() not in other
    }
