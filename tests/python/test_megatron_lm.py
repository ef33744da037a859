# SPDX-License-Identifier: Apache-2.0
"""
The arguments that launch.sh hands to torchrun, under Megatron-LM's own parser and validation. ADP_MEGATRON_LM names a
checkout; without one the whole file is skipped.
"""
import contextlib
import copy
import importlib.machinery
import io
import os
import sys
import types
import typing
import unittest
import warnings
from unittest import mock

from emitted import Emitted, flag_types, golden_plan, option

CHECKOUT = os.environ.get("ADP_MEGATRON_LM")
if not CHECKOUT:
    raise unittest.SkipTest("ADP_MEGATRON_LM names no checkout of Megatron-LM: its own parser was not run")
sys.path.insert(0, CHECKOUT)
warnings.simplefilter("ignore")

import torch
import typing_extensions

if not hasattr(typing, "override"):  # Python 3.12's, which newer checkouts import
    typing.override = typing_extensions.override


def stand_in(name):
    """A module that can be imported and decorated with, for kernels that are never run here."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__path__ = []
    module.__version__ = "0.0"
    module.__getattr__ = lambda attribute: mock.MagicMock() if not attribute.startswith("__") else None
    sys.modules[name] = module
    return module


def undecorated(*args, **_):
    """Takes the place of a compiling decorator, with or without arguments."""
    return args[0] if args else lambda function: function


triton = stand_in("triton")
triton.jit = undecorated
triton.language = stand_in("triton.language")
torch.compile = undecorated

from megatron.training.arguments import add_megatron_arguments, core_transformer_config_from_args, parse_args, validate_args

# What a user adds: data, tokenizer, learning rate.
OWN = ["pretrain_gpt.py", "--mock-data", "--tokenizer-type", "NullTokenizer", "--lr", "1e-4"]
CASES = {"emit_megatron_uneven": "h100-0", "emit_megatron_uniform": "node-a"}
HOPPER = types.SimpleNamespace(major=9, minor=0)


def parsed(plan, node, change=lambda argv: argv):
    """Megatron's namespace for the first agent of `node`, and its transformer config."""
    with Emitted(plan) as e:
        e.ok()
        status, stderr, agents = e.launch(node, OWN)
        assert status == 0, stderr
        argv = change(agents[0]["argv"])
        env = dict(agents[0]["env"], RANK="0", LOCAL_RANK="0", WORLD_SIZE=str(len(e.ranks())))
        command = argv[argv.index(OWN[0]):]
    errors = io.StringIO()
    with mock.patch.object(sys, "argv", command), mock.patch.dict(os.environ, env), \
            mock.patch.object(torch.cuda, "get_device_properties", lambda *_: HOPPER), \
            mock.patch.object(torch.cuda, "get_device_capability", lambda *_: (9, 0)), \
            contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        try:
            args = validate_args(parse_args())
        except SystemExit:
            raise AssertionError(errors.getvalue()) from None
        args.apply_rope_fusion = False  # needs Transformer Engine
        return args, core_transformer_config_from_args(args)


class Accepted(unittest.TestCase):
    def test_both_plans_are_valid_command_lines(self):
        for case, node in CASES.items():
            with self.subTest(case):
                plan = golden_plan(case)
                args, config = parsed(plan, node)
                spec, degrees = plan["spec"], plan["spec"]["parallelism"]
                self.assertEqual(args.data_parallel_size, degrees["dataParallel"])
                self.assertEqual(args.global_batch_size, spec["training"]["globalBatchSeqs"])
                self.assertEqual(args.virtual_pipeline_model_parallel_size or 1, degrees["virtualPipelineParallel"])
                self.assertFalse(args.use_tp_pp_dp_mapping)
                self.assertEqual(args.ckpt_format, "torch_dist")
                self.assertTrue(args.dist_ckpt_optim_fully_reshardable)
                self.assertEqual(config.num_layers, spec["model"]["layers"])
                self.assertEqual(config.gated_linear_unit, spec["model"]["gatedMlp"])
                self.assertEqual(args.untie_embeddings_and_output_weights, not spec["model"]["tiedEmbeddings"])

    def test_fully_sharded_plans_are_valid_command_lines(self):
        plan = golden_plan("emit_megatron_uneven")
        one_stage(plan)
        for stage, strategy in ((2, "optim_grads"), (3, "optim_grads_params")):
            with self.subTest(stage):
                plan["spec"]["parallelism"]["zeroStage"] = stage
                args, _ = parsed(plan, "h100-0")
                self.assertEqual(args.data_parallel_sharding_strategy, strategy)
                self.assertTrue(args.use_megatron_fsdp)


