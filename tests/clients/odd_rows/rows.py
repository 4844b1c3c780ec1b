"""Random rows of the site, with values that clients may take for invalid."""

import datetime as dt
import random
import uuid
from decimal import Decimal
from typing import Any

ROWS = 300
SEED = 20261128


def create_rows() -> list[int]:
    """Create the rows, and return their keys."""
    from tests.clients.odd_rows.site.models import Oddity

    chance = random.Random(SEED)
    keys: list[int] = []
    for _ in range(ROWS):
        parent = chance.choice(keys) if keys and chance.random() < 0.5 else None
        row = Oddity.objects.create(**draw_row(chance), parent_id=parent)
        row.friends.set(chance.sample(keys, min(len(keys), chance.randrange(4))))
        keys.append(row.pk)
    return keys


def draw_row(chance: random.Random) -> dict[str, Any]:
    """Draw the values of a row."""

    def maybe(value: Any) -> Any:
        return value if chance.random() < 0.7 else None

    moment = dt.datetime(1, 1, 1) + dt.timedelta(  # noqa: DTZ001 - the site has no time zones
        days=chance.randrange(3_600_000), microseconds=chance.choice([0, 1, chance.randrange(86_400_000_000)])
    )
    return {
        "label": chance.choice(["", "ä €", '"quoted"\n', "a" * 80]),
        "email": chance.choice(["", "a@b.example", "größe@bücher.example", "not an address"]),
        "address": chance.choice(["", "https://a.example/ä b", "ftp://x", "//no-scheme"]),
        "made": maybe(moment),
        "day": maybe(moment.date()),
        "opens": maybe(moment.time()),
        "takes": maybe(dt.timedelta(seconds=chance.uniform(-1e8, 1e8))),
        "key": uuid.UUID(int=chance.getrandbits(128)),
        "host": maybe(chance.choice(["::1", "127.0.0.1", "::ffff:10.0.0.1"])),
        "large": chance.choice([0, 2**53, -(2**53) - 1, 2**63 - 1, -(2**63)]),
        "price": Decimal(chance.randrange(-(10**15), 10**15)) / 10**4,
        "ratio": maybe(chance.choice([0.0, -0.0, 1e300, 5e-324, 0.1])),
        "is_open": maybe(chance.random() < 0.5),
        "mood": maybe(chance.choice(["glad", "sad", ""])),
        "level": maybe(chance.choice([1, 2, 7])),
        "data": maybe(draw_json(chance)),
        "content": chance.randbytes(chance.randrange(5)),
        "picture": chance.choice(["", "a b.png"]),
    }


def draw_json(chance: random.Random, depth: int = 3) -> Any:
    """Draw a JSON value, arrays in arrays included."""
    leaves: list[Any] = ["", "x", 0, 1.5, True, None, 2**60, [], {}]
    if depth == 0 or chance.random() < 0.3:
        return chance.choice(leaves)
    inner = [draw_json(chance, depth - 1) for _ in range(chance.randrange(3))]
    return inner if chance.random() < 0.5 else {str(number): value for number, value in enumerate(inner)}


def build_plan(keys: list[int]) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that read the rows by each way."""
    plan: list[tuple[str, dict[str, Any]]] = [
        ("oddity_list", {"limit": ROWS}),
        ("oddity_describe", {}),
        ("oddity_aggregate", {"metrics": [{"function": "max", "field": "made"}], "group_by": ["mood"]}),
        ("view_list", {}),
    ]
    for key in keys:
        plan += [
            ("oddity_get", {"pk": key}),
            ("view_retrieve", {"pk": key}),
            ("describe_row", {"pk": key}),
            ("api_row", {"pk": key}),
        ]
    plan += [("show_row", {"pk": key}) for key in keys[::2]]
    return plan
