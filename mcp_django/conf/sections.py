"""Parser of the setting: from dicts to dataclasses, with a list of problems."""

import functools
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast, get_type_hints

from mcp_django.conf.clients import CLIENT_ALIAS, ClientAuth, ClientSettings, WrongPart, wrong_in_client
from mcp_django.conf.issuers import Claims, Issuer, WrongSecret, wrong_beside, wrong_together
from mcp_django.conf.options import ServerSettings
from mcp_django.conf.proxies import ProxySettings
from mcp_django.conf.readers import ALIAS, WrongValue, closest, reader_of

S = TypeVar("S")


class Problem(NamedTuple):
    """A problem of the setting."""

    path: str
    """Path of the option, such as `MCP["LIMITS"]["BODY"]`."""
    message: str
    """Description of the problem, to be read after the path."""
    suggestion: str | None
    """Probable intention, for the hint."""
    unknown: bool = False
    """True for an unknown key, False for an invalid value."""


def read_servers(raw: Any, found: list[Problem]) -> Mapping[str, ServerSettings]:
    """Read `MCP["SERVERS"]`, and add the default server."""
    path = 'MCP["SERVERS"]'
    servers: dict[str, ServerSettings] = {}
    for alias, options in entries(raw, path, found).items():
        if not isinstance(alias, str) or not re.fullmatch(ALIAS, alias):
            message = f"has the alias {reprlib.repr(alias)}, which is not a word in small letters"
            found.append(Problem(path, message, None))
            continue
        options = entries(options, f'{path}["{alias}"]', found)
        if alias != "default":
            options = {"NAME": alias, "PATH": f"mcp/{alias}", **options}
        proxies = _proxies(options.get("PROXIES", {}), f'{path}["{alias}"]["PROXIES"]', found)
        server = read_section(ServerSettings, options, f'{path}["{alias}"]', found, proxies=proxies)
        where = f'{path}["{alias}"]["PATH"]'
        taken = next((other for other, earlier in servers.items() if earlier.path == server.path), None)
        if taken is not None and not any(problem.path == where for problem in found):
            found.append(Problem(where, f"is {server.path!r}, which is already the path of {taken!r}", None))

        servers[alias] = server
    if "default" not in servers:
        if servers:
            found.append(Problem(path, 'needs a "default", which serves declarations that name no server', None))
        servers["default"] = ServerSettings()
    return MappingProxyType(servers)


def _proxies(raw: Any, path: str, found: list[Problem]) -> Mapping[str, ProxySettings]:
    """Read a dict of entries by alias, or a list of aliases."""
    if isinstance(raw, list | tuple) and all(isinstance(alias, str) for alias in raw):
        raw = {alias: {} for alias in raw}
    proxies: dict[str, ProxySettings] = {}
    prefixes: dict[str, str] = {}
    for alias, options in entries(raw, path, found).items():
        where = f"{path}[{_quoted(alias)}]"
        if not isinstance(alias, str) or not re.fullmatch(CLIENT_ALIAS, alias):
            found.append(Problem(where, 'must be an alias in MCP["CLIENTS"]', None))
            continue
        proxy = proxies[alias] = read_section(ProxySettings, options, where, found)
        taken = prefixes.setdefault(proxy.prefix or alias, alias)
        if taken != alias:
            found.append(Problem(f'{where}["PREFIX"]', f"is already used by {taken!r}", None))
    return MappingProxyType(proxies)


def strange_proxies(servers: Mapping[str, ServerSettings], clients: Any) -> Iterator[Problem]:
    """Yield a problem for each proxy without an entry in `MCP["CLIENTS"]`."""
    known = [alias for alias in clients if isinstance(alias, str)] if isinstance(clients, Mapping) else []
    for alias, server in servers.items():
        for name in server.proxies:
            if name not in known:
                where = f'MCP["SERVERS"]["{alias}"]["PROXIES"]["{name}"]'
                yield Problem(where, 'names no entry of MCP["CLIENTS"]', closest(name, known))


