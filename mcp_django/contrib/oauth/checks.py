"""System checks of the authorization server's configuration.

The ids are listed in `mcp_django.checks`.
"""

from collections.abc import Iterator
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Final
from urllib.parse import urlsplit

from django.apps import apps
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Tags, Warning
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, Resolver404, get_script_prefix, resolve, reverse
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.checks.installation import register_check
from mcp_django.conf.project import oauth_provider
from mcp_django.contrib.oauth.endpoints.metadata import get_metadata_paths, metadata
from mcp_django.contrib.oauth.options import MINUTE_SECONDS, get_settings
from mcp_django.contrib.oauth.provider_settings import REPLACED_CLASSES, RFC9700_GATES, validate_issuer

DISTRIBUTION, MIN_VERSION, UNSUPPORTED_VERSION = "django-oauth-toolkit", (3, 4, 1), (3, 6)
MAX_ACCESS_TOKEN_SECONDS: Final = 60 * MINUTE_SECONDS
REQUIRED_URL_NAMES: Final = ("authorize", "token", "revoke-token", "introspect", "dcr-register")
SETTINGS_HINT: Final = 'OAUTH2_PROVIDER = oauth2_provider_settings(issuer="https://…") sets all of these.'
_FALSE_SETTINGS: Final = ("ALLOW_URI_WILDCARDS", "REFRESH_TOKEN_GRACE_PERIOD_SECONDS", "CIMD_ENABLED", "DCR_ENABLED")
_TRUE_SETTINGS: Final = ("PKCE_REQUIRED", "ROTATE_REFRESH_TOKEN", "REFRESH_TOKEN_REUSE_PROTECTION")


def _is_installed() -> bool:
    return apps.is_installed("mcp_django.contrib.oauth")


_register_check = partial(register_check, reads_settings=False, is_needed=_is_installed)


@_register_check(Tags.security)
def check_issuer() -> Iterator[CheckMessage]:
    """Check the issuer. Clients send codes and secrets to the issuer's URL."""
    issuer = oauth_provider().get("OIDC_ISS_ENDPOINT")
    try:
        validate_issuer(issuer if isinstance(issuer, str) else "")
    except ValueError as problem:
        yield Error(f"{problem}.", hint=SETTINGS_HINT, id="mcp_django.E030")
        return

    parts = urlsplit(str(issuer))
    if conf.is_usable() and conf.origin() not in (None, f"{parts.scheme}://{parts.netloc}"):
        yield Warning(
            f'The issuer {issuer} is not at MCP["ORIGIN"], {conf.origin()}: its metadata and pages must be served '
            "at that origin as well.",
            hint="Use the same origin in both settings.",
            id="mcp_django.W030",
        )


@_register_check(Tags.security)
def check_settings() -> Iterator[CheckMessage]:
    """Check that overridden settings do not weaken the server.

    Without an issuer, `oauth2_provider_settings` was not used, and nothing can be overridden.
    """
    if oauth_provider().get("OIDC_ISS_ENDPOINT"):
        for name, message in _find_weakened_settings():
            yield Error(f'OAUTH2_PROVIDER["{name}"] {message}.', hint=SETTINGS_HINT, id="mcp_django.E031")


def _find_weakened_settings() -> Iterator[tuple[str, str]]:
    settings = oauth_provider()
    for name in (*(f"COMPLIANT_BCP_RFC9700_{gate}" for gate in RFC9700_GATES), *_TRUE_SETTINGS):
        if settings.get(name) is not True:
            yield name, "must be True"

    for name in _FALSE_SETTINGS:
        if settings.get(name):
            yield name, "must be off: mcp_django.contrib.oauth replaces this feature"

    for name, path in REPLACED_CLASSES.items():
        try:
            configured, required = import_string(settings.get(name) or "nothing"), import_string(path)
        except ImportError:
            yield name, f"must be {path}"
            continue
        if not (isinstance(configured, type) and issubclass(configured, required)) and configured is not required:
            yield name, f"must be {path}, or a subclass of it"


