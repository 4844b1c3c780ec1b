"""A project made of the blocks of docs/howto/protect-a-project.md, and the script of docs/howto/connect-a-client.md."""

import asyncio
import os
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.management import call_command

from tests.clients.oauth.browser import Browser
from tests.clients.oauth.connection import connected
from tests.conformance.__main__ import free_port
from tests.test_repository import ROOT, python_blocks

PAGES = ROOT / "docs" / "howto"
NAME = "documented"
PREPARE = """
import django
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
call_command("migrate", verbosity=0)
User.objects.create_superuser("ada", password="pw")
"""
LOGIN = (
    "<form method=post>{% csrf_token %}{{ form }}<input type=hidden name=next value='{{ next }}'><button>In</button>"
)


def block(page: str, about: str) -> str:
    """The one block of Python on a page that has these words in it."""
    (found,) = (text for text in python_blocks(PAGES / page) if about in text)
    return found


def write(directory: Path, origin: str) -> None:
    """What `startproject` makes, and the page's blocks where they say; `...` is what is there already."""
    call_command("startproject", NAME, str(directory))
    package = directory / NAME
    settings = block("protect-a-project.md", "# settings.py").replace("https://shop.example.com", origin)
    settings = settings.replace("    ...,\n", f'    *INSTALLED_APPS,\n    "{NAME}",\n', 1)
    with (package / "settings.py").open("a") as file:
        file.write(f'{settings}\nPASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]\n')
        file.write(f'TEMPLATES[0]["DIRS"] = ["{directory}"]\n')
    urls = block("protect-a-project.md", "# urls.py").replace("    ...,\n", "")
    (package / "urls.py").write_text(urls)
    tool = block("protect-a-project.md", "def cancel_order")
    (package / "mcp_tools.py").write_text(f"from mcp_django import tool\n\n{tool}")
    (directory / "registration").mkdir()
    (directory / "registration" / "login.html").write_text(LOGIN)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of the project, which is served."""
    directory, port = tmp_path_factory.mktemp("documented"), free_port()
    origin = f"http://127.0.0.1:{port}"
    write(directory, origin)
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": f"{NAME}.settings", "PYTHONPATH": f"{directory}:{ROOT}"}
    subprocess.run([sys.executable, "-c", PREPARE], cwd=directory, env=env, check=True)
    command = [sys.executable, "-m", "uvicorn", f"{NAME}.asgi:application", "--port", str(port), "--lifespan", "off"]
    with (directory / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=directory, env=env, stdout=log, stderr=log)
    try:
        wait_for(origin, server)
        yield f"{origin}/mcp"
    finally:
        server.terminate()
        server.wait(20)


def wait_for(origin: str, server: "subprocess.Popen[Any]") -> None:
    """Until it answers: another process cannot wake this one."""
    give_up = time.monotonic() + 60
    while server.poll() is None and time.monotonic() < give_up:
        try:
            httpx.get(f"{origin}/.well-known/oauth-authorization-server").raise_for_status()
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError("the project does not come up")


async def test_a_client_gets_in_is_shown_the_tool_and_steps_up_for_it(url: str) -> None:
    async with connected(url, Browser("ada")) as connection:
        assert await connection.names() == ["cancel_order"]
        assert connection.scopes == {"orders:read"}
        assert await connection.call("cancel_order", number=7) == "7 is cancelled"
        assert connection.scopes == {"orders:read", "orders:write"}


def test_the_page_s_own_look_at_it_sees_what_it_says(url: str) -> None:
    answer = httpx.post(url)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert 'resource_metadata="' in answer.headers["www-authenticate"]


def test_the_script_of_the_other_page_lists_the_tools(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    people: list[threading.Thread] = []

    def press(address: str) -> bool:
        people.append(threading.Thread(target=person, args=(address,)))
        people[-1].start()
        return True

    monkeypatch.setattr(webbrowser, "open", press)
    script = block("connect-a-client.md", "webbrowser.open").replace("https://shop.example.com/mcp", url)
    namespace: dict[str, Any] = {"__name__": "script"}
    exec(script, namespace)
    asyncio.run(namespace["main"]())
    for one in people:
        one.join()
    assert capsys.readouterr().out.startswith("cancel_order - ")


def person(address: str) -> None:
    """Log in, allow it, and go back to where the script listens."""
    browser = Browser("ada")
    asyncio.run(browser.open(address))
    httpx.get(browser.address)
