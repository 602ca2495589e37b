"""Small tokenizers of the kinds that the demo's is not: sentencepiece-like, and one that mlx-lm has no table for."""

from mlx_lm.tokenizer_utils import NaiveStreamingDetokenizer, SPMStreamingDetokenizer, TokenizerWrapper
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPM_PIECES = ["<unk>", "<s>", "</s>", *BYTES, "▁Hello", "▁world", "▁", "Hello", "world", ",", "!"]


def sentencepiece():
    """Format: what mlx-lm recognises as an SPM decoder with byte fallback."""
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(SPM_PIECES)}, merges=[], byte_fallback=True, unk_token="<unk>"
        )
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>")
    return TokenizerWrapper(fast, SPMStreamingDetokenizer)


def word_level():
    words = ["<unk>", "</s>", "Hello", "world", ",", "!"]
    tokenizer = Tokenizer(models.WordLevel(vocab={word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\s+"), "removed")
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>")
    return TokenizerWrapper(fast, NaiveStreamingDetokenizer)
