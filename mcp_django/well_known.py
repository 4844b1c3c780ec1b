"""URLconf of the protected resource metadata (RFC 9728) at the origin's root.

Use it as `path("", include("mcp_django.well_known"))`. `mcp_django.urls` contains the same view, so this is necessary
only if `mcp_django.urls` is included below a path. `asgi.mount` serves the metadata by itself.
"""

from django.urls import re_path

from mcp_django.auth.protected.registry import WELL_KNOWN_PATH
from mcp_django.transports.http.well_known import WellKnownEndpoint

urlpatterns = [re_path(rf"^{WELL_KNOWN_PATH.removeprefix('/')}(?P<path>/.*)?$", WellKnownEndpoint().view)]
