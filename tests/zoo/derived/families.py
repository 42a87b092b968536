"""Decoders as they are trained, of the transformers package and written with torch alone: no cache."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from tests.zoo.derived.family import BATCH, LETTERS, TIME, Given, WholeFamily
from tests.zoo.derived.written import (
    SLIDING,
    BehindPlacedText,
    BehindText,
    LearntPredictor,
    PairedHeads,
    Predictor,
    Sliding,
    TokenShift,
    Weighted,
)
from tests.zoo.families_causal import BLOOM, GPT2, GPT_NEO, HEADS, LLAMA, MPT, MUSICGEN, OPT, SPECIAL, XGLM
from tests.zoo.families_decoder import BART
from tests.zoo.families_mel import WHISPER
from tests.zoo.families_text import BERT, T5
from tests.zoo.library import pretrained

LONG = {"max_position_embeddings": 640}
LATENT = {
    "first_k_dense_replace": 2,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
    "num_key_value_heads": 2,
}
SOURCE = 12
TOKENS = {"tokens": Given((BATCH, TIME), "int64", 40)}
MEMORY = {"memory": Given((BATCH, SOURCE, 32))}


def scores(model: Any, ids: Any) -> Any:
    """Scores of the next tokens."""
    return model(input_ids=ids, use_cache=False).logits


def _causal(
    name: str,
    model: str,
    config: str,
    options: Mapping[str, Any],
    positions: str,
    attention: str = "",
    *,
    eager: bool = False,
    call: Callable[..., Any] = scores,
) -> WholeFamily:
    return WholeFamily(name, pretrained(model, config, options, call, eager=eager), TOKENS, positions, attention)


def _over_memory(
    name: str, model: str, config: str, options: Mapping[str, Any], positions: str, attention: str = "cross-attention"
) -> WholeFamily:
    def call(module: Any, ids: Any, memory: Any) -> Any:
        return module(decoder_input_ids=ids, encoder_outputs=(memory,), use_cache=False).logits

    return WholeFamily(name, pretrained(model, config, options, call), {**TOKENS, **MEMORY}, positions, attention)


def _musicgen(model: Any, codes: Any, memory: Any) -> Any:
    flat = codes.reshape(-1, codes.shape[-1])
    found = model(input_ids=flat, encoder_hidden_states=memory, use_cache=False).logits
    return found.reshape(codes.shape[0], 2, codes.shape[-1], 40).transpose(1, 2)


FAMILIES = (
    _causal("gpt2", "GPT2LMHeadModel", "GPT2Config", {**GPT2, "n_positions": 640}, "learned"),
    _causal(
        "gpt_neo",
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        {**GPT_NEO, **SPECIAL, **LONG},
        "learned",
        "every other layer in a window of 5",
    ),
    _causal("opt", "OPTForCausalLM", "OPTConfig", {**OPT, **LONG}, "learned, from 2"),
    _causal("biogpt", "BioGptForCausalLM", "BioGptConfig", {**BERT, **LONG}, "learned"),
    _causal("xglm", "XGLMForCausalLM", "XGLMConfig", {**XGLM, **LONG}, "sinusoids"),
    _causal("llama", "LlamaForCausalLM", "LlamaConfig", {**LLAMA, **LONG}, "rotary", "grouped heads"),
    _causal(
        "mistral",
        "MistralForCausalLM",
        "MistralConfig",
        {**LLAMA, **LONG, "sliding_window": 5},
        "rotary",
        "grouped heads, window of 5",
    ),
    _causal("qwen3", "Qwen3ForCausalLM", "Qwen3Config", {**HEADS, **LONG}, "rotary", "grouped heads, norms of heads"),
    _causal(
        "gemma2",
        "Gemma2ForCausalLM",
        "Gemma2Config",
        {**HEADS, **LONG, "sliding_window": 5},
        "rotary",
        "every other layer in a window of 5, soft cap",
    ),
    _causal(
        "gemma3",
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        {**HEADS, **LONG, "sliding_window": 5},
        "rotary, two bases",
        "layers in a window of 5",
    ),
    _causal(
        "gpt_neox",
        "GPTNeoXForCausalLM",
        "GPTNeoXConfig",
        {**BERT, **LONG},
        "rotary, a part of each head",
        "parallel blocks",
    ),
    _causal(
        "gptj",
        "GPTJForCausalLM",
        "GPTJConfig",
        {**GPT2, "rotary_dim": 8, "n_positions": 640},
        "rotary, interleaved",
        "parallel blocks",
    ),
    _causal(
        "codegen",
        "CodeGenForCausalLM",
        "CodeGenConfig",
        {"vocab_size": 40, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 640, "rotary_dim": 8},
        "rotary, interleaved",
        "parallel blocks",
    ),
    _causal("phi", "PhiForCausalLM", "PhiConfig", {**BERT, **LONG}, "rotary, a part of each head", "parallel blocks"),
    _causal(
        "falcon",
        "FalconForCausalLM",
        "FalconConfig",
        {**BERT, **LONG, "alibi": False, "multi_query": True},
        "rotary",
        "one head of keys, parallel blocks",
    ),
    _causal(
        "stablelm",
        "StableLmForCausalLM",
        "StableLmConfig",
        {**BERT, **LONG, "num_key_value_heads": 2},
        "rotary, a part of each head",
    ),
    _causal("olmo2", "Olmo2ForCausalLM", "Olmo2Config", {**BERT, **SPECIAL, **LONG}, "rotary", "norms behind"),
    _causal(
        "cohere",
        "CohereForCausalLM",
        "CohereConfig",
        {**LLAMA, **SPECIAL, **LONG},
        "rotary",
        "grouped heads, parallel blocks",
    ),
    _causal(
        "deepseek_v3",
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        {**BERT, **SPECIAL, **LONG, **LATENT},
        "rotary, a part of each head",
        "latent keys and values",
    ),
    _causal(
        "diffllama",
        "DiffLlamaForCausalLM",
        "DiffLlamaConfig",
        {**LLAMA, **LONG, "num_attention_heads": 4, "num_key_value_heads": 2},
        "rotary",
        "differences of two",
    ),
    _causal(
        "lfm2",
        "Lfm2ForCausalLM",
        "Lfm2Config",
        {**LLAMA, **LONG, "layer_types": ["conv", "full_attention"], "block_multiple_of": 16},
        "rotary",
        "grouped heads, a gated convolution of 3 taps before",
    ),
    _causal("bloom", "BloomForCausalLM", "BloomConfig", BLOOM, "ALiBi"),
    _causal("mpt", "MptForCausalLM", "MptConfig", {**MPT, "max_seq_len": 640}, "ALiBi, counted from the end"),
    _over_memory("bart", "BartForConditionalGeneration", "BartConfig", {**BART, **LONG}, "learned"),
    _over_memory(
        "t5", "T5ForConditionalGeneration", "T5Config", {**T5, "decoder_start_token_id": 0}, "relative, in buckets"
    ),
    _over_memory(
        "whisper",
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        {**WHISPER, "max_target_positions": 640, "max_source_positions": SOURCE},
        "learned",
    ),
    _over_memory(
        "m2m_100",
        "M2M100ForConditionalGeneration",
        "M2M100Config",
        {**BART, **LONG},
        "sinusoids, of tokens that are no padding",
    ),
    WholeFamily(
        "musicgen",
        pretrained("MusicgenForCausalLM", "MusicgenDecoderConfig", {**MUSICGEN, **LONG}, _musicgen),
        {"codes": Given((BATCH, 2, TIME), "int64", 40), **MEMORY},
        "sinusoids",
        "codebooks, cross-attention",
    ),
    WholeFamily("token_shift", TokenShift, TOKENS, "none", "none, frames mixed with the one before"),
    WholeFamily("sliding", Sliding, TOKENS, "rotary", "a window of 12, without end", 2 * SLIDING, forgets=True),
    WholeFamily(
        "sliding_padded",
        functools.partial(Sliding, hides_padding=True),
        TOKENS,
        "rotary",
        "a window of 12 without padding tokens, without end",
        2 * SLIDING,
        forgets=True,
    ),
    WholeFamily("two_layer_lstm", Predictor, TOKENS, "none", "none, two LSTM layers"),
    WholeFamily("learnt_first_states", LearntPredictor, TOKENS, "none", "none, two LSTM layers that begin as learnt"),
    WholeFamily("attention_weights", Weighted, TOKENS, "none", "rows merged with heads, a mask of frames"),
    WholeFamily("paired_heads", PairedHeads, TOKENS, "none", "heads that share by `merge_kv_heads`", groups=2),
    WholeFamily(
        "behind_text",
        BehindText,
        {"codes": Given((BATCH, TIME), "int64", 40), "text": Given((BATCH, 7), "int64", 40)},
        "none",
        "masks of a text of 7 letters and of audio, padded and joined",
    ),
    WholeFamily(
        "behind_any_text",
        BehindText,
        {"codes": Given((BATCH, TIME), "int64", 40), "text": Given((BATCH, LETTERS), "int64", 40)},
        "none",
        "masks of a text of any length and of audio, padded and joined",
    ),
    WholeFamily(
        "behind_placed_text",
        BehindPlacedText,
        {"codes": Given((BATCH, TIME), "int64", 40), "text": Given((BATCH, LETTERS), "int64", 40)},
        "learned, of a text of any length and of audio",
        "the same masks, repeated for heads and rows",
    ),
)
