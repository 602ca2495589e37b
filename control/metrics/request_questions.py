"""Questions about single requests: a page of the list, one by its id, what can be filtered by, and pages to export.

SQL is in `request_pages`; here rows get their speed and their cost. It writes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from sqlalchemy import Connection

from control.metrics.questions import Questions
from control.metrics.request_kinds import KindFilter, kinds
from control.metrics.request_pages import Sql, one, page
from control.metrics.request_search import Search
from control.prices import Prices, Tariff, Tokens
from control.wire import ListedRequest, Price, RequestChoices, RequestPage, RequestRow

# The console waits two seconds for an answer, and others wait for the thread.
LIST_LIMIT_S: Final = 1.5

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class RequestQuestions:
    """Each raises SQLAlchemyError, TimeoutError or QuestionTooLong."""

    questions: Questions
    prices: Prices

    async def page(self, search: Search) -> RequestPage:
        return await self.page_as(search, lambda found: found)

    async def page_as(self, search: Search, form: Callable[[RequestPage], _Answer]) -> _Answer:
        """The page in another form, which is made on the reading thread, too."""
        tariff = self.prices.tariff
        return await self.questions.ask(
            lambda connection: form(_page(connection, search, tariff)), limit_s=LIST_LIMIT_S
        )

    async def one(self, request_id: str) -> ListedRequest | None:
        """None: it is not in the database, or not any more."""
        tariff = self.prices.tariff
        row = await self.questions.ask(lambda connection: one(connection, request_id), limit_s=LIST_LIMIT_S)
        return None if row is None else listed(row, tariff)

    async def choices(self) -> RequestChoices:
        found = await self.questions.ask(lambda connection: kinds(connection, KindFilter()), limit_s=LIST_LIMIT_S)
        return RequestChoices(
            keys=tuple(sorted({kind.key for kind in found})),
            models=tuple(sorted({kind.model for kind in found})),
            dialects=tuple(sorted({kind.dialect for kind in found})),
        )


def listed(row: RequestRow, tariff: Tariff) -> ListedRequest:
    was_run = row.outcome != "rejected"
    tokens = Tokens(1, row.prompt_tokens, row.cached_tokens, row.completion_tokens) if was_run else Tokens()
    (money,) = tariff.cost({row.model: tokens})
    return ListedRequest(row=row, tokens_per_second=tokens_per_second(row), cost=money.total, currency=money.currency)


def tokens_per_second(row: RequestRow) -> float | None:
    """Of its decode: what came with the first emission belongs to the time to the first token."""
    num_tokens = row.completion_tokens - max(row.first_emission_tokens, 1)
    return num_tokens * 1000 / row.decode_ms if row.decode_ms and num_tokens > 0 else None


def _page(connection: Connection, search: Search, tariff: Tariff) -> RequestPage:
    found = page(connection, search, _cost(tariff, search.kinds.model))
    return RequestPage(
        requests=tuple(listed(row, tariff) for row in found.rows),
        next=found.next.text() if found.next is not None else None,
        previous=found.previous.text() if found.previous is not None else None,
        sorted_since_s=found.sorted_since_s,
    )


def _cost(tariff: Tariff, model: str | None) -> Sql:
    """As `Tariff.cost`, but for the last digit.

    Amounts of two currencies can't be compared: of `model`, else of the default price, is the one that has values here.
    """
    default = tariff.prices.default
    currency = (default if model is None else tariff.price_of(model)).currency
    branches, parameters = "", list[object]()
    for name, price in tariff.prices.models.items():
        is_compared = price.currency == currency
        branches += f" WHEN ? THEN {_PER_REQUEST if is_compared else 'NULL'}"
        parameters += [name, *(_per_million(price) if is_compared else ())]
    others = _PER_REQUEST if default.currency == currency else "NULL"
    parameters += _per_million(default) if default.currency == currency else ()
    cost = f"CASE model{branches} ELSE {others} END" if branches else others
    return Sql(f"CASE WHEN outcome != 'rejected' THEN {cost} END", tuple(parameters))


_PER_REQUEST: Final = (
    "((prompt_tokens - min(cached_tokens, prompt_tokens)) * ? + min(cached_tokens, prompt_tokens) * ? "
    "+ completion_tokens * ?) / 1000000.0"
)


def _per_million(price: Price) -> tuple[float, float, float]:
    return price.miss, price.hit, price.output
