"""URLs of the authorization server.

Include them at the root of the host, where clients look up the metadata: `path("",
include("mcp_django.contrib.oauth.urls"))`.

The URL names are those of django-oauth-toolkit, which reverses them. None of its own views is served. Clients of
2025-03-26 that find no metadata use `/authorize`, `/token` and `/register`.
"""

from django.contrib.auth.decorators import login_not_required
from django.urls import path, re_path
from django.views.generic import RedirectView

from mcp_django.contrib.oauth.endpoints.authorize import Authorize
from mcp_django.contrib.oauth.endpoints.metadata import metadata
from mcp_django.contrib.oauth.endpoints.pages import Connections, SwitchAccount, Tokens
from mcp_django.contrib.oauth.endpoints.registration import register
from mcp_django.contrib.oauth.endpoints.token import introspect, revoke, token

app_name = "oauth2_provider"

_WELL_KNOWN = r"\.well-known/(?:oauth-authorization-server|openid-configuration)"

well_known = [
    re_path(rf"^{_WELL_KNOWN}/?$", metadata, name="oauth-server-metadata"),
    re_path(rf"^{_WELL_KNOWN}/.+$", metadata, name="oauth-server-metadata-issuer"),
    re_path(rf"^.+/{_WELL_KNOWN}/?$", metadata),
]

endpoints = [
    path("o/token/", token, name="token"),
    path("o/register/", register, name="dcr-register"),
    path("o/revoke_token/", revoke, name="revoke-token"),
    path("o/introspect/", introspect, name="introspect"),
]

pages = [
    path("o/authorize/", Authorize.as_view(), name="authorize"),
    path("o/switch/", SwitchAccount.as_view(), name="switch"),
    path("o/connections/", Connections.as_view(), name="connections"),
    path("o/tokens/", Tokens.as_view(), name="tokens"),
]

_authorize_redirect = RedirectView.as_view(pattern_name=f"{app_name}:authorize", query_string=True)
aliases = [
    re_path(r"^(?:o/authorize|authorize/?)$", login_not_required(_authorize_redirect)),
    # Each with and without a slash: a redirect would turn a POST into a GET.
    re_path(r"^token/?$", token),
    re_path(r"^o/(?:token)$", token),
    re_path(r"^register/?$", register),
    re_path(r"^o/register$", register),
    re_path(r"^o/(?:revoke_token|revoke)/?$", revoke),
    re_path(r"^o/introspect$", introspect),
]

urlpatterns = [*well_known, *endpoints, *pages, *aliases]
