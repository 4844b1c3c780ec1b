"""MCP["CLIENTS"]: valid and invalid values, and messages without secrets."""

from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from mcp_django import conf
from mcp_django.checks.settings import check_settings
from mcp_django.conf.clients import ClientSettings

URL = "https://api.example/mcp"
OWN = {"TYPE": "client_credentials", "CLIENT_ID": "shop"}
BEARER = {"TYPE": "bearer", "TOKEN": "s3cret-words"}


def read(entry: Any, alias: str = "one") -> ClientSettings:
    with override_settings(MCP={"CLIENTS": {alias: entry}}):
        return conf.get_settings().clients[alias]


def read_error(entry: Any, alias: str = "one") -> str:
    """Return the message of get_settings() and of the system check, which must contain no secret."""
    with override_settings(MCP={"CLIENTS": {alias: entry}}):
        with pytest.raises(ImproperlyConfigured) as caught:
            conf.get_settings()
        checked = " ".join(message.msg for message in check_settings(None) if message.id == "mcp_django.E003")
    text = str(caught.value)
    assert text.splitlines()[0] in checked
    assert "s3cret" not in text + checked
    return text


def test_a_url_or_a_command_alone_is_enough() -> None:
    client = read({"URL": URL})
    assert (client.alias, client.kind, client.display_location) == ("one", "http", URL)
    assert (client.timeout, client.startup_timeout, client.max_retries, client.idle) == (60, 30, 3, 300)
    assert not client.per_user
    assert not client.has_credentials

    client = read({"COMMAND": ["npx", "-y", Path("a/server")]})
    assert client.command == ("npx", "-y", "a/server")
    assert (client.kind, client.display_location) == ("stdio", "npx (2 arguments)")


def test_the_scheme_of_the_url_chooses_the_transport(subtests: pytest.Subtests) -> None:
    for entry, kind in (
        ({"URL": "http://127.0.0.1:8000/mcp"}, "http"),
        ({"URL": "https://x.example/sse", "TRANSPORT": "sse"}, "sse"),
        ({"URL": "wss://x.example/ws"}, "websocket"),
        ({"URL": "ws://x.example/ws", "TRANSPORT": "websocket"}, "websocket"),
    ):
        with subtests.test(entry=entry, kind=kind):
            assert read(entry).kind == kind


def test_every_option_of_a_url_is_read() -> None:
    entry = {
        "URL": f"{URL}?key=s3cret",
        "TRANSPORT": "http",
        "HEADERS": {"X-Api-Key": "s3cret"},
        "AUTH": {
            "TYPE": "oauth",
            "PER": "project",
            "CLIENT_ID": "shop",
            "CLIENT_SECRET": "s3cret",
            "CLIENT_AUTH": "post",
            "ISSUER": "https://id.example",
            "CLIENT_NAME": "Shop",
            "SCOPES": ["read", "write"],
        },
        "PROTOCOL_VERSION": "2025-06-18",
        "TIMEOUT": 5,
        "STARTUP_TIMEOUT": 2.5,
        "MAX_RETRIES": 0,
        "BACKOFF": 0,
        "IDLE": None,
        "MAX_OWNERS": 7,
        "TOOLS": ["list_*"],
        "ROOTS": [Path("/srv/files"), "file:///srv/more"],
        "SAMPLING": "shop.models.answer",
        "ELICITATION": "shop.models.ask",
        "LOG_LEVEL": "warning",
    }
    client = read(entry)
    assert client.auth is not None
    assert (client.auth.client_secret, client.auth.scopes, client.per_user) == ("s3cret", ("read", "write"), False)
    assert client.headers == {"X-Api-Key": "s3cret"}
    assert client.roots == ("file:///srv/files", "file:///srv/more")
    assert (client.idle, client.max_owners, client.tools) == (None, 7, ("list_*",))
    assert client.display_location == f"{URL}?…"
    assert "s3cret" not in repr(client) + str(client)


def test_every_key_of_a_command_is_read(tmp_path: Path) -> None:
    client = read({"COMMAND": ["run", "--key=s3cret"], "CWD": tmp_path, "ENV": {"KEY": "s3cret", "HOME": tmp_path}})
    assert client.cwd == str(tmp_path)
    assert client.env == {"KEY": "s3cret", "HOME": str(tmp_path)}
    assert "s3cret" not in repr(client) + client.display_location


