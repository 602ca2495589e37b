"""Requests that have ended, as control tells of them."""

from control import wire

MODEL_ID = "Qwen3.8-27B-4bit"


def finished(number: int, outcome: wire.Outcome = "completed", *, error_code: str | None = None) -> wire.RequestRow:
    return wire.RequestRow(
        id=f"r{number}",
        number=number,
        started_at_s=1_795_000_000.0 + number * 40,
        key="claude",
        dialect="chat",
        model=MODEL_ID,
        stream=True,
        outcome=outcome,
        error_code=error_code,
        finish_reason="stop" if outcome == "completed" else None,
        queue_ms=12.0,
        prefill_ms=2_310.0 if outcome != "rejected" else None,
        decode_ms=14_820.0 if outcome == "completed" else None,
        ttft_ms=2_322.0,
        total_ms=17_142.0,
        prompt_tokens=61_204,
        cached_tokens=57_000,
        completion_tokens=812,
        reasoning_tokens=300,
    )


def listed(row: wire.RequestRow) -> wire.ListedRequest:
    speed = row.completion_tokens * 1000 / row.decode_ms if row.decode_ms else None
    return wire.ListedRequest(row=row, tokens_per_second=speed, cost=0.0123, currency="CNY")
