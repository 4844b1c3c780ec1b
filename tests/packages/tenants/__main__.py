"""The calls of two members, and their results as JSON: `python -m tests.packages.tenants`."""

import json
import sys
from types import ModuleType
from typing import Any

import django
from asgiref.sync import async_to_sync
from django.core.management import call_command


def main() -> None:
    """Migrate two tenants, and call the tools of the recipe as a member of each and as another user."""
    django.setup()
    call_command("migrate_schemas", shared=True, verbosity=0, interactive=False)
    from django.contrib.auth.models import User
    from django_tenants.utils import tenant_context

    from mcp_django.server.options import ServerOptions
    from mcp_django.server.primitives.registry import get_registry
    from mcp_django.server.server import Server
    from mcp_django.testing import TestClient
    from tests.packages.tenants.customers.models import Customer
    from tests.packages.tenants.orders import models as order_models
    from tests.recipes.pages import block_with

    for name in ("opera", "circus"):
        customer = Customer.objects.create(schema_name=name)
        customer.members.add(User.objects.create_superuser(name))
        with tenant_context(customer):
            order_models.Order.objects.create(reference=f"of the {name}")
    User.objects.create_superuser("stranger")

    sys.modules["shop"], sys.modules["shop.models"] = ModuleType("shop"), order_models
    sys.modules["customers"], sys.modules["customers.models"] = (
        ModuleType("customers"),
        sys.modules[Customer.__module__],
    )
    block: dict[str, Any] = {}
    exec(block_with("django-tenants", "def enter_tenant"), block)
    exec(block_with("django-tenants", "class Orders"), {"__name__": "shop.mcp_tools"})
    server = Server(
        "docs", "1", registry=get_registry("default"), options=ServerOptions(around=(block["enter_tenant"],))
    )

    def call(name: str, tool: str, **arguments: Any) -> Any:
        client = TestClient(server, user=User.objects.get(username=name))
        answer = async_to_sync(client.call_tool)(f"order_{tool}", arguments)
        return answer["content"][0]["text"] if answer.get("isError") else answer["structuredContent"]

    results = {
        "opera": [row["reference"] for row in call("opera", "list")["items"]],
        "circus": [row["reference"] for row in call("circus", "list")["items"]],
        "stranger": call("stranger", "list"),
        "created": call("opera", "create", values={"reference": "new"})["item"]["reference"],
        "foreign": call("circus", "get", pk=2),
        "opera after": [row["reference"] for row in call("opera", "list")["items"]],
    }
    sys.stdout.write(f"\n{json.dumps(results)}\n")


if __name__ == "__main__":
    main()
