"""Decoders of the transformers package with their caches as pairs of tensors per layer, one call after the other."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from tests.zoo.families_causal import BLOOM, GPT2, GPT_NEO, HEADS, LLAMA, MPT, OPT, SPECIAL, XGLM
from tests.zoo.families_text import BERT
from tests.zoo.library import pretrained
from tests.zoo.streams.family import Given, StepFamily, data, state

WINDOW = 16


def library() -> Any:
    """The package."""
    return importlib.import_module("transformers")


def cache_of(past: tuple[Any, ...]) -> Any:
    """Pairs of keys and values per layer, as the package holds them."""
    return library().DynamicCache(list(zip(past[::2], past[1::2], strict=True)))


def tensors_of(cache: Any) -> tuple[Any, ...]:
    """The same back."""
    return tuple(tensor for layer in cache.layers for tensor in (layer.keys, layer.values))


def plain(model: Any, ids: Any, *past: Any) -> Any:
    """Positions counted from the cache."""
    found = model(input_ids=ids, past_key_values=cache_of(past), use_cache=True)
    return (found.logits, *tensors_of(found.past_key_values))


def placed(model: Any, ids: Any, positions: Any, *past: Any) -> Any:
    """Positions in the stream, given by the caller."""
    found = model(input_ids=ids, position_ids=positions, past_key_values=cache_of(past), use_cache=True)
    return (found.logits, *tensors_of(found.past_key_values))


def causal(
    name: str,
    model: str,
    config: str,
    options: Mapping[str, Any],
    *,
    heads: int = 2,
    width: int = 16,
    chunk: int = 1,
    positions: bool = False,
    eager: bool = False,
    layers: int = 2,
    call: Callable[..., Any] | None = None,
) -> StepFamily:
    """A language model with keys and values of every layer as states."""
    past = [f"{kind}{layer}" for layer in range(layers) for kind in ("key", "value")]
    given: dict[str, Given] = {"tokens": data("batch", chunk, dtype="int64", below=options["vocab_size"])}
    if positions:
        given["positions"] = data("batch", chunk, dtype="int64", counts=True)
    given |= {each: state(f"new_{each}", "batch", heads, "cached", width) for each in past}
    build = pretrained(model, config, options, call or (placed if positions else plain), eager=eager)
    return StepFamily(name, build, given, ("logits", *(f"new_{each}" for each in past)), {"cached": WINDOW})


LONG = {"max_position_embeddings": 512}

FAMILIES = (
    causal("gpt2", "GPT2LMHeadModel", "GPT2Config", GPT2),
    causal("gpt2_eager", "GPT2LMHeadModel", "GPT2Config", GPT2, eager=True),
    causal("gpt2_placed", "GPT2LMHeadModel", "GPT2Config", {**GPT2, "n_positions": 512}, positions=True),
    causal("llama", "LlamaForCausalLM", "LlamaConfig", LLAMA, heads=1),
    causal("llama_placed", "LlamaForCausalLM", "LlamaConfig", {**LLAMA, **LONG}, heads=1, positions=True),
    causal("llama_chunk", "LlamaForCausalLM", "LlamaConfig", {**LLAMA, **LONG}, heads=1, positions=True, chunk=4),
    causal("llama_plain_chunk", "LlamaForCausalLM", "LlamaConfig", {**LLAMA, **LONG}, heads=1, chunk=4),
    causal("qwen3", "Qwen3ForCausalLM", "Qwen3Config", HEADS, heads=1, positions=True),
    causal("mistral_sliding", "MistralForCausalLM", "MistralConfig", {**LLAMA, "sliding_window": 8}, heads=1),
    causal("gemma", "GemmaForCausalLM", "GemmaConfig", HEADS, heads=1, positions=True),
    causal("gemma2", "Gemma2ForCausalLM", "Gemma2Config", {**HEADS, "sliding_window": 5}, heads=1, positions=True),
    causal("gemma3", "Gemma3ForCausalLM", "Gemma3TextConfig", {**HEADS, "sliding_window": 5}, heads=1, positions=True),
    causal("opt", "OPTForCausalLM", "OPTConfig", OPT),
    causal("bloom", "BloomForCausalLM", "BloomConfig", BLOOM),
    causal("mpt", "MptForCausalLM", "MptConfig", MPT),
    causal("gpt_neox", "GPTNeoXForCausalLM", "GPTNeoXConfig", BERT, positions=True),
    causal("gptj", "GPTJForCausalLM", "GPTJConfig", {**GPT2, "rotary_dim": 8, "n_positions": 512}, positions=True),
    causal("gpt_neo", "GPTNeoForCausalLM", "GPTNeoConfig", {**GPT_NEO, **SPECIAL, **LONG}, positions=True),
    causal("phi", "PhiForCausalLM", "PhiConfig", BERT, positions=True),
    causal("phi3", "Phi3ForCausalLM", "Phi3Config", {**BERT, **SPECIAL}, positions=True),
    causal(
        "falcon",
        "FalconForCausalLM",
        "FalconConfig",
        {**BERT, "alibi": False, "multi_query": True},
        heads=1,
        positions=True,
    ),
    causal("falcon_alibi", "FalconForCausalLM", "FalconConfig", {**BERT, "alibi": True, "multi_query": False}),
    causal("stablelm", "StableLmForCausalLM", "StableLmConfig", {**BERT, "num_key_value_heads": 2}, positions=True),
    causal("olmo2", "Olmo2ForCausalLM", "Olmo2Config", {**BERT, **SPECIAL}, positions=True),
    causal("cohere", "CohereForCausalLM", "CohereConfig", {**LLAMA, **SPECIAL}, heads=1, positions=True),
    causal("biogpt", "BioGptForCausalLM", "BioGptConfig", {**BERT, **LONG}, positions=True),
    causal("xglm", "XGLMForCausalLM", "XGLMConfig", {**XGLM, **LONG}, positions=True),
)
