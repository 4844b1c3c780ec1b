"""Clients of the memory: peers of the server that its tools are registered on."""

from typing import Any

from django.contrib.auth.models import User

from mcp_django.auth.principal import ISSUER, Principal
from mcp_django.server.registry import registry_for
from mcp_django.server.server import Options, Server
from tests.server.engine import Peer, ports


class Client(Peer):
    """A client whose tools answer with data."""

    async def ok(self, tool: str, **arguments: Any) -> Any:
        """The structured content of a tool that succeeds."""
        result = await self.call(tool, **arguments)
        assert not result["isError"], result
        return result["structuredContent"]

    async def read(self, uri: str) -> dict[str, Any]:
        """The one content of a resource."""
        (content,) = (await self.request("resources/read", {"uri": uri}))["contents"]
        found: dict[str, Any] = content
        return found

    async def complete(self, value: str) -> list[str]:
        """The ids that complete what was typed."""
        ref = {"type": "ref/resource", "uri": "memory://conversations/{id}"}
        said = await self.request("completion/complete", {"ref": ref, "argument": {"name": "id", "value": value}})
        values: list[str] = said["completion"]["values"]
        return values


def client_of(principal: Principal, alias: str = "memory") -> Client:
    """A client of this principal's."""
    server = Server("tests", "1", registry=registry_for(alias), ports=ports(), options=Options())
    return Client(server, principal=principal)


def user_client(user: User, client_id: str = "") -> Client:
    """A client of a user's."""
    return client_of(Principal(issuer=ISSUER, subject=str(user.pk), client_id=client_id, user=user))


def machine(subject: str) -> Client:
    """A client of somebody who is no user here."""
    return client_of(Principal(issuer="https://as", subject=subject))


def said(*texts: str) -> list[dict[str, Any]]:
    """Messages of a user's."""
    return [{"role": "user", "content": text} for text in texts]
