"""Decoders with cross-attention: two padded axes."""

from collections.abc import Callable, Mapping
from typing import Any

from tests.zoo import recurrent, self_attention
from tests.zoo.families_mel import SPEECH_TO_TEXT, WHISPER
from tests.zoo.families_raw import MOONSHINE
from tests.zoo.families_synthesis import SPEECHT5
from tests.zoo.families_text import T5
from tests.zoo.family import BATCH, Family, Given, masked, tokens
from tests.zoo.library import Call, Forward, own, pretrained

BART: dict[str, Any] = {
    "vocab_size": 40,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
}
TARGETS = tokens(40, "target_time", mask=False)
MEMORY = {"memory": Given((BATCH, "source_time", 32)), **masked("memory_mask", "source_time")}
UNMASKED = {"memory": MEMORY["memory"]}


def _attend(model: Any, ids: Any, memory: Any, mask: Any = None) -> Any:
    return model.get_decoder()(
        input_ids=ids, encoder_hidden_states=memory, encoder_attention_mask=mask, use_cache=False
    ).last_hidden_state


def _with_own_mask(model: Any, ids: Any, own_mask: Any, memory: Any, mask: Any) -> Any:
    return model.get_decoder()(
        input_ids=ids,
        attention_mask=own_mask,
        encoder_hidden_states=memory,
        encoder_attention_mask=mask,
        use_cache=False,
    ).last_hidden_state


def _unmasked(model: Any, ids: Any, memory: Any) -> Any:
    return model.decoder(input_ids=ids, encoder_hidden_states=memory, use_cache=False).last_hidden_state


def _both(model: Any, ids: Any, mask: Any, targets: Any) -> Any:
    return model(input_ids=ids, attention_mask=mask, decoder_input_ids=targets, use_cache=False).last_hidden_state


def _speech(model: Any, mel: Any, speaker: Any, memory: Any, mask: Any) -> Any:
    hidden = model.speecht5.decoder(
        mel,
        speaker_embeddings=speaker,
        encoder_hidden_states=memory,
        encoder_attention_mask=mask,
        use_cache=False,
    ).last_hidden_state
    return model.speech_decoder_postnet(hidden)[1]


def _without_dropout(build: Callable[[], Call]) -> Callable[[], Call]:
    """The prenet drops at random in evaluation, too, alike in every row of a batch: nothing that could be compared."""

    def built() -> Call:
        call = build()
        prenet: Any = call.module.get_submodule("speecht5.decoder.prenet")
        prenet._consistent_dropout = lambda hidden, share: hidden
        return call

    return built


def _decoder(
    name: str,
    model: str,
    config: str,
    options: Mapping[str, Any] = BART,
    *,
    forward: Forward = _attend,
    inputs: Mapping[str, Given] | None = None,
) -> Family:
    return Family(name, "decoder", pretrained(model, config, options, forward), inputs or {**TARGETS, **MEMORY})


FAMILIES = (
    _decoder("bart_decoder", "BartModel", "BartConfig"),
    _decoder(
        "bart_decoder_self_masked",
        "BartModel",
        "BartConfig",
        forward=_with_own_mask,
        inputs={**TARGETS, **masked("target_mask", "target_time"), **MEMORY},
    ),
    _decoder("bart_decoder_maskless", "BartModel", "BartConfig", inputs={**TARGETS, **UNMASKED}),
    _decoder(
        "bart_seq2seq",
        "BartModel",
        "BartConfig",
        forward=_both,
        inputs={**tokens(40, "source_time"), "decoder_ids": TARGETS["input_ids"]},
    ),
    _decoder("mbart_decoder", "MBartModel", "MBartConfig"),
    _decoder("marian_decoder", "MarianModel", "MarianConfig"),
    _decoder("pegasus_decoder", "PegasusModel", "PegasusConfig"),
    _decoder("m2m_100_decoder", "M2M100Model", "M2M100Config"),
    _decoder("blenderbot_decoder", "BlenderbotModel", "BlenderbotConfig"),
    _decoder("t5_decoder", "T5Model", "T5Config", T5),
    _decoder(
        "whisper_decoder", "WhisperModel", "WhisperConfig", WHISPER, forward=_unmasked, inputs={**TARGETS, **UNMASKED}
    ),
    _decoder("speech_to_text_decoder", "Speech2TextModel", "Speech2TextConfig", SPEECH_TO_TEXT),
    _decoder(
        "moonshine_decoder",
        "MoonshineModel",
        "MoonshineConfig",
        MOONSHINE,
        forward=_unmasked,
        inputs={**TARGETS, **UNMASKED},
    ),
    Family(
        "speecht5_decoder",
        "decoder",
        _without_dropout(pretrained("SpeechT5ForTextToSpeech", "SpeechT5Config", SPEECHT5, _speech)),
        {"mel": Given((BATCH, "target_time", 10)), "speaker": Given((BATCH, 8)), **MEMORY},
    ),
    Family(
        "torch_transformer_decoder",
        "decoder",
        own(self_attention.TorchDecoder, lambda m, *x: m(*x)),
        {**TARGETS, **MEMORY},
    ),
    Family(
        "transducer_joint",
        "decoder",
        own(recurrent.TransducerJoint, lambda m, x, i: m(x, i)),
        {"features": Given((BATCH, "source_time", 16)), **tokens(20, "target_time", mask=False)},
        traced=True,
    ),
)
