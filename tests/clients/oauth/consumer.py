"""URLs of a project that uses the protected site.

They are the pages that connect the site, and views that call it.
"""

import dataclasses
import os
from typing import Any

from django.contrib.auth.views import LoginView
from django.http import HttpRequest, JsonResponse
from django.urls import include, path

from mcp_django.client import AuthorizationNeeded, get_client
from mcp_django.client.oauth.token_store import TokenRow
from mcp_django.conf import get_settings


def respond_with_text(result: Any) -> JsonResponse:
    return JsonResponse({"said": result.content[0].text, "pid": os.getpid()})


def needed(problem: AuthorizationNeeded) -> JsonResponse:
    return JsonResponse({"needed": problem.url, "pid": os.getpid()})


def plain(request: HttpRequest) -> JsonResponse:
    """Call without an event loop."""
    client = get_client("shop", user=request.user).blocking()
    try:
        return respond_with_text(client.call_tool("look", {}))
    except AuthorizationNeeded as problem:
        return needed(problem)


async def loop(request: HttpRequest) -> JsonResponse:
    """Call on an event loop."""
    client = get_client("shop", user=await request.auser())
    try:
        return respond_with_text(await client.call_tool("look", {}))
    except AuthorizationNeeded as problem:
        return needed(problem)


def age(request: HttpRequest) -> JsonResponse:
    """Return the generation of the user's token; a query string expires the token."""
    row = TokenRow(get_settings().clients["shop"], request.user)
    held = row.read()
    assert held is not None
    assert held.grant is not None
    if request.GET:
        row.write(dataclasses.replace(held.grant, expires_at=1.0))
    return JsonResponse({"generation": held.generation})


urlpatterns = [
    path("mcp/clients/", include("mcp_django.contrib.client_pages.urls")),
    path("accounts/login/", LoginView.as_view(), name="login"),
    path("plain/", plain),
    path("loop/", loop),
    path("age/", age),
]
