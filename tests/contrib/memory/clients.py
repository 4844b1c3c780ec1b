"""Clients of the memory: peers of the server that its tools are registered on."""

from typing import Any

from django.contrib.auth.models import User

from mcp_django.auth.principal import PROJECT_ISSUER, DjangoPrincipal
from mcp_django.server.options import ServerOptions
from mcp_django.server.primitives.registry import get_registry
from mcp_django.server.server import Server
from tests.server.client import PipelineClient, ports


class Client(PipelineClient):
    """A client whose tools answer with data."""

    async def ok(self, tool: str, **arguments: Any) -> Any:
        """Call a tool that succeeds, and return its structured content."""
        result = await self.call(tool, **arguments)
        assert not result["isError"], result
        return result["structuredContent"]

    async def read(self, uri: str) -> dict[str, Any]:
        """Read a resource of one content."""
        (content,) = (await self.request("resources/read", {"uri": uri}))["contents"]
        found: dict[str, Any] = content
        return found

    async def complete(self, value: str) -> list[str]:
        """Return the ids that complete a value."""
        ref = {"type": "ref/resource", "uri": "memory://conversations/{id}"}
        said = await self.request("completion/complete", {"ref": ref, "argument": {"name": "id", "value": value}})
        values: list[str] = said["completion"]["values"]
        return values


def client_of(principal: DjangoPrincipal, alias: str = "memory") -> Client:
    """Make a client of a principal."""
    server = Server("tests", "1", registry=get_registry(alias), ports=ports(), options=ServerOptions())
    return Client(server, principal=principal)


def user_client(user: User, client_id: str = "") -> Client:
    """Make a client of a user."""
    return client_of(DjangoPrincipal(issuer=PROJECT_ISSUER, subject=str(user.pk), client_id=client_id, user=user))


def machine_client(subject: str) -> Client:
    """Make a client of another issuer's subject, without a user."""
    return client_of(DjangoPrincipal(issuer="https://as", subject=subject))


def user_messages(*texts: str) -> list[dict[str, Any]]:
    """Make messages of a user."""
    return [{"role": "user", "content": text} for text in texts]
