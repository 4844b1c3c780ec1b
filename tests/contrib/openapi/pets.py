"""A document about pets, and a server whose answers a test chooses."""

import json
from collections.abc import Callable
from typing import Any

import httpx

from mcp_django.contrib.openapi import OpenAPIToolset
from tests.server.client import PipelineClient, make_server

BASE = "https://api.example.com/v1"
PET: dict[str, Any] = {
    "type": "object",
    "required": ["id", "name"],
    "properties": {
        "id": {"type": "integer", "readOnly": True},
        "name": {"type": "string", "minLength": 1},
        "secret": {"type": "string", "writeOnly": True},
        "mother": {"$ref": "#/components/schemas/Pet"},
    },
}


def document(paths: dict[str, Any], version: str = "3.0.3", **more: Any) -> dict[str, Any]:
    """A document with these paths."""
    made = {"openapi": version, "info": {"title": "Pets", "version": "1"}, "paths": paths, **more}
    return {"components": {"schemas": {"Pet": PET}}, **made}


def operation(**members: Any) -> dict[str, Any]:
    """An operation that answers a pet."""
    schema = {"$ref": "#/components/schemas/Pet"}
    answers = {"200": {"description": "It.", "content": {"application/json": {"schema": schema}}}}
    return {"responses": answers, **members}


def parameter(name: str, place: str, **members: Any) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "schema": {"type": "string"},
        **({"required": True} if place == "path" else {}),
    } | members


class Api:
    """A server that records its requests, and answers them."""

    def __init__(self, answer: Callable[[httpx.Request], httpx.Response] | Any = None) -> None:
        self.requests: list[httpx.Request] = []
        self._answer = answer

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if callable(self._answer):
            found: httpx.Response = self._answer(request)
            return found
        return httpx.Response(200, json={"id": 1, "name": "Rex"} if self._answer is None else self._answer)

    @property
    def last(self) -> httpx.Request:
        return self.requests[-1]

    @property
    def path(self) -> str:
        """The path of the last request below the base URL, as it was sent."""
        return self.last.url.raw_path.decode().removeprefix("/v1")

    @property
    def json(self) -> Any:
        return json.loads(self.last.content)

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self))


def toolset(source: Any, api: Api | None = None, **options: Any) -> OpenAPIToolset:
    """A toolset whose requests go to `api`."""
    return OpenAPIToolset(source, **{"base_url": BASE, "http_client": (api or Api()).client, **options})


def peer(source: Any, api: Api | None = None, **options: Any) -> PipelineClient:
    """A client of a server with these tools."""
    return PipelineClient(make_server(toolsets=[toolset(source, api, **options)]))


async def tools(source: Any, **options: Any) -> dict[str, dict[str, Any]]:
    """The listed tools, by name."""
    listed = await peer(source, **options).request("tools/list", {})
    return {tool["name"]: tool for tool in listed["tools"]}
