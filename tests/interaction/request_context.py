"""Handlers that return their request, language and time zone."""

import functools
from typing import Any

from django.urls import NoReverseMatch, reverse
from django.utils import formats, timezone, translation
from django.utils.translation import gettext, gettext_lazy

import mcp_django
from mcp_django import Context, ToolError

SERVER = "places"
tool = functools.partial(mcp_django.tool, server=SERVER)
resource = functools.partial(mcp_django.resource, server=SERVER)
prompt = functools.partial(mcp_django.prompt, server=SERVER)
completion = functools.partial(mcp_django.completion, server=SERVER)


@tool(name="request")
async def request_(ctx: Context) -> dict[str, Any]:
    """Return the content of the Django request."""
    request = ctx.request
    match = request.resolver_match
    return {
        "method": request.method,
        "path": request.path,
        "path_info": request.path_info,
        "script": request.META["SCRIPT_NAME"],
        "full": request.get_full_path(),
        "absolute": request.build_absolute_uri(),
        "query": request.GET.dict(),
        "form": request.POST.dict(),
        "host": request.get_host(),
        "scheme": request.scheme,
        "peer": request.META["REMOTE_ADDR"],
        "agent": request.META.get("HTTP_USER_AGENT"),
        "accept": request.headers["Accept"],
        "content_type": request.content_type,
        "name": match.view_name,
        "kwargs": dict(match.kwargs),
        "captured": dict(ctx.url_kwargs),
        "user": str(request.user.username),
        "auser": str((await request.auser()).username),
        "anonymous": request.user.is_anonymous if hasattr(request.user, "is_anonymous") else False,
        "body": request.body.decode(),
        "read": request.read().decode(),
        "same": ctx.request is request,
    }


@tool()
async def whether_request_has(needle: str, ctx: Context) -> bool:
    """Search the whole request for a text."""
    request = ctx.request
    texts = [dict(request.headers), request.META, getattr(request, "scope", None), dict(ctx.headers)]
    return needle in repr(texts)


def _around() -> dict[str, Any]:
    try:
        url = reverse("mcp_django:default")
    except NoReverseMatch:
        url = ""
    return {
        "language": translation.get_language(),
        "monday": gettext("Monday"),
        "decimal": formats.get_format("DECIMAL_SEPARATOR"),
        "zone": timezone.get_current_timezone_name(),
        "url": url,
    }


@tool()
async def around() -> dict[str, Any]:
    """Return the active language and time zone."""
    return _around()


@tool()
def around_a_thread() -> dict[str, Any]:
    """The same in a plain function."""
    return _around()


@tool()
async def meddle() -> dict[str, Any]:
    """Activate another language and time zone, without a reset."""
    translation.activate("fr")
    timezone.activate("Asia/Tokyo")
    return _around()


@tool()
def meddle_in_a_thread() -> dict[str, Any]:
    """The same in a plain function."""
    translation.activate("fr")
    timezone.activate("Asia/Tokyo")
    return _around()


@tool()
async def fail_in_words() -> str:
    """Fail with a lazy text."""
    raise ToolError(gettext_lazy("Monday"))


@tool()
async def lazily(ctx: Context) -> Any:
    """Send and return lazy texts."""
    await ctx.report_progress(1, message=gettext_lazy("Tuesday"))
    await ctx.info(gettext_lazy("Wednesday"))
    return gettext_lazy("Monday")


@tool(name="lazy_tool", title=gettext_lazy("Monday"), description=gettext_lazy("Tuesday"))
async def lazy_tool(ctx: Context) -> str:
    """Ask with a lazy text."""
    answer = await ctx.elicit(gettext_lazy("Wednesday"), None)
    return answer.action


@resource("place://here", name="here", title=gettext_lazy("Monday"))
async def read_place() -> str:
    """The day."""
    return gettext("Monday")


@resource("place://lazily", name="lazily")
async def lazy_note() -> Any:
    """The day, lazily."""
    return gettext_lazy("Monday")


@prompt(title=gettext_lazy("Monday"))
async def name_day(day: str) -> Any:
    """The day."""
    return gettext_lazy("Monday")


@completion("name_day", "day")
async def complete_day(value: str) -> list[str]:
    """Days."""
    return [gettext("Monday")]
