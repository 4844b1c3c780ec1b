"""`mcp_stdio` and `python -m mcp_django` as clients start them: processes of their own."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.management.stdio_project import FILES, ROOT, WAIT_SECONDS, Client, Project
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Make a project with a migrated database, and the user ada, who may add users."""
    project = Project(tmp_path_factory.mktemp("shop"))
    project.manage("migrate", "-v0")
    project.manage(
        "shell",
        "-v0",
        "-c",
        "from django.contrib.auth.models import User, Permission\n"
        "ada = User.objects.create_user('ada')\n"
        "ada.user_permissions.add(Permission.objects.get(codename='add_user'))\n",
    )
    return project


@pytest.fixture
def project(made: Project) -> Project:
    """The project, with no events."""
    (made.directory / "events").unlink(missing_ok=True)
    return made


def wait_for_event(project: Project, event: str) -> None:
    """Wait until the server has noted an event in its file."""
    wait_until(lambda: event in project.events(), lambda: str(project.events()))


def sessions(project: Project) -> list[str]:
    """List for each session of the project whether it is terminated."""
    code = "from mcp_django.models import Session; print(*(bool(s.terminated_at) for s in Session.objects.all()))"
    return project.manage("shell", "-v0", "-c", code).split("\n")[-2].split()


@pytest.mark.parametrize("module", [True, False], ids=["python -m", "manage.py"])
def test_a_client_is_served_until_it_leaves(project: Project, module: bool) -> None:
    with project.client("--user", "ada", module=module) as client:
        client.initialize()
        client.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        names = {tool["name"] for tool in client.receive()["result"]["tools"]}
        assert {"noise", "whoami", "add_user"} <= names
        client.request(2, "server/discover")
        assert client.receive()["result"]["supportedVersions"]
        client.close()
        assert client.end() == (0, [])
    assert project.events() == ["entered", "left"]
    assert set(sessions(project)) == {"True"}
    assert b"Traceback" not in client.errors


def test_all_prints_go_to_stderr(project: Project) -> None:
    with project.client("--user", "ada", module=True, NOISY="1", PYTHONUNBUFFERED="1") as client:
        assert client.call("noise")["content"][0]["text"] == "quiet"
        client.close()
        assert client.end() == (0, [])
    for who in ("settings", "app", "tools", "lifespan", "tool"):
        assert f"{who} print" in client.errors.decode()
    for what in ("settings write", "settings child", "stdout", "write", "C", "child", "log"):
        assert what in client.errors.decode()


def test_manage_py_keeps_what_was_printed_while_apps_were_imported(project: Project) -> None:
    with project.client("--user", "ada") as client:
        assert client.call("noise")["content"][0]["text"] == "quiet"
        client.close()
        assert client.end() == (0, [])
    assert "settings print\napp print\ntools print\n" in client.errors.decode()


def test_manage_py_can_keep_what_is_flushed_too(project: Project) -> None:
    page = (ROOT / "docs" / "run" / "stdio.md").read_text(encoding="utf-8")
    snippet = page.split("```python\n")[1].split("```")[0]
    (project.directory / "manage_quietly.py").write_text(snippet + FILES["manage.py"])
    with project.client("--user", "ada", manage="manage_quietly.py", NOISY="1", PYTHONUNBUFFERED="1") as client:
        assert client.call("noise")["content"][0]["text"] == "quiet"
        client.close()
        assert client.end() == (0, [])
    assert "settings child" in client.errors.decode()


def test_changes_in_other_processes_arrive(project: Project) -> None:
    with project.client("--user", "ada") as client:
        client.initialize()
        tell = "from mcp_django import notify_list_changed; notify_list_changed('tools')"
        project.manage("shell", "-v0", "-c", tell)
        assert client.receive()["method"] == "notifications/tools/list_changed"
        end = "from mcp_django.models import Session; Session.objects.filter(terminated_at=None).end('admin')"
        project.manage("shell", "-v0", "-c", end)
        assert client.end() == (1, [])
    assert "The connection was closed: the session has ended" in client.errors.decode()


