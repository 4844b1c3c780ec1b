"""Pages that the user opens for a question, and the return from them (client/elicitation, URL mode)."""

import asyncio
from urllib.parse import parse_qs, urlsplit

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, connections
from django.test import AsyncClient

from mcp_django.models import SpentState
from mcp_django.wiring import get_services
from tests.interaction.clients import Client, answers
from tests.interaction.transports import contract_with_headers

ACCEPT = {"action": "accept"}
COMMITTED = pytest.mark.django_db(transaction=True)
"""For those who wait: they are told when the transaction is over."""
AWAY = "https://pay.example/checkout?back="


def text(reply):
    return reply.result["content"][0]["text"]


@pytest.fixture(autouse=True)
def _site(settings, db):
    """A site with a login, whose users are the callers."""
    settings.MCP = {**settings.MCP, "AUTH": "tests.interaction.verifiers.Users"}
    settings.MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ]
    settings.LOGIN_URL = "/login/"
    settings.ALLOWED_HOSTS = [*settings.ALLOWED_HOSTS, "testserver"]
    for name in ("alice", "bob"):
        get_user_model().objects.create_user(name)


class Browser(AsyncClient):
    """Leaves the test's connection open for the requests that come after its own."""

    async def request(self, **request):
        try:
            return await super().request(**request)
        finally:
            for signal in (request_started, request_finished):
                signal.disconnect(close_old_connections)


async def browser(name):
    """The browser of a user, with a login."""
    found = Browser()
    if name is not None:
        await found.aforce_login(await get_user_model().objects.aget(username=name))
    return found


async def get_redirect(browser, url):
    """Where the browser is sent by the gate."""
    reply = await browser.get(url)
    assert reply.status_code == 302, reply.content
    assert reply.headers["referrer-policy"] == "no-referrer"
    return reply.headers["location"]


async def come_back(browser, url):
    """Open the link, and complete the page."""
    page = await get_redirect(browser, url)
    return await browser.get(parse_qs(urlsplit(page).query)["next"][0])


async def open_visit(latest_legacy, tool="connect_calendar", **how):
    """A call that has sent its user to a page, and the page's link."""
    client = await latest_legacy(**how)
    exchange = client.begin("tools/call", {"name": tool})
    question = await exchange.message()
    await client.answer(question["id"], ACCEPT)
    return exchange, question["params"]


@contract_with_headers
@COMMITTED
async def test_the_call_goes_on_after_the_return_of_the_user_and_the_client_is_notified(latest_legacy, checkpoints):
    exchange, asked = await open_visit(latest_legacy)
    assert (asked["mode"], asked["message"]) == ("url", "Please connect your calendar")
    assert asked["url"].startswith("http://127.0.0.1:8000/view/mcp/page/")
    alice = await browser("alice")
    page = await get_redirect(alice, asked["url"])
    assert urlsplit(page).path == "/calendar/"
    assert not checkpoints.counts["connected"]
    done = await alice.get(parse_qs(urlsplit(page).query)["next"][0])
    assert done.status_code == 200
    assert b"Done" in done.content
    reply = await exchange.reply()
    assert text(reply) == "accept"
    assert reply.notifications("notifications/elicitation/complete") == [{"elicitationId": asked["elicitationId"]}]


async def test_a_user_faster_than_the_client_is_not_waited_for(latest_legacy):
    client = await latest_legacy()
    exchange = client.begin("tools/call", {"name": "connect_calendar"})
    question = await exchange.message()
    await come_back(await browser("alice"), question["params"]["url"])
    await client.answer(question["id"], ACCEPT)
    assert text(await exchange.reply()) == "accept"


async def test_declining_to_open_the_page_is_not_an_error(either, subtests):
    for action in ["decline", "cancel"]:
        with subtests.test(action=action):
            client = await either()
            reply = await client.ask_tool("connect_calendar", {}, answers([{"action": action}]))
            assert text(reply) == action
            assert not reply.notifications("notifications/elicitation/complete")


