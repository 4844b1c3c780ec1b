"""The required scopes of every request, as the error of a missing scope names them over every transport."""

from typing import Any

import pytest

from mcp_django import wiring
from mcp_django.auth.principal import local_principal
from mcp_django.auth.requests import AuthRequest
from mcp_django.protocol.headers import Headers
from mcp_django.server.calls.call import Connection


def of_the_host(request: AuthRequest) -> list[str]:
    """A function of the project."""
    return [f"{request.headers['Host']}:read"]


def required(settings: Any, scopes: Any, headers: Headers | None = None) -> list[str]:
    settings.MCP = {"AUTH": "token", "SERVERS": {"default": {"REQUIRED_SCOPES": scopes}}}
    return list(wiring.get_ports().required_scopes(Connection(local_principal(None), headers=headers)))


def test_required_scopes_are_those_of_the_settings(settings: Any) -> None:
    assert required(settings, ["b", "a"]) == ["a", "b"]
    assert required(settings, []) == []


def test_a_function_gets_the_request_that_opened_the_channel(settings: Any) -> None:
    headers = Headers([(b"host", b"acme")])
    assert required(settings, f"{__name__}.of_the_host", headers) == ["acme:read"]


def test_a_function_that_fails_is_logged_and_adds_none(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert required(settings, f"{__name__}.of_the_host") == []
    assert "Computing the required scopes" in caplog.text
