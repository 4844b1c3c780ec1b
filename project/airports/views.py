"""The home page of the demo.

It lists the features of this server, from its registry, and describes how to connect to it.
"""

import os
import shlex
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.views import LoginView
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from mcp_django.protocol.revisions import LATEST
from mcp_django.wiring import get_server
from project.airports.clients import snippets
from project.airports.models import Airport, Country, Region, Trip

QUESTIONS = (
    "Which airports are nearest to 46.5° N, 8.0° E, and how high are they?",
    "Which country has the highest airport, Nepal or Bolivia?",
    "Plan a trip from Lisbon to Auckland with two stops, and save it.",
    "Survey the airports of Europe.",
)
"""Questions for a client that has just been connected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a tool or prompt, in words."""

    name: str
    type: str
    presence: str
    """`required`, `optional`, or the default."""
    description: str


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Show the server as the reader of this page reaches it: with the host and port of this very request."""
    server = get_server("default")
    registry = server.registry
    endpoint = request.build_absolute_uri(reverse("mcp_django:default"))
    token = "YOUR_TOKEN" if settings.MCP["AUTH"] == "token" else ""
    context = {
        "server": server,
        "endpoint": endpoint,
        "ways": list(other_ways(endpoint)) if isinstance(request, ASGIRequest) else [],
        "snippets": snippets(server.info.name, endpoint, LATEST.version, token=token),
        "questions": QUESTIONS,
        "worker": f"{socket.gethostname()}, process {os.getpid()}",
        "token": token,
        "protected": settings.DEMO_AUTH == "oauth",
        "counts": [
            ("Airports", Airport.objects.count()),
            ("Countries", Country.objects.count()),
            ("Regions", Region.objects.count()),
            ("Trips", Trip.objects.count()),
        ],
        "tools": [(tool, list(tool_arguments(tool.parameters.schema))) for tool in registry.tools],
        "prompts": [(prompt, list(prompt_arguments(prompt.parameters.arguments))) for prompt in registry.prompts],
        "resources": [*registry.resources, *registry.templates],
    }
    return render(request, "home.html", context)


class Login(LoginView):
    """The page to log in, which announces the page of consent if that comes next."""

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Add whether an application asks for access."""
        authorize = reverse("oauth2_provider:authorize")
        asks = self.get_redirect_url().partition("?")[0] == authorize
        return super().get_context_data(is_authorization=asks, **kwargs)


def other_ways(endpoint: str) -> Iterator[tuple[str, str]]:
    """List the transports other than Streamable HTTP under ASGI, with their addresses."""
    yield "WebSocket", f"{endpoint.replace('http', 'ws', 1)}/ws"
    yield "HTTP+SSE", f"{endpoint}/sse"
    yield "stdio", shlex.join([interpreter(), "manage.py", "mcp_stdio"])


def interpreter() -> str:
    """The Python that has the packages of this checkout, as it is called from there."""
    found = Path(sys.executable)
    return str(found.relative_to(settings.BASE_DIR) if found.is_relative_to(settings.BASE_DIR) else found)


def tool_arguments(schema: dict[str, Any]) -> Iterator[Argument]:
    """Read the arguments off a tool's input schema."""
    for name, rule in schema.get("properties", {}).items():
        yield Argument(
            name=name,
            type=in_words(rule),
            presence="required" if name in schema.get("required", ()) else describe_default(rule),
            description=rule.get("description", ""),
        )


def prompt_arguments(arguments: list[dict[str, Any]]) -> Iterator[Argument]:
    """Read the arguments of a prompt, which are all strings on the wire."""
    for rule in arguments:
        yield Argument(
            name=rule["name"],
            type="string",
            presence="required" if rule.get("required") else "optional",
            description=rule.get("description", ""),
        )


def describe_default(rule: dict[str, Any]) -> str:
    """Describe the default of an argument."""
    default = rule.get("default")
    return "optional" if default is None else f"default {default}"


def in_words(rule: dict[str, Any]) -> str:
    """Describe a JSON Schema in a few words, such as `integer, 1 to 50` or `list of string`."""
    if choices := rule.get("anyOf"):
        return " or ".join(in_words(choice) for choice in choices if choice.get("type") != "null")
    if options := rule.get("enum"):
        return " | ".join(str(option) for option in options)
    kind = str(rule.get("type", "any"))
    if kind == "array":
        return f"list of {in_words(rule.get('items', {}))}"
    least, most = rule.get("minimum"), rule.get("maximum")
    if least is not None and most is not None:
        return f"{kind}, {least:g} to {most:g}"
    return kind
