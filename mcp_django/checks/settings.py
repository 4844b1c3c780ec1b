"""System checks of the `MCP` setting: keys, values and dotted paths."""

from collections.abc import Iterator

from django.core.checks import CheckMessage, Error
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.auth.authentication.verifiers import build_verifier
from mcp_django.checks.installation import register_check
from mcp_django.conf.options import ORM
from mcp_django.conf.readers import AUTH_NAMES, OBJECT_PERMISSIONS


@register_check(reads_settings=False)
def check_settings() -> Iterator[CheckMessage]:
    """Check that every key is known and every value is valid."""
    for problem in conf.get_problems():
        hint = f"Did you mean {problem.suggestion!r}?" if problem.suggestion else None
        if problem.unknown and hint is None:
            hint = (
                "mcp_django/conf/options.py describes the keys. The section of an app requires the app in "
                "INSTALLED_APPS."
            )
        id = "mcp_django.E002" if problem.unknown else "mcp_django.E003"
        yield Error(f"{problem.path} {problem.message}.", hint=hint, id=id)


@register_check()
def check_dotted_paths() -> Iterator[CheckMessage]:
    """Check that dotted paths can be imported, before the first request needs them."""
    for where, path in _iter_dotted_paths():
        try:
            named = import_string(path)
        except Exception as problem:
            yield Error(
                f"{where} names {path!r}, which cannot be imported: {type(problem).__name__}: {problem}",
                hint="Use an importable path: package.module.name.",
                id="mcp_django.E007",
            )
            continue
        try:
            if where == 'MCP["AUTH"]':
                build_verifier(named)
        except Exception as problem:
            yield Error(
                f"{where} names {path!r}, which cannot be used: {problem}",
                hint="docs/protect/permissions.md describes verifiers.",
                id="mcp_django.E007",
            )


def _iter_orm_paths(orm: ORM) -> Iterator[tuple[str, str]]:
    for key, path in (("OBJECT_PERMISSIONS", orm.object_permissions), ("TOOLSET", orm.toolset)):
        if path is not None and path not in OBJECT_PERMISSIONS:
            yield f'MCP["ORM"]["{key}"]', path


def _iter_dotted_paths() -> Iterator[tuple[str, str]]:
    settings = conf.get_settings()
    for name in settings.auth:
        if name not in AUTH_NAMES:
            yield 'MCP["AUTH"]', name
    yield from _iter_orm_paths(settings.orm)

    for alias, server in settings.servers.items():
        where = f'MCP["SERVERS"]["{alias}"]'
        for key, paths in (
            ("MIDDLEWARE", server.middleware),
            ("PROVIDERS", server.providers),
            ("EXTENSIONS", server.extensions),
        ):
            for path in paths:
                yield f'{where}["{key}"]', path
        functions = (
            ("LIFESPAN", server.lifespan),
            ("AUTHORIZER", server.authorizer),
            ("REQUIRED_SCOPES", server.required_scopes),
            ("AUTHORIZATION_SERVERS", server.authorization_servers),
            ("RESOURCE_METADATA_URL", server.resource_metadata_url),
        )
        for key, written in functions:
            if isinstance(written, str) and "://" not in written:
                yield f'{where}["{key}"]', written

    for alias, client in settings.clients.items():
        where = f'MCP["CLIENTS"]["{alias}"]'
        token = client.auth.token_function if client.auth is not None else None
        named = (
            (f'{where}["SAMPLING"]', client.sampling),
            (f'{where}["ELICITATION"]', client.elicitation),
            (f'{where}["AUTH"]["TOKEN_FUNCTION"]', token),
        )
        yield from ((at, path) for at, path in named if path is not None)
