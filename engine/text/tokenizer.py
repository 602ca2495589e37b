"""Loads what the text side needs of a model: tokenizer, markers, habits of its template, default sampling. No weights.

It renders and decodes nothing itself.
"""

import json
import logging
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mlx_lm.utils import load_config, load_tokenizer

from engine.errors import ModelRefused
from engine.text.bounds import most_letters_in_token
from engine.text.defaults import GenerationDefaults
from engine.text.markup import Markup
from engine.text.probe import TemplateHabits, learn_habits

logger = logging.getLogger(__name__)

# It writes a few dozen conversations of one word each, in some milliseconds.
LONGEST_TEMPLATE_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class TextModel:
    """`tokenizer` is mlx-lm's TokenizerWrapper. Token ids are below `vocabulary_size`, the rows of the embedding.

    `most_letters_in_token` None: unknown (`engine.text.bounds`).
    """

    tokenizer: Any
    markup: Markup
    end_tokens: frozenset[int]
    vocabulary_size: int
    defaults: GenerationDefaults
    most_letters_in_token: int | None
    habits: TemplateHabits


def load_text_model(path: Path) -> TextModel:
    """Read the tokenizer and the small JSON files of a model folder. Raises ModelRefused when it can't be done."""
    config = load_config(path)
    of_text = config.get("text_config") or {}
    end = config.get("eos_token_id", of_text.get("eos_token_id"))
    try:
        tokenizer = load_tokenizer(path, eos_token_ids=end)
    except Exception as error:  # the tokenizers library raises nothing more precise
        logger.exception("tokenizer failed path=%s", path)
        raise ModelRefused(f"the tokenizer in {path} cannot be loaded: {error}", reason="damaged_tokenizer") from error
    return TextModel(
        tokenizer=tokenizer,
        markup=Markup.of(tokenizer),
        end_tokens=frozenset(tokenizer.eos_token_ids),
        vocabulary_size=config.get("vocab_size", of_text.get("vocab_size", len(tokenizer))),
        defaults=GenerationDefaults.of(_generation_config(path)),
        most_letters_in_token=most_letters_in_token(tokenizer),
        habits=_habits(path, tokenizer),
    )


def _habits(path: Path, tokenizer: Any) -> TemplateHabits:
    """A template is a program, and may have no end: the thread that is in it ends with the process.

    Raises ModelRefused.
    """
    habits: Future[TemplateHabits] = Future()

    def learn() -> None:
        try:
            habits.set_result(learn_habits(tokenizer))
        except Exception as error:  # raised again where the result is waited for
            habits.set_exception(error)

    threading.Thread(target=learn, name="template", daemon=True).start()
    try:
        return habits.result(LONGEST_TEMPLATE_S)
    except FutureTimeoutError as error:
        raise ModelRefused(
            f"the chat template in {path} takes more than {LONGEST_TEMPLATE_S:.0f} s to write a few short messages",
            reason="load_failed",
        ) from error


def _generation_config(path: Path) -> dict[str, Any]:
    """What the model's makers recommend; nothing without the file, or when it is not JSON (mlx-lm ignores it too)."""
    try:
        content = json.loads((path / "generation_config.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
