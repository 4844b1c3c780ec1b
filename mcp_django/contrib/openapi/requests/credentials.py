"""Credentials of requests: the document's security schemes, the project's secrets.

Secrets come only from the project, as a mapping or a function of the call. Credentials of the caller are never passed
on. Secrets appear in no schema, error, log or `repr`.
"""

import base64
import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

from mcp_django.contrib.openapi.document.references import References
from mcp_django.contrib.openapi.requests.messages import OperationRequest
from mcp_django.extensions.calls import Context
from mcp_django.extensions.errors import DeclarationError, ToolError
from mcp_django.extensions.primitives import run_callable
from mcp_django.protocol.headers import TOKEN_PATTERN

MIN_REDACTED_CHARACTERS = 6
"""Minimum characters of a secret to redact in texts of a server."""


@dataclass(frozen=True, slots=True)
class SecurityScheme:
    """A security scheme of a document."""

    key: str
    """Name of the scheme in the document."""
    kind: str
    """Place: "query", "header", "cookie", "basic", "bearer", or "".

    A scheme with "" needs an `httpx.Auth`.
    """
    name: str = ""
    """Name of the parameter, header or cookie."""


@dataclass(frozen=True, slots=True)
class AuthenticatedRequest:
    """A request with credentials, and its secrets."""

    request: OperationRequest
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def redact(self, text: str) -> str:
        """Redact the secrets in a text of the server, which may repeat the request."""
        for secret in self.secrets:
            if len(secret) >= MIN_REDACTED_CHARACTERS:
                text = text.replace(secret, "…")
        return text


class OperationCredentials:
    """The secrets of a toolset, by security scheme."""

    __slots__ = ("_option", "_parameter_count", "schemes")

    def __init__(self, option: Any, schemes: Mapping[str, SecurityScheme], label: str) -> None:
        """Accept the `credentials` option of a toolset.

        `option` is a mapping of secrets by scheme, or None. It may also be a function of the Context that returns a
        mapping or a single secret, or a function of the Context and a scheme's name that returns its secret.

        Raises DeclarationError for a scheme that the document does not define.
        """
        self.schemes = schemes
        self._option = option
        self._parameter_count = 0

        if isinstance(option, Mapping):
            for name in option:
                if name not in schemes:
                    near = difflib.get_close_matches(str(name), schemes, n=1)
                    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(schemes)) or 'none'}"
                    raise DeclarationError(f"{label}: the document has no security scheme {name!r}; {hint}")
        elif callable(option):
            self._parameter_count = len(inspect.signature(option).parameters)
            if self._parameter_count not in (1, 2):
                raise DeclarationError(f"{label}: credentials is a function of ctx, or of ctx and a scheme's name")
        elif option is not None:
            raise DeclarationError(f"{label}: credentials is a mapping, a function or an httpx.Auth")

    def __repr__(self) -> str:
        return f"<Credentials for {', '.join(self.schemes) or 'nothing'}>"

    async def add_credentials(
        self,
        request: OperationRequest,
        alternatives: Sequence[Sequence[str]],
        ctx: Context,
        *,
        is_required: bool = True,
    ) -> AuthenticatedRequest:
        """Add the credentials of the first alternative with a secret for each scheme.

        Raises ToolError if `is_required` and the project has no matching secrets for this caller.
        """
        if self._option is None or not alternatives:
            return AuthenticatedRequest(request)

        cached_secrets: dict[str, Any] = {}
        all_secrets = self._option
        if self._parameter_count == 1:
            all_secrets = await run_callable(self._option, ctx.server.ports.executor, ctx)
        for names in alternatives:
            secrets_by_scheme = {name: await self._get_secret(name, all_secrets, cached_secrets, ctx) for name in names}
            if all(secret is not None for secret in secrets_by_scheme.values()):
                secrets: list[str] = []
                for name, secret in secrets_by_scheme.items():
                    request = self._add_secret(request, self.schemes[name], secret, secrets)
                return AuthenticatedRequest(request, tuple(secrets))
        if not is_required or any(not names for names in alternatives):
            return AuthenticatedRequest(request)
        wanted = " or ".join(" and ".join(names) for names in alternatives)
        raise ToolError(f"Missing credentials: this operation needs {wanted}")

    async def _get_secret(self, name: str, all_secrets: Any, cached_secrets: dict[str, Any], ctx: Context) -> Any:
        if name not in self.schemes or not self.schemes[name].kind:
            return None
        if self._parameter_count == 2:
            if name not in cached_secrets:
                cached_secrets[name] = await run_callable(self._option, ctx.server.ports.executor, ctx, name)
            return cached_secrets[name]
        return all_secrets.get(name) if isinstance(all_secrets, Mapping) else all_secrets

    @staticmethod
    def _add_secret(
        request: OperationRequest, scheme: SecurityScheme, secret: Any, secrets: list[str]
    ) -> OperationRequest:
        if scheme.kind == "basic":
            login = ":".join(map(str, secret)) if isinstance(secret, tuple | list) else str(secret)
            text = base64.b64encode(login.encode()).decode()
            secrets += [text, login, login.partition(":")[2]]
            return _set_header(request, "Authorization", f"Basic {text}")

        text = str(secret)
        secrets.append(text)
        if not text.isprintable():
            raise ToolError(f"The credentials for {scheme.key} cannot be sent: they hold control characters")
        if scheme.kind == "bearer":
            return _set_header(request, "Authorization", f"Bearer {text}")
        if scheme.kind == "header":
            return _set_header(request, scheme.name, text)

        secrets.append(quote(text, safe=""))
        pair = quote(scheme.name, safe=""), quote(text, safe="")
        if scheme.kind == "cookie":
            return replace(request, cookies=[*(one for one in request.cookies if one[0] != scheme.name), pair])

        return replace(request, query=[*(one for one in request.query if one[0] != pair[0]), pair])


