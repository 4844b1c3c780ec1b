"""Docstrings of the three styles: the summary for clients, a line for each parameter."""

import functools

import pytest

from mcp_django.schema import DocstringDescription, describe_callable


def google(lat: float, lon: float) -> None:
    """Airports nearest to a point.

    Great-circle distance.
    Two lines.

    Args:
        lat: Degrees north,
            negative in the south.
        lon (float): Degrees east.
        *rest: More.

    Returns:
        A list.

    Raises:
        ValueError: Never.

    Example:
        >>> google(1, 2)
    """


def numpy(lat: float, lon: float) -> None:
    """Airports nearest to a point.

    Great-circle distance.
    Two lines.

    Parameters
    ----------
    lat : float
        Degrees north,
        negative in the south.
    lon, alt : float
        Degrees east.

    Returns
    -------
    list
        A list.

    Raises
    ------
    ValueError
        Never.

    Examples
    --------
    >>> numpy(1, 2)
    """


def sphinx(lat: float, lon: float) -> None:
    """Airports nearest to a point.

    Great-circle distance.
    Two lines.

    :param lat: Degrees north,
        negative in the south.
    :param float lon: Degrees east.
    :returns: A list.
    :raises ValueError: Never.
    """


def test_each_style_has_summary_and_parameters(subtests: pytest.Subtests) -> None:
    for fn in [google, numpy, sphinx]:
        with subtests.test(fn=fn):
            described = describe_callable(fn)
            assert described.summary == "Airports nearest to a point.\n\nGreat-circle distance.\nTwo lines."
            assert described.parameters["lat"] == "Degrees north, negative in the south."
            assert described.parameters["lon"] == "Degrees east."


def test_numpy_lists_of_names_share_their_description() -> None:
    assert describe_callable(numpy).parameters["alt"] == "Degrees east."


def test_stars_are_not_part_of_a_name() -> None:
    assert describe_callable(google).parameters["rest"] == "More."


def test_text_without_sections_is_all_summary() -> None:
    def tool() -> None:
        """Say: this: that.

        Note:
            Kept: it is for the reader.
        """

    assert describe_callable(tool) == DocstringDescription(
        "Say: this: that.\n\nNote:\n    Kept: it is for the reader.", {}
    )


def test_an_example_is_removed_from_the_summary() -> None:
    def tool() -> None:
        """Search.

        Example:
            tool()
        """

    assert describe_callable(tool).summary == "Search."


def test_no_docstring_is_an_empty_description() -> None:
    def tool() -> None: ...

    assert describe_callable(tool) == DocstringDescription("", {})


def test_a_partial_is_described_by_its_function() -> None:
    assert describe_callable(functools.partial(google, 1)) == describe_callable(google)


def test_a_callable_object_is_described_by_its_class_or_its_call() -> None:
    class Named:
        """Named."""

        def __call__(self) -> None: ...

    class Called:
        def __call__(self) -> None:
            """Called."""

    assert describe_callable(Named()).summary == "Named."
    assert describe_callable(Called()).summary == "Called."


def test_a_broken_docstring_never_stops_registration(subtests: pytest.Subtests) -> None:
    cases = [
        "Args:\n",
        "Args:\nx\n",
        "X.\n\nArgs:\n    no colon here\n",
        "Parameters\n----------\n",
        ":param:",
        ":param a b c d: x",
        "Raises:",
        "\x00",
    ]
    for text in cases:
        with subtests.test(text=text):

            def tool() -> None: ...

            tool.__doc__ = text
            assert isinstance(describe_callable(tool).summary, str)
