"""The request rows of a database, asked for as the console asks."""

from control.metrics.questions import Questions
from control.metrics.request_questions import RequestQuestions
from control.metrics.request_search import Search
from control.prices import Prices
from control.wire import RequestRow


async def newest_rows(questions: Questions, limit: int = 1000) -> tuple[RequestRow, ...]:
    page = await RequestQuestions(questions, Prices()).page(Search(limit=limit))
    return tuple(listed.row for listed in page.requests)
