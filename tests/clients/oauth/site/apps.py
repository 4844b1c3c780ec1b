"""The app of the protected site: who there is, and where names of documents lead."""

from typing import Any

from django.apps import AppConfig, apps
from django.db.models.signals import post_migrate

from tests.clients.oauth.site.network import redirect_to_loopback

PEOPLE = {"alice": [], "bob": [], "carol": ["add_user"]}
"""Everybody's password is "pw"; what each may do."""


class ProtectedSite(AppConfig):
    """Makes the people where the tables are made."""

    name = "tests.clients.oauth.site"
    label = "protected_site"

    def ready(self) -> None:
        """Wait for the tables."""
        redirect_to_loopback()
        post_migrate.connect(make_people, sender=apps.get_app_config("auth"))


def make_people(*, using: str, **_: Any) -> None:
    """Make those who are missing. Their permissions are there: `auth` itself waited for the same, before this app."""
    from django.contrib.auth.models import Permission, User

    for name, permissions in PEOPLE.items():
        if not User.objects.using(using).filter(username=name).exists():
            user = User.objects.db_manager(using).create_user(name, password="pw")
            user.user_permissions.set(Permission.objects.using(using).filter(codename__in=permissions))