async def test_an_unfinished_page_ends_with_the_timeout_of_questions(limits, clock, latest_legacy):
    limits(ELICITATION_TIMEOUT=5)
    exchange, _ = await open_visit(latest_legacy)
    reply = await clock.advance_while(exchange.reply())
    assert reply.result["isError"] is True
    assert text(reply) == "The page was not finished within 5 seconds"


async def open_round(modern, **how):
    """The first round of a call that sends its user to a page, with the page's link."""
    client = modern(**how)
    first = (await client.tool("connect_calendar")).result
    ((key, question),) = first["inputRequests"].items()
    assert "elicitationId" not in question["params"]

    def again(result):
        return client.tool("connect_calendar", inputResponses={key: ACCEPT}, requestState=result["requestState"])

    return first, question["params"]["url"], again


@contract_with_headers
async def test_the_round_after_the_return_of_the_user_ends_the_call(modern):
    first, url, again = await open_round(modern)
    assert (await come_back(await browser("alice"), url)).status_code == 200
    assert text(await again(first)) == "accept"
    assert text(await again(first)) == "accept"


async def test_an_early_round_repeats_the_link(limits, modern):
    limits(URL_ELICITATION_TIMEOUT=0)
    first, url, again = await open_round(modern)
    second = (await again(first)).result
    assert second["inputRequests"] == first["inputRequests"]
    await come_back(await browser("alice"), url)
    assert text(await again(second)) == "accept"


@COMMITTED
async def test_a_round_waits_a_while_for_the_user(modern, checkpoints):
    first, url, again = await open_round(modern)
    waiting = asyncio.create_task(again(first))
    await checkpoints.until("connect_calendar", 2)
    await come_back(await browser("alice"), url)
    assert text(await waiting) == "accept"


async def test_an_external_page_is_reached_through_a_new_visit_each_time(modern):
    client, alice = modern(), await browser("alice")
    result, links = (await client.tool("pay")).result, []
    for _ in range(2):
        ((key, question),) = result["inputRequests"].items()
        links.append(question["params"]["url"])
        page = await get_redirect(alice, links[-1])
        assert page.startswith(AWAY + "http://127.0.0.1:8000/view/mcp/page/")
        assert (await alice.get(page.removeprefix(AWAY))).status_code == 200
        reply = await client.tool("pay", inputResponses={key: ACCEPT}, requestState=result["requestState"])
        result = reply.result
    assert text(reply) == "accept accept"
    assert links[0] != links[1]


@COMMITTED
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_a_plain_function_waits_for_the_user_too(transport, version):
    async def run():
        client, alice = await Client(transport, version).open(), await browser("alice")
        visits = []

        def answer(method, params):
            visits.append(asyncio.create_task(come_back(alice, params["url"])))
            return ACCEPT

        assert text(await client.ask_tool("connect_from_a_thread", {}, answer)) == "accept"
        assert (await visits[0]).status_code == 200
        await sync_to_async(connections.close_all)()  # those of the browser

    transport.run(run())


async def test_the_query_of_the_page_is_kept(modern):
    result = (await modern().tool("connect_from_a_thread")).result
    page = await get_redirect(await browser("alice"), result["inputRequests"]["page"]["params"]["url"])
    assert parse_qs(urlsplit(page).query)["year"] == ["2030"]


async def test_the_link_does_not_reveal_the_user(modern):
    _, url, _ = await open_round(modern)
    assert "alice" not in url
    assert get_services().elicitation_pages.unseal_visit(url.rpartition("/")[2], "page").user  # it is in there, sealed


async def test_another_user_can_neither_open_nor_complete_the_visit(modern):
    _, url, _ = await open_round(modern)
    alice, bob = await browser("alice"), await browser("bob")
    assert (await bob.get(url)).status_code == 403
    back = parse_qs(urlsplit(await get_redirect(alice, url)).query)["next"][0]
    assert (await bob.get(back)).status_code == 403
    assert not await SpentState.objects.aexists()
    assert (await alice.get(back)).status_code == 200


