"""The language and the time zone that handlers find, and that no call leaves any behind for the next."""

import asyncio
from dataclasses import replace
from typing import Annotated

import pytest
from django.conf.urls.i18n import i18n_patterns
from django.core.asgi import get_asgi_application
from django.db.models import TextChoices
from django.urls import include, path
from django.utils import translation
from pydantic import Field

from mcp_django import Server
from mcp_django.asgi import mount
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.types import ToolAnnotations
from mcp_django.schema import build_form
from mcp_django.transports.http.django_context import DjangoContext
from tests.interaction.clients import HANDSHAKE, META, STATELESS, Client
from tests.interaction.transports import Transport, contract_with_headers, on_http

LOCALE = "django.middleware.locale.LocaleMiddleware"
GERMAN = {"accept-language": "de-AT, de;q=0.8, en;q=0.5"}
AROUND = ("around", "around_a_thread")
MEDDLE = ("meddle", "meddle_in_a_thread")


@pytest.fixture
def translated(settings):
    """A project whose pages are translated; its own language is English."""
    settings.MIDDLEWARE = [LOCALE]
    settings.USE_I18N, settings.LANGUAGE_CODE = True, "en"


@pytest.fixture
def speaker(transport, revision):
    """`await speaker(headers)`: a client of every revision that sends these headers."""
    return lambda headers=None: Client(transport, revision, server="places", headers=headers).open()


@pytest.fixture
def modern(transport):
    """`modern(headers)`: a client of the stateless era that sends these headers."""
    return lambda headers=None: Client(transport, STATELESS, server="places", headers=headers)


async def call_tool(client, name, **how):
    """Call a tool, and return its structured content."""
    return (await client.tool(name, **how)).result["structuredContent"]


@pytest.mark.usefixtures("translated")
async def test_handlers_run_in_the_language_that_the_client_accepts(modern, subtests):
    for name in AROUND:
        with subtests.test(name=name):
            seen = await call_tool(modern(GERMAN), name)
            assert (seen["language"], seen["monday"], seen["decimal"]) == ("de", "Montag", ",")
            seen = await call_tool(modern({"accept-language": "xx, fr;q=0.9"}), name)
            assert (seen["language"], seen["monday"]) == ("fr", "lundi")


@contract_with_headers
@pytest.mark.usefixtures("translated")
async def test_every_revision_and_method_uses_the_accepted_language(speaker):
    client = await speaker(GERMAN)
    assert (await client.tool("around_a_thread")).result["content"][0]["text"].count("Montag") == 1
    read = await client.request("resources/read", {"uri": "place://here"})
    assert read.result["contents"][0]["text"] == "Montag"
    header = await client.request("prompts/get", {"name": "name_day", "arguments": {"day": "1"}})
    assert header.result["messages"][0]["content"]["text"] == "Montag"
    about = {"ref": {"type": "ref/prompt", "name": "name_day"}, "argument": {"name": "day", "value": ""}}
    completed = await client.request("completion/complete", about)
    assert completed.result["completion"]["values"] == ["Montag"]


@pytest.mark.usefixtures("translated")
async def test_lazy_texts_of_errors_and_questions_are_translated(modern):
    failed = await modern(GERMAN).tool("fail_in_words")
    assert failed.result["content"][0]["text"] == "Montag"
    read = await modern(GERMAN).request("resources/read", {"uri": "place://lazily"})
    assert read.result["contents"][0]["text"] == "Montag"
    asked = (await modern(GERMAN).tool("lazy_tool")).result["inputRequests"]
    assert [question["params"]["message"] for question in asked.values()] == ["Mittwoch"]


@pytest.mark.usefixtures("translated")
async def test_lazy_texts_of_notifications_are_translated(modern):
    meta = {"progressToken": 1, META + "logLevel": "info"}
    reply = await modern(GERMAN).tool("lazily", meta=meta)
    assert reply.notifications("notifications/progress")[0]["message"] == "Dienstag"
    assert reply.notifications("notifications/message")[0]["data"] == "Mittwoch"
    assert reply.result["content"][0]["text"] == "Montag"