def test_calls_running_at_the_end_of_stdin_are_answered(project: Project) -> None:
    limits = {"STDIO_GRACE": 60, "SHUTDOWN_GRACE": 0.1}
    more = json.dumps({"MCP": {"AUTH": "none", "CHANNEL_LAYER": None, "LIMITS": limits}})
    with project.client("--user", "ada", MORE_SETTINGS=more) as client:
        client.request(1, "tools/call", name="wait", arguments={"seconds": 0.3})
        client.request(2, "tools/call", name="hold", arguments={"seconds": 0.3})
        wait_for_event(project, "waiting")
        wait_for_event(project, "holding")
        client.close()
        code, rest = client.end()
    assert code == 0
    assert {message["id"]: message["result"]["content"][0]["text"] for message in rest} == {1: "waited", 2: "held"}


def test_calls_that_outlast_the_grace_get_an_error(project: Project) -> None:
    limits = {"STDIO_GRACE": 0.1, "SHUTDOWN_GRACE": 2 * WAIT_SECONDS}
    more = json.dumps({"MCP": {"AUTH": "none", "CHANNEL_LAYER": None, "LIMITS": limits}})
    with project.client(MORE_SETTINGS=more) as client:
        client.request(1, "tools/call", name="wait", arguments={"seconds": 600})
        wait_for_event(project, "waiting")
        client.close()
        code, rest = client.end()
    assert code == 0
    assert [message["error"]["message"] for message in rest] == ["The server is shutting down"]


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_calls_session_and_lifespans_at_once(project: Project, sign: signal.Signals) -> None:
    servers = {"default": {"NAME": "shop", "LIFESPAN": "shop.mcp_tools.lifespan"}}
    # Calls have longer to end than this test waits, but not after a signal.
    limits = {"SHUTDOWN_GRACE": 2 * WAIT_SECONDS}
    options = {"AUTH": "token", "CHANNEL_LAYER": None, "LIMITS": limits, "SERVERS": servers}
    with project.client("--user", "ada", MORE_SETTINGS=json.dumps({"MCP": options})) as client:
        client.initialize()
        client.request(1, "tools/call", name="wait", arguments={"seconds": 600})
        client.request(2, "tools/call", name="sql", arguments={"rows": 10**12})
        wait_for_event(project, "waiting")
        wait_for_event(project, "querying")
        client.signal(sign)
        code, _ = client.end()
    assert code == 128 + sign
    assert {"cancelled", "left", "interrupted OperationalError"} <= set(project.events())
    assert set(sessions(project)) == {"True"}
    assert b"Traceback" not in client.errors


def test_a_thread_that_does_not_end_does_not_delay_the_exit(project: Project) -> None:
    with project.client("--user", "ada") as client:
        client.request(1, "tools/call", name="hold", arguments={"seconds": 600})
        wait_for_event(project, "holding")
        client.signal(signal.SIGTERM)
        code, _ = client.end()
    assert code == 128 + signal.SIGTERM
    assert "left" in project.events()


def test_the_second_signal_ends_the_server_at_once(project: Project) -> None:
    slow = '{"MCP": {"AUTH": "none", "CHANNEL_LAYER": null}}'
    with project.client(MORE_SETTINGS=slow) as client:
        client.request(1, "tools/call", name="wait", arguments={"seconds": 600})
        wait_for_event(project, "waiting")
        client.close()  # the call has ten seconds
        client.signal(signal.SIGTERM)
        client.signal(signal.SIGTERM)
        assert client.end()[0] == 128 + signal.SIGTERM


