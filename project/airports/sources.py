"""The demo's data: countries and regions from `pycountry`, airports from `airportsdata`, as unsaved model instances."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import airportsdata
import pycountry

from project.airports.models import Airport, Country, Region
from project.airports.text import fold

KOSOVO = Country(code="XK", alpha_3="XKX", name="Kosovo", official_name="Republic of Kosovo", flag="🇽🇰")
"""The airport data uses this user-assigned code; ISO 3166-1, and so pycountry, has no entry for it."""

_COMPASS = frozenset(
    ["north", "south", "east", "west", "northern", "southern", "eastern", "western", "central", "upper", "lower"]
)
_KINDS = (
    frozenset(["oblast", "oblasti", "oblysy", "kray", "krai", "okrug", "avtonomnyy", "avtonomnaya", "respublika"])
    | frozenset(["republic", "sheng", "zizhiqu", "lan", "kraj", "do", "viloyati", "vilayeti", "wilayat", "muhafazat"])
    | frozenset(["fylke", "and", "of", "the", "de", "del", "da", "la", "le", "el", "al"])
)
"""Words that tell what a region is rather than which; and each region's own type is such a word."""


class _Spelling(NamedTuple):
    """One spelling of a region's name."""

    words: frozenset[str]
    region: str


class RegionFinder:
    """Finds the ISO 3166-2 region that a free-text subdivision of the airport data means.

    A name is taken only when it leaves no doubt: its telling words are those of a region; or they are contained in one
    region's longer name and no other's; or each begins a word of one region's name and no other's (`Irkutsk`,
    `Irkutskaya`). Likeness is no reason, so that Hordaland never becomes Nordland: no region beats a wrong one.
    """

    def __init__(self, regions: Iterable[Region]) -> None:
        self._spellings: dict[str, list[_Spelling]] = defaultdict(list)
        for region in regions:
            kinds = _KINDS | (set(fold(region.type).split()) - _COMPASS)
            # pycountry writes alternatives as "Valencia / València", "Skåne län [SE-12]" or "Bangka (Kepulauan)".
            for spelling in re.split(r"[\[(/]", region.name):
                # With the region's own type and without it: "Northern Territory" is a name, "Kanton Zürich" is Zürich.
                for words in {_find_distinctive_words(spelling, _KINDS), _find_distinctive_words(spelling, kinds)} - {
                    frozenset()
                }:
                    self._spellings[region.country_id].append(_Spelling(words, region.code))

    def find(self, country: str, name: str) -> str | None:
        """Return the code of the region called `name` in a country (alpha-2 code), or None."""
        words = _find_distinctive_words(name, _KINDS)
        spellings = self._spellings.get(country, []) if words else []
        same = [spelling.region for spelling in spellings if spelling.words == words]
        if same:
            # Where a district and its capital share a name, either will do; the first is the same on every run.
            return same[0]
        longer = {s.region for s in spellings if words < s.words and not (s.words - words) & _COMPASS}
        if len(longer) == 1:
            return longer.pop()
        begun = {s.region for s in spellings if _begins(words, s.words)}
        return begun.pop() if len(begun) == 1 else None


def _begins(words: frozenset[str], others: frozenset[str]) -> bool:
    """Return True if the words of two sets pair up: each begins its partner, which is longer by an ending at most."""
    pairs = zip(sorted(words), sorted(others), strict=False)
    return len(words) == len(others) and all(
        other == word or (len(word) >= 5 and other.startswith(word) and len(other) - len(word) <= 5)
        for word, other in pairs
    )


def _find_distinctive_words(name: str, kinds: Collection[str]) -> frozenset[str]:
    """Return the distinctive words of a name, or all of them if every word is a kind."""
    words = [{"st": "saint", "ste": "sainte"}.get(word, word) for word in fold(name).split()]
    # The airport data often writes ä ö ü as ae oe ue; folding both to the bare vowel lets them meet.
    plain = [word.replace("ae", "a").replace("oe", "o").replace("ue", "u") for word in words]
    return frozenset(word for word, raw in zip(plain, words, strict=True) if raw not in kinds) or frozenset(plain)


def countries(codes: Collection[str] | None = None) -> list[Country]:
    """Return the countries of ISO 3166-1 and Kosovo, or those with the given alpha-2 codes."""
    rows = [
        Country(
            code=row.alpha_2,
            alpha_3=row.alpha_3,
            name=getattr(row, "common_name", row.name),
            official_name=getattr(row, "official_name", ""),
            flag=row.flag,
        )
        for row in pycountry.countries
    ]
    return [country for country in [*rows, KOSOVO] if codes is None or country.code in codes]


def regions(codes: Collection[str] | None = None) -> list[Region]:
    """Return the subdivisions of ISO 3166-2, or those of the given countries."""
    return [
        Region(code=row.code, name=row.name, type=row.type, country_id=row.country_code)
        for row in pycountry.subdivisions
        if codes is None or row.country_code in codes
    ]


def airports(finder: RegionFinder, codes: Collection[str] | None = None) -> Iterator[Airport]:
    """Yield the airports, or those of the given countries, each with the region its subdivision names, if any."""
    for row in airportsdata.load("ICAO").values():
        if codes is not None and row["country"] not in codes:
            continue
        airport = Airport(
            icao=row["icao"],
            iata=row["iata"],
            name=row["name"],
            city=row["city"],
            country_id=row["country"],
            region_id=finder.find(row["country"], row["subd"]),
            subdivision=row["subd"],
            latitude=row["lat"],
            longitude=row["lon"],
            elevation=round(row["elevation"]),
            timezone=row["tz"],
        )
        airport.search_text = airport.make_search_text()
        yield airport
