"""Steps of the transformers package that are no plain decoders: with an encoder, with states of another make."""

from collections.abc import Mapping
from typing import Any

from tests.zoo.families_causal import LLAMA, MAMBA, MAMBA2, SPECIAL
from tests.zoo.families_text import BERT, T5
from tests.zoo.library import pretrained
from tests.zoo.streams.family import Given, StepFamily, data, state
from tests.zoo.streams.library_decoders import LONG, WINDOW, cache_of, causal, library, tensors_of

SOURCE = 9

BART: dict[str, Any] = {
    "vocab_size": 40,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 512,
    **SPECIAL,
}
WHISPER: dict[str, Any] = {
    **{key: value for key, value in BART.items() if key != "max_position_embeddings"},
    "num_mel_bins": 8,
    "max_source_positions": SOURCE,
    "max_target_positions": 512,
    "decoder_start_token_id": 1,
}


def crossed(model: Any, ids: Any, *rest: Any) -> Any:
    """With keys and values of an encoder that were computed once."""
    half = len(rest) // 2
    past, cross = rest[:half], rest[half:]
    cache = library().EncoderDecoderCache(cache_of(past), cache_of(cross))
    memory = cross[0].new_zeros(cross[0].shape[0], SOURCE, 32)
    found = model(decoder_input_ids=ids, encoder_outputs=(memory,), past_key_values=cache, use_cache=True)
    return (found.logits, *tensors_of(found.past_key_values.self_attention_cache))


def placed_crossed(model: Any, ids: Any, positions: Any, *rest: Any) -> Any:
    """The same with positions in the stream."""
    half = len(rest) // 2
    past, cross = rest[:half], rest[half:]
    cache = library().EncoderDecoderCache(cache_of(past), cache_of(cross))
    memory = cross[0].new_zeros(cross[0].shape[0], SOURCE, 32)
    found = model(
        decoder_input_ids=ids,
        decoder_position_ids=positions,
        encoder_outputs=(memory,),
        past_key_values=cache,
        use_cache=True,
    )
    return (found.logits, *tensors_of(found.past_key_values.self_attention_cache))


def two_sided(
    name: str, model: str, config: str, options: Mapping[str, Any], *, positions: bool = False, eager: bool = False
) -> StepFamily:
    """A decoder with a cache of its own, and the keys and values of what an encoder heard."""
    names = [f"{kind}{layer}" for layer in range(2) for kind in ("key", "value")]
    given: dict[str, Given] = {"tokens": data("batch", 1, dtype="int64", below=40)}
    if positions:
        given["positions"] = data("batch", 1, dtype="int64", counts=True)
    given |= {each: state(f"new_{each}", "batch", 2, "cached", 16) for each in names}
    given |= {f"cross_{each}": data("batch", 2, SOURCE, 16) for each in names}
    build = pretrained(model, config, options, placed_crossed if positions else crossed, eager=eager)
    return StepFamily(name, build, given, ("logits", *(f"new_{each}" for each in names)), {"cached": WINDOW})


def _linear(model: Any, ids: Any, *states: Any) -> Any:
    """A convolution context and a state per layer."""
    cache = library().DynamicCache(config=model.config)
    for layer, conv, recurrent in zip(cache.layers, states[::2], states[1::2], strict=True):
        layer.lazy_initialization(conv_states=conv, recurrent_states=recurrent)
        layer.conv_states[0], layer.recurrent_states[0] = conv.clone(), recurrent.clone()
        layer.has_previous_state[0] = True
    found = model(input_ids=ids, cache_params=cache, use_cache=True)
    return (
        found.logits,
        *(each for layer in cache.layers for each in (layer.conv_states[0], layer.recurrent_states[0])),
    )


def _rwkv(model: Any, ids: Any, *states: Any) -> Any:
    found = model(input_ids=ids, state=[each.clone() for each in states], use_cache=True)
    return (found.logits, *found.state)


def _static(model: Any, ids: Any, position: Any, *past: Any) -> Any:
    """Caches of one size, written to at a position."""
    cache = library().StaticCache(config=model.config, max_cache_len=128)
    for layer, key, value in zip(cache.layers, past[::2], past[1::2], strict=True):
        layer.lazy_initialization(key, value)
        layer.keys, layer.values = key.clone(), value.clone()
        layer.cumulative_length = position.clone()
    found = model(input_ids=ids, position_ids=position.reshape(1, 1), past_key_values=cache, use_cache=True)
    return (found.logits, position + 1, *(each for layer in cache.layers for each in (layer.keys, layer.values)))


def _sliding(model: Any, ids: Any, positions: Any, *past: Any) -> Any:
    """Caches that the package cuts to the window."""
    cache = library().DynamicCache(list(zip(past[::2], past[1::2], strict=True)), config=model.config)
    found = model(input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True)
    return (found.logits, *tensors_of(found.past_key_values))


def _lfm2(model: Any, ids: Any, positions: Any, conv: Any, key: Any, value: Any) -> Any:
    cache = library().DynamicCache(config=model.config)
    first, second = cache.layers
    first.lazy_initialization(conv_states=conv)
    first.conv_states[0] = conv.clone()
    first.has_previous_state[0] = True
    second.update(key, value)
    found = model(input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True)
    return (found.logits, first.conv_states[0], second.keys, second.values)


MIMI: dict[str, Any] = {
    "hidden_size": 16,
    "num_filters": 4,
    "num_residual_layers": 1,
    "upsampling_ratios": [4, 2],
    "codebook_size": 32,
    "codebook_dim": 8,
    "vector_quantization_hidden_dimension": 8,
    "num_quantizers": 3,
    "num_semantic_quantizers": 1,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 24,
    "sliding_window": 250,
    "upsample_groups": 16,
}


