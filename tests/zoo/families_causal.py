"""Language models, one call over a whole prompt."""

from collections.abc import Mapping
from typing import Any

from tests.zoo.families_text import BERT
from tests.zoo.family import BATCH, Family, Given, masked, tokens
from tests.zoo.library import Forward, pretrained

GPT2: dict[str, Any] = {
    "vocab_size": 40,
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 2,
    "n_positions": 64,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
LLAMA: dict[str, Any] = {**BERT, "num_key_value_heads": 1}
HEADS = {**LLAMA, "head_dim": 16}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BLOOM = {"vocab_size": 40, "hidden_size": 32, "n_layer": 2, "n_head": 2}
MPT = {"vocab_size": 40, "d_model": 32, "n_layers": 2, "n_heads": 2, "expansion_ratio": 2, "max_seq_len": 64}
OPT: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "ffn_dim": 48,
    "max_position_embeddings": 64,
    "word_embed_proj_dim": 32,
}
GPT_NEO: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 2,
    "max_position_embeddings": 64,
    "attention_types": [[["global", "local"], 1]],
    "window_size": 5,
    "intermediate_size": 48,
}
MAMBA2: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "state_size": 4,
    "num_hidden_layers": 2,
    "expand": 2,
    "conv_kernel": 4,
    "num_heads": 4,
    "head_dim": 8,
    "n_groups": 1,
    "chunk_size": 4,
}
MAMBA = {"vocab_size": 40, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2, "time_step_rank": 4}
XGLM = {
    "vocab_size": 40,
    "d_model": 32,
    "num_layers": 2,
    "attention_heads": 2,
    "ffn_dim": 48,
    "max_position_embeddings": 64,
}
CTRL = {"vocab_size": 40, "n_embd": 32, "n_layer": 2, "n_head": 2, "dff": 48, "n_positions": 64}
MUSICGEN: dict[str, Any] = {
    "vocab_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "ffn_dim": 48,
    "hidden_size": 32,
    "num_codebooks": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
LOOPS = "the recurrence is a Python loop over time, so the exporter fixes its length"


def logits(model: Any, ids: Any, mask: Any = None) -> Any:
    """Scores of the next tokens."""
    return model(input_ids=ids, attention_mask=mask, use_cache=False).logits


def _causal(
    name: str,
    model: str,
    config: str,
    options: Mapping[str, Any],
    *,
    forward: Forward = logits,
    mask: bool = True,
    eager: bool = False,
    stuck: str = "",
) -> Family:
    build = pretrained(model, config, options, forward, eager=eager)
    return Family(name, "causal", build, tokens(options["vocab_size"], mask=mask), stuck=stuck)


FAMILIES = (
    _causal("gpt2", "GPT2LMHeadModel", "GPT2Config", GPT2),
    _causal("gpt2_maskless", "GPT2LMHeadModel", "GPT2Config", GPT2, mask=False),
    _causal("gpt2_eager", "GPT2LMHeadModel", "GPT2Config", GPT2, eager=True),
    _causal("llama", "LlamaForCausalLM", "LlamaConfig", LLAMA),
    _causal("llama_maskless", "LlamaForCausalLM", "LlamaConfig", LLAMA, mask=False),
    _causal("qwen2", "Qwen2ForCausalLM", "Qwen2Config", LLAMA),
    _causal("qwen3", "Qwen3ForCausalLM", "Qwen3Config", HEADS),
    _causal("mistral_sliding", "MistralForCausalLM", "MistralConfig", {**LLAMA, "sliding_window": 5}),
    _causal("gemma", "GemmaForCausalLM", "GemmaConfig", HEADS),
    _causal("gemma2", "Gemma2ForCausalLM", "Gemma2Config", {**HEADS, "sliding_window": 5}),
    _causal("gemma3", "Gemma3ForCausalLM", "Gemma3TextConfig", {**HEADS, "sliding_window": 5}),
    _causal("opt", "OPTForCausalLM", "OPTConfig", OPT),
    _causal("bloom", "BloomForCausalLM", "BloomConfig", BLOOM),
    _causal("mpt", "MptForCausalLM", "MptConfig", MPT),
    _causal("gpt_neox", "GPTNeoXForCausalLM", "GPTNeoXConfig", BERT),
    _causal("gptj", "GPTJForCausalLM", "GPTJConfig", {**GPT2, "rotary_dim": 8}),
    _causal("gpt_neo", "GPTNeoForCausalLM", "GPTNeoConfig", {**GPT_NEO, **SPECIAL}),
    _causal("phi", "PhiForCausalLM", "PhiConfig", BERT),
    _causal("phi3", "Phi3ForCausalLM", "Phi3Config", {**BERT, **SPECIAL}),
    _causal("falcon", "FalconForCausalLM", "FalconConfig", {**BERT, "alibi": False, "multi_query": True}),
    _causal(
        "falcon_alibi",
        "FalconForCausalLM",
        "FalconConfig",
        {**BERT, "alibi": True, "multi_query": False},
        stuck="positions are computed in bfloat16, which ONNX Runtime does not have on a CPU",
    ),
    _causal("stablelm", "StableLmForCausalLM", "StableLmConfig", {**BERT, "num_key_value_heads": 2}),
    _causal("olmo2", "Olmo2ForCausalLM", "Olmo2Config", {**BERT, **SPECIAL}),
    _causal("cohere", "CohereForCausalLM", "CohereConfig", {**LLAMA, **SPECIAL}),
    _causal("granite", "GraniteForCausalLM", "GraniteConfig", LLAMA),
    _causal(
        "lfm2", "Lfm2ForCausalLM", "Lfm2Config", {**LLAMA, "layer_types": ["conv", "full_attention"], "conv_L_cache": 3}
    ),
    _causal("biogpt", "BioGptForCausalLM", "BioGptConfig", BERT),
    _causal("ctrl", "CTRLLMHeadModel", "CTRLConfig", CTRL),
    _causal("xglm", "XGLMForCausalLM", "XGLMConfig", XGLM),
    _causal("mamba2", "Mamba2ForCausalLM", "Mamba2Config", MAMBA2),
    _causal("mamba", "MambaForCausalLM", "MambaConfig", {**MAMBA, "use_mambapy": False}, stuck=LOOPS),
    _causal(
        "rwkv",
        "RwkvForCausalLM",
        "RwkvConfig",
        {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "attention_hidden_size": 16},
        forward=lambda m, i: m(input_ids=i, use_cache=False).logits,
        mask=False,
        stuck=LOOPS,
    ),
    _causal(
        "recurrent_gemma",
        "RecurrentGemmaForCausalLM",
        "RecurrentGemmaConfig",
        {**LLAMA, "lru_width": 32, "block_types": ("recurrent", "attention")},
        stuck=LOOPS,
    ),
    _causal(
        "xlstm", "xLSTMForCausalLM", "xLSTMConfig", {"vocab_size": 40, "hidden_size": 16, "num_blocks": 1}, stuck=LOOPS
    ),
    _causal(
        "qwen2_moe",
        "Qwen2MoeForCausalLM",
        "Qwen2MoeConfig",
        {**LLAMA, "num_experts": 4},
        stuck="the exporter has no operator for products grouped by expert",
    ),
    Family(
        "musicgen_decoder",
        "causal",
        pretrained(
            "MusicgenForCausalLM",
            "MusicgenDecoderConfig",
            MUSICGEN,
            lambda m, c, h, a: m(
                input_ids=c.reshape(-1, c.shape[-1]),
                encoder_hidden_states=h,
                encoder_attention_mask=a,
                use_cache=False,
            ).logits.reshape(c.shape[0], 2, c.shape[-1], 40),
        ),
        {
            "codes": Given((BATCH, 2, "target_time"), "int64", below=40),
            "memory": Given((BATCH, "source_time", 32)),
            **masked("memory_mask", "source_time"),
        },
    ),
)
