"""Small chat templates in the manner of the families that models come in, and the text side of a model that has one."""

from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer, TokenizerWrapper
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from engine.text.defaults import GenerationDefaults
from engine.text.markup import Markup
from engine.text.probe import learn_habits
from engine.text.tokenizer import TextModel

CHATML = """
{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' -}}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}
"""

# Tools stand in the system message, results of tools are parts of a user turn, thoughts before the newest user are cut.
QWEN = """
{%- set ns = namespace(newest=0) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set ns.newest = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- if tools -%}
  {{- '<|im_start|>system\n' + (messages[0].content + '\n\n' if messages[0].role == 'system' else '') -}}
  {%- for tool in tools -%}{{- tool | tojson + '\n' -}}{%- endfor -%}{{- '<|im_end|>\n' -}}
{%- endif -%}
{%- for m in messages -%}
  {%- if m.role == 'assistant' -%}
    {{- '<|im_start|>assistant\n' -}}
    {%- if loop.index0 > ns.newest -%}{{- '<think>\n' + (m.reasoning_content or '') + '\n</think>\n\n' -}}{%- endif -%}
    {{- m.content -}}
    {%- for call in m.tool_calls or [] -%}{{- '\n<tool_call>\n' + call.function | tojson + '\n</tool_call>' -}}
    {%- endfor -%}{{- '<|im_end|>\n' -}}
  {%- elif m.role == 'tool' -%}
    {{- '<|im_start|>user' if loop.first or loop.previtem.role != 'tool' -}}
    {{- '\n<tool_response>\n' + m.content + '\n</tool_response>' -}}
    {{- '<|im_end|>\n' if loop.last or loop.nextitem.role != 'tool' -}}
  {%- elif not (tools and loop.first and m.role == 'system') -%}
    {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\n' + ('<think>\n' if enable_thinking else '<think>\n\n</think>\n\n') -}}
{%- endif -%}
"""

# Tools stand in the first user turn.
LLAMA = """
{{- '<|begin|>' -}}
{%- set ns = namespace(tools=tools) -%}
{%- for m in messages -%}
  {{- '<|start_header|>' + ('ipython' if m.role == 'tool' else m.role) + '<|end_header|>\n\n' -}}
  {%- if m.role == 'user' and ns.tools -%}
    {{- 'Functions:\n' -}}{%- for tool in ns.tools -%}{{- tool | tojson + '\n\n' -}}{%- endfor -%}
    {%- set ns.tools = none -%}
  {%- endif -%}
  {%- if m.tool_calls -%}{{- m.tool_calls[0].function | tojson -}}{%- else -%}{{- m.content | trim -}}{%- endif -%}
  {{- '<|eot|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header|>assistant<|end_header|>\n\n' -}}{%- endif -%}
"""

# There is no system role, and turns alternate.
GEMMA = """
{{- '<bos>' -}}
{%- for m in messages -%}
  {%- if m.role not in ('user', 'assistant') -%}{{- raise_exception('System role not supported') -}}{%- endif -%}
  {%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{- raise_exception('Roles must alternate') -}}{%- endif -%}
  {{- '<turn>' + ('model' if m.role == 'assistant' else 'user') + '\n' + m.content | trim + '<end>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<turn>model\n' -}}{%- endif -%}
"""

# An answer has no opening, and there is no generation prompt.
MISTRAL = """
{{- '<s>' -}}
{%- for m in messages -%}
  {%- if m.role == 'system' -%}{{- '[SYSTEM]' + m.content + '[/SYSTEM]' -}}
  {%- elif m.role == 'user' -%}{{- '[INST]' + m.content + '[/INST]' -}}
  {%- elif m.role == 'tool' -%}{{- '[RESULTS]' + m.content + '[/RESULTS]' -}}
  {%- elif m.tool_calls -%}
    {%- for call in m.tool_calls -%}
      {{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + call.function.arguments | tojson -}}
    {%- endfor -%}{{- '</s>' -}}
  {%- else -%}{{- m.content + '</s>' -}}{%- endif -%}
{%- endfor -%}
"""

# The system message stands in the newest user turn: nothing is shared.
OLD_MISTRAL = """
{{- '<s>' -}}
{%- set system = messages[0].content if messages[0].role == 'system' else '' -%}
{%- for m in messages if m.role != 'system' -%}
  {%- if m.role == 'user' -%}
    {{- '[INST]' + (system + '\n\n' if loop.last and system else '') + m.content + '[/INST]' -}}
  {%- else -%}{{- m.content + '</s>' -}}{%- endif -%}
{%- endfor -%}
"""

# All system messages are moved to the front.
HOISTING = """
{%- for m in messages if m.role == 'system' -%}{{- '[system]' + m.content -}}{%- endfor -%}
{%- for m in messages if m.role != 'system' -%}{{- '[' + m.role + ']' + m.content -}}{%- endfor -%}
{%- if add_generation_prompt -%}[assistant]{%- endif -%}
"""

NOTHING_IN_COMMON = "{{ messages | length }} messages"

SPECIAL_TOKENS = (
    *("</s>", "<s>", "<bos>", "<|begin|>", "<|im_start|>", "<|im_end|>", "<|start_header|>", "<|end_header|>"),
    *("<|eot|>", "<turn>", "<end>", "[INST]", "[/INST]", "[SYSTEM]", "[/SYSTEM]", "[RESULTS]", "[/RESULTS]"),
    *("[TOOL_CALLS]", "[ARGS]", "<think>", "</think>", "<tool_call>", "</tool_call>"),
)
NEWLINE, SPACE = "\u010a", "\u0120"  # as byte-level BPE writes them


def byte_level(template):
    """Bytes and a few merges, so that the newline of an opening may run together with those behind it."""
    merges = [(NEWLINE, NEWLINE), (NEWLINE + NEWLINE, NEWLINE), ("u", "s"), ("e", "r"), ("us", "er"), (SPACE, "w")]
    entries = [*SPECIAL_TOKENS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(merge) for merge in merges)]
    backend = Tokenizer(models.BPE(vocab={entry: i for i, entry in enumerate(entries)}, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(SPECIAL_TOKENS))
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", chat_template=template)
    return TokenizerWrapper(fast, BPEStreamingDetokenizer)


def text_model(tokenizer):
    return TextModel(
        tokenizer=tokenizer,
        markup=Markup.of(tokenizer),
        end_tokens=frozenset(tokenizer.eos_token_ids),
        vocabulary_size=len(tokenizer),
        defaults=GenerationDefaults(),
        most_letters_in_token=None,
        habits=learn_habits(tokenizer),
    )


def with_template(template):
    return text_model(byte_level(template))