def test_the_owner_of_a_credential_follows_the_setting(subtests: pytest.Subtests) -> None:
    for auth, per_user in (
        ({"TYPE": "oauth"}, True),
        ({"TYPE": "oauth", "PER": "project"}, False),
        (BEARER, False),
        ({"TYPE": "bearer", "TOKEN_FUNCTION": "shop.models.token", "PER": "user"}, True),
        ({"TYPE": "client_credentials", "CLIENT_ID": "a", "CLIENT_SECRET": "b", "ISSUER": URL}, False),
    ):
        with subtests.test(auth=auth, per_user=per_user):
            assert read({"URL": URL, "AUTH": auth}).per_user is per_user


def test_invalid_values_are_reported_with_their_path(subtests: pytest.Subtests) -> None:
    cases = (
        ({}, "", "needs a URL or a COMMAND"),
        ("https://s3cret", "", "must be a dict, not str"),
        ({"URL": URL, "COMMAND": ["s3cret"]}, '["COMMAND"]', "set only one of them"),
        ({"URL": "ftp://s3cret"}, '["URL"]', "must be an absolute URL"),
        ({"URL": "https://s3cret@x.example"}, '["URL"]', "must not contain credentials"),
        ({"URL": f"{URL}#s3cret"}, '["URL"]', "or a fragment"),
        ({"URL": "https://x.example:s3cret/"}, '["URL"]', "must be an absolute URL"),
        ({"URL": "https://x.example/s3cret\n"}, '["URL"]', "must be an absolute URL"),
        ({"URL": b"https://s3cret"}, '["URL"]', "must be an absolute URL"),
        ({"URL": URL, "TRANSPORT": "websocket"}, '["TRANSPORT"]', "does not match a URL that begins with https"),
        ({"URL": "wss://x.example", "TRANSPORT": "sse"}, '["TRANSPORT"]', "does not match"),
        ({"URL": URL, "TRANSPORT": "stdio"}, '["TRANSPORT"]', "must be one of 'http', 'sse', 'websocket'"),
        ({"URL": URL, "CWD": "/"}, '["CWD"]', "requires a COMMAND"),
        ({"URL": URL, "ENV": {"A": "s3cret"}}, '["ENV"]', "requires a COMMAND"),
        ({"URL": URL, "HEADERS": ["s3cret"]}, '["HEADERS"]', "must be a dict"),
        ({"URL": URL, "HEADERS": {"two words": "s3cret"}}, '["HEADERS"]', "names of headers"),
        ({"URL": URL, "HEADERS": {"X-Key": "s3cret\r\nX: y"}}, '["HEADERS"]', "printable ASCII for X-Key"),
        ({"URL": URL, "HEADERS": {"MCP-Session-Id": "s3cret"}}, '["HEADERS"]', "to the transport"),
        ({"URL": URL, "HEADERS": {"Content-Length": "1"}}, '["HEADERS"]', "to the transport"),
        ({"URL": URL, "HEADERS": {"authorization": "s3cret"}, "AUTH": BEARER}, '["HEADERS"]', "set only one of them"),
        ({"COMMAND": "npx s3cret"}, '["COMMAND"]', "must be a list, such as"),
        ({"COMMAND": []}, '["COMMAND"]', "the program and its arguments"),
        ({"COMMAND": ["npx", 7, "s3cret"]}, '["COMMAND"]', "list of strings and paths"),
        ({"COMMAND": ["npx"], "AUTH": BEARER}, '["AUTH"]', "is for a URL"),
        ({"COMMAND": ["npx"], "HEADERS": {"A": "s3cret"}}, '["HEADERS"]', "is for a URL"),
        ({"COMMAND": ["npx"], "ENV": {"A": 7}}, '["ENV"]', "a string for A"),
        ({"COMMAND": ["npx"], "ENV": {"A=": "s3cret"}}, '["ENV"]', "names of variables"),
        ({"COMMAND": ["npx"], "CWD": 7}, '["CWD"]', "path of a directory"),
        ({"URL": URL, "AUTH": "s3cret"}, '["AUTH"]', "must be a dict, not str"),
        ({"URL": URL, "AUTH": {}}, '["AUTH"]', "needs a TYPE"),
        ({"URL": URL, "AUTH": {"TYPE": "beaer"}}, '["AUTH"]["TYPE"]', "must be one of 'bearer'"),
        ({"URL": URL, "AUTH": {"TYPE": "bearer"}}, '["AUTH"]', "requires either a TOKEN"),
        ({"URL": URL, "AUTH": {"TYPE": "bearer", "TOKEN": ["s3cret"]}}, '["AUTH"]["TOKEN"]', "not list"),
        ({"URL": URL, "AUTH": BEARER | {"PER": "user"}}, '["AUTH"]["TOKEN"]', "use TOKEN_FUNCTION"),
        ({"URL": URL, "AUTH": BEARER | {"CLIENT_ID": "x"}}, '["AUTH"]["CLIENT_ID"]', "not for the TYPE 'bearer'"),
        ({"URL": URL, "AUTH": BEARER | {"TYPE": "oauth"}}, '["AUTH"]["TOKEN"]', "not for the TYPE 'oauth'"),
        ({"URL": URL, "AUTH": {"TYPE": "oauth", "CLIENT_SECRET": "s3cret"}}, '["AUTH"]', "requires a CLIENT_ID"),
        ({"URL": URL, "AUTH": {"TYPE": "client_credentials"}}, '["AUTH"]', "requires a CLIENT_ID with either"),
        ({"URL": URL, "AUTH": OWN | {"CLIENT_SECRET": "s3cret"}}, '["AUTH"]', "requires the ISSUER"),
        ({"URL": URL, "AUTH": OWN | {"PRIVATE_KEY": "s3cret"}}, '["AUTH"]', "requires the ISSUER"),
        ({"URL": URL, "AUTH": OWN | {"CLIENT_SECRET": "s3cret", "TYPE": "oauth"}}, '["AUTH"]', "requires its ISSUER"),
        ({"URL": URL, "AUTH": OWN | {"PRIVATE_KEY": "s3cret", "TYPE": "oauth"}}, '["AUTH"]', "is not for the TYPE"),
        ({"URL": URL, "AUTH": OWN | {"ISSUER": "http://x.example"}}, '["AUTH"]["ISSUER"]', "must be an https URL"),
        ({"URL": "wss://x.example", "AUTH": {"TYPE": "oauth"}}, '["AUTH"]["TYPE"]', "which requires HTTP"),
        ({"URL": URL, "PROTOCOL_VERSION": "1.0"}, '["PROTOCOL_VERSION"]', "must be one of"),
        ({"URL": URL, "TIMEOUT": 0}, '["TIMEOUT"]', "above 0"),
        ({"URL": URL, "MAX_RETRIES": -1}, '["MAX_RETRIES"]', "0 to 100"),
        ({"URL": URL, "TOOLS": "x"}, '["TOOLS"]', "must be a list"),
        ({"URL": URL, "ROOTS": ["files"]}, '["ROOTS"]', "absolute paths"),
        ({"URL": URL, "SAMPLING": "answer"}, '["SAMPLING"]', "dotted path"),
        ({"URL": URL, "LOG_LEVEL": "loud"}, '["LOG_LEVEL"]', "must be one of"),
    )
    for entry, where, what in cases:
        with subtests.test(entry=entry, where=where, what=what):
            text = read_error(entry)
            assert text.startswith(f'MCP["CLIENTS"]["one"]{where}')
            assert what in text


