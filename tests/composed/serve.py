"""Serve the composed project: `python -m tests.composed.serve PORT`. Prints a token of each user, as JSON, first."""

import json
import os
import sys

import django
import uvicorn

USERS = ("ada", "bob")


def main(port: int) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.composed.settings"
    django.setup()
    from django.contrib.auth.models import User
    from django.core.asgi import get_asgi_application
    from django.core.management import call_command

    from mcp_django.asgi import mount
    from mcp_django.models import PersonalAccessToken

    call_command("check", stdout=sys.stderr)
    call_command("migrate", verbosity=0)
    users = [User.objects.get_or_create(username=name)[0] for name in USERS]
    tokens = {user.username: PersonalAccessToken.issue(user=user, name="composed", expires=None)[1] for user in users}
    sys.stdout.write(f"{json.dumps(tokens)}\n")
    sys.stdout.flush()
    uvicorn.run(mount(get_asgi_application()), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main(int(sys.argv[1]))
