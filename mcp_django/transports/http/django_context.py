"""What a handler finds around it: the active language, the current time zone, and what URLs are reversed with.

Each call runs in a context of its own, which inherits nothing, so that nothing leaks from one call to the next. What is
to be there is put there. Through the view that is what MIDDLEWARE left when the view ran. The ASGI door runs no
MIDDLEWARE: it chooses the language as LocaleMiddleware would, from Accept-Language, in projects that use it; the time
zone is the project's.
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
"""How many values of Accept-Language are remembered."""
LONGEST = 501
"""Bytes of Accept-Language that are looked at. Django reads 500 characters and wants to see that there are more."""


def left_by_middleware() -> Context:
    """A context that has what is active here and now, in a view."""
    context = Context()
    context.run(
        _set_all, translation.get_language(), timezone.get_current_timezone(), get_script_prefix(), get_urlconf()
    )
    if asyncio.get_running_loop() in AsyncToSync.loop_thread_executors:
        # The loop belongs to one thread (WSGI, Django's tests), and sync middleware keeps that thread while it waits
        # for this view. Only its own executor gets work done there; asgiref falls back to the thread's other one when
        # the middleware has returned (CurrentThreadExecutor.submit).
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
    """The contexts of calls through the ASGI door."""

    def __init__(self) -> None:
        self.prefix = conf.force_script_name()
        self.negotiates = negotiates_language()
        self.matters = bool(self.prefix) or self.negotiates
        """Can there be anything to set when the server gives no root path?"""
        self._language = lru_cache(KNOWN)(_negotiated)

    def context(self, headers: Headers, root: str) -> Context | None:
        """The context of a call below the path `root`; None when a clean one is all it takes."""
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
    """What LocaleMiddleware would activate for a path without a language; None for LANGUAGE_CODE."""
    prefixed, default_too = is_language_prefix_patterns_used(conf.root_urlconf())
    if prefixed and not default_too:
        return None  # what has no prefix is in the project's language
    request = HttpRequest()
    request.META["HTTP_ACCEPT_LANGUAGE"] = header.decode("latin-1")
    language = translation.get_language_from_request(request)
    return None if language == conf.language_code() else language