def test_a_client_that_stops_reading_ends_the_server(project: Project) -> None:
    process = subprocess.Popen(
        [sys.executable, "manage.py", "mcp_stdio", "--user", "ada"],
        cwd=project.directory,
        env=project.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    process.stdin.flush()
    assert process.wait(WAIT_SECONDS) == 0
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    process.stdin.close()
    process.stderr.close()


def _token(project: Project) -> str:
    return project.manage("mcp_createtoken", "ada", "--scope", "users:write").split("\n")[-2]


def test_a_token_is_verified_and_hidden(project: Project) -> None:
    token = _token(project)
    with project.client(MCP_TOKEN=token, MCP_USER="nobody") as client:
        me = client.call("whoami")["structuredContent"]
        assert (me["user"], me["atomic"], me["token"]) == ("ada", "True", "False")
        assert me["environment"] == "MCP_USER"
        assert client.call("add_user")["content"][0]["text"] == "added"
        revoke = "from mcp_django.models import PersonalAccessToken as T; T.objects.all().delete()"
        project.manage("shell", "-v0", "-c", revoke)
        wait_until_refused(client)
    assert token not in client.errors.decode()


def wait_until_refused(client: Client) -> None:
    """Send pings until the server has ended: a token that was verified is trusted for some seconds."""

    def refused() -> bool:
        if client.process.poll() is None:
            try:
                client.send({"jsonrpc": "2.0", "id": 5, "method": "ping"})
            except BrokenPipeError:
                return True
        return client.process.poll() is not None

    wait_until(refused, "the token is still accepted")
    assert client.end()[0] == 1
    assert "the credential has expired or was revoked" in client.errors.decode()


def test_refusals_are_reported_on_stderr(project: Project, subtests: pytest.Subtests) -> None:
    for options, environment, complaint in (
        ([], {"MCP_USER": "nobody"}, "Unknown user 'nobody'"),
        ([], {"MCP_TOKEN": "mcp_wrong"}, "The token was rejected: The access token is unknown"),
        (["--scope", "a"], {"MCP_TOKEN": "mcp_wrong"}, "--scope requires --user"),
        (["--server", "closed"], {}, 'MCP["SERVERS"]["closed"]["TRANSPORTS"] does not contain "stdio"'),
    ):
        with subtests.test(complaint=complaint):
            with project.client(*options, **environment) as client:
                assert client.end() == (1, [])
            assert complaint in client.errors.decode()
            assert "Traceback" not in client.errors.decode()
            assert "mcp_wrong" not in client.errors.decode()


def test_a_user_has_the_permissions_of_django_and_the_named_scopes(project: Project) -> None:
    with project.client("--scope", "other", MCP_USER="ada") as client:
        assert client.call("whoami")["structuredContent"]["user"] == "ada"
        assert client.call("add_user")["message"] == "Insufficient scope"
        client.close()
        assert client.end()[0] == 0


def test_an_unmigrated_database_is_an_error_without_a_traceback(project: Project, tmp_path: Path) -> None:
    more = f'{{"DATABASES": {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "{tmp_path}/new"}}}}}}'
    with project.client(MORE_SETTINGS=more) as client:
        info = {"name": "tests", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        client.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert client.receive()["error"]["code"] == -32603
        assert client.call("wait", seconds=0)["content"][0]["text"] == "waited"
        client.close()
        assert client.end() == (0, [])
    assert "The database cannot be used; check that it runs and is migrated: no such table" in client.errors.decode()


def test_a_lifespan_that_fails_is_reported_on_stderr(project: Project) -> None:
    more = '{"MCP": {"AUTH": "none", "SERVERS": {"default": {"LIFESPAN": "shop.mcp_tools.no_lifespan"}}}}'
    with project.client(MORE_SETTINGS=more) as client:
        assert client.end() == (1, [])
    assert 'CommandError: A lifespan of the MCP server "default" failed' in client.errors.decode()
    assert "no pool" in client.errors.decode()


def test_missing_settings_are_reported(project: Project) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "mcp_django"],
        cwd=project.directory,
        env=project.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("DJANGO_SETTINGS_MODULE is not set")


@pytest.mark.parametrize("module", [[], ["--module"]], ids=["manage.py", "python -m"])
def test_the_official_client_is_served_with_its_configuration(project: Project, module: list[str]) -> None:
    mcp = pytest.importorskip("mcp")
    stdio = pytest.importorskip("mcp.client.stdio")
    printed = project.manage("mcp_install", "claude", "--user", "ada", *module)
    entry = json.loads(printed[printed.index("{") :])["mcpServers"]["shop"]
    # As clients start it: from anywhere, with next to nothing in the environment.
    parameters = stdio.StdioServerParameters(
        command=entry["command"], args=entry["args"], cwd="/", env={**entry.get("env", {}), "PYTHONPATH": str(ROOT)}
    )
    errors = (project.directory / "errors").open("w")

    async def main() -> Any:
        async with mcp.Client(stdio.stdio_client(parameters, errlog=errors)) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            # More than may run at once.
            prompts = await asyncio.gather(*[client.get_prompt("summarize", {"topic": str(n)}) for n in range(40)])
            texts = [prompt.messages[0].content.text for prompt in prompts]
            return tools, texts, (await client.call_tool("whoami", {})).structured_content

    with errors:
        tools, texts, me = asyncio.run(main())
    assert texts == [f"Summarize {n}." for n in range(40)]
    assert "noise" in tools
    assert me["user"] == "ada"
    assert project.events() == ["entered", "left"]
