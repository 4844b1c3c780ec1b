"""Open sessions as fast as possible, in a process of its own.

`python -m tests.models.opening DATABASE OWNER QUOTA CAP TIMES` prints "ready", waits for a line, opens TIMES sessions
of OWNER ("" is another owner each time), and prints the number of sessions that were admitted.
"""

import os
import sys
from datetime import timedelta

import django
from django.conf import settings

IDLE = 3600.0


def write_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(database: str, owner: str, quota: str, cap: str, times: str) -> None:
    settings.DATABASES["default"]["NAME"] = database  # DJANGO_SETTINGS_MODULE is that of the test run
    django.setup()

    from django.utils import timezone

    from mcp_django.models import Session
    from mcp_django.models.session import SessionLimit, TooManySessions

    write_line("ready")
    sys.stdin.readline()
    taken = 0
    for turn in range(int(times)):
        now = timezone.now()
        row = Session(
            owner=owner or f"{os.getpid()} {turn}",
            server="default",
            revision="r",
            last_seen=now,
            expires=now + timedelta(days=1),
        )
        row.generate_key()
        try:
            Session.objects.admit(row, quota=int(quota), limit=SessionLimit(int(cap), IDLE))
        except TooManySessions:
            continue
        taken += 1
    write_line(str(taken))


if __name__ == "__main__":
    main(*sys.argv[1:])
