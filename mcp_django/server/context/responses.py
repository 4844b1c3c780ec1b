"""Result types of `ctx.elicit`, `ctx.sample` and `ctx.list_roots`."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from mcp_django.server.context.conversation import InputRequest, InvalidInputResponse

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ElicitationResult(Generic[T]):
    """Result of an elicitation: truthy when accepted, with the value in `data`."""

    action: str
    """`accept`, `decline` or `cancel`."""
    data: T | None = None
    form: object = None
    """Bound and valid Django form, if the request used one; a ModelForm can `save()`."""

    def __bool__(self) -> bool:
        return self.action == "accept"


@dataclass(frozen=True, slots=True)
class Root:
    """Directory or other location that the client works in.

    Informative only, not access control (client/roots).
    """

    uri: str
    name: str | None = None


def build_roots_request(key: str | None) -> InputRequest:
    """Build the request for the client's roots (client/roots)."""

    def read(raw: object) -> list[Root]:
        roots = raw.get("roots") if type(raw) is dict else None
        if type(roots) is not list or not all(type(root) is dict and type(root.get("uri")) is str for root in roots):
            raise InvalidInputResponse("roots must be a list of objects with a uri")
        return [Root(root["uri"], root.get("name")) for root in roots]

    return InputRequest("roots/list", None, {"roots": {}}, read, key)
