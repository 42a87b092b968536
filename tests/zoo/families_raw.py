"""Speech encoders and neural codecs that read raw audio."""

import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from tests.zoo import separation, spectra
from tests.zoo.family import BATCH, Family, Given, wave
from tests.zoo.library import Call, Forward, own, pretrained

CONVOLUTIONS = {
    "conv_dim": (16, 16, 16),
    "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 2),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
}
WAV2VEC2: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 16,
    "mask_time_prob": 0.0,
    "layerdrop": 0.0,
    "apply_spec_augment": False,
    **CONVOLUTIONS,
}
ENCODEC: dict[str, Any] = {
    "num_filters": 4,
    "hidden_size": 16,
    "upsampling_ratios": [4, 2],
    "num_lstm_layers": 1,
    "codebook_size": 16,
    "codebook_dim": 16,
}
DAC: dict[str, Any] = {
    "encoder_hidden_size": 8,
    "downsampling_ratios": [2, 4],
    "decoder_hidden_size": 32,
    "n_codebooks": 2,
    "codebook_size": 16,
    "codebook_dim": 4,
    "upsampling_ratios": [4, 2],
}
MIMI: dict[str, Any] = {
    "num_filters": 4,
    "hidden_size": 32,
    "upsampling_ratios": [4, 2],
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "codebook_size": 16,
    "codebook_dim": 16,
    "vector_quantization_hidden_dimension": 16,
    "sliding_window": 16,
    "num_quantizers": 4,
    "num_semantic_quantizers": 1,
    "upsample_groups": 32,
    "sampling_rate": 320,
    "frame_rate": 20,
}
CHANNEL = {"wave": Given((BATCH, 1, "time"))}
TENSOR_SIZES = "sizes of padding are kept as tensors, so the exporter sees data where there are numbers"


