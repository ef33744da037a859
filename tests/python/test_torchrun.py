# SPDX-License-Identifier: Apache-2.0
"""launch.sh under torch's real launcher: unequal process counts per node start and get the ranks of ranks.csv."""
import copy
import json
import os
import pathlib
import socket
import sys
import tempfile
import unittest

from emitted import Emitted, golden_plan, option, pattern

from torch.distributed import run as torchrun

WORKER = """
import json, os, sys
keys = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "CUDA_VISIBLE_DEVICES", "GROUP_RANK")
with open(os.path.join(sys.argv[1], os.environ["RANK"]), "w") as f:
    json.dump({key: os.environ.get(key) for key in keys}, f)
"""


def placed(places):
    """The torch plan laid over (node, GPU numbers) in rank order: data parallel only, one GPU type."""
    plan = copy.deepcopy(golden_plan("emit_torch"))
    spec = plan["spec"]
    world = sum(len(gpus) for _, gpus in places)
    spec["parallelism"].update(
        dataParallel=world, tensorParallel=1, pipelineParallel=1, virtualPipelineParallel=1, expertParallel=1,
        expertTensorParallel=1)
    stage = copy.deepcopy(spec["stages"][0])
    stage.update(chunks=[{"firstLayer": 0, "layers": spec["model"]["layers"]}], embedding=True, head=True)
    spec["stages"] = [stage]
    spec["schedule"] = "1f1b"
    spec["worldSize"] = world
    spec["training"]["globalBatchSeqs"] = 2 * world
    group = copy.deepcopy(spec["replicaGroups"][1])
    group.update(replicas=world, microBatches=1, stages=group["stages"][:1])
    gpu = group["stages"][0]["gpu"]
    spec["replicaGroups"] = [group]
    for kind in spec["gpus"]:
        used = world if kind["type"] == gpu else 0
        kind.update(used=used, total=world)
    spec["ranks"], rank = [], 0
    for node, gpus in places:
        spec["ranks"].append({"firstRank": rank, "nodes": [pattern(node)],
                              "gpuIndices": ",".join(str(n) for n in gpus), "gpu": gpu})
        rank += len(gpus)
    prediction = plan["prediction"]  # one entry per stage and replica group
    training = spec["training"]
    prediction["step"]["tokensPerSecond"] = (
        training["globalBatchSeqs"] * training["seqTokens"] / prediction["step"]["stepSeconds"])
    prediction["stages"] = prediction["stages"][:1]
    prediction["replicaGroups"] = prediction["replicaGroups"][1:]
    prediction["replicaGroups"][0]["stages"] = prediction["replicaGroups"][0]["stages"][:1]
    return plan


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_agents(calls, log):
    """Each recorded torchrun call by torch's own launcher in a fork, which saves the imports. Exit statuses."""
    children = []
    for call in calls:
        pid = os.fork()
        if pid == 0:
            os.environ.clear()
            os.environ.update(call["env"])
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            try:
                torchrun.main(call["argv"])
                os._exit(0)
            except BaseException as error:  # whatever torchrun raises is its verdict
                print(error, file=sys.stderr)
                os._exit(1)
        children.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]


class Unequal(unittest.TestCase):
    def start(self, places):
        nodes = list(dict.fromkeys(node for node, _ in places))
        with Emitted(placed(places), "--master-addr", "127.0.0.1", "--master-port", str(free_port())) as e, \
                tempfile.TemporaryDirectory() as folder:
            e.ok()
            worker = pathlib.Path(folder) / "worker.py"
            worker.write_text(WORKER)
            results = pathlib.Path(folder) / "results"
            results.mkdir()
            calls = []
            for node in nodes:
                status, stderr, agents = e.launch(node, [str(worker), str(results)])
                self.assertEqual(status, 0, stderr)
                calls += agents
            self.assertEqual(sorted(option(c["argv"], "--node-rank") for c in calls), list(range(len(places))))
            with tempfile.TemporaryFile("w+") as log:
                statuses = run_agents(calls, log)
                log.seek(0)
                self.assertEqual(statuses, [0] * len(places), log.read())
            seen = {int(path.name): json.loads(path.read_text()) for path in results.iterdir()}
            rows = e.ranks()
            self.assertEqual(sorted(seen), list(range(len(rows))))
            for row in rows:
                env = seen[int(row["rank"])]
                self.assertEqual(env["LOCAL_RANK"], row["local_rank"])
                self.assertEqual(int(env["WORLD_SIZE"]), len(rows))
                visible = env["CUDA_VISIBLE_DEVICES"]
                gpus = visible.split(",") if visible else [str(n) for n in range(int(env["LOCAL_WORLD_SIZE"]))]
                self.assertEqual(gpus[int(row["local_rank"])], row["gpu"])

    def test_two_three_and_three(self):
        self.start([("a", range(2)), ("b", range(3)), ("c", range(3))])

    def test_eight_and_four(self):
        self.start([("a", range(8)), ("b", range(4))])

    def test_four_and_one(self):
        self.start([("a", range(4)), ("b", range(1))])

    def test_two_agents_on_one_node(self):
        self.start([("a", [0, 1]), ("b", [0]), ("a", [2, 3])])

    def test_gpus_from_the_middle_of_a_node(self):
        self.start([("a", [4, 6]), ("b", [1])])

    def test_a_wrong_number_of_agents_is_noticed(self):
        # The check can fail: with an agent missing torch's launcher gives up instead of starting fewer ranks.
        call = {"argv": ["--nnodes=2", "--node-rank=0", "--nproc-per-node=1", "--master-addr=127.0.0.1",
                         f"--master-port={free_port()}", "--rdzv-conf=timeout=2", "absent.py"], "env": dict(os.environ)}
        with tempfile.TemporaryFile("w+") as log:
            self.assertEqual(run_agents([call], log), [1])
            log.seek(0)
            self.assertIn("Timed out", log.read())


if __name__ == "__main__":
    unittest.main()
