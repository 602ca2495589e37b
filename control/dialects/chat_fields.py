"""What a chat client calls the fields of the engine's door: an error names what the client sent.

It knows names only; which field is wrong, somebody else found.
"""

import re
from typing import Final

from control.dialects.fields import renamed

# Everything else has the same name here and there, once its first part is gone.
_RENAMED: Final = (
    (re.compile(r"prompt\.template_arguments\b"), "chat_template_kwargs"),
    (re.compile(r"prompt\.effort\b"), "reasoning_effort"),
    (re.compile(r"prompt\.tool_choice\.name\b"), "tool_choice.function.name"),
    (re.compile(r"prompt\.(tools\[\d+\])\."), r"\1.function."),
    (re.compile(r"prompt\.(messages\[\d+\])\.reasoning\b"), r"\1.reasoning_content"),
    (re.compile(r"prompt\.(messages\[\d+\]\.tool_calls\[\d+\])\.name\b"), r"\1.function.name"),
    (re.compile(r"prompt\.(messages\[\d+\]\.tool_calls\[\d+\])\.arguments(_raw)?\b"), r"\1.function.arguments"),
    (re.compile(r"sampling\.logprobs\b"), "top_logprobs"),
    (re.compile(r"grammar\b.*"), "response_format"),
    (re.compile(r"prompt\Z"), "messages"),
    (re.compile(r"prompt\.|sampling\."), ""),
)


def client_field(engine_field: str) -> str | None:
    """None for a field that no client sends."""
    return renamed(engine_field, _RENAMED)
