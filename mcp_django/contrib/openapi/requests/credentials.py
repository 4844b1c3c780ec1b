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

from mcp_django.contrib.openapi.document.operations import Operation
from mcp_django.contrib.openapi.document.references import References
from mcp_django.contrib.openapi.requests.messages import Outgoing
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.headers import TOKEN
from mcp_django.schema import DeclarationError
from mcp_django.server.calls.callables import run
from mcp_django.server.context.context import Context

SHORTEST = 6
"""Minimum characters of a secret to redact in texts of a server."""


@dataclass(frozen=True, slots=True)
class Scheme:
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
class Filled:
    """A request with credentials, and its secrets."""

    request: Outgoing
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def cleaned(self, text: str) -> str:
        """Redact the secrets in a text of the server, which may repeat the request."""
        for secret in self.secrets:
            if len(secret) >= SHORTEST:
                text = text.replace(secret, "…")
        return text


class Credentials:
    """The secrets of a toolset, by security scheme."""

    __slots__ = ("_given", "_takes", "schemes")

    def __init__(self, given: Any, schemes: Mapping[str, Scheme], where: str) -> None:
        """Accept the `credentials` option of a toolset.

        `option` is a mapping of secrets by scheme, or None. It may also be a function of the Context that returns a
        mapping or a single secret, or a function of the Context and a scheme's name that returns its secret.

        Raises DeclarationError for a scheme that the document does not define.
        """
        self.schemes, self._given = schemes, given
        self._takes = 0

        if isinstance(given, Mapping):
            for name in given:
                if name not in schemes:
                    near = difflib.get_close_matches(str(name), schemes, n=1)
                    hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(schemes)) or 'none'}"
                    raise DeclarationError(f"{where}: the document has no security scheme {name!r}; {hint}")
        elif callable(given):
            self._takes = len(inspect.signature(given).parameters)
            if self._takes not in (1, 2):
                raise DeclarationError(f"{where}: credentials is a function of ctx, or of ctx and a scheme's name")
        elif given is not None:
            raise DeclarationError(f"{where}: credentials is a mapping, a function or an httpx.Auth")

    def __repr__(self) -> str:
        return f"<Credentials for {', '.join(self.schemes) or 'nothing'}>"

    async def fill(
        self, request: Outgoing, alternatives: Sequence[Sequence[str]], ctx: Context, *, must: bool = True
    ) -> Filled:
        """Add the credentials of the first alternative with a secret for each scheme.

        Raises ToolError if `is_required` and the project has no matching secrets for this caller.
        """
        if self._given is None or not alternatives:
            return Filled(request)

        known: dict[str, Any] = {}
        everything = await self._everything(ctx)
        for names in alternatives:
            found = {name: await self._secret(name, everything, known, ctx) for name in names}
            if all(secret is not None for secret in found.values()):
                secrets: list[str] = []
                for name, secret in found.items():
                    request = self._with(request, self.schemes[name], secret, secrets)
                return Filled(request, tuple(secrets))
        if not must or any(not names for names in alternatives):
            return Filled(request)
        wanted = " or ".join(" and ".join(names) for names in alternatives)
        raise ToolError(f"Missing credentials: this operation needs {wanted}")

    async def _everything(self, ctx: Context) -> Any:
        if self._takes == 1:
            return await run(self._given, ctx.server.executor, ctx)
        return self._given

    async def _secret(self, name: str, everything: Any, known: dict[str, Any], ctx: Context) -> Any:
        if name not in self.schemes or not self.schemes[name].kind:
            return None
        if self._takes == 2:
            if name not in known:
                known[name] = await run(self._given, ctx.server.executor, ctx, name)
            return known[name]
        return everything.get(name) if isinstance(everything, Mapping) else everything

    @staticmethod
    def _with(request: Outgoing, scheme: Scheme, secret: Any, secrets: list[str]) -> Outgoing:
        if scheme.kind == "basic":
            login = ":".join(map(str, secret)) if isinstance(secret, tuple | list) else str(secret)
            text = base64.b64encode(login.encode()).decode()
            secrets += [text, login, login.partition(":")[2]]
            return _header(request, "Authorization", f"Basic {text}")

        text = str(secret)
        secrets.append(text)
        if not text.isprintable():
            raise ToolError(f"The credentials for {scheme.key} cannot be sent: they hold control characters")
        if scheme.kind == "bearer":
            return _header(request, "Authorization", f"Bearer {text}")
        if scheme.kind == "header":
            return _header(request, scheme.name, text)

        secrets.append(quote(text, safe=""))
        pair = quote(scheme.name, safe=""), quote(text, safe="")
        if scheme.kind == "cookie":
            return replace(request, cookies=[*(one for one in request.cookies if one[0] != scheme.name), pair])

        return replace(request, query=[*(one for one in request.query if one[0] != pair[0]), pair])


def schemes_of(root: Mapping[str, Any], references: References, where: str) -> dict[str, Scheme]:
    """Read the security schemes of a document."""
    components = root.get("components")
    entries = components.get("securitySchemes") if isinstance(components, Mapping) else None
    found: dict[str, Scheme] = {}
    for key, node in entries.items() if isinstance(entries, Mapping) else ():
        try:
            found[key] = _scheme(key, references.resolved(node, where))
        except DeclarationError:
            found[key] = Scheme(key, "")
    return found


def alternatives_of(operation: Operation) -> list[list[str]]:
    """List the alternative groups of schemes that an operation accepts.

    Empty if the operation needs no credentials.
    """
    return [list(entry) for entry in operation.security if isinstance(entry, Mapping)]


def own_parameters(names: Iterable[Sequence[str]], schemes: Mapping[str, Scheme]) -> set[tuple[str, str]]:
    """List the parameters that carry credentials, as (place, name)."""
    found = [schemes[name] for group in names for name in group if name in schemes]
    return {(one.kind, one.name.lower()) for one in found if one.kind in ("query", "header", "cookie")}


def _scheme(key: str, entry: Mapping[str, Any]) -> Scheme:
    kind = entry.get("type")
    if kind == "apiKey":
        place, name = entry.get("in"), entry.get("name")
        is_name = isinstance(name, str) and bool(name) and (place == "query" or TOKEN.fullmatch(name))
        return (
            Scheme(key, str(place), str(name))
            if place in ("query", "header", "cookie") and is_name
            else Scheme(key, "")
        )
    if kind == "http" and str(entry.get("scheme", "")).lower() in ("basic", "bearer"):
        return Scheme(key, str(entry["scheme"]).lower())
    return Scheme(key, "bearer" if kind in ("oauth2", "openIdConnect") else "")


def _header(request: Outgoing, name: str, value: str) -> Outgoing:
    kept = [pair for pair in request.headers if pair[0].lower() != name.lower()]
    return replace(request, headers=[*kept, (name, value)])


Given = Mapping[str, Any] | Callable[..., Any] | None