def ctc(model: Any, samples: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
    """Logits of a recogniser."""
    return model(samples, attention_mask=mask).logits


def numbers_for_sizes(build: Callable[[], Call]) -> Callable[[], Call]:
    """A codec whose sizes of padding are numbers instead of tensors, so that it can be exported."""

    def extra(self: Any, hidden: torch.Tensor) -> int:
        missing: int = -(hidden.shape[-1] - self.kernel_size + self.padding_total) % self.stride
        return missing

    def made() -> Call:
        call = build()
        codec: Any
        for codec in call.modules():
            if not isinstance(getattr(codec, "padding_total", None), torch.Tensor):
                continue
            for name in ("stride", "kernel_size", "padding_total"):
                setattr(codec, name, int(codec._buffers.pop(name)))
            if hasattr(codec, "padding_left"):
                codec.padding_right = codec.padding_total // 2
                codec.padding_left = codec.padding_total - codec.padding_right
            codec._get_extra_padding_for_conv1d = types.MethodType(extra, codec)
        return call

    return made


def without_cached_positions(model: Any, samples: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
    """The model keeps its last table of positions; the exporter would take its size for fixed."""
    model.wav2vec2_conformer.encoder.embed_positions.cached_sequence_length = None
    return ctc(model, samples, mask)


def _speech(
    name: str,
    model: str,
    config: str,
    options: Mapping[str, Any] | None = None,
    *,
    forward: Forward = ctc,
    masks: tuple[bool, ...] = (False, True),
    sizes: int = 480,
    least: int = 60,
    eager: bool = False,
    lenient: bool = False,
) -> Iterator[Family]:
    build = pretrained(model, config, {**WAV2VEC2, **(options or {})}, forward, eager=eager)
    for mask in masks:
        yield Family(
            name + "_masked" * mask, "raw", build, wave(mask=mask), {"time": sizes}, {"time": least}, lenient=lenient
        )


def _codec(name: str, build: Callable[[], Call], *, lenient: bool = False, stuck: str = "") -> Family:
    return Family(name, "raw", build, CHANNEL, {"time": 320}, {"time": 64}, lenient=lenient, stuck=stuck)


def _moonshine(model: Any, samples: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
    return model.encoder(samples, attention_mask=mask).last_hidden_state


MOONSHINE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "encoder_num_hidden_layers": 2,
    "decoder_num_hidden_layers": 2,
    "encoder_num_attention_heads": 2,
    "decoder_num_attention_heads": 2,
    "vocab_size": 40,
}

RELATIVE = {"position_embeddings_type": "relative", "conv_depthwise_kernel_size": 7, "max_source_positions": 200}
ROTARY = {"position_embeddings_type": "rotary", "conv_depthwise_kernel_size": 7}
DISENTANGLED = {"squeeze_factor": 2, "position_buckets": 16, "max_position_embeddings": 32}
LARGE = {"feat_extract_norm": "layer", "do_stable_layer_norm": True}
XVECTOR = {"tdnn_dim": (16, 16), "tdnn_kernel": (3, 3), "tdnn_dilation": (1, 2), "xvector_output_dim": 8}
CLASSIFIER = {"num_labels": 5, "classifier_proj_size": 16, "use_weighted_layer_sum": True}

FAMILIES = (
    *_speech("wav2vec2_base", "Wav2Vec2ForCTC", "Wav2Vec2Config", {"feat_extract_norm": "group"}),
    *_speech("wav2vec2_large", "Wav2Vec2ForCTC", "Wav2Vec2Config", LARGE),
    *_speech("wav2vec2_eager", "Wav2Vec2ForCTC", "Wav2Vec2Config", LARGE, masks=(True,), eager=True),
    *_speech("hubert", "HubertForCTC", "HubertConfig"),
    *_speech("wavlm", "WavLMForCTC", "WavLMConfig", {"num_buckets": 32, "max_bucket_distance": 80}),
    *_speech("unispeech", "UniSpeechForCTC", "UniSpeechConfig", masks=(True,)),
    *_speech("unispeech_sat", "UniSpeechSatForCTC", "UniSpeechSatConfig", masks=(True,)),
    *_speech(
        "data2vec_audio",
        "Data2VecAudioForCTC",
        "Data2VecAudioConfig",
        {"conv_pos_kernel_size": 3, "num_conv_pos_embeddings": 5},
    ),
    *_speech("sew", "SEWForCTC", "SEWConfig", {"squeeze_factor": 2}, masks=(False,)),
    *_speech("sew", "SEWForCTC", "SEWConfig", {"squeeze_factor": 2}, masks=(True,), lenient=True),
    *_speech("sew_d", "SEWDForCTC", "SEWDConfig", {**DISENTANGLED, "pos_att_type": ("p2c", "c2p")}, lenient=True),
    *_speech("wav2vec2_conformer_relative", "Wav2Vec2ConformerForCTC", "Wav2Vec2ConformerConfig", RELATIVE),
    *_speech(
        "wav2vec2_conformer_rotary",
        "Wav2Vec2ConformerForCTC",
        "Wav2Vec2ConformerConfig",
        ROTARY,
        forward=without_cached_positions,
    ),
    *_speech("wav2vec2_classifier", "Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", CLASSIFIER),
    *_speech("wav2vec2_xvector", "Wav2Vec2ForXVector", "Wav2Vec2Config", XVECTOR, masks=(False,), least=180),
    *(
        Family(
            "moonshine_encoder" + "_masked" * mask,
            "raw",
            pretrained("MoonshineModel", "MoonshineConfig", MOONSHINE, _moonshine),
            wave(mask=mask),
            {"time": 2100},
            {"time": 1100},
            stuck="the exporter ties the size of the shortened mask to that of the features" if mask else "",
        )
        for mask in (False, True)
    ),
    _codec(
        "encodec_encoder",
        pretrained("EncodecModel", "EncodecConfig", ENCODEC, lambda m, w: m.encoder(w)),
        stuck=TENSOR_SIZES,
    ),
    _codec(
        "encodec_encoder_constant",
        numbers_for_sizes(
            pretrained("EncodecModel", "EncodecConfig", {**ENCODEC, "pad_mode": "constant"}, lambda m, w: m.encoder(w))
        ),
        lenient=True,
    ),
    _codec("dac_encoder", pretrained("DacModel", "DacConfig", DAC, lambda m, w: m.encoder(w))),
    _codec("dac_codes", pretrained("DacModel", "DacConfig", DAC, lambda m, w: m.encode(w).audio_codes)),
    _codec(
        "mimi_encoder", pretrained("MimiModel", "MimiConfig", MIMI, lambda m, w: m.encoder(w)[0]), stuck=TENSOR_SIZES
    ),
    _codec(
        "mimi_encoder_numbers",
        numbers_for_sizes(pretrained("MimiModel", "MimiConfig", MIMI, lambda m, w: m.encoder(w)[0])),
    ),
    *(
        Family(name, "raw", own(module, lambda m, w: m(w)), wave(), {"time": 320}, {"time": least})
        for name, module, least in (
            ("conv_tasnet", separation.ConvTasNet, 16),
            ("wave_unet", separation.WaveUNet, 16),
            ("stft_front_end", spectra.fourier(centered=False), 32),
            ("stft_front_end_centered", spectra.fourier(centered=True), 32),
            ("log_mel_normalised", spectra.LogMel, 48),
        )
    ),
)
