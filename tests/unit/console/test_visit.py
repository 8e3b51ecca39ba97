"""What a URL and a form may hold."""

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from tandemq.console.visit import FIELDS_MAX, FORM_MAX, Paged, Visit, paged, pattern, read_form, segment
from tandemq.errors import ClientError


def visit(query: str = "", form: dict[str, list[str]] | None = None) -> Visit:
    scope = {"type": "http", "method": "GET", "path": "/topics", "query_string": query.encode(), "headers": [],
             "server": ("h", 1), "scheme": "http"}  # fmt: skip
    nothing: Any = None
    return Visit(Request(scope), nothing, nothing, "", "", True, nothing, form or {})


def posted(body: bytes) -> dict[str, list[str]]:
    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": []}
    return asyncio.run(read_form(Request(scope, receive)))


def test_values_of_a_url_are_bounded() -> None:
    assert visit("page=999").number("page", 1, 1, 7) == 7
    assert visit("page=x").number("page", 1, 1, 7) == 1
    assert visit("kind=evil").choice("kind", "a", "b") == "a"
    assert len(visit("q=" + "x" * 9999).text("q")) == 512


def test_a_number_of_a_form_is_told_with_its_limits() -> None:
    assert visit(form={"n": ["8"]}).whole("n", 1, 10) == 8
    with pytest.raises(ClientError, match="from 1 to 10"):
        visit(form={"n": ["11"]}).whole("n", 1, 10)


def test_state_is_kept_in_the_url_and_outcomes_are_not() -> None:
    assert visit("q=a&page=3&done=7").url(page=4) == "/topics?q=a&page=4"
    assert visit("q=a").url("/groups", q="b c") == "/groups?q=b+c"


def test_forms_are_bounded() -> None:
    assert posted(b"pick=a&pick=b&x=") == {"pick": ["a", "b"], "x": [""]}
    with pytest.raises(ClientError, match="bytes"):
        posted(b"a=" + b"x" * FORM_MAX)
    with pytest.raises(ClientError, match="select fewer"):
        posted(b"a=1&" * (FIELDS_MAX + 1))


def test_a_pattern_fits_the_name_alone() -> None:
    assert pattern("a-b_%RETRY%x") == "a-b_%RETRY%x"
    assert pattern("a|b.c") == "a\\|b\\.c"
    assert segment("a/b?%") == "a%2Fb%3F%25"


def test_lists_are_paged() -> None:
    page = paged(visit("page=2"), list(range(120)), 50)
    assert (page.items[0], page.first, page.last, page.pages) == (50, 51, 100, 3)
    assert Paged((), 1, 0).first == 0
    assert paged(visit("page=9"), [1], 50).number == 1
