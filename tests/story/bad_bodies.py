"""Bodies that POST /generate must refuse, each with the field that the answer has to name (None: no field can be)."""

from tests.story.engines import asked


def message(**fields):
    return {"id": "bad", "prompt": {"messages": [{"role": "user", "content": []} | fields]}}


IMAGE = {"type": "image", "sha256": "00", "media_type": "image/png"}
TOOLS = [{"name": "weather"}]

BAD = [
    (b"{", None),
    (b"[]", None),
    (b'{"id": "bad"}', "prompt"),
    ({"prompt": {"text": "a"}}, "id"),
    ({"id": "a/b", "prompt": {"text": "a"}}, "id"),
    ({"id": "", "prompt": {"text": "a"}}, "id"),
    ({"id": "bad", "prompt": {}}, "prompt"),
    ({"id": "bad", "prompt": {"text": "a", "tokens": [1]}}, "prompt"),
    ({"id": "bad", "prompt": {"messages": []}}, "prompt.messages"),
    ({"id": "bad", "prompt": {"text": ""}}, "prompt.text"),
    ({"id": "bad", "prompt": {"tokens": []}}, "prompt.tokens"),
    (message(role="robot"), "prompt.messages[0].role"),
    (message(content=[{"type": "text"}]), "prompt.messages[0].content[0].text"),
    (message(content=[IMAGE]), "prompt.messages[0].content[0]"),
    (message(tool_calls=[{"id": "1", "name": "f", "arguments_raw": ""}]), "prompt.messages[0].tool_calls"),
    ({"id": "bad", "prompt": message()["prompt"] | {"continue_last": True}}, "prompt.continue_last"),
    (
        {"id": "bad", "prompt": message()["prompt"] | {"tool_choice": {"mode": "named", "name": "x"}}},
        "prompt.tool_choice.name",
    ),
    ({"id": "bad", "prompt": message()["prompt"] | {"tool_choice": {"mode": "required"}}}, "prompt.tool_choice"),
    (
        {"id": "bad", "prompt": message()["prompt"] | {"template_arguments": {"tokenize": True}}},
        "prompt.template_arguments.tokenize",
    ),
    (asked("bad", max_tokens=0), "max_tokens"),
    (asked("bad", max_tokens="many"), "max_tokens"),
    (asked("bad", stop=["a"] * 17), "stop"),
    (asked("bad", stop=["a", ""]), "stop[1]"),
    (asked("bad", sampling={"temperature": -0.1}), "sampling.temperature"),
    (asked("bad", sampling={"top_p": 0}), "sampling.top_p"),
    (asked("bad", sampling={"top_p": 1.1}), "sampling.top_p"),
    (asked("bad", sampling={"top_k": -1}), "sampling.top_k"),
    (asked("bad", sampling={"min_p": 2}), "sampling.min_p"),
    (asked("bad", sampling={"repetition_penalty": 0}), "sampling.repetition_penalty"),
    (asked("bad", sampling={"presence_penalty": 3}), "sampling.presence_penalty"),
    (asked("bad", sampling={"frequency_penalty": -3}), "sampling.frequency_penalty"),
    (asked("bad", sampling={"logprobs": 21}), "sampling.logprobs"),
    (asked("bad", sampling={"logit_bias": {"99999999": 1}}), "sampling.logit_bias"),
    (asked("bad", sampling={"logit_bias": {"1": 101}}), "sampling.logit_bias"),
]
