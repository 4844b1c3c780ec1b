"""The comparison, run by the interpreter of a project's environment.

usage: python -m tests.real_projects.inside NAME [--operations N] [--seed N]; prints a report as JSON at the end.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from importlib import import_module

import django
from asgiref.sync import async_to_sync
from django.core.management import call_command


def main() -> None:
    """Make the tables and rows, expose the models, compare, and print the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--operations", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--migrate", action="store_true", help="make the tables, and nothing else")
    options = parser.parse_args()

    django.setup()
    if options.migrate:
        call_command("migrate", verbosity=0, interactive=False)
        return
    # Modules that need the apps of the project.
    from mcp_django.testing import TestClient
    from tests.real_projects.exposure import register_models
    from tests.real_projects.operations import Comparison
    from tests.real_projects.views import compare_views, count_untyped_tools

    site = import_module(f"tests.real_projects.{options.name}.site").build_site()
    refused = register_models(site.kinds, site.base)
    lists = site.expose_views()
    call_command("check")
    began = time.process_time()
    findings = Comparison(site, options.seed).run(options.operations)
    if lists:
        compare_views(lists, site.users, findings)
    findings.wrong += site.check_writes(site)
    report = {
        "models": len(site.kinds),
        "views": len(lists),
        "untyped_tools": count_untyped_tools(findings) if lists else 0,
        "tools": len(async_to_sync(TestClient().list_tools)()),
        "without_rows": site.errors,
        "refused": refused,
        "seconds": round(time.process_time() - began, 1),
        **asdict(findings),
    }
    json.dump(report, sys.stdout, indent=1, default=str)


if __name__ == "__main__":
    main()
