"""Tables of thousands of rows: what a page gets of them."""

import pytest

from zambezi.console.tables import PAGE, Kind, Look, LookError, Table


def table(count: int, made: list[int] | None = None) -> Table[int]:
    def things() -> list[int]:
        if made is not None:
            made.append(count)
        return list(range(count))

    kind = Kind(things, str, lambda one: f"Row-{one}", lambda one: {"value": one}, {"value": lambda one: one})
    return Table(kind, clock=lambda: 0.0 if made is None else float(len(made)))


def test_a_page_has_a_bounded_number_of_rows_and_the_totals() -> None:
    page = table(5000).page(Look(sort="-value", page=1))
    assert (page["all"], page["found"], page["page"]) == (5000, 5000, 1)
    assert page["order"] == [str(4999 - PAGE - number) for number in range(PAGE)]
    assert page["rows"]["4949"] == {"value": 4949}


def test_a_filter_wants_all_words_in_any_case() -> None:
    page = table(5000).page(Look.parse({"filter": "ROW -499"}))
    assert page["order"] == ["499", *map(str, range(4990, 5000))]
    assert (page["all"], page["found"]) == (5000, 11)


def test_a_page_beyond_the_end_is_the_last_one() -> None:
    page = table(60).page(Look(page=10**6))
    assert (page["page"], len(page["order"])) == (1, 10)
    assert table(0).page(Look(page=3))["order"] == []


def test_pages_share_an_order_while_it_is_fresh() -> None:
    made = [0]
    now = [0.0]

    def things() -> list[int]:
        made.append(1)
        return [1]

    shared = Table(Kind(things, str, str, lambda _: {}, {}), clock=lambda: now[0])
    for now[0] in (1.0, 1.4, 1.6):
        shared.page(Look())
    assert len(made) == 3


@pytest.mark.parametrize(
    "query", [{"page": "-1"}, {"page": "²"}, {"page": "9" * 5000}, {"filter": "x" * 201}, {"sort": "no"}]
)
def test_a_look_that_is_not_valid_is_an_error(query: dict[str, str]) -> None:
    with pytest.raises(LookError):
        table(1).page(Look.parse(query))
