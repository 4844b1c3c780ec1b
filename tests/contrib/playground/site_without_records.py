"""A site with the playground and without the control room, which prints the page of the playground.

python -m tests.contrib.playground.site_without_records
"""

import sys

import django
from django.conf import settings

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "mcp_django",
    "mcp_django.contrib.playground",
]


def main() -> None:
    """Migrate an empty database, and open the page as a superuser."""
    middleware = ["sessions.middleware.SessionMiddleware", "auth.middleware.AuthenticationMiddleware"]
    processors = ["django.contrib.auth.context_processors.auth", "django.template.context_processors.request"]
    settings.configure(
        ALLOWED_HOSTS=["testserver"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=INSTALLED_APPS,
        MCP={"PLAYGROUND": {"ENABLED": True}},
        MIDDLEWARE=[f"django.contrib.{name}" for name in middleware],
        ROOT_URLCONF=__name__,
        SECRET_KEY="a key of a test",
        STATIC_URL="/static/",
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {"context_processors": processors},
            }
        ],
        USE_TZ=True,
    )
    django.setup()

    from django.contrib import admin
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.test import Client
    from django.urls import path

    from mcp_django import tool

    globals()["urlpatterns"] = [path("admin/", admin.site.urls)]
    tool(lambda name: f"hello {name}", name="greet")
    call_command("migrate", verbosity=0)
    browser = Client()
    browser.force_login(User.objects.create_superuser("boss"))
    form = {"act": "send_json", "arguments": '{"name": "Ada"}', "confirmed": "on"}
    sys.stdout.write(browser.post("/admin/mcp_playground/playground/?name=greet&call=1", form).content.decode())


if __name__ == "__main__":
    main()
