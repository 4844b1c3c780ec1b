"""Users of the site with tokens of their own, and how something is taken away from them."""

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.utils import timezone

from mcp_django.contrib.oauth.clients import clients
from mcp_django.contrib.oauth.flows import revocation
from mcp_django.contrib.oauth.models import ClientProfile
from mcp_django.contrib.oauth.tokens.token_format import access_token
from mcp_django.contrib.oauth.toolkit_compat import get_access_token_model, get_application_model
from mcp_django.models import PersonalAccessToken, ScopeGrant, ToolPolicy

GRANT = "scope granted to others"
"""Takes a scope away from all users outside a group."""


def make(names: Iterable[str], *, seconds: float | None = None) -> dict[str, str]:
    """Create users whose group may view users. Return their tokens, which may expire after some seconds."""
    permission = Permission.objects.get(codename="view_user", content_type__app_label="auth")
    tokens = {}
    for name in names:
        user = User.objects.create_user(name)
        group = Group.objects.create(name=name)
        group.permissions.add(permission)
        user.groups.add(group)
        expires = None if seconds is None else timezone.now() + timedelta(seconds=seconds)
        scopes = ["a", "granted" if name == GRANT else "b"]
        _, tokens[name] = PersonalAccessToken.issue(user=user, name=name, scopes=scopes, expires=expires)
    return tokens


def let_in(names: Iterable[str], resource: str) -> dict[str, str]:
    """Create users with a consent for a client each. Return the access tokens."""
    tokens = {}
    for name in names:
        application, _ = clients.create_client(name, redirect_uris=["https://app.example/callback"])
        tokens[name] = access_token(None)
        get_access_token_model().objects.create(
            user=User.objects.create_user(name),
            application=application,
            token=tokens[name],
            expires=timezone.now() + timedelta(hours=1),
            scope="a b",
            resource=[resource],
        )
    return tokens


def _application(name: str) -> Any:
    return get_application_model().objects.get(name=name)


def _block(name: str) -> None:
    profile = ClientProfile.objects.get(application=_application(name))
    profile.blocked = True
    profile.save()


def _token(name: str) -> PersonalAccessToken:
    return PersonalAccessToken.objects.get(user__username=name)


def _deactivate(name: str) -> None:
    user = User.objects.get(username=name)
    user.is_active = False
    user.save()


def _narrow(name: str) -> None:
    token = _token(name)
    token.scopes = ["a"]
    token.save()


WITHDRAWALS: dict[str, Callable[[str], object]] = {
    "token revoked": lambda name: _token(name).revoke(),
    "token deleted": lambda name: _token(name).delete(),
    "token narrowed": _narrow,
    "user deactivated": _deactivate,
    "user deleted": lambda name: User.objects.get(username=name).delete(),
    GRANT: lambda name: ScopeGrant.objects.create(scope="granted", groups=["others"]),
    "tool disabled": lambda name: ToolPolicy.objects.create(tool="tool_disabled", disabled=True),
    "tool kept for a group": lambda name: ToolPolicy.objects.create(tool="tool_kept_for_a_group", groups=["others"]),
    "access token revoked": lambda name: get_access_token_model().objects.get(user__username=name).delete(),
    "consent withdrawn": lambda name: revocation.withdraw_access(User.objects.get(username=name), _application(name)),
    "client blocked": _block,
    "client deleted": lambda name: _application(name).delete(),
    "user of a client deactivated": _deactivate,
    "left the group": lambda name: User.objects.get(username=name).groups.clear(),
    "group lost the permission": lambda name: Group.objects.get(name=name).permissions.clear(),
    "group deleted": lambda name: Group.objects.get(name=name).delete(),
}
