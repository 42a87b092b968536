"""Text encoders, and models with one answer per utterance."""

from collections.abc import Mapping
from typing import Any

from tests.zoo import convolutional, pooling, recurrent
from tests.zoo.family import BATCH, Family, Given, features, masked, tokens
from tests.zoo.library import Forward, own, pretrained

BERT: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
NARROW = {**BERT, "embedding_size": 16}
WIDE = {**BERT, "embedding_size": 32}
DISENTANGLED = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
DEBERTA = {**BERT, **DISENTANGLED, "max_relative_positions": 32}
DEBERTA_V2 = {
    **BERT,
    **DISENTANGLED,
    "position_buckets": 16,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "conv_kernel_size": 3,
    "conv_act": "gelu",
}
DISTILBERT = {"vocab_size": 40, "dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48, "max_position_embeddings": 64}
MODERNBERT = {
    **BERT,
    "local_attention": 8,
    "global_attn_every_n_layers": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "cls_token_id": 1,
    "sep_token_id": 2,
}
T5: dict[str, Any] = {
    "vocab_size": 40,
    "d_model": 32,
    "d_kv": 16,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 2,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 16,
}
ESM = {**BERT, "position_embedding_type": "rotary", "pad_token_id": 1, "mask_token_id": 32, "token_dropout": True}
CLIP = {**BERT, "eos_token_id": 39, "bos_token_id": 38, "pad_token_id": 1}
PERCEIVER = {
    "d_model": 16,
    "d_latents": 16,
    "num_latents": 4,
    "num_blocks": 1,
    "num_self_attends_per_block": 1,
    "num_self_attention_heads": 2,
    "num_cross_attention_heads": 2,
    "vocab_size": 40,
}
FUNNEL = {"vocab_size": 40, "block_sizes": [1, 1], "d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 48}
XLNET = {"vocab_size": 40, "d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 48}


def _text(
    name: str,
    model: str,
    config: str,
    options: Mapping[str, Any] = BERT,
    *,
    group: str = "text",
    forward: Forward = lambda m, i, a=None: m(input_ids=i, attention_mask=a).last_hidden_state,
    mask: bool = True,
    eager: bool = False,
    stuck: str = "",
) -> Family:
    build = pretrained(model, config, options, forward, eager=eager)
    return Family(name, group, build, tokens(options["vocab_size"], mask=mask), stuck=stuck)


def _pooled(name: str, module: Any, least: int = 1, *, traced: bool = False) -> Family:
    build = own(module, lambda m, x: m(x))
    return Family(name, "pooled", build, features(16, mask=False), {"time": 40}, {"time": least}, traced=traced)


FAMILIES = (
    _text("bert", "BertModel", "BertConfig"),
    _text("bert_maskless", "BertModel", "BertConfig", mask=False),
    _text("bert_eager", "BertModel", "BertConfig", eager=True),
    _text("roberta", "RobertaModel", "RobertaConfig"),
    _text("xlm_roberta", "XLMRobertaModel", "XLMRobertaConfig"),
    _text("albert", "AlbertModel", "AlbertConfig", NARROW),
    _text("deberta", "DebertaModel", "DebertaConfig", DEBERTA),
    _text("deberta_v2", "DebertaV2Model", "DebertaV2Config", DEBERTA_V2),
    _text("distilbert", "DistilBertModel", "DistilBertConfig", DISTILBERT),
    _text("electra", "ElectraModel", "ElectraConfig", NARROW),
    _text("mpnet", "MPNetModel", "MPNetConfig"),
    _text("modernbert", "ModernBertModel", "ModernBertConfig", MODERNBERT),
    _text("t5_encoder", "T5EncoderModel", "T5Config", T5),
    _text("mt5_encoder", "MT5EncoderModel", "MT5Config", T5),
    _text(
        "convbert",
        "ConvBertModel",
        "ConvBertConfig",
        {**WIDE, "conv_kernel_size": 5, "head_ratio": 2, "num_attention_heads": 4},
    ),
    _text("fnet", "FNetModel", "FNetConfig", forward=lambda m, i: m(input_ids=i).last_hidden_state, mask=False),
    _text("squeezebert", "SqueezeBertModel", "SqueezeBertConfig", WIDE),
    _text("roformer", "RoFormerModel", "RoFormerConfig", WIDE),
    _text(
        "mobilebert",
        "MobileBertModel",
        "MobileBertConfig",
        {**NARROW, "intra_bottleneck_size": 16, "true_hidden_size": 16},
    ),
    _text("big_bird", "BigBirdModel", "BigBirdConfig", {**BERT, "attention_type": "original_full", "sep_token_id": 3}),
    _text("esm", "EsmModel", "EsmConfig", ESM),
    _text("nomic_bert", "NomicBertModel", "NomicBertConfig"),
    _text("clip_text", "CLIPTextModel", "CLIPTextConfig", CLIP),
    Family(
        "perceiver",
        "text",
        pretrained(
            "PerceiverModel", "PerceiverConfig", PERCEIVER, lambda m, x, a: m(x, attention_mask=a).last_hidden_state
        ),
        {"features": Given((BATCH, "time", 16)), **masked("attention_mask", "time")},
    ),
    _text("xlnet", "XLNetModel", "XLNetConfig", XLNET, stuck="the exporter has no such subtraction of truth values"),
    _text("funnel", "FunnelBaseModel", "FunnelConfig", FUNNEL, stuck="the exporter fixes the axis of time"),
    _text(
        "longformer",
        "LongformerModel",
        "LongformerConfig",
        {**BERT, "attention_window": [4, 4]},
        stuck="sizes depend on how many tokens attend globally, which is data",
    ),
    _text("canine", "CanineModel", "CanineConfig", BERT, stuck="the exporter fixes the axis of time"),
    _text(
        "nystromformer",
        "NystromformerModel",
        "NystromformerConfig",
        BERT,
        stuck="made for one number of tokens, a multiple of its landmarks",
    ),
    _text(
        "bert_classifier",
        "BertForSequenceClassification",
        "BertConfig",
        {**BERT, "num_labels": 3},
        group="pooled",
        forward=lambda m, i, a: m(input_ids=i, attention_mask=a).logits,
    ),
    _text(
        "gpt2_classifier",
        "GPT2ForSequenceClassification",
        "GPT2Config",
        {
            "vocab_size": 40,
            "n_embd": 32,
            "n_layer": 2,
            "n_head": 2,
            "n_positions": 64,
            "num_labels": 3,
            "pad_token_id": 0,
        },
        group="pooled",
        forward=lambda m, i, a: m(input_ids=i, attention_mask=a, use_cache=False).logits,
    ),
    _pooled("ecapa_tdnn", convolutional.EcapaTdnn, 2),
    _pooled("xvector_tdnn", convolutional.XVector, 10),
    _pooled("crnn_tagger", recurrent.Crnn, 2, traced=True),
    *(
        Family(f"sentence_{kind}_pooling", "pooled", own(pooling.sentence(kind), lambda m, i, a: m(i, a)), tokens(40))
        for kind in ("mean", "max", "last", "attention")
    ),
    Family("frames_times_length", "pooled", own(pooling.TimesLength, lambda m, x: m(x)), features(16, mask=False)),
    *(
        Family(
            f"hazard_{kind}",
            "hazard",
            own(pooling.hazard(kind), lambda m, x: m(x)),
            features(16, mask=False),
            {},
            {"time": 4},
        )
        for kind in (
            "batch_mean",
            "batch_attention",
            "batch_similarity",
            "batch_statistics",
            "batch_maximum",
            "random_noise",
            "sorted_time",
        )
    ),
)
