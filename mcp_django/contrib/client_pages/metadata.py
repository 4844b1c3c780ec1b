"""OAuth client metadata document of this project.

Source: draft-ietf-oauth-client-id-metadata-document. `CLIENT_METADATA_URL` is the URL of this document. Authorization
servers that support such documents require no registration.
"""

from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from mcp_django import conf
from mcp_django.contrib.client_pages.services import build_public_url, get_page_path

MAX_AGE_SECONDS = 3600


@login_not_required
@require_safe
def client_metadata(request: HttpRequest) -> HttpResponse:
    """Return the document; 404 unless the settings of a client contain its URL."""
    url = build_public_url(request, get_page_path("metadata"))
    clients = conf.get_settings().clients.values()
    matching_clients = [
        client for client in clients if client.auth is not None and client.auth.client_metadata_url == url
    ]
    if not matching_clients:
        raise Http404

    names = [
        client.auth.client_name for client in matching_clients if client.auth is not None and client.auth.client_name
    ]
    document = {
        "client_id": url,
        "client_name": names[0] if names else "Django",
        "client_uri": build_public_url(request, "/"),
        "redirect_uris": [
            build_public_url(request, get_page_path("callback", client.alias)) for client in matching_clients
        ],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        "application_type": "web",
    }
    headers = {"Cache-Control": f"public, max-age={MAX_AGE_SECONDS}", "X-Content-Type-Options": "nosniff"}
    return JsonResponse(document, headers=headers)
