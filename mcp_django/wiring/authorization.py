"""The decision of each server: its policy, and what becomes of its principals when they have been verified."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.auth.authorization.policy import Policy
from mcp_django.auth.authorization.scopes import Hierarchy, Narrowing
from mcp_django.auth.principal import Principal
from mcp_django.conf.options import ServerSettings
from mcp_django.runtime.events.follower import run_apart
from mcp_django.wiring.services import executor, log_executor


def policy(alias: str) -> Policy:
    """The decision of the server of an alias."""
    return Policy(executor(), server=alias, run_apart=_beside_the_calls())


def narrow(alias: str) -> Callable[..., Awaitable[Principal]]:
    """What `SCOPE_IMPLIES`, the server's `AUTHORIZER` and the grants of scopes make of its principals."""
    settings = conf.get_settings()
    path = settings.servers.get(alias, _PLAIN).authorizer
    authorize: Any = None if path is None else import_string(path)
    return Narrowing(
        hierarchy=Hierarchy(settings.scope_implies),
        authorize=authorize() if isinstance(authorize, type) else authorize,
        run=executor().run,
        run_apart=_beside_the_calls(),
    ).narrow


def _beside_the_calls() -> Callable[..., Awaitable[Any]]:
    """Reads the rules, which every call needs, on lanes that no handler holds."""
    return functools.partial(run_apart, log_executor())


_PLAIN = ServerSettings()
