"""A site with the authorization server, and a user who is logged in."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django.fixtures import Settings

from tests.contrib.oauth.oauth_client import SCOPES


@pytest.fixture
def site(settings: Settings) -> Settings:
    """The settings of a site with the authorization server."""
    settings.ROOT_URLCONF = "tests.contrib.oauth.urls"
    settings.LOGIN_URL = "login"
    settings.MCP = {"AUTH": ["oauth", "token"], "ORIGIN": "https://testserver", "SCOPES": SCOPES}
    return settings


@pytest.fixture
def ada(db: None, site: Settings) -> User:
    """A user."""
    return User.objects.create_user("ada", password="pw")


@pytest.fixture
def browser(ada: User) -> Client:
    """The browser of the user, who is logged in."""
    found = Client()
    found.force_login(ada)
    return found
