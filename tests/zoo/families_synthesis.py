"""Text to speech, vocoders, and the decoders of neural codecs."""

from collections.abc import Mapping
from typing import Any

import torch

from tests.zoo import convolutional, recurrent
from tests.zoo.families_raw import DAC, ENCODEC, MIMI, TENSOR_SIZES, numbers_for_sizes
from tests.zoo.family import BATCH, Family, Given, features, masked, tokens, wave
from tests.zoo.library import Forward, own, pretrained

FASTSPEECH2: dict[str, Any] = {
    "hidden_size": 16,
    "vocab_size": 20,
    "num_mel_bins": 10,
    "encoder_num_attention_heads": 2,
    "encoder_layers": 2,
    "encoder_linear_units": 24,
    "decoder_layers": 1,
    "decoder_num_attention_heads": 2,
    "decoder_linear_units": 24,
    "speech_decoder_postnet_layers": 2,
    "speech_decoder_postnet_units": 16,
    "duration_predictor_channels": 16,
    "duration_predictor_layers": 2,
    "pitch_predictor_channels": 16,
    "energy_predictor_channels": 16,
    "max_source_positions": 100,
}
SPEECHT5: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 32,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 48,
    "positional_dropout": 0.0,
    "conv_dim": (16, 16, 16),
    "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 2),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "num_mel_bins": 10,
    "speech_decoder_prenet_units": 16,
    "speech_decoder_postnet_units": 16,
    "speech_decoder_postnet_layers": 2,
    "max_speech_positions": 100,
    "max_text_positions": 100,
    "encoder_max_relative_position": 8,
    "apply_spec_augment": False,
    "speaker_embedding_dim": 8,
    "reduction_factor": 2,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
}
UPSAMPLING: dict[str, Any] = {
    "upsample_initial_channel": 16,
    "upsample_rates": [4, 2],
    "upsample_kernel_sizes": [8, 4],
    "resblock_kernel_sizes": [3, 5],
    "resblock_dilation_sizes": [[1, 3], [1, 3]],
}
VITS: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "ffn_dim": 24,
    "flow_size": 8,
    "spectrogram_bins": 9,
    "prior_encoder_num_flows": 2,
    "prior_encoder_num_wavenet_layers": 2,
    "posterior_encoder_num_wavenet_layers": 2,
    **UPSAMPLING,
}
HIFIGAN: dict[str, Any] = {"model_in_dim": 10, **UPSAMPLING}
UNIVNET: dict[str, Any] = {
    "model_in_channels": 8,
    "model_hidden_channels": 8,
    "num_mel_bins": 10,
    "resblock_kernel_sizes": [3],
    "resblock_stride_sizes": [4],
    "resblock_dilation_sizes": [[1, 3]],
    "kernel_predictor_num_blocks": 1,
    "kernel_predictor_hidden_channels": 8,
}
MEL = {"mel": Given((BATCH, "time", 10))}


def _latents(channels: int) -> dict[str, Given]:
    return {"latents": Given((BATCH, channels, "time"))}


def _vits_text(model: Any, ids: torch.Tensor, mask: torch.Tensor) -> Any:
    found = model.text_encoder(ids, mask.unsqueeze(-1).float(), attention_mask=mask)
    return found.last_hidden_state, found.prior_means, found.prior_log_variances


def _vits_text_unmasked(model: Any, ids: torch.Tensor) -> Any:
    return model.text_encoder(ids, torch.ones_like(ids).unsqueeze(-1).float()).last_hidden_state


def _family(
    name: str,
    group: str,
    model: str,
    options: Mapping[str, Any],
    inputs: Mapping[str, Given],
    forward: Forward,
    *,
    config: str = "",
    outputs: tuple[str, ...] = ("output",),
    frames: int = 12,
    least: int = 1,
    stuck: str = "",
) -> Family:
    build = pretrained(model, config or model.replace("Model", "Config"), options, forward)
    return Family(name, group, build, inputs, {"time": frames}, {"time": least}, outputs, stuck=stuck)


