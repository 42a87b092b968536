"""Speech encoders that read features."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

from tests.zoo import convolutional, recurrent, self_attention
from tests.zoo.family import BATCH, Family, Given, features
from tests.zoo.library import Forward, own, pretrained

WAV2VEC2_BERT: dict[str, Any] = {
    "vocab_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "feature_projection_input_dim": 40,
    "left_max_position_embeddings": 6,
    "right_max_position_embeddings": 3,
    "conv_depthwise_kernel_size": 7,
    "apply_spec_augment": False,
}
ADAPTER = {"add_adapter": True, "adapter_kernel_size": 3, "adapter_stride": 2, "num_adapter_layers": 1}
SPEECH_TO_TEXT: dict[str, Any] = {
    "vocab_size": 40,
    "encoder_layers": 2,
    "encoder_ffn_dim": 48,
    "encoder_attention_heads": 2,
    "decoder_layers": 2,
    "decoder_ffn_dim": 48,
    "decoder_attention_heads": 2,
    "d_model": 32,
    "max_source_positions": 300,
    "max_target_positions": 64,
    "conv_channels": 32,
    "input_feat_per_channel": 40,
}
PARAKEET: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "conv_kernel_size": 5,
    "subsampling_factor": 8,
    "subsampling_conv_channels": 8,
    "num_mel_bins": 16,
    "max_position_embeddings": 500,
}
STREAMING = {"sliding_window": 6, "default_num_lookahead_tokens": 2}
LASR: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "conv_kernel_size": 8,
    "subsampling_conv_channels": 16,
    "num_mel_bins": 16,
    "max_position_embeddings": 200,
}
GRANITE: dict[str, Any] = {
    "input_dim": 20,
    "num_layers": 2,
    "hidden_dim": 32,
    "feedforward_mult": 2,
    "num_heads": 2,
    "dim_head": 16,
    "output_dim": 12,
    "context_size": 8,
    "max_pos_emb": 16,
    "conv_kernel_size": 5,
    "conv_expansion_factor": 2,
}
SEAMLESS: dict[str, Any] = {
    "vocab_size": 32,
    "t2u_vocab_size": 32,
    "hidden_size": 32,
    "speech_encoder_layers": 2,
    "speech_encoder_attention_heads": 2,
    "speech_encoder_intermediate_size": 48,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "max_source_positions": 100,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "conv_depthwise_kernel_size": 5,
    "feature_projection_input_dim": 40,
    "num_adapter_layers": 1,
    "adaptor_kernel_size": 4,
    "adaptor_stride": 4,
    "t2u_encoder_layers": 1,
    "t2u_decoder_layers": 1,
    "t2u_encoder_ffn_dim": 32,
    "t2u_decoder_ffn_dim": 32,
    "t2u_encoder_attention_heads": 2,
    "t2u_decoder_attention_heads": 2,
    "unit_hifi_gan_vocab_size": 10,
    "vocoder_num_langs": 2,
    "vocoder_num_spkrs": 2,
}
CHUNKED = {
    "left_max_position_embeddings": 6,
    "right_max_position_embeddings": 3,
    "speech_encoder_chunk_size": 10,
    "speech_encoder_left_chunk_num": 2,
}
WHISPER: dict[str, Any] = {
    "vocab_size": 40,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_source_positions": 60,
    "max_target_positions": 64,
    "num_mel_bins": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
VOXTRAL: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_mel_bins": 16,
    "max_source_positions": 30,
}
SPECTROGRAM_TRANSFORMER: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "patch_size": 8,
    "frequency_stride": 6,
    "time_stride": 6,
    "max_length": 64,
    "num_mel_bins": 32,
}


def whisper_of_any_length(model: Any, mel: torch.Tensor) -> torch.Tensor:
    """The encoder without its rule that everything is thirty seconds long."""
    encoder = model.encoder
    hidden = functional.gelu(encoder.conv2(functional.gelu(encoder.conv1(mel)))).permute(0, 2, 1)
    hidden = hidden + encoder.embed_positions.weight[: hidden.shape[1]]
    for layer in encoder.layers:
        found = layer(hidden, None)
        hidden = found if isinstance(found, torch.Tensor) else found[0]
    result: torch.Tensor = encoder.layer_norm(hidden)
    return result


def hidden(model: Any, frames: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
    """Hidden states of an encoder."""
    return model(frames, attention_mask=mask).last_hidden_state


def _encoder(
    name: str,
    model: str,
    config: str,
    options: Mapping[str, Any],
    width: int,
    frames: int,
    least: int = 1,
    *,
    forward: Forward = hidden,
    mask: bool = True,
) -> Family:
    build = pretrained(model, config, options, forward)
    return Family(name, "mel", build, features(width, mask=mask), {"time": frames}, {"time": least})


def _fixed(name: str, model: str, config: str, options: Mapping[str, Any], *shape: int, forward: Forward) -> Family:
    build = pretrained(model, config, options, forward)
    return Family(name, "mel", build, {"features": Given((BATCH, *shape))})


def _own(name: str, module: Any, frames: int = 13, least: int = 1, *, mask: bool = False, **more: Any) -> Family:
    build = own(module, lambda m, *inputs: m(*inputs))
    return Family(name, "mel", build, features(16, mask=mask), {"time": frames}, {"time": least}, **more)


FAMILIES = (
    _encoder(
        "wav2vec2_bert",
        "Wav2Vec2BertForCTC",
        "Wav2Vec2BertConfig",
        WAV2VEC2_BERT,
        40,
        30,
        1,
        forward=lambda m, x, a: m(x, attention_mask=a).logits,
    ),
    _encoder(
        "wav2vec2_bert_adapter",
        "Wav2Vec2BertModel",
        "Wav2Vec2BertConfig",
        {**WAV2VEC2_BERT, **ADAPTER, "output_hidden_size": 32},
        40,
        30,
        4,
    ),
    _encoder(
        "speech_to_text_encoder",
        "Speech2TextForConditionalGeneration",
        "Speech2TextConfig",
        SPEECH_TO_TEXT,
        40,
        40,
        8,
        forward=lambda m, x, a: m.model.encoder(x, attention_mask=a).last_hidden_state,
    ),
    _encoder("parakeet_encoder", "ParakeetEncoder", "ParakeetEncoderConfig", PARAKEET, 16, 120, 32),
    _encoder(
        "parakeet_encoder_maskless", "ParakeetEncoder", "ParakeetEncoderConfig", PARAKEET, 16, 120, 32, mask=False
    ),
    _encoder(
        "parakeet_ctc",
        "ParakeetForCTC",
        "ParakeetCTCConfig",
        {"vocab_size": 17, "pad_token_id": 16, "encoder_config": PARAKEET},
        16,
        120,
        32,
        forward=lambda m, x, a: m(x, attention_mask=a).logits,
    ),
    _encoder(
        "nemotron_streaming_encoder",
        "NemotronAsrStreamingEncoder",
        "NemotronAsrStreamingEncoderConfig",
        {**PARAKEET, **STREAMING},
        16,
        120,
        32,
    ),
    _encoder("lasr_encoder", "LasrEncoder", "LasrEncoderConfig", LASR, 16, 60, 16),
    _encoder(
        "granite_speech_encoder",
        "GraniteSpeechCTCEncoder",
        "GraniteSpeechEncoderConfig",
        GRANITE,
        20,
        41,
        2,
        mask=False,
    ),
    _encoder(
        "seamless_m4t_speech_encoder",
        "SeamlessM4TForSpeechToText",
        "SeamlessM4TConfig",
        SEAMLESS,
        40,
        40,
        4,
        forward=lambda m, x, a: m.speech_encoder(x, attention_mask=a)[0],
    ),
    _encoder(
        "seamless_m4t_v2_speech_encoder",
        "SeamlessM4Tv2ForSpeechToText",
        "SeamlessM4Tv2Config",
        {**SEAMLESS, **CHUNKED},
        40,
        40,
        4,
        forward=lambda m, x, a: m.speech_encoder(x, attention_mask=a)[0],
    ),
    Family(
        "whisper_encoder",
        "mel",
        pretrained("WhisperModel", "WhisperConfig", WHISPER, whisper_of_any_length),
        {"features": Given((BATCH, 16, "time"))},
        {"time": 40},
        {"time": 2},
    ),
    _fixed(
        "whisper_encoder_fixed",
        "WhisperModel",
        "WhisperConfig",
        WHISPER,
        16,
        120,
        forward=lambda m, x: m.encoder(x).last_hidden_state,
    ),
    _fixed("voxtral_encoder_fixed", "VoxtralEncoder", "VoxtralEncoderConfig", VOXTRAL, 16, 60, forward=hidden),
    _fixed(
        "spectrogram_transformer_fixed",
        "ASTModel",
        "ASTConfig",
        SPECTROGRAM_TRANSFORMER,
        64,
        32,
        forward=lambda m, x: m(x).last_hidden_state,
    ),
    _own("torch_transformer_encoder", self_attention.TorchEncoder, mask=True),
    _own("torch_transformer_encoder_maskless", self_attention.TorchEncoder),
    _own("espnet_conformer", self_attention.Conformer, 60, 7, mask=True, lenient=True),
    _own("espnet_conformer_maskless", self_attention.Conformer, 60, 7),
    _own("linear_attention", self_attention.LinearAttention),
    _own("alibi_encoder", self_attention.Alibi),
    _own("blstm_ctc", recurrent.ctc("LSTM", layers=2, both=True), traced=True),
    _own("lstm_ctc", recurrent.ctc("LSTM", layers=1, both=False), traced=True),
    _own("bgru_ctc", recurrent.ctc("GRU", layers=2, both=True), traced=True),
    _own("gru_ctc", recurrent.ctc("GRU", layers=1, both=False), traced=True),
    _own("rnn_ctc", recurrent.ctc("RNN", layers=1, both=False), traced=True),
    _own("flipped_gru", recurrent.Flipped, traced=True),
    _own("deepspeech2", recurrent.DeepSpeech2, 40, traced=True),
    _own("cif_predictor", recurrent.Cif, outputs=("fired", "count")),
    _own("quartznet", convolutional.quartznet(squeeze=False), 40),
    _own("citrinet", convolutional.quartznet(squeeze=True), 40),
    _own("tcn_vad", convolutional.CausalTcn),
    _own("greedy_ctc_head", convolutional.GreedyHead, outputs=("tokens", "scores", "total")),
    _own("stacked_frames", convolutional.StackedFrames, 40, 4),
    _own("mirrored_frames", convolutional.Mirrored, 13, 4),
    Family(
        "lengths_as_input",
        "mel",
        own(self_attention.LengthMasked, lambda m, x, n: m(x, n)),
        {**features(16, mask=False), "lengths": Given((BATCH,), "int64", length_of="time")},
        outputs=("frames", "mean"),
    ),
)
