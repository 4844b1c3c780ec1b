"""Authorization of each server: policy and scope filter."""

import functools
from collections.abc import Awaitable, Callable
from typing import Any

from django.utils.module_loading import import_string

from mcp_django.auth.authorization.policy import Policy
from mcp_django.auth.authorization.scopes import ScopeFilter, ScopeHierarchy
from mcp_django.conf.options import ServerSettings
from mcp_django.runtime.threads.executor import run_on_own_thread
from mcp_django.wiring.services import Services


def build_policy(services: Services, alias: str) -> Policy:
    """Build the policy of a server."""
    return Policy(services.executor, server=alias, run_outside_transaction=_build_rule_runner(services))


def build_scope_filter(services: Services, alias: str) -> ScopeFilter:
    """Build the scope filter of a server.

    It applies `SCOPE_IMPLIES`, the server's `AUTHORIZER`, and scope grants.
    """
    path = services.settings.servers.get(alias, _DEFAULT_SETTINGS).authorizer
    authorize: Any = None if path is None else import_string(path)
    return ScopeFilter(
        hierarchy=ScopeHierarchy(services.settings.scope_implies),
        authorize=authorize() if isinstance(authorize, type) else authorize,
        run=services.executor.run,
        run_outside_transaction=_build_rule_runner(services),
    )


def _build_rule_runner(services: Services) -> Callable[..., Awaitable[Any]]:
    """Return a function that reads the rules on threads that handlers do not occupy."""
    return functools.partial(run_on_own_thread, services.log_executor)


_DEFAULT_SETTINGS = ServerSettings()