def read_issuers(raw: Any, found: list[Problem]) -> tuple[Issuer, ...]:
    """Read `MCP["ISSUERS"]`."""
    if isinstance(raw, str | Mapping) or not isinstance(raw, Sequence):
        found.append(Problem('MCP["ISSUERS"]', "must be a list of dicts", None))
        return ()

    issuers: list[Issuer] = []
    for number, entry in enumerate(raw):
        path, wrong = f'MCP["ISSUERS"][{number}]', list[Problem]()
        if not isinstance(entry, Mapping):
            # The value itself is not shown: it could be a secret.
            found.append(Problem(path, f"must be a dict, not {type(entry).__name__}", None))
            continue
        claims = read_section(Claims, entry.get("CLAIMS", {}), f'{path}["CLAIMS"]', wrong)
        issuer = read_section(Issuer, entry, path, wrong, claims=claims)
        if "ISSUER" not in entry:
            wrong.append(Problem(path, "needs an ISSUER", None))
        if all(problem.unknown for problem in wrong):
            said = (*wrong_together(issuer), *wrong_beside(issuer, issuers))
            wrong += [Problem(f'{path}["{key}"]', message, None) for key, message in said]
            issuers.append(issuer)
        found += wrong

    return tuple(issuers)


def read_clients(raw: Any, found: list[Problem]) -> Mapping[str, ClientSettings]:
    """Read the valid entries of `MCP["CLIENTS"]`."""
    path = 'MCP["CLIENTS"]'
    clients: dict[str, ClientSettings] = {}
    if not isinstance(raw, Mapping):
        found.append(Problem(path, f"must be a dict, not {type(raw).__name__}", None))
        return MappingProxyType(clients)

    for alias, entry in raw.items():
        if not isinstance(alias, str) or not re.fullmatch(CLIENT_ALIAS, alias):
            shown = reprlib.repr(alias)
            message = f"has the alias {shown}, which is not a word of at most 32 small letters, digits, - and single _"
            found.append(Problem(path, message, None))
            continue
        client = _client(alias, entry, f'{path}["{alias}"]', found)
        if client is not None:
            clients[alias] = client

    return MappingProxyType(clients)


def _client(alias: str, entry: Any, path: str, found: list[Problem]) -> ClientSettings | None:
    """Read an entry, or return None if it is invalid.

    A value that is not a dict is not shown, because it could be a secret.
    """
    if not isinstance(entry, Mapping):
        found.append(Problem(path, f"must be a dict, not {type(entry).__name__}", None))
        return None

    wrong, auth = list[Problem](), None
    written = entry.get("AUTH")
    if isinstance(written, Mapping):
        auth = read_section(ClientAuth, written, f'{path}["AUTH"]', wrong)
    elif written is not None:
        wrong.append(Problem(f'{path}["AUTH"]', f"must be a dict, not {type(written).__name__}", None))
    if "ALIAS" in entry:
        wrong.append(Problem(f'{path}["ALIAS"]', "is not an option", None, unknown=True))

    client = read_section(ClientSettings, entry, path, wrong, alias=alias, auth=auth)
    usable = all(problem.unknown for problem in wrong)
    if usable:
        said = list(wrong_in_client(client))
        usable = not said
        for keys, message in said:
            where = "".join(f'["{key}"]' for key in keys.split(".") if key)
            wrong.append(Problem(f"{path}{where}", message, None))

    found += wrong
    return client if usable else None


@functools.cache
def _options(section: type[Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the field names of a section by key, and the field types.

    Cached, because it is the slowest step.
    """
    names = {option.name.upper(): option.name for option in fields(section)}
    return names, get_type_hints(section, include_extras=True)


def read_section(cls: type[S], raw: Any, path: str, found: list[Problem], **nested: Any) -> S:
    """Read a dict into the dataclass `cls`, whose fields are its keys.

    `nested` holds fields that were read before.
    """

    options = entries(raw, path, found)
    names, hints = _options(cast(Any, cls))
    values = dict(nested)
    for key, value in options.items():
        name = names.get(key) if isinstance(key, str) else None
        where = f"{path}[{_quoted(key)}]"
        if name is None:
            found.append(Problem(where, "is not an option", closest(key, names), unknown=True))
        elif name not in nested:
            try:
                values[name] = reader_of(hints[name], name)(value)
            except ValueError as wrong:
                suggestion = wrong.suggestion if isinstance(wrong, WrongValue) else None
                shown = type(value).__name__ if isinstance(wrong, WrongSecret) else reprlib.repr(value)
                said = str(wrong) if isinstance(wrong, WrongPart) else f"{wrong}, not {shown}"
                found.append(Problem(where, said, suggestion))

    return cls(**values)


def entries(raw: Any, path: str, found: list[Problem]) -> Mapping[Any, Any]:
    """Return the dict, or an empty one and a problem for any other value."""
    if isinstance(raw, Mapping):
        return raw
    found.append(Problem(path, f"must be a dict, not {reprlib.repr(raw)}", None))
    return {}


def _quoted(key: object) -> str:
    return f'"{key}"' if isinstance(key, str) else reprlib.repr(key)
