"""Today's totals: asked rarely, and never in the way of the page."""

from sqlalchemy.exc import OperationalError

from control.overview import TOTALS_LAST_S, TodayTotals
from control.wire import Today


class Database:
    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    async def today(self):
        self.asked += 1
        answer = self.answers[min(self.asked, len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_pages_that_ask_at_the_same_time_cost_one_question():
    now = [0.0]
    database = Database(Today(requests=1), Today(requests=2))
    totals = TodayTotals(database.today, monotonic=lambda: now[0])

    first, second = await totals.totals(), await totals.totals()
    now[0] += TOTALS_LAST_S
    third = await totals.totals()

    assert [answer.requests for answer in (first, second, third)] == [1, 1, 2]
    assert database.asked == 2


async def test_a_database_that_does_not_answer_leaves_the_last_totals():
    now = [0.0]
    database = Database(Today(requests=1), OperationalError("locked", None, Exception()), TimeoutError())
    totals = TodayTotals(database.today, monotonic=lambda: now[0])

    answers = []
    for _ in range(3):
        answers.append(await totals.totals())
        now[0] += TOTALS_LAST_S

    assert [answer.requests for answer in answers] == [1, 1, 1]
