"""How likely a token was, as the chat and responses dialects tell it. Format: OpenAI token logprob.

It knows no answer around it; the older form of completions is its own.
"""

from typing import Any

from engine import wire


def token_logprob(token: wire.TokenLogprob, *, unknown_bytes: list[int] | None) -> dict[str, Any]:
    """`unknown_bytes` stands for the bytes of an alternative that is a lone part of a character."""
    top = [
        {
            "token": each.token,
            "logprob": each.logprob,
            "bytes": unknown_bytes if "\ufffd" in each.token else list(each.token.encode()),
        }
        for each in token.top
    ]
    return {"token": token.token, "logprob": token.logprob, "bytes": list(token.bytes), "top_logprobs": top}
