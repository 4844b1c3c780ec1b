"""Permission functions for `permission=` of declarations.

@tool(permission=in_group("editors", "translators"))
def publish(number: int) -> str: ...
"""

from collections.abc import Awaitable, Callable
from typing import Any


def in_group(*names: str) -> Callable[[Any], Awaitable[bool]]:
    """Return a permission for users in at least one of these groups.

    Superusers need to be in a group as well. To require several groups at once, list them:
    `permission=[in_group("editors"), in_group("night shift")]`.

    Raises:
        TypeError: no name, or an invalid one.
    """
    checked_names: tuple[Any, ...] = names
    if not checked_names or not all(isinstance(name, str) and name for name in checked_names):
        raise TypeError("in_group() requires names of groups, such as in_group('editors')")

    async def is_member(principal: Any) -> bool:
        return bool(await principal.ain_group(*names))

    is_member.__qualname__ = f"in_group({', '.join(map(repr, names))})"
    return is_member
