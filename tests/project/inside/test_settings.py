"""The settings of the demo hold only keys that differ from the defaults, because people copy them."""

from dataclasses import MISSING, fields
from typing import Any

import pytest
from django.conf import settings

from mcp_django.conf.options import Limits, ServerSettings, Settings
from mcp_django.contrib.control_room.alerts.options import AlertSettings


def get_defaults(options: Any) -> dict[str, Any]:
    return {
        field.name.upper(): field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(options)
    }


@pytest.mark.parametrize(
    ("options", "written"),
    [
        (Settings, settings.MCP),
        (ServerSettings, settings.MCP["SERVERS"]["default"]),
        (Limits, settings.MCP["LIMITS"]),
        (AlertSettings, settings.MCP["ALERTS"]),
    ],
    ids=["MCP", "server", "limits", "alerts"],
)
def test_each_key_differs_from_its_default(options: Any, written: dict[str, Any]) -> None:
    defaults = get_defaults(options)
    assert [name for name, value in written.items() if name in defaults and defaults[name] == value] == []
