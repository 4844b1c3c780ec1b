"""Elicitation (client/elicitation): requests to fill in a form or open a page."""

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.display_text import clean_line, clean_text
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.revisions import Era, Revision
from mcp_django.schema import ArgumentError, build_form
from mcp_django.server.calls.call import Call
from mcp_django.server.context.conversation import (
    ClientConversation,
    InputRequest,
    InputUnavailable,
    InvalidFormContent,
    InvalidInputResponse,
)
from mcp_django.server.context.responses import ElicitationResult

ACTIONS = ("accept", "decline", "cancel")
COMPLETE_METHOD = "notifications/elicitation/complete"
_FORM_CAPABILITY: JSONObject = {"elicitation": {"form": {}}}
_URL_CAPABILITY: JSONObject = {"elicitation": {"url": {}}}


async def build_form_request(call: Call, message: str, schema: object, key: str | None) -> InputRequest:
    """Build the request for the values of a form (form mode).

    Raises:
        InputUnavailable: the client's revision cannot show the form.
        DeclarationError: no client can show the form.
    """
    compile_form = call.server.ports.resolve_form(schema)
    if compile_form is None:
        form = build_form(schema)

        async def read(content: Any) -> tuple[Any, Any]:
            return form.read(content), None

        params = _build_form_params(call.revision, message, form.schema)
        return InputRequest("elicitation/create", params, _FORM_CAPABILITY, _build_form_parser(read), key)

    run = call.server.ports.executor.run_during_wait
    framework_form = await run(compile_form)
    return InputRequest(
        "elicitation/create",
        _build_form_params(call.revision, message, framework_form.schema),
        _FORM_CAPABILITY,
        _build_form_parser(partial(run, framework_form.read, is_validated=False)),
        key,
        [str(message), framework_form.identity],
        _build_form_parser(partial(run, framework_form.read, is_validated=True)),
    )


def _build_form_params(revision: Revision, message: str, schema: JSONObject) -> JSONObject:
    """Return the params with the form in the client's revision, or raise InputUnavailable."""
    if "form" in revision.elicitation:  # else it is not sent: the capability is missing
        try:
            schema = revision.requested_schema(schema)
        except ValueError as problem:
            raise InputUnavailable(f"The client cannot show this form: {problem}") from None
    return {"message": clean_text(str(message)), "requestedSchema": clean_form_schema(schema)}


def clean_form_schema(schema: JSONObject) -> JSONObject:
    """Return the schema of a form with labels of one line each, without invisible characters.

    Values stay unchanged, because the client returns them.
    """
    properties = {name: _clean_labels(field) for name, field in schema.get("properties", {}).items()}
    return {**schema, "properties": properties}


def _clean_labels(schema: Any) -> object:
    """Return a schema with cleaned labels, those of its choices included."""
    if type(schema) is not dict:
        return schema
    cleaned = dict(schema)
    for name in ("title", "description"):
        if isinstance(schema.get(name), str):
            cleaned[name] = clean_line(schema[name])
    if type(names := schema.get("enumNames")) is list:
        cleaned["enumNames"] = [clean_line(name) if isinstance(name, str) else name for name in names]
    for name in ("oneOf", "anyOf"):
        if type(choices := schema.get(name)) is list:
            cleaned[name] = [_clean_labels(choice) for choice in choices]
    if "items" in schema:
        cleaned["items"] = _clean_labels(schema["items"])
    return cleaned


def _build_form_parser(
    read: Callable[[Any], Awaitable[tuple[object, object]]],
) -> Callable[[Any], Awaitable[ElicitationResult[object]]]:
    """Build the parser of a response; `read` returns the values and the bound form."""

    async def parse(raw: Any) -> ElicitationResult[Any]:
        action = _get_action(raw)
        if action != "accept":
            return ElicitationResult(action)
        content = raw.get("content")
        try:
            data, form = await read({} if content is None else content)
        except ArgumentError as problem:
            raise InvalidFormContent(str(problem), problem.errors) from None
        return ElicitationResult(action, data, form)

    return parse


def _get_action(raw: object) -> str:
    action = raw.get("action") if type(raw) is dict else None
    if action not in ACTIONS:
        raise InvalidInputResponse("action must be accept, decline or cancel")
    return str(action)


def build_url_request(
    revision: Revision, message: str, url: str, key: str | None, id: str | None = None
) -> InputRequest:
    """Build the request to open a page (URL mode).

    Accepting is consent to open the page, not completion. Revisions with an elicitation id get `id`, or a new one.
    """

    def read(raw: object) -> ElicitationResult[None]:
        return ElicitationResult(_get_action(raw))

    params = {"mode": "url", "message": clean_text(str(message)), "url": url}
    if revision.elicitation_id:
        params["elicitationId"] = id or secrets.token_urlsafe(16)
    return InputRequest("elicitation/create", params, _URL_CAPABILITY, read, key)


def is_absolute_url(url: object) -> bool:
    """Return True for an absolute URL, which is sent unchanged.

    Raises ValueError for a URL that no browser should open.
    """
    if not isinstance(url, str) or "://" not in url.partition("?")[0]:
        return False
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError(f"{url!r} cannot be opened as a page; use an http or https URL without credentials")
    return True


async def build_page_request(
    call: Call, conversation: ClientConversation, message: str, target: object, *, key: str | None, counts: Counter[str]
) -> InputRequest:
    """Build the request to open a page of this site and to return from it.

    `counts` holds the number of requests of this call under each name.
    """
    pages = call.server.ports.elicitation_pages
    if pages is None:
        raise InputUnavailable("This server has no pages of its own; pass a URL with a scheme")
    limits, stateless = call.server.options.conversation_limits, call.revision.era is Era.STATELESS
    ttl = limits.state_ttl if stateless else limits.elicitation_timeout

    async def issue_link() -> list[str]:
        id = secrets.token_urlsafe(16)
        return [id, await call.server.ports.executor.run_during_wait(pages.build_url, call, target, id, ttl=ttl)]

    name = key or str(message)
    counts[name] += 1
    # The following rounds refer to the same visit of the page.
    id, url = await conversation.run_once(f"elicit_url:{name}:{counts[name]}", issue_link)

    async def read(raw: object) -> ElicitationResult[None]:
        action = _get_action(raw)
        if action == "accept":
            # A transport that carries only responses has one thread for each call, which must not wait.
            within = limits.elicitation_timeout
            if stateless:
                within = limits.url_elicitation_timeout if call.connection.supports_streaming else 0
            if not await pages.wait_for_return(id, timeout=within):
                if stateless:
                    raise InvalidInputResponse("the page is not finished")
                raise InputUnavailable(f"The page was not finished within {within:g} seconds")
            if COMPLETE_METHOD in call.revision.notifications:
                await call.outbox.put(jsonrpc.notification(COMPLETE_METHOD, {"elicitationId": id}))
        return ElicitationResult(action)

    request = build_url_request(call.revision, message, url, key, id)
    return request._replace(
        parse=read, identity=[str(message), f"{target}" if isinstance(target, str) else ""], parse_again=request.parse
    )
