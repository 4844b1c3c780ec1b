"""System checks of the remote servers of the project."""

import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.checks.registry import registry
from django.test import override_settings

from mcp_django.checks import clients, settings

URL = "https://api.example/mcp"


def found(**entry: Any) -> list[str]:
    with override_settings(MCP={"CLIENTS": {"one": entry}}):
        checks = (clients.check_clients, clients.check_client_secrets, settings.check_dotted_paths)
        assert {id(check) for check in checks} <= {id(check) for check in registry.get_checks()}
        messages = [message for check in checks for message in check(None)]
    assert all(message.hint and "s3cret" not in message.msg for message in messages)
    return [message.id or "" for message in messages]


def test_sound_settings_have_no_messages(tmp_path: Path) -> None:
    assert found(URL=URL, HEADERS={"X-Key": "s3cret"}) == []
    assert found(COMMAND=[sys.executable, "--key=s3cret"], CWD=tmp_path) == []


def test_without_servers_nothing_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "find_spec", lambda name: None)
    with override_settings(MCP={}):
        assert clients.check_clients(None) == clients.check_client_secrets(None) == []


def test_broken_settings_are_left_to_the_check_of_settings() -> None:
    assert found(URL=7) == []


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "find_spec", lambda name: None)
    assert found(URL=URL) == ["mcp_django.E050"]


def test_credentials_over_plain_http_are_an_error(subtests: pytest.Subtests) -> None:
    for entry in (
        {"URL": "http://api.example/mcp", "HEADERS": {"X-Key": "s3cret"}},
        {"URL": "http://api.example/mcp?key=s3cret"},
        {"URL": "ws://10.0.0.1/ws", "AUTH": {"TYPE": "bearer", "TOKEN": "s3cret"}},
    ):
        with subtests.test(entry=entry):
            assert found(**entry) == ["mcp_django.E051"]


def test_credentials_over_loopback_are_permitted(subtests: pytest.Subtests) -> None:
    for url in ("http://127.0.0.1:1/mcp?key=s3cret", "ws://localhost/ws?a=s3cret", "http://[::1]/?s3cret"):
        with subtests.test(url=url):
            assert found(URL=url) == []


def test_requests_without_secrets_may_use_plain_http() -> None:
    assert found(URL="http://api.example/mcp") == []


def test_missing_directories_and_programs_are_named(tmp_path: Path) -> None:
    assert found(COMMAND=[sys.executable], CWD=tmp_path / "gone") == ["mcp_django.W050"]

    assert found(COMMAND=["no-such-program-here", "s3cret"]) == ["mcp_django.W051"]
    assert found(COMMAND=["./server"], CWD=tmp_path) == ["mcp_django.W051"]
    (tmp_path / "server").touch()
    assert found(COMMAND=["./server"], CWD=tmp_path) == []


def test_functions_that_cannot_be_imported_are_named(subtests: pytest.Subtests) -> None:
    for entry in (
        {"SAMPLING": "no.such.function"},
        {"ELICITATION": "no.such.function"},
        {"AUTH": {"TYPE": "bearer", "TOKEN_FUNCTION": "no.such.function"}},
    ):
        with subtests.test(entry=entry):
            assert found(URL=URL, **entry) == ["mcp_django.E007"]


def test_missing_pages_for_the_consent_of_users_are_reported(subtests: pytest.Subtests) -> None:
    for auth, pages, expected in (
        ({"TYPE": "oauth"}, "tests.urls", ["mcp_django.W052"]),
        ({"TYPE": "oauth"}, "tests.client.urls", []),
        ({"TYPE": "oauth", "PER": "project"}, "tests.urls", []),
        ({"TYPE": "bearer", "TOKEN": "s3cret"}, "tests.urls", []),
        ({"TYPE": "oauth"}, "tests.no_such_module", ["mcp_django.W052"]),
    ):
        with (
            subtests.test(auth=auth, pages=pages, expected=expected),
            override_settings(MCP={"CLIENTS": {"one": {"URL": URL, "AUTH": auth}}}, ROOT_URLCONF=pages),
        ):
            assert [message.id for message in clients.check_client_pages(None)] == expected
