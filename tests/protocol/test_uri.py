import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.protocol.uri import MAX_URI_LENGTH, UriTemplate

CHARACTERS = st.characters(codec="utf-8", exclude_characters="\0")
SEGMENTS = (
    st.one_of(st.text(characters, min_size=1, max_size=8) for characters in (CHARACTERS, "a.-%2Fé?#&=+ ,\\~_", "-.~_a"))
    .map(lambda text: text.replace("/", ""))
    .filter(lambda text: text and ".." not in text.replace("\\", "/").split("/"))
)
SPANS = st.lists(SEGMENTS | st.just(""), min_size=1, max_size=4).map("/".join).filter(bool)
QUERY = st.text(CHARACTERS, max_size=8)
SEPARATORS = ["/", "-", ".", "/x/", "~_", ":", "a-a", "--", "%20/", "=", "-6"]


@st.composite
def templates(draw):
    """A template and values for it."""
    pieces, values = ["x://"], {}
    names = [f"v{index}" for index in range(draw(st.integers(1, 4)))]
    spanning = draw(st.sampled_from([None, *names]))
    for name in names:
        kind = draw(st.sampled_from("+*")) if name == spanning else ""
        if name != names[0]:
            slashes = kind or names[names.index(name) - 1] == spanning
            pieces.append(draw(st.sampled_from(["/", "/x/"] if slashes else SEPARATORS)))
        pieces.append({"": f"{{{name}}}", "+": f"{{+{name}}}", "*": f"{{{name}*}}"}[kind])
        if kind == "*":
            values[name] = draw(st.lists(SEGMENTS, min_size=1, max_size=4))
        else:
            values[name] = draw(SPANS if kind else SEGMENTS)
    pieces.append(draw(st.sampled_from(["", "/", "/end", "/a.b"])))
    if draw(st.booleans()):
        pieces.append("{?a,b}")
        values |= draw(st.dictionaries(st.sampled_from("ab"), QUERY))
    return "".join(pieces), values


@given(templates())
def test_matching_returns_the_expanded_values(case):
    text, values = case
    template = UriTemplate(text)
    uri = template.expand(values)
    assert uri.isascii()
    assert template.match(uri) == values


@given(
    st.sampled_from(["x://{a}", "x://{a}/{b}", "x://{a}-{b}.{c}", "x://{+a}", "x://y/{a*}/{b}", "x://{a}{?q,r}"]),
    st.text(),
)
def test_any_text_matches_or_does_not(text, rest):
    found = UriTemplate(text).match("x://" + rest)
    for value in (found or {}).values():
        for part in [value] if isinstance(value, str) else value:
            assert "\0" not in part


def test_a_uri_matches(subtests: pytest.Subtests) -> None:
    cases = [
        ("airport://{code}", "airport://LHR", {"code": "LHR"}),
        ("airport://{code}/info", "airport://LHR/info", {"code": "LHR"}),
        ("test://template/{id}/data", "test://template/123/data", {"id": "123"}),
        ("x://{name}.{ext}", "x://a.tar.gz", {"name": "a.tar", "ext": "gz"}),
        ("x://{a}--{b}", "x://a---b", {"a": "a-", "b": "b"}),
        ("x://v{n}b", "x://vb1bb", {"n": "b1b"}),
        ("x://{+path}", "x://a/b/c.txt", {"path": "a/b/c.txt"}),
        ("file://{+path}", "file:///etc/hosts", {"path": "/etc/hosts"}),
        ("x://{+path}/raw", "x://a/raw/raw", {"path": "a/raw"}),
        ("x://pre{+path}.md", "x://preface/a.md", {"path": "face/a"}),
        ("x://{path*}", "x://a/b/c", {"path": ["a", "b", "c"]}),
        ("x://{path*}", "x://a", {"path": ["a"]}),
        ("x://{user}/{path*}/{n}", "x://u/a/b/1", {"user": "u", "path": ["a", "b"], "n": "1"}),
        ("x://{a}", "x://a%20b%C3%A9", {"a": "a bé"}),
        ("x://{a}", "x://a,b+c", {"a": "a,b+c"}),
        ("x://s{?q,page}", "x://s", {}),
        ("x://s{?q,page}", "x://s?", {}),
        ("x://s{?q,page}", "x://s?page=2&q=a%26b", {"q": "a&b", "page": "2"}),
        ("x://s{?q,page}", "x://s?q=", {"q": ""}),
        ("x://s{?q,page}", "x://s?q", {"q": ""}),
        ("x://s{?q,page}", "x://s?q=a=b/c?d", {"q": "a=b/c?d"}),
        ("x://{+p}{?q}", "x://a/b?q=1", {"p": "a/b", "q": "1"}),
        ("x://plain", "x://plain", {}),
    ]
    for text, uri, values in cases:
        with subtests.test(text=text, uri=uri, values=values):
            assert UriTemplate(text).match(uri) == values


