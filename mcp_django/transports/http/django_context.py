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

KNOWN = 256
"""Number of Accept-Language values in the cache."""
LONGEST = 501
"""Bytes of Accept-Language to read: one more than the 500 that Django reads."""


def left_by_middleware() -> Context:
    """Return a context with the values that are active in the calling view."""
    context = Context()
    context.run(
        _set_all, translation.get_language(), timezone.get_current_timezone(), get_script_prefix(), get_urlconf()
    )
    if asyncio.get_running_loop() in AsyncToSync.loop_thread_executors:
        # The loop belongs to one thread (WSGI, Django's tests), and sync middleware blocks that thread while it waits
        # for this view. Only its own executor can run work there. When the middleware has returned, asgiref falls back
        # to the other executor of the thread (CurrentThreadExecutor.submit).
        context.run(setattr, AsyncToSync.executors, "current", getattr(AsyncToSync.executors, "current", None))
    return context


def _set_all(language: str | None, zone: tzinfo, prefix: str, urlconf: str | None) -> None:
    _speak(language)
    timezone.activate(zone)
    set_script_prefix(prefix)
    set_urlconf(urlconf)


def _speak(language: str | None) -> None:
    if language is None:
        translation.deactivate_all()
    else:
        translation.activate(language)


class Surroundings:
    """Builds the contexts of calls through the ASGI app."""

    def __init__(self) -> None:
        self.prefix = conf.force_script_name()
        self.negotiates = negotiates_language()
        self.matters = bool(self.prefix) or self.negotiates
        """True if a call may need values although the server gives no root path."""
        self._language = lru_cache(KNOWN)(_negotiated)

    def context(self, headers: Headers, root: str) -> Context | None:
        """Build the context of a call below `root_path`; None if an empty one suffices."""

        language = None
        if self.negotiates:
            language = self._language(headers.get(b"accept-language", b"")[:LONGEST])
        prefix = self.prefix or root
        if language is None and not prefix:
            return None
        context = Context()
        if language is not None:
            context.run(translation.activate, language)
        if prefix:
            context.run(set_script_prefix, prefix)
        return context


def _negotiated(header: bytes) -> str | None:
    """Return the language LocaleMiddleware would activate for an unprefixed path.

    None means LANGUAGE_CODE.
    """
    prefixed, default_too = is_language_prefix_patterns_used(conf.root_urlconf())
    if prefixed and not default_too:
        return None  # Paths without a prefix are in the language of the project.
    request = HttpRequest()
    request.META["HTTP_ACCEPT_LANGUAGE"] = header.decode("latin-1")
    language = translation.get_language_from_request(request)
    return None if language == conf.language_code() else language
