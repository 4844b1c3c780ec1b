"""`path("", include("mcp_django.well_known"))` at the root of the URLconf serves what clients look for at the root of
the origin: the metadata of the endpoints as protected resources (RFC 9728).

`mcp_django.urls` serves the same, so that this is needed only where that is included below a path of its own.
`asgi.mount` serves it without either.
"""

from django.urls import re_path

from mcp_django.auth.protected.registry import WELL_KNOWN
from mcp_django.transports.http.well_known import WellKnown
from mcp_django.wiring import resources

urlpatterns = [re_path(rf"^{WELL_KNOWN.removeprefix('/')}(?P<path>/.*)?$", WellKnown(resources).view)]