def test_aliases_are_words_that_can_be_prefixes(subtests: pytest.Subtests) -> None:
    for alias in ("", "Big", "a__b", "a_", "_a", "9a", "a b", "a.b", "a" * 33, 7, "ä"):
        with subtests.test(alias=alias):
            assert "which is not a word of at most 32 small letters" in read_error({"URL": URL}, alias)

    for alias in ("a", "github", "my-files", "my_files", "a1", "a" * 32, "a-_-b"):
        with subtests.test(alias=alias):
            assert read({"URL": URL}, alias).alias == alias


def test_the_clients_are_a_dict(subtests: pytest.Subtests) -> None:
    for clients in ([], "s3cret", 7):
        with subtests.test(clients=clients):
            with override_settings(MCP={"CLIENTS": clients}), pytest.raises(ImproperlyConfigured) as caught:
                conf.get_settings()
            assert str(caught.value).startswith('MCP["CLIENTS"] must be a dict')
            assert "s3cret" not in str(caught.value)


def test_a_misspelt_key_is_ignored_and_reported_with_a_suggestion() -> None:
    entry = {"URL": URL, "TIMOUT": 3, "ALIAS": "two", "AUTH": BEARER | {"TOKENS": 1}}
    with override_settings(MCP={"CLIENTS": {"one": entry}}):
        assert conf.get_settings().clients["one"].alias == "one"
        found = {message.msg: message.hint for message in check_settings(None) if message.id == "mcp_django.E002"}
    assert len(found) == 3
    assert found['MCP["CLIENTS"]["one"]["TIMOUT"] is not an option.'] == "Did you mean 'TIMEOUT'?"


def test_valid_entries_are_kept_while_one_is_invalid() -> None:
    with override_settings(MCP={"CLIENTS": {"one": {}, "two": {"URL": URL}}}):
        assert [problem.path for problem in conf.get_problems()] == ['MCP["CLIENTS"]["one"]']
