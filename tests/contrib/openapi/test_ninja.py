"""APIs of django-ninja, called in process."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.urls import path
from ninja import File, Form, NinjaAPI, Router, Schema, Status
from ninja.files import UploadedFile
from ninja.security import HttpBearer, django_auth

from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.contrib.openapi import OpenAPIToolset, Route
from mcp_django.schema import DeclarationError
from tests.server.client import PipelineClient, make_server

COLOUR: ContextVar[str] = ContextVar("colour", default="none")
api = NinjaAPI(urls_namespace="openapi-tests")
router = Router()


class Note(Schema):
    id: int
    text: str
    by: str = ""


class Key(HttpBearer):
    def authenticate(self, request: HttpRequest, token: str) -> str | None:
        return token if token == "open sesame" else None


@router.get("/notes/{int:note_id}", response=Note, auth=django_auth, operation_id="note")
def note(request: HttpRequest, note_id: int, loud: bool = False) -> dict[str, Any]:
    """One note."""
    if note_id == 404:
        raise Http404("There is no such note.")
    text = f"note {note_id}"
    return {"id": note_id, "text": text.upper() if loud else text, "by": request.user.get_username()}


@router.get("/notes/latest", response=Note, operation_id="latest")
def latest(request: HttpRequest) -> dict[str, Any]:
    return {"id": 0, "text": "the latest"}


@router.post("/notes", response={201: Note}, auth=django_auth, operation_id="write")
def write(request: HttpRequest, body: Note) -> Any:
    User.objects.create_user(body.text)
    if body.text == "broken":
        raise RuntimeError("a secret of the code's")
    return Status(201, body)


@router.get("/keyed", auth=Key(), operation_id="keyed")
def keyed(request: HttpRequest) -> dict[str, str]:
    return {"key": request.auth}  # type: ignore[attr-defined]


@router.get("/later", operation_id="later")
async def later(request: HttpRequest) -> dict[str, str]:
    user = await request.auser()
    return {"by": user.get_username(), "cookies": ",".join(request.COOKIES)}


@router.get("/colour", operation_id="colour")
def colour(request: HttpRequest) -> str:
    return COLOUR.get()


@router.get("/colour/later", operation_id="colour_later")
async def colour_later(request: HttpRequest) -> str:
    return COLOUR.get()


@router.get("/stream/{kind}", operation_id="stream")
def stream(request: HttpRequest, kind: str) -> StreamingHttpResponse:
    async def later() -> AsyncIterator[bytes]:
        yield b"one,"
        yield b"two"

    return StreamingHttpResponse(later() if kind == "async" else [b"one,", b"two"], content_type="text/csv")


@router.post("/files", operation_id="upload")
def upload(request: HttpRequest, title: Form[str], file: File[UploadedFile]) -> dict[str, Any]:
    return {"title": title, "name": file.name, "content": file.read().decode()}


api.add_router("/shop", router)
urlpatterns = [path("api/", api.urls)]


@pytest.fixture
def _urls(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__


def caller(user: Any) -> DjangoPrincipal:
    return DjangoPrincipal(issuer="tests", subject=user.get_username(), user=user)


def caller_user() -> User:
    """A user without a row in the database."""
    return User(pk=1, username="ada")


def peer(user: Any = None, **options: Any) -> PipelineClient:
    server = make_server(toolsets=[OpenAPIToolset.from_ninja(api, **options)])
    return PipelineClient(server) if user is None else PipelineClient(server, caller(user))


pytestmark = pytest.mark.usefixtures("_urls")


@pytest.mark.django_db
async def test_a_view_sees_the_user_of_the_call() -> None:
    ada = await User.objects.acreate_user("ada")
    result = await peer(ada).call("note", note_id=7, loud=True)
    assert result["structuredContent"] == {"id": 7, "text": "NOTE 7", "by": "ada"}


async def test_views_are_inside_the_context_managers_of_the_server() -> None:
    @contextmanager
    def paint(ctx: Any) -> Iterator[None]:
        token = COLOUR.set("red")
        yield
        COLOUR.reset(token)

    toolsets = [OpenAPIToolset.from_ninja(api)]
    client = PipelineClient(make_server(toolsets=toolsets, options={"around": (paint,)}))
    assert [await client.text(name) for name in ("colour", "colour_later")] == ['"red"', '"red"']


@pytest.mark.django_db
async def test_ninja_decides_who_may_call() -> None:
    assert (await peer().error("note", note_id=7)).startswith("401 Unauthorized")


async def test_a_local_caller_without_a_user_is_anonymous() -> None:
    assert '"by": ""' in await peer().text("later")


@pytest.mark.django_db
async def test_async_views_are_awaited_and_get_no_cookie_of_the_caller() -> None:
    ada = await User.objects.acreate_user("ada")
    told = PipelineClient(
        make_server(toolsets=[OpenAPIToolset.from_ninja(api)]), caller(ada), headers={"Cookie": "sessionid=1"}
    )
    assert await told.text("later") == '{"by": "ada", "cookies": "mcp"}'


@pytest.mark.django_db
async def test_a_token_for_the_view_is_a_credential_of_the_project() -> None:
    assert (await peer().error("keyed")).startswith("401")
    with_key = peer(credentials={"Key": "open sesame"})
    assert '"key": "open sesame"' in await with_key.text("keyed")
    ada = await User.objects.acreate_user("ada")
    # A view without a secret is called as the user.
    assert (await peer(ada, credentials={"Key": "open sesame"}).call("note", note_id=1))["isError"] is False


async def test_a_value_never_becomes_a_part_of_the_route() -> None:
    document = api.get_openapi_schema(path_prefix="")
    document["paths"]["/shop/notes/{note_id}"]["get"]["parameters"][0]["schema"] = {"type": "string"}
    document["paths"].pop("/shop/notes/latest")
    server = make_server(toolsets=[OpenAPIToolset.from_urlconf(dict(document), root="/api")])
    assert "reaches another view" in await PipelineClient(server).error("note", note_id="latest")
    assert (await PipelineClient(server).error("note", note_id="1/../latest")).startswith("A part of the path")
    assert (await PipelineClient(server).error("note", note_id="x")).startswith("404")


async def test_exceptions_of_a_view_are_reported_as_over_http() -> None:
    assert (
        await peer(caller_user()).error("note", note_id=404)
        == "404 Not Found\nNot found, or not visible with these credentials."
    )


@pytest.mark.django_db(transaction=True)
async def test_a_request_is_one_transaction_with_atomic_requests() -> None:
    connections["default"].settings_dict["ATOMIC_REQUESTS"] = True
    try:
        ada = await User.objects.acreate_user("ada")
        assert "secret" not in await peer(ada).error("write", id=1, text="broken")
        assert not await User.objects.filter(username="broken").aexists()
        assert (await peer(ada).call("write", id=1, text="whole"))["isError"] is False
        assert await User.objects.filter(username="whole").aexists()
    finally:
        connections["default"].settings_dict["ATOMIC_REQUESTS"] = False


async def test_files_are_given_in_base64() -> None:
    result = await peer().call("upload", title="Notes", file={"content": "aGVsbG8=", "name": "a.txt"})
    assert result["content"][0]["text"] == '{"title": "Notes", "name": "a.txt", "content": "hello"}'
    assert (await peer().text("upload", title="Notes", file="aGVsbG8=")).count('"name": "file"') == 1


async def test_an_api_that_is_not_in_the_urlconf_is_refused_at_start(settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.urls"
    with pytest.raises(DeclarationError, match="openapi-tests:api-root"):
        peer()


def test_options_of_http_are_refused() -> None:
    with pytest.raises(DeclarationError, match="over HTTP"):
        OpenAPIToolset.from_ninja(api, base_url="https://api.example.com")
    with pytest.raises(DeclarationError, match="takes a NinjaAPI"):
        OpenAPIToolset.from_ninja(object())


async def test_routes_apply_to_an_api_of_django_ninja() -> None:
    names = await peer(prefix="shop", routes=[Route("GET *"), Route(expose=None)]).names()
    assert names == [
        f"shop_{name}" for name in ("colour", "colour_later", "keyed", "later", "latest", "note", "stream")
    ]


async def test_a_stream_is_read_to_its_end_and_bounded(subtests: pytest.Subtests) -> None:
    for kind in ["async", "plain"]:
        with subtests.test(kind=kind):
            assert await peer().text("stream", kind=kind) == "one,two"
            assert "larger than 5 bytes" in await peer(max_size=5).error("stream", kind=kind)
