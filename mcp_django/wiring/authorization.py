"""Authorization of each server: policy and scope filter."""

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
    """Create the policy of a server."""
    return Policy(executor(), server=alias, run_apart=_beside_the_calls())


def narrow(alias: str) -> Callable[..., Awaitable[Principal]]:
    """Create the scope filter of a server.

    It applies `SCOPE_IMPLIES`, the server's `AUTHORIZER`, and scope grants.
    """
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
    """Return a function that reads the rules on threads that handlers do not occupy."""
    return functools.partial(run_apart, log_executor())


_PLAIN = ServerSettings()
