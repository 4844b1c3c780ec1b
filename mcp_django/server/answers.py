"""What comes back from questions: the values that `ctx.elicit`, `ctx.sample` and `ctx.list_roots` return."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..protocol.revisions import Revision
from ..schema import form_of
from .ask import InvalidAnswer, Question, Unanswered

T = TypeVar("T")
ACTIONS = ("accept", "decline", "cancel")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What the user said: truthy when accepted, with the cleaned and typed value in `data`."""

    action: str
    """`accept`, `decline` or `cancel`."""
    data: T | None = None

    def __bool__(self) -> bool:
        return self.action == "accept"


@dataclass(frozen=True, slots=True)
class Root:
    """A place that the client works in. Advice, not access control (client/roots)."""

    uri: str
    name: str | None = None


def form_question(revision: Revision, message: str, schema: Any, key: str | None) -> Question:
    """Ask for a form's worth of values (client/elicitation, form mode)."""
    form = form_of(schema)

    def read(raw: Any) -> Answer[Any]:
        action = _action(raw)
        if action != "accept":
            return Answer(action)
        content = raw.get("content")
        try:
            return Answer(action, form.read({} if content is None else content))
        except ValueError as problem:
            raise InvalidAnswer(str(problem)) from None

    params = {"message": str(message), "requestedSchema": _requested(revision, form.schema)}
    return Question("elicitation/create", params, {"elicitation": {"form": {}}}, read, key)


def _requested(revision: Revision, schema: dict[str, Any]) -> dict[str, Any]:
    """The form as the client's revision writes it. Raises Unanswered when it cannot."""
    if "form" not in revision.elicitation:
        return schema  # it will not be sent: the capability is missing
    try:
        return revision.requested_schema(schema)
    except ValueError as problem:
        raise Unanswered(f"The client cannot be asked for this: {problem}") from None


def url_question(message: str, url: str, elicitation_id: str | None, key: str | None) -> Question:
    """Ask the user to open a page (client/elicitation, URL mode). Accepting means consent to open it, not that it is
    done.
    """

    def read(raw: Any) -> Answer[None]:
        return Answer(_action(raw))

    params = {"mode": "url", "message": str(message), "url": url}
    if elicitation_id is not None:
        params["elicitationId"] = elicitation_id
    return Question("elicitation/create", params, {"elicitation": {"url": {}}}, read, key)


def _action(raw: Any) -> str:
    action = raw.get("action") if type(raw) is dict else None
    if action not in ACTIONS:
        raise InvalidAnswer("action must be accept, decline or cancel")
    return str(action)


def roots_question(key: str | None) -> Question:
    """Ask where the client works (client/roots)."""

    def read(raw: Any) -> list[Root]:
        roots = raw.get("roots") if type(raw) is dict else None
        if type(roots) is not list or not all(type(root) is dict and type(root.get("uri")) is str for root in roots):
            raise InvalidAnswer("roots must be a list of objects with a uri")
        return [Root(root["uri"], root.get("name")) for root in roots]

    return Question("roots/list", None, {"roots": {}}, read, key)
