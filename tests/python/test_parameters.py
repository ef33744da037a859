# SPDX-License-Identifier: Apache-2.0
"""From a config to the model that megatron-core builds of the emitted flags: the same number of parameters."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest
import warnings

from emitted import ADP, Emitted

warnings.simplefilter("ignore")

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig

COMMON = dict(hidden_size=64, num_hidden_layers=4, num_attention_heads=4, vocab_size=512, max_position_embeddings=128)
MODELS = {
    "grouped queries, wide heads, untied": dict(
        COMMON, model_type="llama", num_key_value_heads=2, head_dim=32, intermediate_size=96, rope_theta=10000.0,
        hidden_act="silu", tie_word_embeddings=False),
    "biased queries, tied": dict(
        COMMON, model_type="qwen2", num_key_value_heads=1, intermediate_size=160, rope_theta=1000000.0,
        hidden_act="silu", tie_word_embeddings=True),
    "norms of queries and keys": dict(
        COMMON, model_type="qwen3", num_key_value_heads=4, head_dim=16, intermediate_size=96, rope_theta=10000.0,
        hidden_act="silu", tie_word_embeddings=False),
    "layer norm, learned positions, biases": dict(
        model_type="gpt2", n_embd=64, n_layer=4, n_head=4, n_positions=128, vocab_size=512, n_inner=None,
        activation_function="gelu_new"),
    "experts": dict(
        COMMON, model_type="mixtral", num_key_value_heads=2, intermediate_size=96, num_local_experts=4,
        num_experts_per_tok=2, rope_theta=10000.0, hidden_act="silu", tie_word_embeddings=False),
    "experts beside a gated shared one": dict(
        COMMON, model_type="qwen2_moe", num_key_value_heads=2, intermediate_size=96, num_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=48, decoder_sparse_step=1,
        mlp_only_layers=[], rope_theta=10000.0, hidden_act="silu", tie_word_embeddings=False),
    "experts after a dense layer, shared experts": dict(
        COMMON, model_type="deepseek", num_key_value_heads=4, intermediate_size=96, n_routed_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=32, n_shared_experts=2, first_k_dense_replace=1, moe_layer_freq=1,
        rope_theta=10000.0, hidden_act="silu", tie_word_embeddings=False),
}


def planned(config):
    """(parameters that adp counts, plan document) of a config on four GPUs, two stages."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        plan = subprocess.run(
            [ADP, "plan", "--model", str(path), "--gpus", "H100x2:4", "--global-batch", "16", "--seq", "64", "--pp", "2",
             "--engine", "megatron", "-o", "json"], capture_output=True, text=True, check=False)
        assert plan.returncode == 0, plan.stderr
        model = subprocess.run([ADP, "model", str(path), "-o", "json"], capture_output=True, text=True, check=True)
    return json.loads(model.stdout)["status"]["parameters"], json.loads(plan.stdout)


def built(found):
    """megatron-core's GPTModel of the architecture flags, whole, on one rank and without memory for its weights."""
    config = TransformerConfig(
        num_layers=found["--num-layers"], hidden_size=found["--hidden-size"],
        num_attention_heads=found["--num-attention-heads"], num_query_groups=found.get("--num-query-groups"),
        kv_channels=found.get("--kv-channels"), ffn_hidden_size=found["--ffn-hidden-size"],
        gated_linear_unit="--swiglu" in found, activation_func=F.silu if "--swiglu" in found else F.gelu,
        normalization=found["--normalization"], add_bias_linear="--disable-bias-linear" not in found,
        add_qkv_bias="--add-qkv-bias" in found, qk_layernorm="--qk-layernorm" in found,
        num_moe_experts=found.get("--num-experts"), moe_ffn_hidden_size=found.get("--moe-ffn-hidden-size"),
        moe_router_topk=found.get("--moe-router-topk", 2),
        moe_layer_freq=pattern(found.get("--moe-layer-freq", "1")),
        moe_shared_expert_intermediate_size=found.get("--moe-shared-expert-intermediate-size"),
        moe_shared_expert_gate="--moe-shared-expert-gate" in found, use_cpu_initialization=True,
        gradient_accumulation_fusion=False, bias_activation_fusion=False, bias_dropout_fusion=False,
        apply_rope_fusion=False, expert_tensor_parallel_size=1)
    with torch.device("meta"):
        return GPTModel(
            config, get_gpt_decoder_block_spec(config, use_transformer_engine=False),
            vocab_size=found["--vocab-size"], max_sequence_length=found["--max-position-embeddings"],
            position_embedding_type=found["--position-embedding-type"],
            rotary_base=found.get("--rotary-base", 10000),
            share_embeddings_and_output_weights="--untie-embeddings-and-output-weights" not in found)


def pattern(text):
    """([0]*3+[1]*5) as the trainer's moe_freq_type reads it, or a number."""
    if not text.startswith("("):
        return int(text)
    values = []
    for part in text.strip("()").split("+"):
        value, count = part.split("*")
        values += [int(value.strip("[]"))] * int(count)
    return values


class Parameters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ.update(MASTER_ADDR="127.0.0.1", RANK="0", WORLD_SIZE="1")
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        parallel_state.initialize_model_parallel()

    @classmethod
    def tearDownClass(cls):
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()

    def test_the_built_model_has_the_counted_parameters(self):
        for name, config in MODELS.items():
            with self.subTest(name):
                counted, plan = planned(config)
                with Emitted(plan) as e:
                    found = e.ok().arguments()
                self.assertEqual(sum(p.numel() for p in built(found).parameters()), counted)

    def test_another_width_has_another_count(self):
        counted, plan = planned(MODELS["experts"])
        with Emitted(plan) as e:
            found = e.ok().arguments()
        found["--moe-ffn-hidden-size"] += 1
        # one column more in gate, up and down of 4 experts in 4 layers: 3 x 64 x 4 x 4 = 3072
        self.assertEqual(sum(p.numel() for p in built(found).parameters()), counted + 3072)


if __name__ == "__main__":
    unittest.main()
