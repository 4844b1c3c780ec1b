"""What comes back from questions: the values that `ctx.elicit`, `ctx.sample` and `ctx.list_roots` return."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from mcp_django.server.client_requests.conversation import InvalidAnswer, Question

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What the user said: truthy when accepted, with the cleaned and typed value in `data`."""

    action: str
    """`accept`, `decline` or `cancel`."""
    data: T | None = None
    form: Any = None
    """The bound and valid Django form, where one was asked with; that of a ModelForm can `save()`."""

    def __bool__(self) -> bool:
        return self.action == "accept"


@dataclass(frozen=True, slots=True)
class Root:
    """A place that the client works in. Advice, not access control (client/roots)."""

    uri: str
    name: str | None = None


def roots_question(key: str | None) -> Question:
    """Ask where the client works (client/roots)."""

    def read(raw: Any) -> list[Root]:
        roots = raw.get("roots") if type(raw) is dict else None
        if type(roots) is not list or not all(type(root) is dict and type(root.get("uri")) is str for root in roots):
            raise InvalidAnswer("roots must be a list of objects with a uri")
        return [Root(root["uri"], root.get("name")) for root in roots]

    return Question("roots/list", None, {"roots": {}}, read, key)
