"""Context variables of a call: those of MIDDLEWARE, language and script prefix.

Each call runs in its own context. Values that it sets are visible to no other call. Through the view, the context is a
copy of the context of the request: it has all variables that MIDDLEWARE set before the view ran. The ASGI app runs no
MIDDLEWARE, so the context is empty there. It negotiates the language from Accept-Language as LocaleMiddleware does, in
projects that use it. The time zone is then the default of the project.
"""

from contextvars import Context, copy_context
from functools import lru_cache

from django.conf import settings as django_settings
from django.conf.urls.i18n import is_language_prefix_patterns_used
from django.http import HttpRequest
from django.urls import set_script_prefix
from django.utils import translation

from mcp_django import conf
from mcp_django.aio.asgiref_internals import detach_from_request
from mcp_django.protocol.headers import Headers
from mcp_django.wiring import negotiates_language

MAX_CACHED_LANGUAGES = 256
"""Number of Accept-Language values in the cache."""
MAX_LANGUAGE_HEADER_BYTES = 501
"""Bytes of Accept-Language to read: one more than the 500 that Django reads."""


def copy_request_context() -> Context:
    """Return a copy of the context of the calling view, for a call that may outlive its request."""
    context = copy_context()
    context.run(detach_from_request)
    return context


class DjangoContext:
    """Builds the contexts of calls through the ASGI app."""

    def __init__(self) -> None:
        self.script_prefix = conf.force_script_name()
        self.negotiates_language = negotiates_language()
        self.is_needed = bool(self.script_prefix) or self.negotiates_language
        """True if a call may need values although the server gives no root path."""
        self._negotiate_language = lru_cache(MAX_CACHED_LANGUAGES)(_negotiate_language)

    def create_context(self, headers: Headers, root_path: str) -> Context | None:
        """Build the context of a call below `root_path`; None if an empty one suffices."""

        language = None
        if self.negotiates_language:
            language = self._negotiate_language(headers.wire.get(b"accept-language", b"")[:MAX_LANGUAGE_HEADER_BYTES])
        prefix = self.script_prefix or root_path
        if language is None and not prefix:
            return None
        context = Context()
        if language is not None:
            context.run(translation.activate, language)
        if prefix:
            context.run(set_script_prefix, prefix)
        return context


def _negotiate_language(header: bytes) -> str | None:
    """Return the language LocaleMiddleware would activate for an unprefixed path.

    None means LANGUAGE_CODE.
    """
    uses_prefixes, prefixes_default = is_language_prefix_patterns_used(conf.root_urlconf())
    if uses_prefixes and not prefixes_default:
        return None  # Paths without a prefix are in the language of the project.
    request = HttpRequest()
    request.META["HTTP_ACCEPT_LANGUAGE"] = header.decode("latin-1")
    language = translation.get_language_from_request(request)
    return None if language == django_settings.LANGUAGE_CODE else language