async def test_another_user_can_log_in_as_the_right_one(modern):
    _, url, _ = await open_round(modern)
    bob = await browser("bob")
    refused = await bob.get(url)
    assert refused.status_code == 403
    shown = refused.content.decode()
    assert "This link is for another account" in shown
    assert "bob" in shown
    assert '<form method="post">' in shown

    strict = Browser(enforce_csrf_checks=True)
    strict.cookies = bob.cookies
    assert (await strict.post(url)).status_code == 403

    signed_out = await bob.post(url)
    assert signed_out.status_code == 200
    login = f"/login/?next={urlsplit(url).path}"
    assert login in signed_out.content.decode()
    assert (await bob.get(url)).headers["location"] == login


async def test_every_page_around_a_visit_has_a_heading_and_a_strict_policy(modern, subtests):
    _, url, _ = await open_round(modern)
    alice, bob = await browser("alice"), await browser("bob")
    back = parse_qs(urlsplit(await get_redirect(alice, url)).query)["next"][0]
    for visitor, address, status, heading in (
        (bob, url, 403, "This link is for another account"),
        (alice, f"{url}x", 404, "This link has expired"),
        (alice, back, 200, "Done"),
        (alice, back, 410, "This link was used before"),
        (alice, url, 410, "This link was used before"),
    ):
        with subtests.test(heading):
            reply = await visitor.get(address)
            assert reply.status_code == status
            assert f"<h1>{heading}</h1>" in reply.content.decode()
            assert "default-src 'none'" in reply.headers["content-security-policy"]
            assert "no-store" in reply.headers["cache-control"]
            assert reply.headers["referrer-policy"] in ("no-referrer", "same-origin")


async def test_an_anonymous_user_is_redirected_through_the_login_to_the_page(modern):
    _, url, _ = await open_round(modern)
    anonymous_browser = await browser(None)
    reply = await anonymous_browser.get(url)
    assert (reply.status_code, urlsplit(reply.headers["location"]).path) == (302, "/login/")
    assert parse_qs(urlsplit(reply.headers["location"]).query)["next"] == [urlsplit(url).path]


async def test_a_visit_ends_once(modern):
    _, url, _ = await open_round(modern)
    alice = await browser("alice")
    back = parse_qs(urlsplit(await get_redirect(alice, url)).query)["next"][0]
    assert [(await alice.get(back)).status_code for _ in range(2)] == [200, 410]
    assert (await alice.get(url)).status_code == 410


async def test_the_link_to_the_page_does_not_end_the_visit(modern):
    """The client knows it, and has not been there."""
    _, url, _ = await open_round(modern)
    assert (await (await browser("alice")).get(f"{url}/done")).status_code == 404
    assert not await SpentState.objects.aexists()


async def test_a_get_of_the_return_link_does_not_end_the_visit(modern):
    _, url, _ = await open_round(modern)
    alice = await browser("alice")
    back = parse_qs(urlsplit(await get_redirect(alice, url)).query)["next"][0]
    assert [(await ask(back)).status_code for ask in (alice.head, alice.post)] == [405, 405]
    assert not await SpentState.objects.aexists()


async def test_changed_invented_and_expired_links_are_not_found(clock, modern):
    _, url, _ = await open_round(modern)
    alice = await browser("alice")
    for wrong in (url[:-4] + "AAAA", url[:-20], url + "x", url.rpartition("/")[0] + "/made-up"):
        assert (await alice.get(wrong)).status_code == 404
    await clock.advance(3601)
    assert (await alice.get(url)).status_code == 404


async def test_a_caller_without_a_user_cannot_be_sent_to_a_page(settings, latest_legacy):
    settings.MCP = {**settings.MCP, "AUTH": "tests.interaction.verifiers.Tokens"}
    reply = await (await latest_legacy()).tool("connect_calendar")
    assert reply.result["isError"] is True
    assert "no user account here" in text(reply)


async def test_a_client_without_url_elicitation_gets_no_question(either):
    client = await either(capabilities={"elicitation": {"form": {}}})
    reply = await client.tool("connect_calendar")
    if client.stateless:
        assert reply.refused(400, -32021)
        assert reply.error["data"]["requiredCapabilities"] == {"elicitation": {"url": {}}}
    else:
        assert len(reply.messages) == 1
        assert reply.result["isError"] is True
        assert "elicitation.url" in text(reply)
