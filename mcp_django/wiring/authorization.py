"""Authorization of each server: policy and scope filter."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.auth.authorization.policy import Policy
from mcp_django.auth.authorization.scopes import ScopeFilter, ScopeHierarchy
from mcp_django.conf.options import ServerSettings
from mcp_django.runtime.threads.executor import run_on_own_thread
from mcp_django.wiring.services import get_executor, get_log_executor


def create_policy(alias: str) -> Policy:
    """Create the policy of a server."""
    return Policy(get_executor(), server=alias, run_outside_transaction=_get_rule_runner())


def create_scope_filter(alias: str) -> ScopeFilter:
    """Create the scope filter of a server.

    It applies `SCOPE_IMPLIES`, the server's `AUTHORIZER`, and scope grants.
    """
    settings = conf.get_settings()
    path = settings.servers.get(alias, _DEFAULT_SETTINGS).authorizer
    authorize: Any = None if path is None else import_string(path)
    return ScopeFilter(
        hierarchy=ScopeHierarchy(settings.scope_implies),
        authorize=authorize() if isinstance(authorize, type) else authorize,
        run=get_executor().run,
        run_outside_transaction=_get_rule_runner(),
    )


def _get_rule_runner() -> Callable[..., Awaitable[Any]]:
    """Return a function that reads the rules on threads that handlers do not occupy."""
    return functools.partial(run_on_own_thread, get_log_executor())


_DEFAULT_SETTINGS = ServerSettings()
