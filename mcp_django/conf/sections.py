"""Parser of the setting: from dicts to dataclasses, with a list of problems."""

import functools
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast, get_type_hints

from mcp_django.conf.clients import CLIENT_ALIAS_PATTERN, ClientAuth, ClientSettings, WrongPart, find_client_problems
from mcp_django.conf.issuers import ClaimNames, IssuerSettings, WrongSecret, find_issuer_conflicts, find_issuer_problems
from mcp_django.conf.options import ServerSettings
from mcp_django.conf.proxies import ProxySettings
from mcp_django.conf.readers import ALIAS_PATTERN, WrongValue, find_closest, find_reader

S = TypeVar("S")


class SettingsProblem(NamedTuple):
    """A problem of the setting."""

    path: str
    """Path of the option, such as `MCP["LIMITS"]["BODY"]`."""
    message: str
    """Description of the problem, to be read after the path."""
    suggestion: str | None = None
    """Probable intention, for the hint."""
    unknown: bool = False
    """True for an unknown key, False for an invalid value."""


def read_servers(raw: Any, problems: list[SettingsProblem]) -> Mapping[str, ServerSettings]:
    """Read `MCP["SERVERS"]`, and add the default server."""
    path = 'MCP["SERVERS"]'
    servers: dict[str, ServerSettings] = {}
    for alias, options in read_mapping(raw, path, problems).items():
        if not isinstance(alias, str) or not re.fullmatch(ALIAS_PATTERN, alias):
            message = f"has the alias {reprlib.repr(alias)}, which is not a word in small letters"
            problems.append(SettingsProblem(path, message))
            continue
        options = read_mapping(options, f'{path}["{alias}"]', problems)
        if alias != "default":
            options = {"NAME": alias, "PATH": f"mcp/{alias}", **options}
        proxies = _read_proxies(options.get("PROXIES", {}), f'{path}["{alias}"]["PROXIES"]', problems)
        server = read_section(ServerSettings, options, f'{path}["{alias}"]', problems, proxies=proxies)
        option_path = f'{path}["{alias}"]["PATH"]'
        path_owner = next((other for other, earlier in servers.items() if earlier.path == server.path), None)
        if path_owner is not None and not any(problem.path == option_path for problem in problems):
            problem = f"is {server.path!r}, which is already the path of {path_owner!r}"
            problems.append(SettingsProblem(option_path, problem))

        servers[alias] = server
    if "default" not in servers:
        if servers:
            problem = 'needs a "default", which serves declarations that name no server'
            problems.append(SettingsProblem(path, problem))
        servers["default"] = ServerSettings()
    return MappingProxyType(servers)


def _read_proxies(raw: Any, path: str, problems: list[SettingsProblem]) -> Mapping[str, ProxySettings]:
    """Read a dict of entries by alias, or a list of aliases."""
    if isinstance(raw, list | tuple) and all(isinstance(alias, str) for alias in raw):
        raw = {alias: {} for alias in raw}
    proxies: dict[str, ProxySettings] = {}
    prefixes: dict[str, str] = {}
    for alias, options in read_mapping(raw, path, problems).items():
        where = f"{path}[{_quote_key(alias)}]"
        if not isinstance(alias, str) or not re.fullmatch(CLIENT_ALIAS_PATTERN, alias):
            problems.append(SettingsProblem(where, 'must be an alias in MCP["CLIENTS"]'))
            continue
        proxy = proxies[alias] = read_section(ProxySettings, options, where, problems)
        prefix_owner = prefixes.setdefault(proxy.prefix or alias, alias)
        if prefix_owner != alias:
            problems.append(SettingsProblem(f'{where}["PREFIX"]', f"is already used by {prefix_owner!r}"))
    return MappingProxyType(proxies)


def find_unknown_proxies(servers: Mapping[str, ServerSettings], clients: Any) -> Iterator[SettingsProblem]:
    """Yield a problem for each proxy without an entry in `MCP["CLIENTS"]`."""
    known = [alias for alias in clients if isinstance(alias, str)] if isinstance(clients, Mapping) else []
    for alias, server in servers.items():
        for name in server.proxies:
            if name not in known:
                where = f'MCP["SERVERS"]["{alias}"]["PROXIES"]["{name}"]'
                yield SettingsProblem(where, 'names no entry of MCP["CLIENTS"]', find_closest(name, known))


