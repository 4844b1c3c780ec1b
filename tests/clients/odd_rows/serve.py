"""Serve the site of odd rows: `python -m tests.clients.odd_rows.serve PORT`.

The plan of the calls is the first line of the output.
"""

import json
import os
import sys

import django
import uvicorn


def main(port: int) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.clients.odd_rows.site.settings"
    django.setup()
    from django.core.asgi import get_asgi_application
    from django.core.management import call_command

    from mcp_django.asgi import mount
    from tests.clients.odd_rows.rows import build_plan, create_rows

    call_command("check", stdout=sys.stderr)
    call_command("migrate", verbosity=0, run_syncdb=True)
    sys.stdout.write(f"{json.dumps(build_plan(create_rows()))}\n")
    sys.stdout.flush()
    uvicorn.run(mount(get_asgi_application()), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]))
