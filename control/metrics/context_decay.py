"""Whether a longer context makes a single stream slower: its stretches as points, and the line through them.

It fits a line and judges nothing: a correlation near 0 says that the speed does not depend on the context.
"""

import math
from typing import Final

from sqlalchemy import ColumnElement, Connection, and_, func, select

from control.metrics.tables import stretches
from control.wire import ContextPoint, Regression

# Shorter ones are mostly the grain of the samples.
LEAST_SECONDS: Final = 2.0
POINTS_LIMIT: Final = 1000


def context_points(
    connection: Connection, *, since_s: float, until_s: float, model: str | None
) -> tuple[ContextPoint, ...]:
    """The newest, oldest first."""
    columns = stretches.c
    statement = (
        select(columns.context_tokens, columns.tokens / columns.seconds, columns.seconds)
        .where(_is_a_point(since_s, until_s, model))
        .order_by(columns.started_at_s.desc())
        .limit(POINTS_LIMIT)
    )
    rows = connection.execute(statement).all()
    return tuple(
        ContextPoint(context_tokens=context_tokens, tokens_per_second=speed, seconds=seconds)
        for context_tokens, speed, seconds in reversed(rows)
    )


def context_regression(
    connection: Connection, *, since_s: float, until_s: float, model: str | None
) -> Regression | None:
    """Over all that are such points, not only the newest; None when two contexts are not there to compare.

    With weights w = seconds, x = context, y = tokens / seconds and means over w: slope = Sxy / Sxx, correlation =
    Sxy / sqrt(Sxx * Syy). Taken around the means in a second pass: sums of squares would lose the digits that matter.
    """
    columns = stretches.c
    is_point = _is_a_point(since_s, until_s, model)
    weight, context = columns.seconds, columns.context_tokens
    speed = columns.tokens / columns.seconds
    totals = select(func.count(), func.sum(weight), func.sum(weight * context), func.sum(columns.tokens))
    count, seconds, context_seconds, tokens = connection.execute(totals.where(is_point)).one()
    if not count:
        return None
    mean_context, mean_speed = context_seconds / seconds, tokens / seconds
    off_context, off_speed = context - mean_context, speed - mean_speed
    squares = select(
        func.sum(weight * off_context * off_context),
        func.sum(weight * off_context * off_speed),
        func.sum(weight * off_speed * off_speed),
    )
    context_square, product, speed_square = connection.execute(squares.where(is_point)).one()
    if context_square <= 0:
        return None
    slope = product / context_square
    return Regression(
        slope_per_1k=slope * 1000,
        intercept=mean_speed - slope * mean_context,
        correlation=product / math.sqrt(context_square * speed_square) if speed_square > 0 else 0.0,
        points=count,
    )


def _is_a_point(since_s: float, until_s: float, model: str | None) -> ColumnElement[bool]:
    columns = stretches.c
    is_within = and_(columns.started_at_s >= since_s, columns.started_at_s <= until_s)
    found = and_(is_within, columns.width == 1, columns.seconds >= LEAST_SECONDS)
    return found if model is None else and_(found, columns.model == model)