def test_a_uri_does_not_match(subtests: pytest.Subtests) -> None:
    cases = [
        ("airport://{code}", "airport://"),
        ("airport://{code}", "airport://LHR/info"),
        ("airport://{code}", "airport://LHR/"),
        ("airport://{code}", "Airport://LHR"),
        ("airport://{code}", "airport://LHR?x=1"),
        ("airport://{code}", "airport://LHR#x"),
        ("airport://{code}/info", "airport://LHR/infos"),
        ("x://{a}-{b}", "x://a-"),
        ("x://{a}-{b}", "x://-b"),
        ("x://{a}-{b}", "x://-"),
        ("x://{a}--{b}", "x://a-b"),
        ("x://{a}ab", "x://ab"),
        ("x://ab{a}ba", "x://aba"),
        ("x://{a}/{b}", "x://a//b"),
        ("x://{+path}", "x://"),
        ("x://{+path}/raw", "x:///raw"),
        ("x://ab{+a}ba", "x://aba"),
        ("x://{path*}", "x://a//b"),
        ("x://{path*}", "x://a/"),
        ("x://{user}/{path*}/{n}", "x://u/1"),
        ("x://s{?q}", "x://s?r=1"),
        ("x://s{?q}", "x://s?q=1&q=2"),
        ("x://s{?q}", "x://s?q=1&"),
        ("x://s{?q}", "x://s?q=1#f"),
        ("x://s{?q}", "x://t?q=1"),
        ("x://plain", "x://plainer"),
        ("x://plain", "x://plain/"),
    ]
    for text, uri in cases:
        with subtests.test(text=text, uri=uri):
            assert UriTemplate(text).match(uri) is None


def test_a_malformed_uri_does_not_match(subtests: pytest.Subtests) -> None:
    cases = ["x://%", "x://%2", "x://%zz", "x://%ff", "x://%C3", "x://a b", "x://é", "x://a\n", "x://<a>"]
    for uri in cases:
        with subtests.test(uri=uri):
            assert UriTemplate("x://{a}").match(uri) is None
            assert UriTemplate("x://{+a}").match(uri) is None
            assert UriTemplate("x://s{?a}").match(uri.replace("x://", "x://s?a=")) is None


def test_path_traversal_does_not_match(subtests: pytest.Subtests) -> None:
    cases = [
        "..",
        "%2e%2e",
        "%2E.",
        "..%2Fetc",
        "%2e%2e%2fetc",
        "..%5Cetc",
        "%5C..",
        "a%00b",
        "a/../b",
        "../a",
        "a/..",
        "a/%2e%2e/b",
    ]
    for raw in cases:
        with subtests.test(raw=raw):
            for text in ("x://f/{a}", "x://f/{+a}", "x://f/{a*}", "x://f/{a}/{b}", "x://f/{a}-{b}"):
                assert UriTemplate(text).match(f"x://f/{raw}") is None, text


def test_dots_inside_a_segment_match():
    assert UriTemplate("x://{+a}").match("x://a..b/...") == {"a": "a..b/..."}


def test_an_encoded_slash_does_not_cross_a_segment():
    assert UriTemplate("x://{a}").match("x://a%2Fb") is None
    assert UriTemplate("x://{a*}").match("x://a%2Fb") is None
    assert UriTemplate("x://{+a}").match("x://a%2Fb") == {"a": "a/b"}


def test_values_are_decoded_exactly_once():
    assert UriTemplate("x://{a}").match("x://%252e%252e") == {"a": "%2e%2e"}
    assert UriTemplate("x://s{?a}").match("x://s?a=%2541") == {"a": "%41"}


def test_an_overlong_uri_does_not_match():
    template = UriTemplate("x://{a}")
    assert template.match("x://" + "a" * (MAX_URI_LENGTH - 4)) is not None
    assert template.match("x://" + "a" * (MAX_URI_LENGTH - 3)) is None
    with pytest.raises(ValueError, match="longer"):
        template.expand({"a": "a" * MAX_URI_LENGTH})


