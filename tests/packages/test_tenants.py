"""django-tenants: the tools of the recipe read and write the schema of the caller's tenant only."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.databases import ROOT, execute
from tests.support.services import POSTGRES_URL

pytestmark = [pytest.mark.integration, pytest.mark.postgres]


def test_members_read_and_write_the_schema_of_their_tenant() -> None:
    name = f"tenants_{os.getpid()}"
    execute(POSTGRES_URL, f"CREATE DATABASE {name}")
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "tests.packages.tenants"],
            cwd=ROOT,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "tests.packages.tenants.settings",
                "TENANTS_DATABASE": name,
                "PYTHONPATH": str(ROOT),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        assert json.loads(ran.stdout.splitlines()[-1]) == {
            "opera": ["of the opera"],
            "circus": ["of the circus"],
            "stranger": "You belong to no customer",
            "created": "new",
            "foreign": "There is no order with the primary key '2'",
            "opera after": ["of the opera", "new"],
        }
    finally:
        execute(POSTGRES_URL, f"DROP DATABASE {name} WITH (FORCE)")
