"""Settings that the projects without a configuration of their own share."""

import os

from tests.real_projects.databases import sqlite

SECRET_KEY = "for-these-tests-only"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
STATIC_URL = "static/"
MEDIA_ROOT = os.environ["REAL_PROJECT_FILES"]
DATABASES = {"default": sqlite()}
DJANGO_MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
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