def _mimi_attention(model: Any, x: Any, positions: Any, key: Any, value: Any) -> Any:
    found = model.decoder_transformer(x, position_ids=positions, past_key_values=cache_of((key, value)), use_cache=True)
    return (found.last_hidden_state, *tensors_of(found.past_key_values))


FAMILIES = (
    two_sided("bart", "BartForConditionalGeneration", "BartConfig", BART),
    two_sided("whisper", "WhisperForConditionalGeneration", "WhisperConfig", WHISPER),
    two_sided("whisper_placed", "WhisperForConditionalGeneration", "WhisperConfig", WHISPER, positions=True),
    two_sided("t5", "T5ForConditionalGeneration", "T5Config", {**T5, "decoder_start_token_id": 0}),
    StepFamily(
        "mamba",
        pretrained("MambaForCausalLM", "MambaConfig", {**MAMBA, "use_mambapy": False}, _linear),
        {
            "tokens": data("batch", 1, dtype="int64", below=40),
            "conv0": state("new_conv0", "batch", 32, 4),
            "ssm0": state("new_ssm0", "batch", 32, 4),
            "conv1": state("new_conv1", "batch", 32, 4),
            "ssm1": state("new_ssm1", "batch", 32, 4),
        },
        ("logits", "new_conv0", "new_ssm0", "new_conv1", "new_ssm1"),
    ),
    StepFamily(
        "mamba2",
        pretrained("Mamba2ForCausalLM", "Mamba2Config", MAMBA2, _linear),
        {
            "tokens": data("batch", 1, dtype="int64", below=40),
            "conv0": state("new_conv0", "batch", 40, 4),
            "ssm0": state("new_ssm0", "batch", 4, 8, 4),
            "conv1": state("new_conv1", "batch", 40, 4),
            "ssm1": state("new_ssm1", "batch", 4, 8, 4),
        },
        ("logits", "new_conv0", "new_ssm0", "new_conv1", "new_ssm1"),
    ),
    StepFamily(
        "rwkv",
        pretrained(
            "RwkvForCausalLM",
            "RwkvConfig",
            {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "attention_hidden_size": 16},
            _rwkv,
        ),
        {
            "tokens": data("batch", 1, dtype="int64", below=40, original=(1, 1)),
            **{f"s{i}": state(f"n{i}", "batch", 16, 2, original=(1, 16, 2)) for i in range(5)},
        },
        ("logits", *(f"n{i}" for i in range(5))),
        tries=2,  # for many rows at once the exporter fixes their number
    ),
    StepFamily(
        "llama_static_row",
        pretrained("LlamaForCausalLM", "LlamaConfig", {**LLAMA, **LONG}, _static),
        {
            "tokens": data("batch", 1, dtype="int64", below=40, original=(1, 1)),
            "position": state("next_position", "batch", 1, dtype="int64", original=(1,)),
            **{
                f"{kind}{i}": state(f"new_{kind}{i}", "batch", 1, 128, 16, original=(1, 1, 128, 16))
                for i in range(2)
                for kind in ("key", "value")
            },
        },
        ("logits", "next_position", "new_key0", "new_value0", "new_key1", "new_value1"),
    ),
    causal(
        "mistral_cut",
        "MistralForCausalLM",
        "MistralConfig",
        {**LLAMA, **LONG, "sliding_window": WINDOW + 1},
        heads=1,
        positions=True,
        call=_sliding,
    ),
    StepFamily(
        "lfm2",
        pretrained(
            "Lfm2ForCausalLM",
            "Lfm2Config",
            {**LLAMA, **LONG, "layer_types": ["conv", "full_attention"], "conv_L_cache": 3},
            _lfm2,
        ),
        {
            "tokens": data("batch", 1, dtype="int64", below=40),
            "positions": data("batch", 1, dtype="int64", counts=True),
            "conv": state("new_conv", "batch", 32, 3),
            "key": state("new_key", "batch", 1, "cached", 16),
            "value": state("new_value", "batch", 1, "cached", 16),
        },
        ("logits", "new_conv", "new_key", "new_value"),
        {"cached": WINDOW},
    ),
    StepFamily(
        "mimi_attention",
        pretrained("MimiModel", "MimiConfig", MIMI, _mimi_attention),
        {
            "x": data("batch", 2, 16),
            "positions": data("batch", 2, dtype="int64", counts=True),
            "key": state("new_key", "batch", 2, "cached", 8),
            "value": state("new_value", "batch", 2, "cached", 8),
        },
        ("y", "new_key", "new_value"),
        {"cached": WINDOW},
    ),
    causal(
        "cohere2",
        "Cohere2ForCausalLM",
        "Cohere2Config",
        {**LLAMA, **SPECIAL, "sliding_window": 8},
        heads=1,
        positions=True,
    ),
    causal(
        "gpt_bigcode",
        "GPTBigCodeForCausalLM",
        "GPTBigCodeConfig",
        {"vocab_size": 40, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 512},
        heads=1,
        positions=True,
    ),
    causal(
        "codegen",
        "CodeGenForCausalLM",
        "CodeGenConfig",
        {"vocab_size": 40, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512, "rotary_dim": 8},
        heads=4,
        positions=True,
    ),
    causal("diffllama", "DiffLlamaForCausalLM", "DiffLlamaConfig", {**BERT, **LONG}, positions=True),
    causal(
        "moshi",
        "MoshiForCausalLM",
        "MoshiConfig",
        {**BERT, **LONG, "ffn_dim": 96, "sliding_window": 24, "audio_vocab_size": 20},
        positions=True,
    ),
)