@pytest.mark.usefixtures("translated")
async def test_an_unreadable_language_header_selects_the_language_of_the_project(modern, subtests):
    for header in [None, "", "xx", "*", "de;q=broken", "de" * 400, "\xff"]:
        with subtests.test(header=header):
            seen = await call_tool(modern({"accept-language": header}), "around")
            assert (seen["language"], seen["monday"]) == ("en", "Monday")


@pytest.mark.usefixtures("translated")
async def test_a_long_header_is_read_as_far_as_django_reads_it(modern):
    seen = await call_tool(modern({"accept-language": "de," + "x" * 600}), "around")
    assert seen["language"] == "de"


async def test_without_locale_middleware_the_language_is_the_one_of_the_project(settings, modern):
    settings.MIDDLEWARE, settings.LANGUAGE_CODE = [], "fr"
    seen = await call_tool(modern(GERMAN), "around")
    assert (seen["language"], seen["monday"]) == ("fr", "lundi")


class URLs:
    """A site whose pages are below their language, except in its own."""

    urlpatterns = [
        path("view/", include("mcp_django.urls")),
        *i18n_patterns(path("pages/", include("mcp_django.urls", namespace="pages")), prefix_default_language=False),
    ]


@on_http
@pytest.mark.usefixtures("translated")
async def test_a_url_without_a_language_is_in_the_language_of_the_project(settings, modern):
    settings.ROOT_URLCONF = URLs
    assert (await call_tool(modern(GERMAN), "around"))["language"] == "en"


@pytest.mark.usefixtures("translated")
async def test_the_view_uses_the_language_of_its_url_or_cookie(settings):
    settings.ROOT_URLCONF = URLs
    client = Client(Transport(get_asgi_application, ""), STATELESS, server="places")
    seen = await call_tool(client, "around", path="/fr/pages/mcp/places", headers=GERMAN)
    assert seen["monday"] == "lundi"
    settings.ROOT_URLCONF = "tests.interaction.urls"
    cookie = {"cookie": f"{settings.LANGUAGE_COOKIE_NAME}=fr", **GERMAN}
    assert (await call_tool(client, "around", path="/view/mcp/places", headers=cookie))["monday"] == "lundi"


@pytest.mark.parametrize("name", AROUND)
async def test_the_view_is_in_the_time_zone_that_middleware_activated(settings, name):
    settings.MIDDLEWARE = ["tests.interaction.middleware.in_samoa"]
    client = Client(Transport(get_asgi_application, "/view"), STATELESS, server="places")
    assert (await call_tool(client, name))["zone"] == "Pacific/Apia"


async def test_the_asgi_transport_is_in_the_time_zone_of_the_project(settings):
    settings.MIDDLEWARE, settings.TIME_ZONE = ["tests.interaction.middleware.in_samoa"], "Europe/Vienna"
    client = Client(Transport(lambda: mount(get_asgi_application()), ""), STATELESS, server="places")
    assert (await call_tool(client, "around"))["zone"] == "Europe/Vienna"


@contract_with_headers
@pytest.mark.usefixtures("translated")
async def test_a_call_does_not_change_the_language_of_the_next(modern, subtests):
    for meddler in MEDDLE:
        for name in AROUND:
            with subtests.test(meddler=meddler, name=name):
                assert (await call_tool(modern(), meddler))["monday"] == "lundi"
                seen = await call_tool(modern(), name)
                assert (seen["language"], seen["monday"], seen["zone"]) == ("en", "Monday", "UTC")
                assert (await call_tool(modern(GERMAN), name))["monday"] == "Montag"
                assert (await call_tool(modern(), name))["monday"] == "Monday"