def test_hostile_uris_are_refused_in_linear_time(subtests: pytest.Subtests) -> None:
    """Backtracking would take hours here."""
    cases = [
        ("x://" + "-".join(f"{{v{i}}}" for i in range(20)) + "!", "x://" + "a-" * 4000),
        ("x://" + "/".join(f"{{v{i}}}" for i in range(20)) + "/!", "x://" + "a/" * 4000),
        ("x://{+a}/!/{b}/end", "x://" + "/!" * 4000),
        ("x://{a*}", "x://" + "a/" * 4000),
        ("x://{a}aa-aa{b}aa-aa{c}!", "x://" + "aa-" * 2700),
        ("x://s{?a,b}", "x://s?" + "a=1&" * 2000),
        ("x://{a}", "x://" + "%" * 8000),
    ]
    for text, uri in cases:
        with subtests.test(text=text, uri=uri):
            assert UriTemplate(text).match(uri) is None


def test_a_malformed_or_ambiguous_template_is_refused(subtests: pytest.Subtests) -> None:
    cases = [
        "x://{",
        "x://}",
        "x://{}",
        "x://{a",
        "x://a}",
        "x://{a{b}}",
        "x://{1a}",
        "x://{a b}",
        "x://{a-b}",
        "x://{%2F}",
        "x://{%C3}",
        "x://{%20a}",
        "x://{/a}",
        "x://{#a}",
        "x://{.a}",
        "x://{;a}",
        "x://{&a}",
        "x://{a:3}",
        "x://{+a*}",
        "x://{+}",
        "x://{*}",
        "x://{a,b}",
        "x://{?}",
        "x://{?a",
        "x://{?a,}",
        "x://{?a*}",
        "x://{?a}/b",
        "x://{?a}{?b}",
        "x://y?z{?a}",
        "x://{a}/{a}",
        "x://{a}{?a}",
        "x://{a}{b}",
        "x://{a}x{b}",
        "x://{a}%20{b}",
        "x://{+a}/{+b}",
        "x://{a*}/{+b}",
        "x://{a}-{+b}",
        "x://a b",
        "x://%zz",
        "x://" + "a" * MAX_URI_LENGTH,
    ]
    for text in cases:
        with subtests.test(text=text), pytest.raises(ValueError, match="URI template"):
            UriTemplate(text)


def test_values_that_would_not_match_again_are_refused(subtests: pytest.Subtests) -> None:
    cases = [
        ("x://{a}", {}),
        ("x://{a}", {"a": ""}),
        ("x://{a}", {"a": "b/c"}),
        ("x://{a}", {"a": ".."}),
        ("x://{a}", {"a": "b\0"}),
        ("x://{a}", {"a": ["b"]}),
        ("x://{a}", {"a": 1}),
        ("x://{a}", {"a": "b", "c": "d"}),
        ("x://{+a}", {"a": "b/../c"}),
        ("x://{+a}", {"a": ""}),
        ("x://{a*}", {"a": []}),
        ("x://{a*}", {"a": ["b", ""]}),
        ("x://{a*}", {"a": ["b/c"]}),
        ("x://{a*}", {"a": [".."]}),
        ("x://s{?a}", {"a": "\0"}),
        ("x://s{?a}", {"a": 1}),
    ]
    for text, values in cases:
        with subtests.test(text=text, values=values), pytest.raises(ValueError, match="a"):
            UriTemplate(text).expand(values)


def test_expansion(subtests: pytest.Subtests) -> None:
    cases = [
        ("x://{a}", {"a": "b c/".strip("/")}, "x://b%20c"),
        ("x://{+a}", {"a": "b/c?d#e"}, "x://b/c?d#e"),
        ("x://{+a}{?q}", {"a": "b/c?d"}, "x://b/c%3Fd"),
        ("x://{a*}", {"a": ["b,c", "d"]}, "x://b%2Cc/d"),
        ("x://{a*}", {"a": "b/c"}, "x://b/c"),
        ("x://{a}-{b}", {"a": "c-d", "b": "e-f"}, "x://c%2Dd-e%2Df"),
        ("x://s{?a,b}", {"b": "1", "a": "&"}, "x://s?a=%26&b=1"),
        ("x://s{?a,b}", {}, "x://s"),
        ("x://plain", {}, "x://plain"),
    ]
    for text, values, uri in cases:
        with subtests.test(text=text, values=values, uri=uri):
            assert UriTemplate(text).expand(values) == uri


def test_a_template_knows_its_variables_in_order():
    template = UriTemplate("x://{b}/{+a}/z{?d,c}")
    assert (template.variables, template.is_static) == (("b", "a", "d", "c"), False)
    assert (UriTemplate("x://y").variables, UriTemplate("x://y").is_static) == ((), True)


def test_templates_with_the_same_text_are_equal():
    assert UriTemplate("x://{a}") == UriTemplate("x://{a}") != UriTemplate("x://{b}")
    assert len({UriTemplate("x://{a}"), UriTemplate("x://{a}")}) == 1
    assert repr(UriTemplate("x://{a}")) == "UriTemplate('x://{a}')"
