"""Settings of a shop on django-oscar, as its documentation lists them."""

import os

import oscar
from oscar.defaults import *  # noqa: F403

from tests.real_projects.databases import sqlite

SECRET_KEY = "for-these-tests-only"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
SITE_ID = 1
ROOT_URLCONF = "tests.real_projects.oscar.urls"
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
ATOMIC_REQUESTS = True
STATIC_URL = "static/"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.sites",
    "django.contrib.flatpages",
    *oscar.INSTALLED_APPS[8:],  # after Django's own
    "sorl.thumbnail",
    "channels",
    "mcp_django",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "oscar.apps.basket.middleware.BasketMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
AUTHENTICATION_BACKENDS = [
    "oscar.apps.customer.auth_backends.EmailBackend",
    "django.contrib.auth.backends.ModelBackend",
]
HAYSTACK_CONNECTIONS = {"default": {"ENGINE": "haystack.backends.simple_backend.SimpleEngine"}}
MEDIA_ROOT = os.environ["REAL_PROJECT_FILES"]
DATABASES = {"default": sqlite()}
MCP = {"AUTH": "none"}
