"""What control refuses, in the language of who reads it: by the code, with control's own words where they tell more.

It knows no page. A code that is not here keeps control's sentence.
"""

from collections.abc import Mapping
from typing import Final

from webui.text import Text

# Source: control.admin.errors.
_SENTENCE: Final[Mapping[str, str]] = {
    "unauthorized": "refusal.unauthorized",
    "request_not_found": "refusal.request_not_found",
    "model_not_found": "refusal.model_not_found",
    "engine_not_ready": "refusal.engine_not_ready",
    "quitting": "refusal.quitting",
    "question_too_long": "refusal.question_too_long",
    "key_not_found": "refusal.key_not_found",
    "key_name_invalid": "keys.name_wrong",
    "key_name_taken": "keys.name_taken",
}
# Which file, which number, which setting: only control's sentence says that.
_WITH_DETAIL: Final[Mapping[str, str]] = {
    "invalid_request": "refusal.invalid_request",
    "model_refused": "refusal.model_refused",
    "home_unusable": "refusal.home_unusable",
    "log_unreadable": "refusal.log_unreadable",
    "backup_name_taken": "refusal.backup_failed",
    "backup_failed": "refusal.backup_failed",
}


def refusal_words(code: str, message: str, text: Text) -> str:
    if code in _SENTENCE:
        return text(_SENTENCE[code])
    if code in _WITH_DETAIL:
        return text(_WITH_DETAIL[code], detail=message)
    return message
