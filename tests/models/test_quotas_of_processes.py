"""Limits of sessions that several processes open at once."""

import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from mcp_django.models import EndReason, Session

ROOT = Path(__file__).resolve().parents[2]
PROCESSES, TIMES, IDLE = 3, 20, 3600.0

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.integration]


def opened(owner: str, *, quota: int, cap: int) -> int:
    """Let processes open sessions at the same time; how many were taken in all."""
    name = str(connection.settings_dict["NAME"])
    command = [sys.executable, "-m", "tests.models.opening", name, owner, str(quota), str(cap), str(TIMES)]
    openers = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    try:
        for opener in openers:
            assert opener.stdout is not None
            assert opener.stdout.readline() == "ready\n"
        for opener in openers:
            assert opener.stdin is not None
            opener.stdin.write("\n")
            opener.stdin.flush()
        return sum(int(opener.communicate(timeout=120)[0]) for opener in openers)
    finally:
        for opener in openers:
            opener.kill()
            opener.communicate()


def test_an_owner_s_quota_is_exact_across_processes() -> None:
    assert opened("crowd", quota=3, cap=1000) == PROCESSES * TIMES
    live = Session.objects.live(idle=IDLE)
    assert live.count() == live.filter(slot__isnull=False).count() == 3
    assert Session.objects.filter(end_reason=EndReason.QUOTA).count() == PROCESSES * TIMES - 3


def test_a_server_s_cap_is_exact_across_processes() -> None:
    assert opened("", quota=3, cap=20) == 20
    assert Session.objects.live(idle=IDLE).count() == 20
