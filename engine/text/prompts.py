"""Checks a prompt before it is rendered, and names the field that is wrong. It needs no tokenizer.

What only the model can tell (its vocabulary, what its template refuses) is `engine.text.template`'s.
"""

from collections.abc import Sequence
from typing import Final

from engine.errors import InvalidRequest
from engine.wire import ImagePart, Message, Prompt, Tool

# Arguments that belong to the renderer itself; a client that sets them would not get what it asked for.
_RESERVED_ARGUMENTS: Final = frozenset(
    {"messages", "conversation", "tools", "tokenize", "add_generation_prompt", "continue_final_message"}
    | {"chat_template", "return_dict", "return_tensors", "padding", "truncation", "max_length", "tokenizer_kwargs"}
    | {"documents", "sanitize_control_tokens", "return_assistant_tokens_mask"}
)


def check_prompt(prompt: Prompt) -> None:
    """Raises InvalidRequest."""
    given = [form for form in (prompt.messages, prompt.text, prompt.tokens) if form is not None]
    if len(given) != 1:
        raise InvalidRequest("exactly one of messages, text and tokens must be given", param="prompt")
    if prompt.text == "":
        raise InvalidRequest("the prompt is empty", param="prompt.text")
    if prompt.tokens == ():
        raise InvalidRequest("the prompt is empty", param="prompt.tokens")
    if prompt.messages is not None:
        _check_messages(prompt.messages, continue_last=prompt.continue_last)
        _check_tool_choice(prompt)
    reserved = sorted(_RESERVED_ARGUMENTS & prompt.template_arguments.keys())
    if reserved:
        raise InvalidRequest(
            f"{reserved[0]} is not an argument of the chat template", param=f"prompt.template_arguments.{reserved[0]}"
        )


def callable_tools(prompt: Prompt) -> tuple[Tool, ...]:
    """The tools that the answer may call."""
    choice = prompt.tool_choice
    if choice.mode == "none":
        return ()
    if choice.mode == "named":
        return tuple(tool for tool in prompt.tools if tool.name == choice.name)
    return prompt.tools


def shown_tools(prompt: Prompt, *, is_enforced: bool) -> tuple[Tool, ...]:
    """The tools that the model is told of.

    All of them where a grammar enforces the named one (`is_enforced`): so the prompt begins as in the turns before, and
    the prefix cache has it. Elsewhere the choice is only a wish, and what is not to be called is not shown.
    """
    return prompt.tools if is_enforced and prompt.tool_choice.mode == "named" else callable_tools(prompt)


def _check_messages(messages: Sequence[Message], *, continue_last: bool) -> None:
    if not messages:
        raise InvalidRequest("messages must not be empty", param="prompt.messages")
    for i, message in enumerate(messages):
        for j, part in enumerate(message.content):
            if isinstance(part, ImagePart):
                raise InvalidRequest("this model takes no images", param=f"prompt.messages[{i}].content[{j}]")
        if message.tool_calls and message.role != "assistant":
            raise InvalidRequest("only an assistant message has tool calls", param=f"prompt.messages[{i}].tool_calls")
    last = messages[-1]
    ends_in_text = last.role == "assistant" and not last.tool_calls and any(_text_of(last))
    if continue_last and not ends_in_text:
        raise InvalidRequest(
            "only an assistant message that ends in text can be continued", param="prompt.continue_last"
        )


def _text_of(message: Message) -> list[str]:
    return [part.text for part in message.content if not isinstance(part, ImagePart)]


def _check_tool_choice(prompt: Prompt) -> None:
    choice = prompt.tool_choice
    if choice.mode == "named" and not callable_tools(prompt):
        raise InvalidRequest(f"no tool is named {choice.name!r}", param="prompt.tool_choice.name")
    if choice.mode == "required" and not prompt.tools:
        raise InvalidRequest("a call is required, but there are no tools", param="prompt.tool_choice")
