"""Where requests go: bases that are accepted, paths below them, and origins that keep the credential."""

from __future__ import annotations

import pytest

from mantyx_sync.errors import MantyxConfigError
from mantyx_sync.transport.url import BaseURL, absolute, segment, site


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h:1", "http://h:1/runs"),
        ("http://h:1/", "http://h:1/runs"),
        ("http://h:1///", "http://h:1/runs"),
        ("http://h:1/api", "http://h:1/api/runs"),
        ("http://h:1/api/", "http://h:1/api/runs"),
        (" http://h:1 ", "http://h:1/runs"),
        ("https://h", "https://h/runs"),
        ("https://h/@team", "https://h/@team/runs"),
        ("HTTPS://H/Api", "HTTPS://H/Api/runs"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x/runs"),
    ],
)
def test_paths_are_put_below_the_base(base: str, url: str) -> None:
    assert BaseURL(base).join("/runs") == url


@pytest.mark.parametrize(
    "base",
    [
        "",
        "h:1",
        "//h:1",
        "/api",
        "ftp://h",
        "http://",
        "http:///api",
        "http://h:port",
        "http://h:99999",
        "http://[::1",
        "http://h:1/api?x=1",
        "http://h:1?",
        "http://h:1/#",
        "http://h:1/#top",
        "http://h\\@evil",
        "http://h/a b",
        "http://h/a\nb",
        "http://h\t.example",
        None,
        7,
    ],
)
def test_what_is_no_base_is_refused(base: object) -> None:
    with pytest.raises(MantyxConfigError, match="gateway_url"):
        BaseURL(base, field="gateway_url")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "base",
    [
        "http://user:MARKER@h:1",
        "http://user:MARKER@h:99999",
        "http://MARKER@h",
        "http://:MARKER@h",
        "user:MARKER@h:1",
        "ftp://user:MARKER@h",
        "http://h:1/?api_key=MARKER",
        "http://h:1/#MARKER",
    ],
)
def test_a_credential_in_a_base_is_not_shown(base: str) -> None:
    with pytest.raises(MantyxConfigError) as caught:
        BaseURL(base)
    assert "MARKER" not in str(caught.value)
    assert "MARKER" not in repr(caught.value)


@pytest.mark.parametrize(
    ("query", "end"),
    [
        (None, ""),
        ({}, ""),
        ({"a": None}, ""),
        ({"limit": 5, "cursor": None, "q": "é &?"}, "?limit=5&q=%C3%A9+%26%3F"),
        ({"status": ["a", "b"]}, "?status=a&status=b"),
        ({"events": True, "raw": False}, "?events=true&raw=false"),
        ({"min": 0.5}, "?min=0.5"),
    ],
)
def test_queries_are_encoded(query: dict[str, object] | None, end: str) -> None:
    assert BaseURL("http://h/api").join("/runs", query) == "http://h/api/runs" + end  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["runs", "", "@evil.example/", ":80/", ".evil.example/"])
def test_a_path_cannot_change_the_host(path: str) -> None:
    with pytest.raises(ValueError, match="slash"):
        BaseURL("http://h").join(path)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("run_7f3", "run_7f3"),
        ("a/b", "a%2Fb"),
        ("a?b#c", "a%3Fb%23c"),
        ("a b", "a%20b"),
        ("..", "%2E%2E"),
        (".", "%2E"),
        ("...", "..."),
        ("a.b", "a.b"),
        ("../x", "..%2Fx"),
        ("é", "%C3%A9"),
        ("100%", "100%25"),
        ("model:v1~x", "model:v1~x"),
        ("a\r\nb", "a%0D%0Ab"),
        ("a\\b", "a%5Cb"),
    ],
)
def test_an_id_stays_one_segment_of_a_path(value: str, encoded: str) -> None:
    assert segment(value) == encoded


@pytest.mark.parametrize(
    ("base", "url", "same"),
    [
        ("https://h", "https://h/x", True),
        ("https://h", "https://h:443/x", True),
        ("https://h:443", "https://H/x", True),
        ("http://h:8080/api", "http://h:8080/other", True),
        ("http://[::1]:1", "http://[::1]:1/x", True),
        ("https://h", "http://h/x", False),
        ("https://h", "https://h:444/x", False),
        ("https://h", "https://h.evil/x", False),
        ("https://h", "https://evil/x", False),
        ("https://h", "//h/x", False),
        ("https://h", "/x", False),
        ("https://h", "", False),
        ("https://h", "https://h:port/x", False),
        ("https://h", "https://[h/x", False),
        ("https://h", "https://user@h/x", False),
        ("https://h", "https://evil@h/x", False),
        ("https://h", "https://evil\\@h/x", False),
        ("https://h", "https://h\\@evil/x", False),
        ("https://h", "https://h\\.evil/x", False),
        ("https://h", "https://evil#@h/x", False),
        ("https://h", "https://evil?@h/x", False),
        ("https://h", "https:/\\h/x", False),
        ("https://h", " https://h/x", False),
        ("https://h", "https://h\n/x", False),
        ("https://h", "https://h\r\nHost: evil/x", False),
        ("https://h", "https://h/x y", False),
        ("https://h", "https://h:0/x", False),
    ],
)
def test_which_urls_have_the_origin_of_the_base(base: str, url: str, same: bool) -> None:
    assert BaseURL(base).has_origin_of(url) is same


def test_urls_of_the_same_origin_are_dialled_there() -> None:
    """What decides and what connects read a URL with different parsers; here they must agree."""
    from urllib3.util import parse_url

    base = BaseURL("https://h")
    for middle in ["", "@", "\\", "\\@", "#@", "?@", ":443@", "%40", "/", "//", ";@", ",", "\u2044", "\uff0f", "."]:
        for first, second in [("h", "evil"), ("evil", "h"), ("h", ""), ("", "h")]:
            url = f"https://{first}{middle}{second}/x"
            if base.has_origin_of(url):
                dialled = parse_url(url)
                assert (dialled.scheme, dialled.host, dialled.port or 443) == base.origin, url


def test_a_base_shows_itself() -> None:
    assert repr(BaseURL("http://h:1/api/")) == "BaseURL('http://h:1/api')"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://X.example:443/A", "https://x.example/A"),
        ("http://x", "http://x/"),
        ("http://x:8080/a#frag", "http://x:8080/a"),
        ("http://x/a?b=c d"[:-2], "http://x/a?b=c"),
        ("http://x/é", "http://x/%C3%A9"),
        ("http://x/%C3%A9", "http://x/%C3%A9"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://[::1]:80/", "http://[::1]/"),
    ],
)
def test_urls_have_one_form(url: str, expected: str) -> None:
    assert absolute(url) == expected
    assert absolute(expected) == expected


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://h/path?token=MARKER#f", "https://h"),
        ("http://h:8080/path", "http://h:8080"),
        ("https://user:MARKER@h:1/x", "https://h:1"),
        ("/login", "/login"),
        ("http://[broken", "a broken URL"),
        ("", ""),
        ("https://" + "h" * 500, "https://" + "h" * 192),
    ],
)
def test_a_site_is_all_that_is_shown_of_a_url(url: str, shown: str) -> None:
    assert site(url) == shown
