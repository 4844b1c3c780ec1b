"""Permissions that are no Django permissions, for the `permission=` of declarations.

@tool(permission=in_group("editors", "translators"))
def publish(number: int) -> str: ...
"""

from collections.abc import Awaitable, Callable
from typing import Any


def in_group(*names: str) -> Callable[[Any], Awaitable[bool]]:
    """A permission that users have who are in one of these groups, superusers included only if they are in one.

    For several groups at once ask for each: `permission=[in_group("editors"), in_group("night shift")]`. Raises
    TypeError when there is no name, or what is given is none.
    """
    given: tuple[Any, ...] = names
    if not given or not all(isinstance(name, str) and name for name in given):
        raise TypeError("in_group() takes names of groups, such as in_group('editors')")

    async def is_member(principal: Any) -> bool:
        return bool(await principal.ain_group(*names))

    is_member.__qualname__ = f"in_group({', '.join(map(repr, names))})"
    return is_member
