"""This project's own client on two workers of a real server.

One worker can finish the flow that the other one began, and only one of them renews a token.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.clients.oauth.browser import Browser, forms
from tests.clients.oauth.conftest import SITE, Site, Sites
from tests.servers.databases import new_postgres
from tests.servers.harness import Server, serve

PLACES = ("/plain/", "/loop/")


@pytest.fixture(scope="module")
def remote(sites: Sites) -> Site:
    """Return the protected site, which the project uses."""
    return sites.get("uvicorn")


@pytest.fixture(scope="module")
def project(remote: Site) -> Iterator[Server]:
    """Run the project, which uses the protected site."""
    client = {"URL": remote.url, "AUTH": {"TYPE": "oauth"}}
    mcp = {"AUTH": "none", "TOKEN_CACHE_SECONDS": 0, "CLIENTS": {"shop": client}}
    settings = {"ROOT_URLCONF": "tests.clients.oauth.consumer", "MCP": mcp}
    with (
        new_postgres(SITE) as database,
        serve("uvicorn", workers=2, database=database, site=SITE, settings=settings) as server,
    ):
        yield server


class Person:
    """A user with an account in the project, and one on the site.

    Each request has a connection of its own, so that either worker may get it.
    """

    def __init__(self, project: Server, name: str) -> None:
        self.origin, self.name = f"http://127.0.0.1:{project.port}", name
        self.http = httpx.AsyncClient(base_url=self.origin, headers={"Connection": "close"}, timeout=30)

    async def get(self, place: str) -> dict[str, Any]:
        answer = await self.http.get(place)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def post(self, place: str, **fields: str) -> httpx.Response:
        page = await self.http.get(place)
        sent = dict(forms(page.text, place)[0].fields) | fields
        return await self.http.post(place, data=sent, headers={"Referer": self.origin + place})

    async def connect(self) -> str:
        """Log in and connect; return the address that the project redirects to."""
        assert (await self.post("/accounts/login/", username=self.name, password="pw")).status_code == 302
        begun = await self.post("/mcp/clients/shop/connect/")
        assert begun.status_code == 302, begun.text
        browser = Browser(self.name)
        await browser.open(begun.headers["Location"])
        back = await self.http.get(browser.address)
        assert back.status_code == 302, back.text
        return str(back.headers["Location"])


async def test_two_workers_have_one_token(project: Server, remote: Site) -> None:
    ada, grace = Person(project, "alice"), Person(project, "bob")
    async with ada.http, grace.http:
        assert await ada.connect() == "/mcp/clients/?connected=shop"
        assert (await grace.connect()) == "/mcp/clients/?connected=shop"
        calls = [person.get(place) for _ in range(6) for person in (ada, grace) for place in PLACES]
        said = await asyncio.gather(*calls)
        assert [one.get("said") for one in said] == ["alice looks", "alice looks", "bob looks", "bob looks"] * 6
        workers = {one["pid"] for one in said}
        async with asyncio.timeout(30):
            while len(workers) < 2:  # the system may give all connections to the same worker
                workers |= {one["pid"] for one in await asyncio.gather(*(ada.get(place) for place in PLACES * 6))}
        before = (await ada.get("/age/?old=1"))["generation"]
        said = await asyncio.gather(*(ada.get(place) for _ in range(10) for place in PLACES))
        assert {one.get("said") for one in said} == {"alice looks"}
        # The view wrote one generation. The other one has the token that one worker renewed for all calls.
        assert (await ada.get("/age/"))["generation"] == before + 2
        ended = await ada.post("/mcp/clients/", alias="shop")
        assert "shop is not connected any more." in ended.text
        said = await asyncio.gather(*(ada.get(place) for _ in range(6) for place in PLACES))
        assert {one.get("needed") for one in said} == {"/mcp/clients/shop/connect/"}
        assert (await grace.get("/plain/"))["said"] == "bob looks"
    assert "Traceback" not in project.log()
    remote.server.settle()
