# SPDX-License-Identifier: Apache-2.0
"""What is emitted for Megatron is accepted by megatron-core's own classes; changed for the worse it is refused."""
import copy
import unittest
import warnings

from emitted import Emitted, flag_types, golden_plan

warnings.simplefilter("ignore")

import torch
import torch.nn.functional as F
from megatron.core import parallel_state
from megatron.core.model_parallel_config import ModelParallelConfig
from megatron.core.transformer.enums import AttnBackend, LayerType
from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
from megatron.core.transformer.transformer_config import TransformerConfig

CASES = ["emit_megatron_uneven", "emit_megatron_uniform"]

# Field of megatron-core for a flag that is not the flag's own name. From Megatron-LM core_v0.16.1,
# megatron/training/arguments.py core_transformer_config_from_args; None: a setting of the trainer, no field.
FIELDS = {
    "--disable-bias-linear": ("add_bias_linear", False),
    "--apply-layernorm-1p": ("layernorm_zero_centered_gamma", True),
    "--num-experts": "num_moe_experts",
    "--no-gradient-accumulation-fusion": ("gradient_accumulation_fusion", False),
    "--no-bias-gelu-fusion": ("bias_activation_fusion", False),
}
TRAINER = """--position-embedding-type --rotary-base --max-position-embeddings --untie-embeddings-and-output-weights
--vocab-size --make-vocab-size-divisible-by --seq-length --micro-batch-size --global-batch-size --train-iters
--overlap-grad-reduce --use-distributed-optimizer --overlap-param-gather --optimizer --sgd-momentum --ckpt-format
--dist-ckpt-optim-fully-reshardable --save-interval --group-query-attention --use-rope-scaling --rope-scaling-factor""".split()


def parallel_config(found):
    return ModelParallelConfig(
        tensor_model_parallel_size=found["--tensor-model-parallel-size"],
        pipeline_model_parallel_size=found["--pipeline-model-parallel-size"],
        virtual_pipeline_model_parallel_size=stages(found) // found["--pipeline-model-parallel-size"],
        context_parallel_size=found["--context-parallel-size"],
        expert_model_parallel_size=found.get("--expert-model-parallel-size", 1),
        expert_tensor_parallel_size=found.get("--expert-tensor-parallel-size"),
        sequence_parallel="--sequence-parallel" in found,
        bf16="--bf16" in found, fp16="--fp16" in found, pipeline_dtype=torch.bfloat16)


def stages(found):
    return PipelineParallelLayerLayout.get_num_stages_from_str(found["--pipeline-model-parallel-layout"])


def transformer_config(found):
    fields = {"pipeline_dtype": torch.bfloat16, "apply_rope_fusion": False}
    for flag, value in found.items():
        if flag in TRAINER:
            continue
        name = FIELDS.get(flag, flag[2:].replace("-", "_"))
        if isinstance(name, tuple):
            name, value = name
        fields[name] = value
    if fields.pop("swiglu", False):
        fields.update(activation_func=F.silu, gated_linear_unit=True)
    if "window_size" in fields:
        fields["window_size"] = tuple(int(n) for n in fields["window_size"].split(","))
    if "recompute_modules" in fields:
        fields["recompute_modules"] = [fields["recompute_modules"]]
    fields["attention_backend"] = AttnBackend[fields["attention_backend"]]
    return TransformerConfig(**fields)


