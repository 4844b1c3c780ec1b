"""The examples of docs/expose/openapi.md, served."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from django.urls import path

from mcp_django.auth.principal import DjangoPrincipal
from mcp_django.server.options import ServerOptions
from mcp_django.server.primitives.registry import Registry
from mcp_django.server.server import Server
from tests.contrib.openapi.pets import Api, document, operation, parameter
from tests.repository.pages import ROOT, python_blocks, served_by
from tests.server.client import PipelineClient, make_principal, ports

BLOCKS = python_blocks(ROOT / "docs" / "expose" / "openapi.md")
SCHEMES = {"api_key": {"type": "apiKey", "in": "header", "name": "X-Key"}}
PETS = document(
    {
        "/pets": {"post": operation(operationId="addPet", security=[{"api_key": []}])},
        "/pets/{id}": {"get": operation(operationId="getPet", parameters=[parameter("id", "path")])},
        "/admin/reset": {"post": operation(operationId="reset")},
    },
    components={"schemas": {"Pet": {"type": "object"}}, "securitySchemes": SCHEMES},
)


def connected(registry: Registry) -> Server:
    assert not registry.problems
    return Server("docs", "1", registry=registry, ports=ports(), options=ServerOptions())


@pytest.fixture
def whole(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Registry]:
    """All examples as one module."""
    settings.BASE_DIR = tmp_path
    settings.ROOT_URLCONF = "example.urls"
    (tmp_path / "petstore.yaml").write_text(yaml.safe_dump(PETS))
    monkeypatch.setenv("PETSTORE_KEY", "s3cr3t")
    module, registry = served_by("\n".join(BLOCKS), monkeypatch)
    urls = SimpleNamespace(urlpatterns=[path("api/", module.api.urls)], __name__="example.urls")
    monkeypatch.setitem(sys.modules, "example.urls", urls)
    return module, registry


async def test_the_example_petstore_is_imported(whole: tuple[Any, Registry]) -> None:
    module, registry = whole
    api = Api()
    module.petstore._client = api.client
    server = connected(registry)
    names = [tool.name for tool in registry.tools]
    assert (names[0], len(names)) == ("pets_add_pet", 2)
    assert [template.key for template in registry.templates] == ["pets://pets/{id}"]
    assert (
        await PipelineClient(server, make_principal("shop.view_pet")).names(
            "resources/templates/list", "resourceTemplates"
        )
        != []
    )
    assert await PipelineClient(server, make_principal("shop.view_pet", "shop.add_pet")).names() == names
    assert len(await PipelineClient(server, make_principal()).names()) == 1


async def test_the_example_with_a_key_for_each_caller_works(whole: tuple[Any, Registry]) -> None:
    module, _ = whole
    api = Api()
    module.each_their_own._client = api.client
    server = Server("docs", "1", toolsets=[module.each_their_own], ports=ports())
    for name in ("ada", "bob"):
        user = SimpleNamespace(username=name, pk=1, has_perm=lambda *given: True)
        result = await PipelineClient(server, DjangoPrincipal(issuer="tests", subject=name, user=user)).call(
            "own_addPet"
        )
        assert result["isError"] is (name == "bob")
    assert (api.last.headers["x-key"], api.last.headers["x-tenant"]) == ("ada's key", "north")
    assert len(api.requests) == 1


def test_the_example_of_django_ninja_is_registered(whole: tuple[Any, Registry]) -> None:
    _, registry = whole
    registry.run_deferred()
    assert not registry.problems
    assert [tool.name for tool in registry.tools] == ["pets_add_pet", "shop_example_mcp_tools_greeting"]
