"""Access of the operator during a run: a run ends when its operator could no longer start it."""

import asyncio
from types import TracebackType
from typing import Any

from django.contrib.auth import SESSION_KEY, get_user
from django.core.exceptions import PermissionDenied
from django.db import Error as DatabaseFailure
from django.http import HttpRequest

from mcp_django import wiring
from mcp_django.auth.authentication.verifiers import hold_lease
from mcp_django.contrib.playground.principals import find_acting_user, may_use_playground
from mcp_django.contrib.playground.runs.operations import RunTarget
from mcp_django.extensions.calls import get_logger
from mcp_django.transports.credential_monitor import RevocableCredential, get_credential_monitor

logger = get_logger("mcp_django.playground")


class AccessLost(Exception):
    """The operator has lost the access to the playground, or to the acting user, during a run."""


class OperatorAccess:
    """Access of the user of a request to the playground, as the acting user of a target.

    It is lost with the login, the account, its staff status or a permission, and when the acting user may no longer be
    used.
    """

    def __init__(self, request: HttpRequest, target: RunTarget) -> None:
        self._executor = wiring.get_server(target.alias).ports.executor
        self._operator: Any = request.user
        self._username = target.username
        session = getattr(request, "session", None)
        self._session = session if session is not None and SESSION_KEY in session else None
        """Session of a login; None if middleware names the user of each request."""

    def is_known_valid(self) -> bool:
        """Return False: each verification queries the database."""
        return False

    async def is_valid(self) -> bool:
        """Return True if the operator could start the run now, or if the database fails."""
        with hold_lease(self._executor):
            try:
                return await self._executor.run(self._check)
            except DatabaseFailure as problem:
                logger.warning("The access of an operator cannot be verified: %s", problem)
                return True

    def _check(self) -> bool:
        operator = self._load_operator()
        if operator is None or not may_use_playground(operator):
            return False
        if getattr(self._operator, "is_staff", False) and not operator.is_staff:
            return False
        try:
            find_acting_user(operator, self._username)
        except PermissionDenied:
            return False
        return True

    def _load_operator(self) -> Any:
        """Return the operator as the next request would get it, or None."""
        if self._session is None:
            return self._operator.__class__._default_manager.filter(pk=self._operator.pk, is_active=True).first()
        request = HttpRequest()
        request.session = self._session.__class__(self._session.session_key)
        found = get_user(request)
        return found if found.is_active and found.pk == self._operator.pk else None


class AccessMonitor:
    """Context in which a task runs until its credential is revoked. Raises AccessLost then."""

    def __init__(self, credential: RevocableCredential) -> None:
        self.credential: RevocableCredential | None = credential
        self._task: asyncio.Task[Any] | None = None
        self._is_lost = False

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        get_credential_monitor().add(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        get_credential_monitor().remove(self)
        task = self._task
        self._task = None
        # Another cancellation, such as that of the browser, has precedence.
        if self._is_lost and task is not None and task.uncancel() == 0 and kind is asyncio.CancelledError:
            raise AccessLost from error

    def on_revoked(self) -> None:
        """Cancel the task."""
        if self._task is not None and not self._is_lost:
            self._is_lost = True
            self._task.cancel()