FAMILIES = (
    _family(
        "speecht5_text_encoder",
        "synthesis",
        "SpeechT5ForTextToSpeech",
        SPEECHT5,
        tokens(20),
        lambda m, i, a: m.speecht5.encoder(i, attention_mask=a).last_hidden_state,
        config="SpeechT5Config",
    ),
    _family(
        "speecht5_speech_encoder",
        "raw",
        "SpeechT5ForSpeechToText",
        SPEECHT5,
        wave(mask=True),
        lambda m, w, a: m.speecht5.encoder(w, attention_mask=a).last_hidden_state,
        config="SpeechT5Config",
        frames=480,
        least=60,
    ),
    _family(
        "fastspeech2_conformer_encoder",
        "synthesis",
        "FastSpeech2ConformerModel",
        FASTSPEECH2,
        tokens(20),
        lambda m, i, a: m.encoder(i, attention_mask=a.unsqueeze(1))[0],
    ),
    _family(
        "fastspeech2_conformer_decoder",
        "synthesis",
        "FastSpeech2ConformerModel",
        FASTSPEECH2,
        {"hidden": Given((BATCH, "time", 16))},
        lambda m, h: m.speech_decoder_postnet(m.decoder(h)[0])[1],
    ),
    _family(
        "fastspeech2_conformer_pitch",
        "synthesis",
        "FastSpeech2ConformerModel",
        FASTSPEECH2,
        tokens(20, mask=False),
        lambda m, i: m.pitch_predictor(m.encoder(i)[0]),
    ),
    _family(
        "vits_text_encoder",
        "synthesis",
        "VitsModel",
        VITS,
        tokens(20),
        _vits_text,
        outputs=("hidden", "means", "log_variances"),
    ),
    _family("vits_text_encoder_maskless", "synthesis", "VitsModel", VITS, tokens(20, mask=False), _vits_text_unmasked),
    _family(
        "vits_flow",
        "synthesis",
        "VitsModel",
        VITS,
        {**_latents(8), **masked("attention_mask", "time")},
        lambda m, h, a: m.flow(h, a.unsqueeze(1).float(), reverse=True),
    ),
    _family(
        "vits_posterior_encoder",
        "synthesis",
        "VitsModel",
        VITS,
        {"spectrogram": Given((BATCH, 9, "time")), **masked("attention_mask", "time")},
        lambda m, h, a: m.posterior_encoder(h, a.unsqueeze(1).float())[1],
    ),
    _family("vits_decoder", "vocoder", "VitsModel", VITS, _latents(8), lambda m, h: m.decoder(h)),
    _family(
        "speecht5_hifigan",
        "vocoder",
        "SpeechT5HifiGan",
        HIFIGAN,
        MEL,
        lambda m, x: m(x),
        config="SpeechT5HifiGanConfig",
    ),
    _family(
        "fastspeech2_hifigan",
        "vocoder",
        "FastSpeech2ConformerHifiGan",
        HIFIGAN,
        MEL,
        lambda m, x: m(x),
        config="FastSpeech2ConformerHifiGanConfig",
    ),
    _family(
        "univnet",
        "vocoder",
        "UnivNetModel",
        UNIVNET,
        {**MEL, "noise": Given((BATCH, "time", 8))},
        lambda m, x, n: m(x, noise_sequence=n).waveforms,
        least=4,
    ),
    _family(
        "encodec_decoder",
        "vocoder",
        "EncodecModel",
        ENCODEC,
        _latents(16),
        lambda m, x: m.decoder(x),
        stuck=TENSOR_SIZES,
    ),
    Family(
        "encodec_decoder_constant",
        "vocoder",
        numbers_for_sizes(
            pretrained("EncodecModel", "EncodecConfig", {**ENCODEC, "pad_mode": "constant"}, lambda m, x: m.decoder(x))
        ),
        _latents(16),
        {"time": 12},
        {"time": 8},
        traced=True,
    ),
    _family("dac_decoder", "vocoder", "DacModel", DAC, _latents(32), lambda m, x: m.decoder(x)),
    _family(
        "dac_from_codes",
        "vocoder",
        "DacModel",
        DAC,
        {"codes": Given((BATCH, 2, "time"), "int64", below=16)},
        lambda m, c: m.decode(audio_codes=c).audio_values,
    ),
    _family("mimi_decoder", "vocoder", "MimiModel", MIMI, _latents(32), lambda m, x: m.decoder(x)[0]),
    Family(
        "tacotron2_encoder",
        "synthesis",
        own(recurrent.TacotronEncoder, lambda m, x: m(x)),
        tokens(20, mask=False),
        traced=True,
    ),
    *(
        Family(name, group, own(module, lambda m, *x: m(*x)), inputs, sizes, least)
        for name, group, module, inputs, sizes, least in (
            ("tacotron2_postnet", "synthesis", convolutional.Postnet, MEL, {}, {}),
            ("voice_conversion", "synthesis", convolutional.VoiceConversion, features(16, mask=False), {}, {"time": 2}),
            (
                "diffusion_decoder",
                "synthesis",
                convolutional.Diffusion,
                {**MEL, "step": Given((BATCH,), "int64", below=100), **masked("attention_mask", "time")},
                {},
                {},
            ),
            ("vocos", "vocoder", convolutional.Vocos, MEL, {}, {}),
            ("wavenet", "vocoder", convolutional.WaveNet, wave(), {"time": 64}, {}),
            ("upsampled_nearest", "vocoder", convolutional.upsampled("nearest"), features(16, mask=False), {}, {}),
            ("upsampled_linear", "vocoder", convolutional.upsampled("linear"), features(16, mask=False), {}, {}),
        )
    ),
)