@pytest.mark.usefixtures("translated")
async def test_concurrent_calls_have_separate_languages(modern):
    languages = {"de": "Montag", "fr": "lundi", "es": "lunes", "en": "Monday"}
    asked = [(name, language) for name in (*AROUND, *AROUND) for language in languages]
    answers = await asyncio.gather(
        *(call_tool(modern({"accept-language": language}), name) for name, language in asked)
    )
    assert [seen["monday"] for seen in answers] == [languages[language] for _, language in asked]


@pytest.mark.usefixtures("translated")
async def test_declarations_are_in_the_language_of_the_project_for_the_first_client(speaker, monkeypatch):
    with translation.override("fr"):
        client = await speaker(GERMAN)
    for method, field in (("tools/list", "tools"), ("resources/list", "resources"), ("prompts/list", "prompts")):
        items = (await client.request(method)).result[field]
        titles = {item.get("title") for item in items} | {item.get("description") for item in items}
        assert not titles & {"Montag", "lundi", "Dienstag", "mardi"}
        if client.revision >= "2025-06-18":
            assert "Monday" in titles


@pytest.mark.usefixtures("translated")
async def test_server_info_is_in_the_language_of_the_project(transport, settings):
    for headers in (GERMAN, {}):
        client = Client(transport, STATELESS, server="places", headers=headers)
        assert (await client.request("server/discover")).result["instructions"] == "Ask where you are"


@pytest.mark.usefixtures("translated")
@pytest.mark.parametrize("revision", [HANDSHAKE[-1], STATELESS])
async def test_lazy_instructions_are_read_in_the_project_s_language(revision):
    server = Server("own", instructions=translation.gettext_lazy("Monday"))
    client = Client(Transport(lambda: mount(get_asgi_application(), servers={"mcp/own": server}), ""), revision)
    client.server = "own"
    opening = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client.introduction()}
    message = client.request_message("server/discover") if client.stateless else opening
    with translation.override("de"):
        assert (await client.post(message, headers=GERMAN)).result["instructions"] == "Monday"


def test_declaring_under_another_active_language_uses_the_one_of_the_project(settings):
    settings.LANGUAGE_CODE = "en"
    server, monday = Server("own"), translation.gettext_lazy("Monday")
    with translation.override("de"):

        @server.tool(title=monday, annotations=ToolAnnotations(title=monday))
        async def tool(day: Annotated[str, Field(description=monday)]) -> str:
            """The day."""
            return day

        listed = server.registry.tools.get("tool").wire
        assert (listed["title"], listed["annotations"]["title"]) == ("Monday", "Monday")
        assert listed["inputSchema"]["properties"]["day"]["description"] == "Monday"
        by_hand = replace(server.registry.tools.get("tool"), title=monday)
        assert by_hand.wire["title"] == "Monday"


def test_choices_of_a_form_are_in_the_language_of_the_project_for_the_first_client(settings):
    settings.LANGUAGE_CODE = "en"

    class Day(TextChoices):
        MONDAY = "mo", translation.gettext_lazy("Monday")

    for language in ("de", "fr"):
        with translation.override(language):
            (choice,) = build_form(Day).schema["properties"]["value"]["oneOf"]
            assert choice["title"] == "Monday"


def test_without_middleware_a_clean_context_is_used(settings):
    settings.MIDDLEWARE = []
    assert not DjangoContext().is_needed
    settings.MIDDLEWARE, settings.USE_I18N = [LOCALE], False
    assert not DjangoContext().is_needed
    settings.USE_I18N, settings.LANGUAGE_CODE = True, "en"
    around = DjangoContext()
    assert around.is_needed
    assert around.create_context(Headers(), "") is None
    assert around.create_context(Headers([(b"accept-language", b"en")]), "") is None
    assert around.create_context(Headers([(b"accept-language", b"de")]), "") is not None


def test_the_number_of_cached_languages_is_limited(settings):
    settings.MIDDLEWARE = [LOCALE]
    around = DjangoContext()
    for number in range(1000):
        around.create_context(Headers([(b"accept-language", b"x-%d" % number)]), "")
    assert around._negotiate_language.cache_info().currsize == 256
