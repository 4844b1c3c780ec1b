"""Remotes of the setting in processes of their own: they are killed and restarted, and questions are forwarded."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.contrib.proxies.catalog import catalog_cache
from mcp_django.wiring import get_server
from tests.management.stdio_project import ROOT
from tests.server.client import HANDSHAKE, STATELESS, FakeUser, PipelineClient, accept
from tests.support.ports import take_port
from tests.support.waiting import WAIT_SECONDS

PROGRAM = str(Path(__file__).with_name("stdio_remote.py"))
TERSE = str(Path(__file__).with_name("terse_remote.py"))
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.integration]


@contextmanager
def proxied(client: dict[str, Any], **options: Any) -> Iterator[None]:
    """A project that passes one server on as `far`."""
    proxies = {"far": {"PERMISSION": "any", "LIST_TIMEOUT": WAIT_SECONDS, **options}}
    setting = {
        "AUTH": "none",
        "CLIENTS": {"far": {"STARTUP_TIMEOUT": WAIT_SECONDS, "TIMEOUT": WAIT_SECONDS, **client}},
        "SERVERS": {"default": {"PROXIES": proxies, "STORED": False}},
    }
    with override_settings(MCP=setting):
        yield


@contextmanager
def listening(port: int) -> Iterator["subprocess.Popen[bytes]"]:
    """The server in a process of its own, once it listens."""
    with subprocess.Popen([sys.executable, PROGRAM, str(port)], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            assert any(b"running on" in line for line in process.stderr)
            yield process
        finally:
            process.kill()


async def test_a_killed_program_is_restarted() -> None:
    with proxied({"COMMAND": [sys.executable, PROGRAM], "BACKOFF": 0}, ASKS=[], LOGS=False):
        peer = PipelineClient(get_server())
        first = await read_pid(peer)
        os.kill(first, signal.SIGKILL)
        told = await peer.call("far__pid")
        if told["isError"]:
            assert "cannot be reached now" in told["content"][0]["text"]
            told = await peer.call("far__pid")
        assert told["structuredContent"]["result"] != first
        assert "far__greet" in await peer.names()


async def test_a_program_that_exits_during_a_call_is_restarted() -> None:
    command = [sys.executable, "-I", "-S", TERSE]
    with proxied({"COMMAND": command, "BACKOFF": 0, "PROTOCOL_VERSION": HANDSHAKE}):
        peer = PipelineClient(get_server())  # it answers questions, so its calls have sessions of their own
        shared = await peer.text("far__pid")
        for _ in range(2):
            assert "cannot be reached now" in await peer.error("far__hang_up")
            assert await peer.text("far__pid") != shared


async def test_a_restarted_server_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_cache, "RETRY_DELAY_SECONDS", 0.0)
    port = take_port()
    url = f"http://127.0.0.1:{port}/mcp"
    with proxied({"URL": url, "MAX_RETRIES": 0, "BACKOFF": 0}):
        peer = PipelineClient(get_server(), capabilities={})
        assert "cannot be reached now" in await peer.error("far__pid")
        with listening(port):
            first = await read_pid(peer)
            assert "far__pid" in await peer.names()
            assert "cannot be reached now" in await peer.error("far__hang_up")
        assert "cannot be reached now" in await peer.error("far__pid")
        with listening(port):
            assert await read_pid(peer) != first


def token_of(user: Any) -> str | None:
    """The tokens of the two users."""
    return None if user.pk == 3 else f"token-{user.pk}"


async def test_users_never_get_the_credentials_of_each_other() -> None:
    port = take_port()
    auth = {"TYPE": "bearer", "PER": "user", "TOKEN_FUNCTION": f"{__name__}.token_of"}
    with listening(port), proxied({"URL": f"http://127.0.0.1:{port}/mcp", "AUTH": auth}):
        server = get_server()

        async def calls(number: int, capabilities: dict[str, Any]) -> None:
            who = DjangoPrincipal(issuer="tests", subject=str(number), user=FakeUser(pk=number))
            peer = PipelineClient(server, principal=who, capabilities=capabilities)
            for _ in range(3):
                assert await peer.text("far__bearer") == f"Bearer token-{number}"

        await asyncio.gather(*(calls(number, can) for number in (1, 2) for can in ({}, {"elicitation": {}})))
        stranger_client = PipelineClient(
            server, principal=DjangoPrincipal(issuer="tests", subject="3", user=FakeUser(pk=3))
        )
        assert [name for name in await stranger_client.names() if name.startswith("far__")] == ["far__connect"]
        assert "no credential for you" in await stranger_client.error("far__bearer")


OWN = {
    "own_settings.py": """
from pathlib import Path

SECRET_KEY = "for-tests-only"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "mcp_django", "own"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": Path(__file__).parent / "db.sqlite3"}}
MCP = {"AUTH": "none", "CHANNEL_LAYER": None}
""",
    "own/__init__.py": "",
    "own/mcp_tools.py": """
from mcp_django import Context, tool


@tool
async def order(ctx: Context, cups: int) -> str:
    kind = await ctx.elicit("Which tea?", str)
    await ctx.report_progress(1)
    sure = await ctx.elicit(f"{cups} of {kind.data}?", bool)
    return f"{cups} {kind.data}" if sure.data else "nothing"
""",
}


async def test_a_server_of_this_package_asks_through_a_proxy_in_every_pair_of_eras(tmp_path: Path) -> None:
    for name, text in OWN.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    env = {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "DJANGO_SETTINGS_MODULE": "own_settings"}
    migrate = [sys.executable, "-m", "django", "migrate", "--verbosity", "0"]
    subprocess.run(migrate, env={**os.environ, **env}, cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "mcp_django", "--settings", "own_settings"]
    given = {"far: Which tea?": "green", "far: 2 of green?": True}

    def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        return accept(value=given[params["message"]])

    for upstream in (STATELESS, HANDSHAKE):
        with proxied({"COMMAND": command, "CWD": str(tmp_path), "ENV": env, "PROTOCOL_VERSION": upstream}):
            for version in (STATELESS, HANDSHAKE):
                assert (
                    await PipelineClient(get_server(), version=version, answer=answer).text("far__order", cups=2)
                    == "2 green"
                )


async def read_pid(peer: PipelineClient) -> int:
    found = await peer.call("far__pid")
    assert not found["isError"], found
    return int(found["structuredContent"]["result"])
