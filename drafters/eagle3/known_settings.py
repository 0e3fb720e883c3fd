"""The settings of published heads: which are read, which change the forward, which mean nothing.

A name that is in none of these tables might change the forward, and is refused where it is found.

Source of the names: published heads, SGLang's `LlamaForCausalLMEagle3`, Transformers'
`LlamaConfig`, NVIDIA Model Optimizer's and SpecForge's exports.
"""

from __future__ import annotations

from typing import Any

from drafters.eagle3.shape import NUM_FEATURES

LAYER_IDS = "eagle_aux_hidden_state_layer_ids"
# Other names of a setting.
ALIASES = {
    "aux_hidden_state_layer_ids": LAYER_IDS,
    "dtype": "torch_dtype",
    "hidden_activation": "hidden_act",
    "layer_norm_eps": "rms_norm_eps",
    "norm_eps": "rms_norm_eps",
}
# What SGLang runs and this head does not: setting -> the values that mean "not used".
SGLANG_ONLY: dict[str, tuple[Any, ...]] = {
    "num_hidden_layers": (1,),
    "hidden_act": ("silu", "swish"),
    "bias": (False,),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "tie_word_embeddings": (False,),
    "fc_norm": (False,),
    "use_aux_norm": (False,),
    "norm_output": (False,),
    "norm_before_fc": (False,),
    "use_aux_hidden_state": (True,),
    "num_aux_hidden_states": (NUM_FEATURES,),
    "quantization_config": (),
    "rope_type": ("default",),
    "partial_rotary_factor": (1,),
    "rope_is_neox_style": (True,),
}
# What no engine here runs under this architecture's name: each would leave it out without a word.
NOWHERE: dict[str, tuple[Any, ...]] = {
    "norm_before_residual": (False,),
    "sliding_window": (),
    "use_sliding_window": (False,),
    "rotary_pct": (1,),
    "rope_interleave": (False,),
    "rope_interleaved": (False,),
    "position_embedding_type": ("rope",),
    "use_qk_norm": (False,),
    "qk_norm": (False,),
    "use_input_layernorm_in_first_layer": (True,),
    "use_last_layernorm": (True,),
    "use_mtp_layernorm": (False,),
    "next_layer_regular": (True,),
    "has_lm_head": (True,),
    "eagle_decoder_type": ("llama",),
    "parallel_draft_step": (1,),
    "parallel_draft_heads_num_layers": (0, 1),
    "parallel_drafting": (False,),
    "num_eagle_features": (NUM_FEATURES,),
    "embed_scale": (1,),
    "is_causal": (True,),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
}
# Read into the shape, checked by a rule of their own, or of no meaning to the forward.
READ = {
    *("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("vocab_size", "draft_vocab_size", "rope_theta", "rms_norm_eps", "max_position_embeddings"),
    *("target_hidden_size", "layer_types", "architectures", "torch_dtype", LAYER_IDS),
}
_HARMLESS_NAMES = """
    model_type transformers_version _name_or_path auto_map target_model_type modal_type
    tokenizer_class initializer_range attention_dropout hidden_dropout pretraining_tp
    gradient_checkpointing use_cache max_window_layers original_max_position_embeddings
    _attn_implementation _attn_implementation_autoset use_bfloat16 torchscript
    bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id decoder_start_token_id
    forced_bos_token_id forced_eos_token_id
    max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty
    temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size
    encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores
    return_dict return_dict_in_generate output_attentions output_hidden_states
    remove_invalid_values exponential_decay_length_penalty suppress_tokens
    begin_suppress_tokens chunk_size_feed_forward prefix problem_type task_specific_params
    id2label label2id finetuning_task pruned_heads tf_legacy_loss is_decoder
    tie_encoder_decoder cross_attention_hidden_size
"""
HARMLESS = frozenset(_HARMLESS_NAMES.split())
# Settings within a rope that have a name outside of it too, and the others' values of no effect.
ROPE_NAMES = {name: name for name in ("rope_theta", "partial_rotary_factor", "rope_type")} | {
    "type": "rope_type"
}
ROPE_UNUSED: dict[str, tuple[Any, ...]] = {"rope.factor": (1,), "rope.attention_factor": (1,)}