def read_issuers(raw: Any, problems: list[SettingsProblem]) -> tuple[IssuerSettings, ...]:
    """Read `MCP["ISSUERS"]`."""
    if isinstance(raw, str | Mapping) or not isinstance(raw, Sequence):
        problems.append(SettingsProblem('MCP["ISSUERS"]', "must be a list of dicts"))
        return ()

    issuers: list[IssuerSettings] = []
    for number, entry in enumerate(raw):
        path, entry_problems = f'MCP["ISSUERS"][{number}]', list[SettingsProblem]()
        if not isinstance(entry, Mapping):
            # The value itself is not shown: it could be a secret.
            problems.append(SettingsProblem(path, f"must be a dict, not {type(entry).__name__}"))
            continue
        claims = read_section(ClaimNames, entry.get("CLAIMS", {}), f'{path}["CLAIMS"]', entry_problems)
        issuer = read_section(IssuerSettings, entry, path, entry_problems, claims=claims)
        if "ISSUER" not in entry:
            entry_problems.append(SettingsProblem(path, "needs an ISSUER"))
        if all(problem.unknown for problem in entry_problems):
            messages = (*find_issuer_problems(issuer), *find_issuer_conflicts(issuer, issuers))
            entry_problems += [SettingsProblem(f'{path}["{key}"]', message) for key, message in messages]
            issuers.append(issuer)
        problems += entry_problems

    return tuple(issuers)


def read_clients(raw: Any, problems: list[SettingsProblem]) -> Mapping[str, ClientSettings]:
    """Read the valid entries of `MCP["CLIENTS"]`."""
    path = 'MCP["CLIENTS"]'
    clients: dict[str, ClientSettings] = {}
    for alias, entry in read_mapping(raw, path, problems, is_secret=True).items():
        if not isinstance(alias, str) or not re.fullmatch(CLIENT_ALIAS_PATTERN, alias):
            shown = reprlib.repr(alias)
            message = f"has the alias {shown}, which is not a word of at most 32 small letters, digits, - and single _"
            problems.append(SettingsProblem(path, message))
            continue
        client = _read_client(alias, entry, f'{path}["{alias}"]', problems)
        if client is not None:
            clients[alias] = client

    return MappingProxyType(clients)


def _read_client(alias: str, entry: Any, path: str, problems: list[SettingsProblem]) -> ClientSettings | None:
    """Read an entry, or return None if it is invalid.

    A value that is not a dict is not shown, because it could be a secret.
    """
    if not isinstance(entry, Mapping):
        problems.append(SettingsProblem(path, f"must be a dict, not {type(entry).__name__}"))
        return None

    entry_problems, auth = list[SettingsProblem](), None
    if entry.get("AUTH") is not None:
        raw_auth = read_mapping(entry["AUTH"], f'{path}["AUTH"]', entry_problems, is_secret=True)
        auth = read_section(ClientAuth, raw_auth, f'{path}["AUTH"]', entry_problems)
    if "ALIAS" in entry:
        entry_problems.append(SettingsProblem(f'{path}["ALIAS"]', "is not an option", unknown=True))

    client = read_section(ClientSettings, entry, path, entry_problems, alias=alias, auth=auth)
    usable = all(problem.unknown for problem in entry_problems)
    if usable:
        messages = list(find_client_problems(client))
        usable = not messages
        for keys, message in messages:
            where = "".join(f'["{key}"]' for key in keys.split(".") if key)
            entry_problems.append(SettingsProblem(f"{path}{where}", message))

    problems += entry_problems
    return client if usable else None


@functools.cache
def _get_options(section: type[Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the field names of a section by key, and the field types.

    Cached, because it is the slowest step.
    """
    names = {option.name.upper(): option.name for option in fields(section)}
    return names, get_type_hints(section, include_extras=True)


def read_section(cls: type[S], raw: Any, path: str, problems: list[SettingsProblem], **nested: Any) -> S:
    """Read a dict into the dataclass `cls`, whose fields are its keys.

    `nested` holds fields that were read before.
    """

    options = read_mapping(raw, path, problems)
    names, hints = _get_options(cast(Any, cls))
    values = dict(nested)
    for key, value in options.items():
        name = names.get(key) if isinstance(key, str) else None
        where = f"{path}[{_quote_key(key)}]"
        if name is None:
            problems.append(SettingsProblem(where, "is not an option", find_closest(key, names), unknown=True))
        elif name not in nested:
            try:
                values[name] = find_reader(hints[name], name)(value)
            except ValueError as wrong:
                suggestion = wrong.suggestion if isinstance(wrong, WrongValue) else None
                shown = type(value).__name__ if isinstance(wrong, WrongSecret) else reprlib.repr(value)
                said = str(wrong) if isinstance(wrong, WrongPart) else f"{wrong}, not {shown}"
                problems.append(SettingsProblem(where, said, suggestion))

    return cls(**values)


def read_mapping(raw: Any, path: str, problems: list[SettingsProblem], *, is_secret: bool = False) -> Mapping[Any, Any]:
    """Return the dict, or an empty one and a problem for any other value.

    A secret value is not shown.
    """
    if isinstance(raw, Mapping):
        return raw
    shown = type(raw).__name__ if is_secret else reprlib.repr(raw)
    problems.append(SettingsProblem(path, f"must be a dict, not {shown}"))
    return {}


def _quote_key(key: object) -> str:
    return f'"{key}"' if isinstance(key, str) else reprlib.repr(key)