class Refused(unittest.TestCase):
    """The same command lines with one thing made wrong: the checks above can fail."""

    def refuse(self, reason, change, case="emit_megatron_uneven"):
        with self.assertRaisesRegex((AssertionError, ValueError, RuntimeError), reason):
            parsed(golden_plan(case), CASES[case], change)

    def test_an_unknown_flag(self):
        self.refuse("unrecognized arguments: --num-layer", lambda argv: argv + ["--num-layer", "3"])

    def test_a_value_that_is_no_choice(self):
        self.refuse("invalid choice: 'rms'", lambda argv: swap(argv, "--normalization", "rms"))

    def test_a_layout_beside_the_older_flags(self):
        self.refuse("No more than one of the following", lambda argv: argv + ["--num-layers-per-virtual-pipeline-stage", "5"])

    def test_lost_layers(self):
        self.refuse("must match num_layers 80", lambda argv: swap(argv, "--pipeline-model-parallel-layout", "Et|t|t|tL"))

    def test_a_tensor_degree_that_does_not_divide(self):
        self.refuse("divisible", lambda argv: swap(argv, "--tensor-model-parallel-size", "7"))

    def test_gathering_without_the_distributed_optimizer(self):
        self.refuse("only supported with distributed optimizer", lambda argv: [w for w in argv if w != "--use-distributed-optimizer"])


class Table(unittest.TestCase):
    """data/megatron_flags.csv against the parser of this checkout."""

    def test_flags_types_and_choices_are_those_of_the_parser(self):
        import argparse
        parser = argparse.ArgumentParser(allow_abbrev=False)
        add_megatron_arguments(parser)
        actions = {name: action for action in parser._actions for name in action.option_strings}
        for flag, row in flag_types().items():
            with self.subTest(flag):
                self.assertIn(flag, actions)
                action = actions[flag]
                self.assertEqual(row["type"] == "flag", action.nargs == 0)
                if row["type"] == "int":
                    self.assertIs(action.type, int)
                if row["type"] == "float":
                    self.assertIs(action.type, float)
                if row["type"] == "choice" and action.choices:
                    known = {getattr(choice, "name", choice) for choice in action.choices}
                    self.assertLessEqual(set(row["choices"].split()), known)


def swap(argv, flag, value):
    argv = list(argv)
    argv[argv.index(flag) + 1] = value
    return argv


def one_stage(plan):
    """The uneven plan as one stage of 32 replicas, 16 on each GPU type: 1024 = 32 replicas x 32 micro-batches."""
    spec, prediction = plan["spec"], plan["prediction"]
    spec["parallelism"].update(dataParallel=32, pipelineParallel=1, shardGpus=32)
    first = spec["stages"][0]
    first.update(chunks=[{"firstLayer": 0, "layers": 80}], head=True)
    spec["stages"], prediction["stages"] = [first], prediction["stages"][:1]
    spec["schedule"] = "1f1b"
    group, times = spec["replicaGroups"][0], prediction["replicaGroups"][0]
    group.update(replicas=16, microBatches=32)
    other, other_times = copy.deepcopy(group), copy.deepcopy(times)
    group["stages"], other["stages"] = group["stages"][:1], other["stages"][2:3]
    times["stages"], other_times["stages"] = times["stages"][:1], other_times["stages"][2:3]
    spec["replicaGroups"], prediction["replicaGroups"] = [group, other], [times, other_times]


if __name__ == "__main__":
    unittest.main()
