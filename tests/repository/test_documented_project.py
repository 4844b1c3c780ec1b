"""A project made of the blocks of docs/protect/first-steps.md, and the scripts of docs/start/connect-your-code.md."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from django.core.management import call_command

from tests.clients.oauth.browser import Browser
from tests.clients.oauth.connection import connected
from tests.repository.pages import ROOT, python_blocks
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration
PAGES = ROOT / "docs"
NAME = "documented"
PREPARE = """
import django
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
call_command("migrate", verbosity=0)
User.objects.create_superuser("ada", password="pw")
call_command("mcp_createtoken", "ada")
"""
LOGIN = (
    "<form method=post>{% csrf_token %}{{ form }}<input type=hidden name=next value='{{ next }}'><button>In</button>"
)


def block(page: str, about: str) -> str:
    """Return the one block of Python on a page with these words in it."""
    (found,) = (text for text in python_blocks(PAGES / page) if about in text)
    return found


def write(directory: Path, origin: str) -> None:
    """Start a project, and put the page's blocks where they belong; `...` means the lines before."""
    call_command("startproject", NAME, str(directory))
    package = directory / NAME
    settings = block("protect/first-steps.md", "# settings.py").replace("https://shop.example.com", origin)
    settings = settings.replace("    ...,\n", f'    *INSTALLED_APPS,\n    "{NAME}",\n', 1)
    with (package / "settings.py").open("a") as file:
        file.write(f'{settings}\nPASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]\n')
        file.write(f'TEMPLATES[0]["DIRS"] = ["{directory}"]\n')
    urls = block("protect/first-steps.md", "# urls.py").replace("    ...,\n", "")
    (package / "urls.py").write_text(urls)
    tool = block("protect/first-steps.md", "def cancel_order")
    (package / "mcp_tools.py").write_text(f"from mcp_django import tool\n\n{tool}")
    (directory / "registration").mkdir()
    (directory / "registration" / "login.html").write_text(LOGIN)


class DocumentedProject(NamedTuple):
    """The URL of the endpoint, and a personal token of its user."""

    url: str
    token: str


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DocumentedProject]:
    """Serve the project."""
    directory = tmp_path_factory.mktemp("documented")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
        write(directory, origin)
        env = {**os.environ, "DJANGO_SETTINGS_MODULE": f"{NAME}.settings", "PYTHONPATH": f"{directory}:{ROOT}"}
        preparing = [sys.executable, "-c", PREPARE]
        token = subprocess.run(preparing, cwd=directory, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout
        number = listener.fileno()
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            f"{NAME}.asgi:application",
            "--fd",
            str(number),
            "--lifespan",
            "off",
        ]
        with (directory / "log").open("w") as log:
            server = subprocess.Popen(command, cwd=directory, env=env, stdout=log, stderr=log, pass_fds=[number])
    try:
        wait_until(lambda: answers(origin, server), lambda: (directory / "log").read_text())
        yield DocumentedProject(f"{origin}/mcp", token.strip())
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture
def url(project: DocumentedProject) -> str:
    """Return the URL of the project's endpoint."""
    return project.url


def answers(origin: str, server: "subprocess.Popen[Any]") -> bool:
    """Return True if the project answers."""
    assert server.poll() is None, "the server stopped"
    try:
        httpx.get(f"{origin}/.well-known/oauth-authorization-server").raise_for_status()
    except httpx.TransportError:
        return False
    return True


async def test_a_client_logs_in_sees_the_tool_and_asks_for_its_scope(url: str) -> None:
    async with connected(url, Browser("ada")) as connection:
        assert await connection.names() == ["cancel_order"]
        assert connection.scopes == {"orders:read"}
        assert await connection.call("cancel_order", number=7) == "7 is cancelled"
        assert connection.scopes == {"orders:read", "orders:write"}


def test_a_request_without_token_gets_the_challenge_of_the_page(url: str) -> None:
    answer = httpx.post(url)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert 'resource_metadata="' in answer.headers["www-authenticate"]


def test_the_script_with_a_token_lists_the_tools(
    project: DocumentedProject, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", project.token)
    script = block("start/connect-your-code.md", "SHOP_TOKEN").replace("https://shop.example.com/mcp", project.url)
    namespace: dict[str, Any] = {"__name__": "script"}
    exec(script, namespace)
    asyncio.run(namespace["main"]())
    assert capsys.readouterr().out.startswith("cancel_order - ")


def test_the_script_with_a_login_lists_the_tools(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logins: list[threading.Thread] = []

    def open_browser(address: str) -> bool:
        logins.append(threading.Thread(target=log_in, args=(address,)))
        logins[-1].start()
        return True

    monkeypatch.setattr(webbrowser, "open", open_browser)
    script = block("start/connect-your-code.md", "webbrowser.open").replace("https://shop.example.com/mcp", url)
    namespace: dict[str, Any] = {"__name__": "script"}
    exec(script, namespace)
    asyncio.run(namespace["main"]())
    for login in logins:
        login.join()
    assert capsys.readouterr().out.startswith("cancel_order - ")


def log_in(address: str) -> None:
    """Log in, allow the access, and go back to the address on which the script listens."""
    browser = Browser("ada")
    asyncio.run(browser.open(address))
    httpx.get(browser.address)
