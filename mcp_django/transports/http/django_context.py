"""Django context of a call: active language, time zone, script prefix and URLconf.

Each call runs in its own context, which inherits nothing, so that no state leaks between calls. Through the view, the
context gets the values that MIDDLEWARE set before the view ran. The ASGI app runs no MIDDLEWARE: it negotiates the
language from Accept-Language as LocaleMiddleware does, in projects that use it. The time zone is then the default of
the project.
"""

import asyncio
from contextvars import Context
from datetime import tzinfo
from functools import lru_cache

from asgiref.sync import AsyncToSync
from django.conf.urls.i18n import is_language_prefix_patterns_used
from django.http import HttpRequest
from django.urls import get_script_prefix, get_urlconf, set_script_prefix, set_urlconf
from django.utils import timezone, translation

from mcp_django import conf
from mcp_django.protocol.headers import Headers
from mcp_django.wiring import negotiates_language

DJANGO_CONTEXT_SETTINGS = (
    "FORCE_SCRIPT_NAME",
    "INSTALLED_APPS",
    "LANGUAGE_CODE",
    "LANGUAGES",
    "LOCALE_PATHS",
    "MIDDLEWARE",
    "ROOT_URLCONF",
    "USE_I18N",
)
"""Names of the settings that a `DjangoContext` reads once."""
MAX_CACHED_LANGUAGES = 256
"""Number of Accept-Language values in the cache."""
MAX_LANGUAGE_HEADER_BYTES = 501
"""Bytes of Accept-Language to read: one more than the 500 that Django reads."""


def copy_middleware_context() -> Context:
    """Return a context with the values that are active in the calling view."""
    context = Context()
    context.run(
        _activate_all, translation.get_language(), timezone.get_current_timezone(), get_script_prefix(), get_urlconf()
    )
    if asyncio.get_running_loop() in AsyncToSync.loop_thread_executors:
        # The loop belongs to one thread (WSGI, Django's tests), and sync middleware blocks that thread while it waits
        # for this view. Only its own executor can run work there. When the middleware has returned, asgiref falls back
        # to the other executor of the thread (CurrentThreadExecutor.submit).
        context.run(setattr, AsyncToSync.executors, "current", getattr(AsyncToSync.executors, "current", None))
    return context


def _activate_all(language: str | None, zone: tzinfo, prefix: str, urlconf: str | None) -> None:
    _activate_language(language)
    timezone.activate(zone)
    set_script_prefix(prefix)
    set_urlconf(urlconf)


def _activate_language(language: str | None) -> None:
    if language is None:
        translation.deactivate_all()
    else:
        translation.activate(language)


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
            language = self._negotiate_language(headers.get(b"accept-language", b"")[:MAX_LANGUAGE_HEADER_BYTES])
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
    return None if language == conf.language_code() else language
