"""The demo in a process of its own, the hosts, and one browser for them."""

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, BrowserContext

from tests.browser.hosting.hosts import AppTestHost, InspectorTestHost, PreviewTestHost, StrictTestHost
from tests.browser.hosting.inspector import INSPECTOR_VARIABLE, InspectorServer, serve_inspector
from tests.browser.hosting.strict import StrictHostServer, build_bundle, serve_strict_host
from tests.project.conftest import ROOT, environment
from tests.support.ports import take_port


class HostingSite(NamedTuple):
    """The demo that is being served."""

    url: str
    password: str
    database: Path

    def read_trips(self, name: str) -> list[tuple[str, str]]:
        """Owner and departure of the saved trips with a name."""
        with closing(sqlite3.connect(self.database)) as connection:
            query = "SELECT username, depart_on FROM airports_trip JOIN auth_user u ON u.id = owner_id WHERE name = ?"
            return connection.execute(query, [name]).fetchall()

    def find_trip(self, name: str) -> int:
        """Return the key of the saved trip with a name."""
        with closing(sqlite3.connect(self.database)) as connection:
            [(pk,)] = connection.execute("SELECT id FROM airports_trip WHERE name = ?", [name]).fetchall()
            return int(pk)


@pytest.fixture(scope="module")
def strict_server() -> Iterator[StrictHostServer]:
    """The pages of the strict host."""
    with serve_strict_host(build_bundle()) as server:
        yield server


@pytest.fixture(scope="module")
def hosting_site(tmp_path_factory: pytest.TempPathFactory, strict_server: StrictHostServer) -> Iterator[HostingSite]:
    """Serve the demo with the apps of `tests.browser.hosting.site`."""
    port = take_port()
    directory = tmp_path_factory.mktemp("hosting") / "var"
    variables = {**environment(directory), "HOST_ORIGINS": strict_server.host_origin}
    command = [sys.executable, "-m", "tests.browser.hosting.site", str(port)]
    with subprocess.Popen(
        command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        welcome = ""
        for line in process.stdout:
            welcome += line
            if "Ctrl-C" in line:
                break
        found = re.search(r"password (\S+)", welcome)
        assert found, welcome
        yield HostingSite(f"http://127.0.0.1:{port}", found[1], directory / "db.sqlite3")
        process.kill()


@pytest.fixture(scope="module")
def signed_in(chromium: Browser, hosting_site: HostingSite) -> Iterator[BrowserContext]:
    """A browser in which the demo's user is logged in."""
    context = chromium.new_context(viewport={"width": 1200, "height": 900}, color_scheme="light")
    page = context.new_page()
    page.goto(f"{hosting_site.url}/mcp/apps/")
    page.locator("#id_username").fill("demo")
    page.locator("#id_password").fill(hosting_site.password)
    page.locator("[type=submit]").click()
    page.get_by_role("heading", name="Preview of apps").wait_for()
    page.close()
    yield context
    context.close()


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InspectorServer]:
    """The Inspector's web client."""
    with serve_inspector(tmp_path_factory.mktemp("inspector")) as server:
        yield server


@pytest.fixture
def open_host(
    request: pytest.FixtureRequest,
    chromium: Browser,
    signed_in: BrowserContext,
    hosting_site: HostingSite,
    strict_server: StrictHostServer,
) -> Iterator[Callable[[str], AppTestHost]]:
    """Open a page of a host, by its name."""
    hosts: list[AppTestHost] = []

    def open_named(name: str) -> AppTestHost:
        match name:
            case "preview":
                host: AppTestHost = PreviewTestHost(signed_in, hosting_site.url)
            case "strict":
                host = StrictTestHost(signed_in, hosting_site.url, strict_server)
            case _:
                # It stores its theme in the browser.
                context = chromium.new_context(color_scheme="light")
                host = InspectorTestHost(context, hosting_site.url, request.getfixturevalue("inspector"))
        hosts.append(host)
        return host

    yield open_named
    for host in hosts:
        host.page.close()
        if host.context is not signed_in:
            host.context.close()


@pytest.fixture(params=["preview", "strict"])
def host(request: pytest.FixtureRequest, open_host: Callable[[str], AppTestHost]) -> AppTestHost:
    """Each host of this project in turn."""
    return open_host(request.param)


@pytest.fixture(params=["inspector"] if os.environ.get(INSPECTOR_VARIABLE) else ["preview", "strict"])
def any_host(request: pytest.FixtureRequest, open_host: Callable[[str], AppTestHost]) -> AppTestHost:
    """Each host of this project in turn, or the Inspector, with which `make clients` runs these tests."""
    return open_host(request.param)
