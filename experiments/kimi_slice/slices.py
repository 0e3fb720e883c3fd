r"""Slices of large targets: few layers of a real shape, without weights, for what a layer costs.

    python -m experiments.kimi_slice.slices .gpu/slices
    python -m experiments.sglang_grid.away plan .gpu/away \
        "hydra.searchpath=[file://$PWD/.gpu/slices/conf]" \
        target=kimi_slice_1,kimi_slice_4 drafter=ngram drafter.num_draft_tokens=3,7 \
        verify=graph_captured,fused_allreduce engine=sglang engine.load_format=dummy \
        engine.max_total_tokens=4096 engine.context_length=2048 engine.mem_fraction=0.95 \
        parallelism.tp=2 sampling.held_accept_length=1.5 sampling.max_new_tokens=64 \
        measurement.min_repetitions=8 measurement.max_repetitions=8

A slice's step is short and mostly the host's, which is not steady: repeat it more than a target's.
Two depths give a layer's cost by difference. `experiments.kimi_slice.slice_costs` makes the tables.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from experiments.sglang_grid.mixture_target import CONFIG, write_config, write_tokenizer

# Qwen3-30B-A3B with all of its experts: how many a step visits shows in its time.
QWEN3_MOE = CONFIG | {"num_experts": 128, "num_hidden_layers": 8}
# Kimi-K2.5's language model on two GPUs as on two of eight: heads and intermediate sizes are a
# quarter of the real ones, so that each GPU holds and does what one of eight does. Real: 64 heads,
# 2048 an expert, 18432 in the dense layer, 163840 tokens, int4 experts. The vocabulary is the
# embedded tokenizer's, whose half is nearly an eighth of the real one.
KIMI = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432 // 4,
    "moe_intermediate_size": 2048 // 4,
    "num_attention_heads": 64 // 4,
    "num_key_value_heads": 64 // 4,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 384,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.827,
    "num_nextn_predict_layers": 0,
    "vocab_size": 49152,
    "max_position_embeddings": 262144,
    "rope_theta": 50000.0,
    "rope_scaling": {
        "type": "yarn",
        "rope_type": "yarn",
        "factor": 64.0,
        "original_max_position_embeddings": 4096,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SLICES: dict[str, dict[str, Any]] = {
    "qwen3_moe_128": QWEN3_MOE,
    **{f"kimi_slice_{depth}": KIMI | {"num_hidden_layers": depth} for depth in (1, 4)},
}


def main(folder: Path) -> None:
    """Write each slice's folder, and the yaml that names it in `folder/conf/target`."""
    conf = folder / "conf" / "target"
    conf.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder / "tokenizer")
    for name, config in SLICES.items():
        write_config(folder / name, config)
        settings = {"_target_": "pipeline.target.target.Target", "name": name, "dtype": "bfloat16"}
        settings |= {"source": str(folder / name), "tokenizer_source": str(folder / "tokenizer")}
        (conf / f"{name}.yaml").write_text(json.dumps(settings, indent=1) + "\n")  # JSON is YAML
        print(f"target={name}: {config['num_hidden_layers']} layers")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
