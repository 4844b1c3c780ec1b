"""Django middleware of every kind, for the tests of the view."""

from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpResponse
from django.utils import timezone
from django.utils.decorators import async_only_middleware, sync_and_async_middleware, sync_only_middleware
from django.utils.deprecation import MiddlewareMixin

from tests.interaction.checkpoints import CHECKPOINTS


class SyncOnly:
    """A class that knows no async."""

    sync_capable, async_capable = True, False

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        response = self.get_response(request)
        response["x-sync-only"] = request.path
        return response


class AsyncOnly:
    """A class that knows no sync."""

    sync_capable, async_capable = False, True

    def __init__(self, get_response: Any) -> None:
        self.get_response = get_response
        markcoroutinefunction(self)

    async def __call__(self, request: Any) -> Any:
        response = await self.get_response(request)
        response["x-async-only"] = request.path
        return response


class Mixed(MiddlewareMixin):
    """The classic form, with every hook."""

    def process_request(self, request: Any) -> None:
        request.hooks = ["request"]

    def process_view(self, request: Any, view: Any, args: Any, kwargs: Any) -> None:
        request.hooks.append("view")

    def process_response(self, request: Any, response: Any) -> Any:
        response["x-mixed"] = " ".join([*request.hooks, "response"])
        return response


@sync_only_middleware
def plain_function(get_response: Any) -> Any:
    """A function that knows no async."""

    def middleware(request: Any) -> Any:
        response = get_response(request)
        response["x-plain-function"] = request.path
        return response

    return middleware


@sync_and_async_middleware
def either_function(get_response: Any) -> Any:
    """A function that knows both."""

    def noted(request: Any, response: Any) -> Any:
        response["x-either-function"] = request.path
        return response

    async def wait(request: Any) -> Any:
        return noted(request, await get_response(request))

    return wait if iscoroutinefunction(get_response) else lambda request: noted(request, get_response(request))


@async_only_middleware
def slow_after(get_response: Any) -> Any:
    """Takes its time with a response that is there."""

    async def middleware(request: Any) -> Any:
        response = await get_response(request)
        await CHECKPOINTS.wait_at("middleware")
        return response

    return middleware


@sync_only_middleware
def closed(get_response: Any) -> Any:
    """Answers by itself."""
    return lambda request: HttpResponse("closed for today", status=503, headers={"Retry-After": "60"})


@sync_only_middleware
def body_reader(get_response: Any) -> Any:
    """Reads the body before the view does, in both ways."""

    def middleware(request: Any) -> Any:
        length = len(request.body)
        assert length == len(request.read())
        response = get_response(request)
        response["x-length"] = str(length)
        return response

    return middleware


@sync_only_middleware
def in_samoa(get_response: Any) -> Any:
    """A project's own time zone."""

    def middleware(request: Any) -> Any:
        with timezone.override("Pacific/Apia"):
            return get_response(request)

    return middleware
