"""A database with rows that a test knows one by one, and what GET /performance says of it."""

from control.metrics.database import open_database, open_for_reading
from control.metrics.performance_questions import PerformanceQuestions
from control.metrics.questions import Questions
from control.metrics.recording import record

NOW_S = 1_793_500_000.0
HOUR_S = 3600
DAY_S = 86_400


class Measured:
    """A database, and what it is asked."""

    def __init__(self, path):
        self._engine = open_database(path)
        self.questions = Questions(open_for_reading(path))
        self.now_s = NOW_S
        self.asked = PerformanceQuestions(self.questions, discarded=lambda: {"idle": 3}, wall=lambda: self.now_s)

    def record(self, *entries):
        with self._engine.begin() as connection:
            record(connection, entries)

    async def performance(self, chosen="day", model=None):
        return await self.asked.performance(chosen, model)

    def close(self):
        self.questions.close()
        self._engine.dispose()
