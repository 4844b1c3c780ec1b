"""The Django view at /view/mcp, and an empty view.

The empty view measures the cost of Django alone.
"""

from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from django.views.decorators.csrf import csrf_exempt

BODY = b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"100007"}]}}'


@csrf_exempt
async def empty(request: HttpRequest) -> HttpResponse:
    """Read the body, and answer with a constant."""
    assert request.body
    return HttpResponse(BODY, content_type="application/json")


urlpatterns = [path("view/", include("mcp_django.urls")), path("empty/add", empty)]
