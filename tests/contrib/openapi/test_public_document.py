"""A public document of an API in use: the one that LocalStack ships in its package on PyPI."""

from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import httpx
import yaml

from mcp_django.contrib.openapi import Route
from tests.contrib.openapi.pets import Api, peer

DOCUMENT = Path(str(distribution("localstack-core").locate_file("localstack/openapi.yaml")))
BASE = "http://localhost:4566"


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    source = yaml.safe_load(DOCUMENT.read_text())
    return [
        (method, path, entry)
        for path, item in source["paths"].items()
        for method, entry in item.items()
        if method in ("get", "post", "put", "patch", "delete")
    ]


async def test_every_operation_is_a_tool() -> None:
    listed = await peer(DOCUMENT, base_url=BASE).names()
    assert len(listed) == len(operations()) > 20
    assert set(listed) == {entry["operationId"] for _, _, entry in operations()}


async def test_every_tool_can_be_called() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/health"):
            return httpx.Response(200, json={"edition": "community", "features": {}, "services": {}, "version": "4"})
        if request.method == "POST":
            return httpx.Response(200, json={"name": "DEBUG", "value": request.read().decode()})
        return httpx.Response(204) if request.method == "DELETE" else httpx.Response(404)

    api = Api(answer)
    client = peer(DOCUMENT, api, base_url=BASE, prefix="aws")
    health = await client.call("aws_get_features_and_services")
    assert health["structuredContent"]["edition"] == "community"
    assert (api.last.method, str(api.last.url)) == ("GET", f"{BASE}/_localstack/health")
    await client.call("aws_update_config_option", variable="DEBUG", value=1)
    assert api.json == {"variable": "DEBUG", "value": 1}
    await client.call("aws_discard_ses_messages", id="a/b")
    assert str(api.last.url) == f"{BASE}/_aws/ses?id=a%2Fb"
    assert (await client.error("aws_get_init_script_info_stage", stage="BOOT")).startswith("404")
    assert (await client.error("aws_get_init_script_info_stage", stage="../x")).startswith("A part of the path")


async def test_reading_operations_can_be_resources() -> None:
    routes = [Route("GET /_localstack/*", expose="resource"), Route(expose=None)]
    client = peer(DOCUMENT, Api({"stage": "BOOT"}), base_url=BASE, prefix="aws", routes=routes)
    templates = (await client.request("resources/templates/list", {}))["resourceTemplates"]
    assert "aws://_localstack/init/{stage}" in {one["uriTemplate"] for one in templates}
    found = await client.request("resources/read", {"uri": "aws://_localstack/init/BOOT"})
    assert found["contents"][0]["text"] == '{"stage":"BOOT"}'
