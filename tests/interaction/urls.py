"""The Django view of every server, beside the ASGI transport: /view/mcp/interaction. And a page to be sent to."""

from django.http import HttpRequest, HttpResponse
from django.urls import include, path


def calendar(request: HttpRequest) -> HttpResponse:
    """A page of the site."""
    return HttpResponse("Which calendar?")


urlpatterns = [path("view/", include("mcp_django.urls")), path("calendar/", calendar, name="calendar")]
