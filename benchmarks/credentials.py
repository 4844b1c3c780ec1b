"""A valid credential of each kind of the package, for the measured project.

Each is made in the process that serves, so that no user has to log in or consent first.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USERNAME = "measured"
SCOPE = "bench:add"
RESOURCE = "http://127.0.0.1:8766/mcp"
"""The resource of the tokens, on whichever port the project is served. The settings have the same one."""
KINDS = ("token", "oauth", "external", "session")


def _user() -> Any:
    """Return the measured user, who has one permission through a group."""
    from django.contrib.auth.models import Group, Permission, User

    user, made = User.objects.get_or_create(username=USERNAME)
    if made:
        group = Group.objects.create(name="measured")
        group.permissions.add(Permission.objects.get(codename="view_item"))
        user.groups.add(group)
    return user


def personal() -> dict[str, str]:
    """Return the header with a personal access token."""
    from mcp_django.models import PersonalAccessToken

    _, token = PersonalAccessToken.issue(user=_user(), name="benchmarks", scopes=[SCOPE], expires=None)
    return {"Authorization": f"Bearer {token}"}


def oauth() -> dict[str, str]:
    """Return the header with an access token of the embedded authorization server.

    The row is equal to one of the token endpoint.
    """
    from django.utils import timezone
    from oauth2_provider.models import get_access_token_model, get_application_model

    from mcp_django.contrib.oauth.tokens.token_format import access_token

    application = get_application_model().objects.create(
        name="benchmarks",
        client_type="public",
        authorization_grant_type="authorization-code",
        redirect_uris="https://client.example/callback",
    )
    token = access_token(None)
    get_access_token_model().objects.create(
        user=_user(),
        token=token,
        application=application,
        scope=SCOPE,
        expires=timezone.now() + timedelta(hours=1),
        resource=[RESOURCE],
    )
    return {"Authorization": f"Bearer {token}"}


def session() -> dict[str, str]:
    """Return the cookies of a logged-in browser, and the CSRF header of its requests."""
    from importlib import import_module

    from django.conf import settings
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.middleware.csrf import _get_new_csrf_string

    user, store = _user(), import_module(settings.SESSION_ENGINE).SessionStore()
    store[SESSION_KEY] = str(user.pk)
    store[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    store[HASH_SESSION_KEY] = user.get_session_auth_hash()
    store.save()
    secret = _get_new_csrf_string()
    return {
        "Cookie": f"{settings.SESSION_COOKIE_NAME}={store.session_key}; {settings.CSRF_COOKIE_NAME}={secret}",
        "X-CSRFToken": secret,
    }


class Issuer:
    """An identity provider on a port of its own, which has one key and signs tokens."""

    def __init__(self, port: int) -> None:
        from jwcrypto.jwk import JWK

        self.name = f"http://127.0.0.1:{port}"
        self._made = 0
        """The number of tokens so far, which makes each token different."""
        self._key = JWK.generate(kty="RSA", size=2048, kid="1", use="sig", alg="RS256")
        keys = json.dumps({"keys": [json.loads(self._key.export_public())]}).encode()

        class Keys(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(keys)))
                self.end_headers()
                self.wfile.write(keys)

            def log_message(self, *_: Any) -> None:
                pass

        threading.Thread(target=ThreadingHTTPServer(("127.0.0.1", port), Keys).serve_forever, daemon=True).start()

    def credential(self) -> dict[str, str]:
        """Return the header with a new token for the measured project.

        The subject of the token is linked to the measured user.
        """
        from jwcrypto.jwt import JWT

        from mcp_django.models import ExternalIdentity

        now = int(time.time())
        claims = {"iss": self.name, "sub": "somebody", "aud": RESOURCE, "scope": SCOPE, "client_id": "benchmarks"}
        self._made += 1
        times = {"iat": now, "nbf": now, "exp": now + 3600 + self._made}
        token = JWT(header={"alg": "RS256", "kid": "1", "typ": "at+jwt"}, claims={**claims, **times})
        token.make_signed_token(self._key)
        ExternalIdentity.objects.get_or_create(issuer=self.name, subject="somebody", defaults={"user": _user()})
        return {"Authorization": f"Bearer {token.serialize()}"}


def make(kind: str, issuer: Issuer | None = None) -> dict[str, str]:
    """Return the headers of a request with a credential of the measured user."""
    makers: dict[str, Callable[[], dict[str, str]]] = {"token": personal, "oauth": oauth, "session": session}
    if kind == "external":
        assert issuer is not None, "the settings name an issuer before Django is set up"
        return issuer.credential()
    return makers[kind]()
