"""Codecs: conversion of the values of columns from and to JSON, by field class.

`register_codec` adds codecs of a project's own field classes. Importing this package registers those of Django.
"""

from mcp_django.orm.codecs import django_fields
from mcp_django.orm.codecs.codec import Codec
from mcp_django.orm.codecs.registry import get_codec, register_codec

__all__ = ["Codec", "django_fields", "get_codec", "register_codec"]