class Accepted(unittest.TestCase):
    def test_both_plans_make_valid_configs(self):
        for case in CASES:
            with self.subTest(case), Emitted(golden_plan(case)) as e:
                found = e.ok().arguments()
                parallel_config(found)
                config = transformer_config(found)
                model = e.plan["spec"]["model"]
                self.assertEqual(config.num_layers, model["layers"])
                self.assertEqual(config.hidden_size, model["hidden"])
                self.assertEqual(config.kv_channels, model["headDim"])
                self.assertEqual(config.num_query_groups, model["kvHeads"])
                self.assertEqual(config.num_moe_experts or 0, model["experts"])
                self.assertFalse(config.add_bias_linear)
                self.assertEqual(config.add_qkv_bias, model["qkvBias"])

    def test_the_layout_puts_each_layer_where_the_plan_has_it(self):
        for case in CASES:
            with self.subTest(case), Emitted(golden_plan(case)) as e:
                layout = transformer_config(e.ok().arguments()).pipeline_model_parallel_layout
                first = 0
                virtual = e.plan["spec"]["parallelism"]["virtualPipelineParallel"]
                for chunk in range(virtual):
                    for rank, stage in enumerate(e.plan["spec"]["stages"]):
                        here = layout.layout[rank][chunk]
                        self.assertEqual(here.count(LayerType.decoder), stage["chunks"][chunk]["layers"])
                        self.assertEqual(first, stage["chunks"][chunk]["firstLayer"])
                        self.assertEqual(LayerType.embedding in here, rank == chunk == 0)
                        self.assertEqual(LayerType.loss in here,
                                         (rank, chunk) == (len(e.plan["spec"]["stages"]) - 1, virtual - 1))
                        first += here.count(LayerType.decoder)

    def test_ranks_form_the_groups_that_megatron_makes(self):
        for case in CASES:
            with self.subTest(case), Emitted(golden_plan(case)) as e:
                found, ranks = e.ok().arguments(), e.ranks()
                degrees = e.plan["spec"]["parallelism"]
                # parallel_state.initialize_model_parallel with the trainer's order; --use-tp-pp-dp-mapping is not emitted
                generator = parallel_state.RankGenerator(
                    tp=found["--tensor-model-parallel-size"], ep=1, dp=degrees["dataParallel"],
                    pp=found["--pipeline-model-parallel-size"], cp=found["--context-parallel-size"], order="tp-cp-ep-dp-pp")
                self.assertEqual([int(row["rank"]) for row in ranks], list(range(generator.world_size)))
                for axis, same in (("tp", ("stage", "replica", "cp")), ("dp", ("stage", "tp", "cp")),
                                   ("pp", ("replica", "tp", "cp"))):
                    ours = {}
                    for row in ranks:
                        ours.setdefault(tuple(row[key] for key in same), []).append(int(row["rank"]))
                    self.assertEqual(sorted(ours.values()), sorted(generator.get_ranks(axis)))
                for group in generator.get_ranks("tp"):
                    self.assertEqual(len({ranks[rank]["node"] for rank in group}), 1)

    def test_every_flag_is_a_field_or_known_to_be_none(self):
        for flag in TRAINER:
            self.assertIn(flag, flag_types())


class Refused(unittest.TestCase):
    """The same configs with one value made wrong: the checks above can fail."""

    def setUp(self):
        self.found = {}
        for case in CASES:
            with Emitted(golden_plan(case)) as e:
                self.found[case] = e.ok().arguments()

    def refuse(self, case, reason, **changes):
        found = copy.deepcopy(self.found[case])
        for flag, value in changes.items():
            flag = "--" + flag.replace("_", "-")
            if value is None:
                del found[flag]
            else:
                found[flag] = value
        with self.assertRaisesRegex((AssertionError, ValueError), reason):
            parallel_config(found)
            transformer_config(found)

    def test_lost_layers(self):
        self.refuse(CASES[0], "must match num_layers 80", pipeline_model_parallel_layout="Et*27|t*27|t*13|t*12L")
        self.refuse(CASES[1], "must match num_layers 9", num_layers=9)

    def test_a_wrong_number_of_stages(self):
        self.refuse(CASES[0], "divisible by pipeline_model_parallel_size", pipeline_model_parallel_layout="Et*40|t*20|t*20L")
        self.refuse(CASES[1], "divisible by pipeline_model_parallel_size", pipeline_model_parallel_size=3)

    def test_a_layout_without_embedding_or_loss(self):
        self.refuse(CASES[0], "first layer must be embedding", pipeline_model_parallel_layout="t*27|t*27|t*13|t*13L")
        self.refuse(CASES[0], "last layer must be loss", pipeline_model_parallel_layout="Et*27|t*27|t*13|t*13")

    def test_a_layer_character_that_does_not_exist(self):
        self.refuse(CASES[0], "Invalid layer character", pipeline_model_parallel_layout="Et*27|t*27|t*13|x*13L")

    def test_a_tensor_degree_that_does_not_divide(self):
        self.refuse(CASES[0], "must be a multiple of tensor_model_parallel_size", tensor_model_parallel_size=3)
        self.refuse(CASES[0], "num_query_groups .* multiple or divisor", num_query_groups=6)

    def test_sequence_parallel_without_tensor_parallel(self):
        self.refuse(CASES[0], "sequence parallelism without", tensor_model_parallel_size=1)

    def test_expert_parallel_without_experts(self):
        self.refuse(CASES[1], "num_moe_experts must be non None", num_experts=None, moe_ffn_hidden_size=None)

    def test_two_precisions_at_once(self):
        self.refuse(CASES[0], "Only one of", fp16=True)

    def test_full_recomputation_without_a_method(self):
        self.refuse(CASES[1], "recompute_method must be", recompute_granularity="full")


if __name__ == "__main__":
    unittest.main()
