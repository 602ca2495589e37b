"""Renders a neutral prompt with the model's chat template and tokenises it. Needs the tokenizer, never the weights.

It keeps nothing between two prompts (`engine.text.pieces` does), and of the context limit it knows only what spares it
work: what fits is decided by `engine.door.intake`.

A message that contains the name of a special token is given to the model with that token in it, as mlx-lm does: who may
write a message may also write a turn. Names in tool results are no exception, so they must not be trusted with more
than the model is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import ContextTooLong, InvalidRequest
from engine.request import PromptMarks
from engine.text.bounds import least_tokens
from engine.text.marks import find_marks
from engine.text.markup import ANSWER, THOUGHT
from engine.text.messages import Form, Turn, as_functions, as_turns, forms, leading_system
from engine.text.pieces import Pieces
from engine.text.positions import encode
from engine.text.probe import common_len, tail_turns
from engine.text.prompts import check_prompt, shown_tools
from engine.text.tokenizer import TextModel
from engine.text.tool_grammar import has_call_grammar
from engine.wire import Message, Prompt

_LONGEST_COMPLAINT = 300
# Tokenised in a second or less, which an exact number of tokens is worth.
_LONGEST_CHEAP_TEXT = 400_000
_OTHER_TEXT = "\ue000"  # for private use: no message begins with it
_NO_MARKS = PromptMarks()


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt as the model reads it. `state` is where it leaves the model (`engine.text.markup`).

    `has_markup`: thoughts and calls are to be told apart in the output; after plain text or tokens all of it is text.
    `continues_text`: the output goes on in the middle of running text. `tools` are those that were offered.
    """

    tokens: tuple[int, ...]
    state: str
    has_markup: bool
    continues_text: bool
    tools: tuple[dict[str, Any], ...] = ()
    marks: PromptMarks = _NO_MARKS


def render(
    prompt: Prompt, model: TextModel, *, maximum_context_tokens: int | None = None, pieces: Pieces | None = None
) -> Rendered:
    """Without `pieces` of this model, the text is tokenised whole.

    Raises InvalidRequest, naming the field, when the prompt is not one or the template refuses it.

    Raises ContextTooLong, without tokenising, for a long text of which it is certain that it exceeds the context.
    Others that do are rendered as they are.
    """
    check_prompt(prompt)
    if prompt.tokens is not None:
        return _of_tokens(prompt.tokens, model)
    if prompt.text is not None:
        _refuse_the_hopeless(prompt.text, model, maximum_context_tokens)
        tokens = tuple(model.tokenizer.encode(prompt.text))
        if not tokens:
            raise InvalidRequest("the tokenizer makes no token of the prompt", param="prompt.text")
        return Rendered(tokens, ANSWER, has_markup=False, continues_text=True)
    return _of_messages(prompt, prompt.messages or (), model, maximum_context_tokens, pieces)


def _of_tokens(tokens: tuple[int, ...], model: TextModel) -> Rendered:
    for position, token in enumerate(tokens):
        if not 0 <= token < model.vocabulary_size:
            raise InvalidRequest(
                f"token {token} is not in the model's vocabulary of {model.vocabulary_size}",
                param=f"prompt.tokens[{position}]",
            )
    return Rendered(tokens, ANSWER, has_markup=False, continues_text=True)


def _of_messages(
    prompt: Prompt,
    messages: Sequence[Message],
    model: TextModel,
    maximum_context_tokens: int | None,
    pieces: Pieces | None,
) -> Rendered:
    if not model.tokenizer.has_chat_template:
        raise InvalidRequest("this model has no chat template: send the prompt as text", param="prompt.messages")
    tools = as_functions(shown_tools(prompt, is_enforced=has_call_grammar(model)))
    turns = as_turns(messages)
    arguments = _template_arguments(prompt, tools)
    form, text = _render(turns, model, arguments | _ending(continue_last=prompt.continue_last))
    _refuse_the_hopeless(text, model, maximum_context_tokens)
    if pieces is None:
        encoded = encode(model.tokenizer, text, with_positions=model.habits.has_positions)
    else:
        encoded = pieces.encode(text)
    if not encoded.tokens:
        raise InvalidRequest("the chat template made an empty prompt of the messages", param="prompt.messages")
    generation_prompt = "" if prompt.continue_last else _generation_prompt(form.turns[-1]["role"], model, arguments)
    return Rendered(
        encoded.tokens,
        _state_after(text, turns[-1] if prompt.continue_last else None, model),
        has_markup=True,
        continues_text=prompt.continue_last,
        tools=tuple(tools),
        marks=find_marks(
            text,
            encoded,
            turns=form.turns,
            openings=model.habits.openings,
            shared_chars=_shared_chars(text, turns, model, arguments),
            generation_prompt=generation_prompt,
        ),
    )


