"""Authorization requests of the tests, and what is read in the answers."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.oauth.clients import WEB

ISSUER = "https://testserver"
MCP = "https://testserver/mcp"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"  # RFC 7636, appendix B
SCOPES = {"airports:read": "Look up airports", "airports:write": "Change airports"}
Parameters = dict[str, str | Iterable[str] | None]


def path(application: Any, **changes: Any) -> str:
    """The path of an authorization request of a client that is in order, but for `changes`: None leaves one out, a list
    has it more than once.
    """
    parameters: Parameters = {
        "response_type": "code",
        "client_id": application.client_id,
        "redirect_uri": WEB,
        "scope": " ".join(SCOPES),
        "state": "st-1",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "resource": MCP,
        **changes,
    }
    return "/o/authorize/?" + urlencode({k: v for k, v in parameters.items() if v is not None}, doseq=True)


def heard(response: Any, redirect: str = WEB) -> dict[str, str]:
    """What the client hears: the query of a redirect to it, in which no parameter comes twice."""
    assert response.status_code == 302, response.content.decode()
    there = urlsplit(response["Location"])
    assert f"{there.scheme}://{there.netloc}{there.path}" == redirect.partition("?")[0]
    pairs = parse_qsl(there.query, keep_blank_values=True)
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)