def read_schemes(root: Mapping[str, Any], references: References, label: str) -> dict[str, SecurityScheme]:
    """Read the security schemes of a document."""
    components = root.get("components")
    entries = components.get("securitySchemes") if isinstance(components, Mapping) else None
    schemes: dict[str, SecurityScheme] = {}
    for key, node in entries.items() if isinstance(entries, Mapping) else ():
        try:
            schemes[key] = _build_scheme(key, references.resolve(node, label))
        except DeclarationError:
            schemes[key] = SecurityScheme(key, "")
    return schemes


def list_credential_parameters(
    alternatives: Iterable[Sequence[str]], schemes: Mapping[str, SecurityScheme]
) -> set[tuple[str, str]]:
    """List the parameters that carry credentials, as (place, name)."""
    used_schemes = [schemes[name] for group in alternatives for name in group if name in schemes]
    return {(one.kind, one.name.lower()) for one in used_schemes if one.kind in ("query", "header", "cookie")}


def _build_scheme(key: str, entry: Mapping[str, Any]) -> SecurityScheme:
    kind = entry.get("type")
    if kind == "apiKey":
        place, name = entry.get("in"), entry.get("name")
        is_name = isinstance(name, str) and bool(name) and (place == "query" or TOKEN_PATTERN.fullmatch(name))
        return (
            SecurityScheme(key, str(place), str(name))
            if place in ("query", "header", "cookie") and is_name
            else SecurityScheme(key, "")
        )
    if kind == "http" and str(entry.get("scheme", "")).lower() in ("basic", "bearer"):
        return SecurityScheme(key, str(entry["scheme"]).lower())
    return SecurityScheme(key, "bearer" if kind in ("oauth2", "openIdConnect") else "")


def _set_header(request: OperationRequest, name: str, value: str) -> OperationRequest:
    kept = [pair for pair in request.headers if pair[0].lower() != name.lower()]
    return replace(request, headers=[*kept, (name, value)])


CredentialsOption = Mapping[str, Any] | Callable[..., Any] | None