def _refuse_the_hopeless(text: str, model: TextModel, maximum_context_tokens: int | None) -> None:
    if maximum_context_tokens is None or len(text) <= _LONGEST_CHEAP_TEXT:
        return
    least = least_tokens(text, model.most_letters_in_token)
    if least > maximum_context_tokens:
        raise ContextTooLong(prompt_tokens=least, maximum_context_tokens=maximum_context_tokens)


def _template_arguments(prompt: Prompt, tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Without an effort, whether to think is mlx-lm's default: yes, when the model can."""
    arguments: dict[str, Any] = {"tools": tools or None}
    if prompt.effort is not None:
        arguments["enable_thinking"] = prompt.effort != "none"
        arguments["reasoning_effort"] = prompt.effort
    return arguments | prompt.template_arguments


def _ending(*, continue_last: bool) -> dict[str, bool]:
    return {"continue_final_message": True} if continue_last else {"add_generation_prompt": True}


def _render(turns: list[Turn], model: TextModel, arguments: dict[str, Any]) -> tuple[Form, str]:
    """The first form of the turns that the template accepts, and its text.

    Raises InvalidRequest, with what the template said about the first form, when it accepts none.
    """
    complaint: Exception | None = None
    for form in forms(turns, takes_late_system=model.habits.late_system == "native"):
        try:
            text = str(model.tokenizer.apply_chat_template(form.turns, tokenize=False, **arguments))
        except Exception as error:  # a template is the model's own code, and raises what it likes
            complaint = complaint or error
            continue
        # Some templates do not refuse a system message that they do not expect, but leave it out.
        if all(turn["content"].strip() in text for turn in form.turns if turn["role"] == "system"):
            return form, text
    raise InvalidRequest(f"the chat template refuses the messages: {_first_line(complaint)}", param="prompt.messages")


def _shared_chars(text: str, turns: list[Turn], model: TextModel, arguments: dict[str, Any]) -> int:
    """How much of the text another conversation with the same system messages and tools begins with."""
    other: list[Turn] = [*leading_system(turns), {"role": "user", "content": _OTHER_TEXT}]
    try:
        return common_len(text, _render(other, model, arguments)[1])
    except InvalidRequest:
        return 0


def _generation_prompt(last_role: str, model: TextModel, arguments: dict[str, Any]) -> str:
    """What the template writes behind a last message of this role for the answer to begin."""
    turns, ending = tail_turns(last_role), _ending(continue_last=False)
    try:
        whole = _render(turns, model, arguments | ending | {"tools": None})[1]
        return whole[common_len(whole, _render(turns, model, arguments | {"tools": None})[1]) :]
    except InvalidRequest:
        return ""


def _first_line(complaint: Exception | None) -> str:
    if complaint is None:
        return "it leaves a system message out"
    lines = str(complaint).strip().splitlines()
    return lines[0][:_LONGEST_COMPLAINT] if lines else type(complaint).__name__


def _state_after(text: str, continued: Turn | None, model: TextModel) -> str:
    """Does the prompt end inside a thought? A generation prompt does when it ends in the marker that opens one."""
    markup = model.markup
    if markup.opens_in != ANSWER or markup.think_start is None or markup.think_end is None:
        return markup.opens_in
    if continued is not None:
        begun = str(continued["content"])
        return THOUGHT if begun.rfind(markup.think_start) > begun.rfind(markup.think_end) else ANSWER
    return THOUGHT if text.rstrip().endswith(markup.think_start) else ANSWER
