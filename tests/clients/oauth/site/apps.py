"""The app of the protected site: it creates users and redirects connections."""

from typing import Any

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate

from tests.clients.oauth.site.network import redirect_to_loopback

PEOPLE = {"alice": [], "bob": [], "carol": ["add_user"]}
"""The permissions of each user. All passwords are "pw"."""


class ProtectedSite(AppConfig):
    """An app that creates its users when the tables are created."""

    name = "tests.clients.oauth.site"
    label = "protected_site"

    def ready(self) -> None:
        """Redirect connections, and wait for the tables."""
        redirect_to_loopback()
        post_migrate.connect(make_people, sender=apps.get_app_config("auth"))


def make_people(*, using: str, **_: Any) -> None:
    """Create the missing users.

    Their permissions exist already, because `auth` connected its own receiver to the same signal before this app.
    """
    from django.contrib.auth.models import Permission, User

    for name, permissions in PEOPLE.items():
        if not User.objects.using(using).filter(username=name).exists():
            user = User.objects.db_manager(using).create_user(name, password="pw")
            user.user_permissions.set(Permission.objects.using(using).filter(codename__in=permissions))
