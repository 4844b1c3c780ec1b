"""Elicitation (client/elicitation): requests to fill in a form or open a page."""

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.revisions import Era, Revision
from mcp_django.schema import ArgumentError, form_of
from mcp_django.server.calls.call import Call
from mcp_django.server.client_requests.conversation import (
    Conversation,
    InvalidAnswer,
    InvalidContent,
    Question,
    Unanswered,
)
from mcp_django.server.client_requests.responses import Answer
from mcp_django.server.ports import FrameworkForm

ACTIONS = ("accept", "decline", "cancel")
COMPLETE = "notifications/elicitation/complete"
_FORM: dict[str, Any] = {"elicitation": {"form": {}}}
_URL: dict[str, Any] = {"elicitation": {"url": {}}}


async def form_question(call: Call, message: str, schema: Any, key: str | None) -> Question:
    """Build the request for the values of a form (form mode).

    Raises:
        InputUnavailable: the client's revision cannot show the form.
        DeclarationError: no client can show the form.
    """
    compile_form = call.server.ports.forms(schema)
    if compile_form is None:
        form = form_of(schema)
        params = _form_params(call.revision, message, form.schema)
        return Question("elicitation/create", params, _FORM, _read(form.read), key)

    theirs = await call.server.executor.attend(compile_form)
    return Question(
        "elicitation/create",
        _form_params(call.revision, message, theirs.schema),
        _FORM,
        _cleaned(call, theirs, taken=False),
        key,
        [str(message), theirs.identity],
        _cleaned(call, theirs, taken=True),
    )


def _form_params(revision: Revision, message: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"message": str(message), "requestedSchema": _requested(revision, schema)}


def _requested(revision: Revision, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the form schema in the client's revision, or raise InputUnavailable."""
    if "form" not in revision.elicitation:
        return schema  # not sent: the capability is missing
    try:
        return revision.requested_schema(schema)
    except ValueError as problem:
        raise Unanswered(f"The client cannot show this form: {problem}") from None


def _read(values: Callable[[Any], Any]) -> Callable[[Any], Answer[Any]]:
    def read(raw: Any) -> Answer[Any]:
        action = _action(raw)
        if action != "accept":
            return Answer(action)
        try:
            return Answer(action, values(_content(raw)))
        except ArgumentError as problem:
            raise InvalidContent(str(problem)) from None

    return read


def _cleaned(call: Call, form: FrameworkForm, *, taken: bool) -> Callable[[Any], Awaitable[Answer[Any]]]:
    async def read(raw: Any) -> Answer[Any]:
        action = _action(raw)
        if action != "accept":
            return Answer(action)
        try:
            data, bound = await call.server.executor.attend(form.read, _content(raw), taken=taken)
        except ArgumentError as problem:
            raise InvalidContent(str(problem)) from None
        return Answer(action, data, bound)

    return read


def _content(raw: dict[str, Any]) -> Any:
    content = raw.get("content")
    return {} if content is None else content


def _action(raw: Any) -> str:
    action = raw.get("action") if type(raw) is dict else None
    if action not in ACTIONS:
        raise InvalidAnswer("action must be accept, decline or cancel")
    return str(action)


def url_question(revision: Revision, message: str, url: str, key: str | None, id: str | None = None) -> Question:
    """Build the request to open a page (URL mode).

    Accepting is consent to open the page, not completion. Revisions with an elicitation id get `id`, or a new one.
    """

    def read(raw: Any) -> Answer[None]:
        return Answer(_action(raw))

    params = {"mode": "url", "message": str(message), "url": url}
    if revision.elicitation_id:
        params["elicitationId"] = id or secrets.token_urlsafe(16)
    return Question("elicitation/create", params, _URL, read, key)


def is_address(url: Any) -> bool:
    """Return True for an absolute URL, which is sent unchanged.

    Raises ValueError for a URL that no browser should open.
    """
    if not isinstance(url, str) or "://" not in url.partition("?")[0]:
        return False
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError(f"{url!r} cannot be opened as a page; use an http or https URL without credentials")
    return True


async def page_question(
    call: Call, talk: Conversation, message: str, target: Any, *, key: str | None, met: Counter[str]
) -> Question:
    """Build the request to open a page of this site and to return from it.

    `counts` holds the number of requests of this call under each name.
    """
    pages = call.server.ports.pages
    if pages is None:
        raise Unanswered("This server has no pages of its own; pass a URL with a scheme")
    limits, stateless = call.server.options.ask, call.revision.era is Era.STATELESS
    ttl = limits.ttl if stateless else limits.wait

    async def make() -> list[str]:
        id = secrets.token_urlsafe(16)
        return [id, await call.server.executor.attend(pages.address, call, target, id, ttl=ttl)]

    name = key or str(message)
    met[name] += 1
    # The following rounds refer to the same visit of the page.
    id, url = await talk.once(f"elicit_url:{name}:{met[name]}", make)

    async def read(raw: Any) -> Answer[None]:
        action = _action(raw)
        if action == "accept":
            # A transport that carries only responses has one thread for each call, which must not wait.
            within = limits.wait if not stateless else limits.page_wait if call.connection.streams else 0
            if not await pages.returned(id, within=within):
                if stateless:
                    raise InvalidAnswer("the page is not finished")
                raise Unanswered(f"The page was not finished within {within:g} seconds")
            if COMPLETE in call.revision.notifications:
                await call.outbox.put(jsonrpc.notification(COMPLETE, {"elicitationId": id}))
        return Answer(action)

    question = url_question(call.revision, message, url, key, id)
    return question._replace(
        read=read, identity=[str(message), f"{target}" if isinstance(target, str) else ""], read_again=question.read
    )
