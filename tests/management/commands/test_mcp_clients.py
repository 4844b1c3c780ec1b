import asyncio
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.test import override_settings

from mcp_django.client import AuthorizationNeeded, ClientConnectionError
from mcp_django.client.oauth.http import AuthorizationFailed
from mcp_django.client.pool import factory
from mcp_django.client.pool.health import HEALTH_REGISTRY
from mcp_django.client.pool.health_check import check_client
from mcp_django.management.commands import mcp_clients
from tests.client.script import Script
from tests.support.clock import Clock

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
TOOLS = {"tools": [{"name": "now", "description": "The weather\x1b[31m.\nNow.", "inputSchema": SCHEMA}]}
CLIENTS = {
    "weather": {"URL": "https://weather.example/mcp?key=s3cret"},
    "maps": {"URL": "https://maps.example/mcp", "AUTH": {"TYPE": "oauth", "PER": "project"}},
}


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Script]]:
    found = {alias: Script("stateless", tools_list=TOOLS) for alias in CLIENTS}
    monkeypatch.setattr(factory, "create_target", lambda settings, user: found[settings.alias])
    with override_settings(MCP={"AUTH": "none", "CLIENTS": CLIENTS}):
        yield found
    HEALTH_REGISTRY.reset_after_fork()


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr."""
    code = 0
    try:
        call_command("mcp_clients", *words, no_color=True, skip_checks=True)
    except SystemExit as end:
        code = int(end.code or 0)
    text = capsys.readouterr()
    assert "s3cret" not in text.out + text.err
    assert "\x1b" not in text.out + text.err
    return code, text.out, text.err


def test_all_servers_are_listed(
    scripts: dict[str, Script], capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    for words in ([], ["check"]):
        with subtests.test(words=words):
            code, out, _ = run(capsys, *words)
            heading, weather, maps = out.splitlines()
            assert code == 0
            assert heading.split() == [
                "alias",
                "state",
                "transport",
                "revision",
                "era",
                "tools",
                "connect",
                "latency",
                "where",
            ]
            assert weather.split()[:3] == ["weather", "ok", "http"]
            assert weather.split()[4:6] == ["stateless", "1"]
            assert weather.endswith("https://weather.example/mcp?…")
            assert maps.startswith("maps ")


def test_one_server_may_be_chosen(
    scripts: dict[str, Script], capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    for words in (["--alias", "maps"], ["check", "maps"]):
        with subtests.test(words=words):
            _, out, _ = run(capsys, *words)
            assert [line.split()[0] for line in out.splitlines()] == ["alias", "maps"]
            assert scripts["weather"].opened == 0


def test_an_unreachable_server_is_reported_with_the_reason(
    scripts: dict[str, Script], capsys: pytest.CaptureFixture[str]
) -> None:
    scripts["weather"].refusals.append(ClientConnectionError("It is down"))
    scripts["maps"].refusals.append(AuthorizationNeeded("Allow it", "maps", "https://here.example/connect"))
    code, out, err = run(capsys)
    assert code == 1
    assert out.splitlines()[1].split()[:2] == ["weather", "down"]
    assert "weather: ClientConnectionError: It is down" in err
    assert "maps: authorize it at https://here.example/connect, or with: mcp_clients login maps" in err


def test_the_option_json_prints_json(scripts: dict[str, Script], capsys: pytest.CaptureFixture[str]) -> None:
    scripts["maps"].refusals.append(ClientConnectionError("It is down"))
    code, out, _ = run(capsys, "--json")
    weather, maps = json.loads(out)
    assert code == 1
    assert (weather["alias"], weather["reached"], weather["tools"], weather["era"]) == ("weather", True, 1, "stateless")
    assert (maps["reached"], maps["tools"], maps["error_text"]) == (False, None, "It is down")


@override_settings(MCP={})
def test_no_servers_are_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys)[:2] == (0, 'MCP["CLIENTS"] is empty\n')


def test_an_unknown_server_is_refused(scripts: dict[str, Script], subtests: pytest.Subtests) -> None:
    for words in (["--alias", "other"], ["tools", "other"], ["call", "other", "x"], ["login", "other"]):
        with (
            subtests.test(words=words),
            pytest.raises(CommandError, match="has no 'other'; it has: maps, weather"),
        ):
            call_command("mcp_clients", *words, skip_checks=True)


def test_the_tools_of_a_server_are_listed(scripts: dict[str, Script], capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "tools", "weather")
    assert out.splitlines() == ["now", "  The weather[31m.", "    city (string)", "    days (integer, optional)"]
    _, out, _ = run(capsys, "tools", "weather", "--json")
    assert json.loads(out)[0]["inputSchema"] == SCHEMA
    scripts["weather"].refusals.append(ClientConnectionError("It is down"))
    with pytest.raises(CommandError, match="ClientConnectionError: It is down"):
        call_command("mcp_clients", "tools", "weather", skip_checks=True)


def test_a_tool_is_called(scripts: dict[str, Script], capsys: pytest.CaptureFixture[str]) -> None:
    def call(params: Any) -> Any:
        text = f"{params['name']} {params['arguments']}"
        return {"content": [{"type": "text", "text": text}], "isError": params["name"] != "now"}

    scripts["weather"].answers["tools/call"] = call
    code, out, _ = run(capsys, "call", "weather", "now", '{"city": "Oslo"}')
    assert (code, json.loads(out)["content"][0]["text"]) == (0, "now {'city': 'Oslo'}")
    code, out, _ = run(capsys, "call", "weather", "never")
    assert (code, json.loads(out)["isError"]) == (1, True)


def test_arguments_must_be_an_object(scripts: dict[str, Script], subtests: pytest.Subtests) -> None:
    for arguments, text in (("{", "are not valid JSON"), ("[]", "must be a JSON object")):
        with subtests.test(arguments=arguments, text=text), pytest.raises(CommandError, match=text):
            call_command("mcp_clients", "call", "weather", "now", arguments, skip_checks=True)


def test_a_failed_call_prints_the_reason(scripts: dict[str, Script]) -> None:
    scripts["weather"].answers["tools/call"] = None
    with pytest.raises(CommandError, match="CallError: Method not found"):
        call_command("mcp_clients", "call", "weather", "now", skip_checks=True)
    scripts["maps"].refusals.append(AuthorizationNeeded("It was not allowed.", "maps", "https://here.example/connect"))
    with pytest.raises(CommandError, match=r"Authorize it at https://here.example/connect, or with: mcp_clients login"):
        call_command("mcp_clients", "call", "maps", "now", skip_checks=True)


@pytest.mark.django_db
def test_a_call_can_be_made_for_a_user(
    scripts: dict[str, Script], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(
        factory, "create_target", lambda settings, user: seen.append(user.username) or scripts[settings.alias]
    )
    get_user_model()._default_manager.create_user("ada")
    for words in (["--user", "ada"], ["check", "maps", "--user", "ada"], ["tools", "maps", "--user", "ada"]):
        run(capsys, *words)
    assert set(seen) == {"ada"}
    with pytest.raises(CommandError, match="Unknown user 'eve'"):
        call_command("mcp_clients", "--user", "eve", skip_checks=True)


def test_login_runs_the_authorization_flow(
    scripts: dict[str, Script], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    async def login(settings: Any, user: Any, *, write: Any, **options: Any) -> None:
        asked.append((settings.alias, user, options))
        write("Open this")

    monkeypatch.setattr(mcp_clients, "login", login)
    _, out, _ = run(capsys, "login", "maps", "--port", "8123", "--no-browser")
    assert out.splitlines() == ["Open this", "maps is authorized now"]
    assert asked == [("maps", None, {"port": 8123, "open_url": None})]

    async def refuse(*args: Any, **options: Any) -> None:
        raise AuthorizationFailed("It was refused")

    monkeypatch.setattr(mcp_clients, "login", refuse)
    with pytest.raises(CommandError, match="It was refused"):
        call_command("mcp_clients", "login", "maps", skip_checks=True)


PROGRAM = "import sys; sys.stderr.write('one\\n' * 50 + 'Cannot find \\x1b[31mmodule weather; key s3cret-key\\n'); "


def test_the_last_lines_of_a_program_s_standard_error_are_shown(
    capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    ended = {"COMMAND": [sys.executable, "-c", PROGRAM + "sys.exit(3)"], "ENV": {"KEY": "s3cret-key"}, "MAX_RETRIES": 0}
    silent = {**ended, "COMMAND": [sys.executable, "-c", PROGRAM + "sys.stderr.flush(); sys.stdin.read()"]}
    silent["STARTUP_TIMEOUT"] = 1
    for client, error in ((ended, "ServerEnded"), (silent, "ServerUnresponsive")):
        with subtests.test(error=error), override_settings(MCP={"AUTH": "none", "CLIENTS": {"child": client}}):
            code, _, err = run(capsys)
            first, heading, *lines = err.splitlines()
            assert code == 1
            assert first.startswith(f"child: {error}: python")
            assert heading == "  The last lines of its standard error:"
            assert 2 <= len(lines) <= 20
            assert lines[-2:] == ["  one", "  Cannot find \\x1b[31mmodule weather; key …"]
            for words in (["tools", "child"], ["call", "child", "now"]):
                with pytest.raises(CommandError, match=rf"{error}(.|\n)*Cannot find"):
                    call_command("mcp_clients", *words, skip_checks=True)
            assert "Cannot find" in json.loads(run(capsys, "--json")[1])[0]["stderr"]


async def test_a_check_uses_the_timeout_of_the_setting(clock: Clock, scripts: dict[str, Script]) -> None:
    async def never(params: Any) -> None:
        await asyncio.Event().wait()

    scripts["weather"].answers["tools/list"] = never
    client = {"URL": "https://weather.example/mcp", "TIMEOUT": 40}
    with override_settings(MCP={"AUTH": "none", "CLIENTS": {"weather": client}}):
        checking = asyncio.create_task(check_client("weather"))
        await scripts["weather"].until(lambda: "tools/list" in scripts["weather"].methods())
        await clock.advance(39)
        assert not checking.done()
        await clock.advance(1)
        assert (await checking).error == "CallTimeout"