@_register_check(Tags.compatibility)
def check_toolkit() -> Iterator[CheckMessage]:
    """Check the toolkit's version. The code uses private names, so each version is tested."""
    try:
        installed = version(DISTRIBUTION)
    except PackageNotFoundError:
        return
    numbers = tuple(int(part) for part in installed.split(".")[:3] if part.isdecimal())
    if not MIN_VERSION <= numbers < UNSUPPORTED_VERSION:
        hint = f'pip install "{DISTRIBUTION}>=3.4.1,<3.6"'
        yield Error(f"{DISTRIBUTION} {installed} is not supported by this version.", hint=hint, id="mcp_django.E032")


@_register_check(Tags.urls)
def check_urls() -> Iterator[CheckMessage]:
    """Check that the URL names resolve to the endpoints of this app."""
    if conf.root_urlconf() is None:
        return
    problems = []

    for name in REQUIRED_URL_NAMES:
        try:
            match = resolve(reverse(f"oauth2_provider:{name}"))
        except NoReverseMatch:
            problems.append(f"{name} is not served")
            continue
        except Exception:
            return  # a broken URLconf, which Django reports
        module = getattr(match.func, "__module__", "")
        if not module.startswith("mcp_django.contrib.oauth."):
            problems.append(f"{name} is served by {module}")

    if not problems and not _serves_metadata():
        problems.append("the metadata is not below /.well-known/ at the root of the host")
    if problems:
        yield Error(
            f"Clients cannot find the authorization server: {', '.join(problems)}.",
            hint='Add path("", include("mcp_django.contrib.oauth.urls")) to ROOT_URLCONF, '
            "and remove oauth2_provider.urls.",
            id="mcp_django.E033",
        )


@_register_check(Tags.security, deploy=True)
def check_lifetimes() -> Iterator[CheckMessage]:
    """Check the lifetime of access tokens. A leaked token is valid until it expires."""
    if not conf.is_usable():
        return
    seconds = oauth_provider().get("ACCESS_TOKEN_EXPIRE_SECONDS") or get_settings().access_token
    if isinstance(seconds, int | float) and seconds > MAX_ACCESS_TOKEN_SECONDS:
        yield Warning(
            f"Access tokens are valid for {seconds / MINUTE_SECONDS:.0f} minutes.",
            hint='Set a shorter MCP["OAUTH"]["ACCESS_TOKEN"]: clients refresh tokens without user interaction.',
            id="mcp_django.W031",
        )


@_register_check(Tags.security)
def check_openid() -> Iterator[CheckMessage]:
    """Check that OpenID Connect is off. The server issues and accepts no ID tokens."""
    if oauth_provider().get("OIDC_ENABLED"):
        yield Warning(
            "OIDC_ENABLED is on, but the authorization server of MCP issues no ID tokens.",
            hint="Serve OpenID Connect from a separate issuer.",
            id="mcp_django.W032",
        )


@_register_check(Tags.security)
def check_auth_setting() -> Iterator[CheckMessage]:
    """Check that the project accepts the tokens it issues."""
    if conf.is_usable() and "oauth" not in conf.auth_names() and conf.issuer() is not None:
        yield Warning(
            'mcp_django.contrib.oauth issues tokens, but MCP["AUTH"] lacks "oauth": the endpoint rejects them.',
            hint='Add "oauth" to MCP["AUTH"], or remove AUTH. Silence this if tokens are for other servers only.',
            id="mcp_django.W033",
        )


@_register_check(Tags.urls)
def check_login() -> Iterator[CheckMessage]:
    """Check that users can log in when a client sends them to this server."""
    if conf.root_urlconf() is None:
        return
    login_url = str(django_settings.LOGIN_URL)
    try:
        url = resolve_url(login_url)
        if url.startswith("/"):
            resolve(urlsplit(url).path)
    except (NoReverseMatch, Resolver404):
        yield Warning(
            f"LOGIN_URL is {login_url!r}, which does not resolve: users cannot log in to give a client access.",
            hint='Set it to a login page, or serve one, such as path("accounts/", include("django.contrib.auth.urls")) '
            "with a template registration/login.html.",
            id="mcp_django.W034",
        )
    except Exception:
        return  # a broken URLconf, which Django reports


def _serves_metadata() -> bool:
    """Return True if the metadata is served at one of its well-known paths.

    Paths below a script prefix are also tried without the prefix.
    """
    prefix = get_script_prefix().rstrip("/")
    for place in get_metadata_paths(conf.issuer() or ""):
        for path in (place, place.removeprefix(prefix)):
            try:
                if resolve(path).func is metadata:
                    return True
            except Resolver404:
                continue
    return False
