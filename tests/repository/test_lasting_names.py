"""Names and formats that outlive a release: rows, tokens and log configurations of projects depend on them.

A red test here means that an upgrade breaks a running project. Add names freely; change one only on purpose, with a
migration or a note in CHANGELOG.md.
"""

import re
from pathlib import Path
from typing import Any

from django.apps import apps

import mcp_django
from mcp_django.client.oauth import crypto
from mcp_django.runtime.sealing import NameSigner, TokenSealer

PACKAGE = Path(mcp_django.__file__).parent
SECRET, BINDING = "a secret of the tests", b"binding"
SEALED = {
    "state": "AToUt55qOKW27-tSG6qm1ODziN-L_dItSr5W8T9CamTp4hcJc_2Ro4MxU7dE"
    "QBFHHInDalkVxHZiD1VCCxZ0HWhVvGfM17EXXXxyQzKaDOJjrhNYeA",
    "cursor": "AR7s6KnnFwNnU0yvGhIjbACvx0_NLGONDkm0ExbLkmvVQxlW9K75AsIH5geI"
    "_jS5fv-ucesT7v5XerMn8-d4oB-JmR3S6gbKAJHRCH5BMCQJLs1niA",
}
"""Tokens by purpose, valid for a hundred years from 2026 on."""
STAMPED = "name.PTw2N3R3EHq0CjOyS2uixQ"
SEALED_BY_THE_CLIENT = "AVPY7udZkx0BOtY-5QPG79MZknIOkkgFsK15wPkj2V5sqGWc5LojqPkd587WXUsLyp_5Hk2N"
TABLES = """
mcp_django_clientflow mcp_django_clienthealth mcp_django_clienttoken mcp_django_eventsequence
mcp_django_externalidentity mcp_django_onceresult mcp_django_personalaccesstoken
mcp_django_resourcesubscription mcp_django_scopegrant mcp_django_session mcp_django_sessioncount
mcp_django_spentstate mcp_django_storedargument mcp_django_storedmessage mcp_django_storedprompt
mcp_django_storedpromptversion mcp_django_storedresource mcp_django_storedresourceversion
mcp_django_storedstate mcp_django_streamevent mcp_django_toolpolicy mcp_memory_conversation
mcp_memory_fact mcp_memory_owner mcp_oauth_clientprofile mcp_oauth_consent mcp_oauth_rotation
mcp_oauth_tokenfamily mcp_oauth_usedcode
"""
LOGGERS = """
mcp_django.auth mcp_django.calls mcp_django.client mcp_django.client.stderr
mcp_django.client.websocket.frames mcp_django.events mcp_django.threads mcp_django.lifecycle
mcp_django.oauth mcp_django.orm mcp_django.providers mcp_django.rest mcp_django.server
mcp_django.sessions
"""
CHECKS = """
mcp_django.E001 mcp_django.E002 mcp_django.E003 mcp_django.E004 mcp_django.E005 mcp_django.E006
mcp_django.E007 mcp_django.E008 mcp_django.E009 mcp_django.E020 mcp_django.E030 mcp_django.E031
mcp_django.E032 mcp_django.E033 mcp_django.E034 mcp_django.E040 mcp_django.E041 mcp_django.E042
mcp_django.E043 mcp_django.E044 mcp_django.E050 mcp_django.E051 mcp_django.E060 mcp_django.E061
mcp_django.I001 mcp_django.I002 mcp_django.I003 mcp_django.W001 mcp_django.W002 mcp_django.W003
mcp_django.W004 mcp_django.W005 mcp_django.W006 mcp_django.W007 mcp_django.W008 mcp_django.W009
mcp_django.W010 mcp_django.W011 mcp_django.W012 mcp_django.W014 mcp_django.W020 mcp_django.W021 mcp_django.W022
mcp_django.W023 mcp_django.W024 mcp_django.W025 mcp_django.W026 mcp_django.W030 mcp_django.W031
mcp_django.W032 mcp_django.W033 mcp_django.W034 mcp_django.W040 mcp_django.W041 mcp_django.W042
mcp_django.W043 mcp_django.W050 mcp_django.W051 mcp_django.W052 mcp_memory.E001
"""


def literals(pattern: str) -> set[str]:
    """Return all matches of a pattern in the modules of the package."""
    return {name for path in PACKAGE.rglob("*.py") for name in re.findall(pattern, path.read_text(encoding="utf-8"))}


def test_states_and_cursors_of_earlier_releases_open() -> None:
    for purpose, token in SEALED.items():
        assert TokenSealer([SECRET], purpose=purpose).unseal(token, BINDING) == {"steps": ["x" * 300]}


def test_marks_of_earlier_releases_are_recognised() -> None:
    assert NameSigner([SECRET], purpose="question").unsign(STAMPED, "binding") == "name"


def test_tokens_that_the_client_stored_in_earlier_releases_open(settings: Any) -> None:
    settings.SECRET_KEY = SECRET
    assert crypto.unseal(SEALED_BY_THE_CLIENT, ["owner", "server"], purpose="tokens").data == b"token"


def test_tables_keep_their_names() -> None:
    models = apps.get_models(include_auto_created=True)
    assert set(TABLES.split()) <= {
        model._meta.db_table for model in models if model.__module__.startswith("mcp_django")
    }


def test_loggers_keep_their_names() -> None:
    assert set(LOGGERS.split()) <= literals(r'get_logger\("([\w.]+)"\)')


def test_checks_keep_their_ids() -> None:
    assert set(CHECKS.split()) <= literals(r'"(mcp_\w+\.[EWI]\d+)"')
