# SPDX-License-Identifier: Apache-2.0
"""Names from outside come through every emitted file as data under the target's own parser, or are refused."""
import json
import pathlib
import shlex
import signal
import subprocess
import tempfile
import time
import unittest

from emitted import Emitted, golden_plan, option, with_names

HOSTILE = [
    "it's",
    'say "hi"',
    "two\nlines",
    "$(touch pwned)",
    "`touch pwned`",
    "a; touch pwned",
    "a) touch pwned ;; *",
    "' ) touch pwned ;; '",
    "-rf",
    "--node-rank=7",
    "*",
    "[a-z]*",
    "a\\nb\\",
    "naïve-节点",
    "tab\there",
    " blank ",
    "#comment",
    "a,b",
    "${HOME}",
    "!!",
    "a\r",
    "'\\''",
]
CASES = ["emit_megatron_uniform", "emit_torch"]


class Names(unittest.TestCase):
    def emitted(self, case, names):
        return Emitted(with_names(golden_plan(case), names), "--master-addr", "head")

    def test_every_file_gives_each_node_name_back(self):
        for case in CASES:
            for name in HOSTILE:
                with self.subTest(case=case, name=name), self.emitted(case, [name, "other"]) as e:
                    e.ok()
                    self.assertEqual({row["node"] for row in e.ranks()}, {name, "other"})
                    for row in e.ranks():
                        self.assertEqual(len(row), 9)
                    script = (e.out / "launch.sh").read_bytes().decode()
                    self.assertEqual(subprocess.run(["bash", "-n", e.out / "launch.sh"], check=False).returncode, 0)
                    self.assertIn(name, shell_words(script))
                    status, stderr, agents = e.launch(name)
                    self.assertEqual((status, stderr), (0, ""))
                    self.assertEqual([option(a["argv"], "--node-rank") for a in agents], [0, 2])
                    if case == "emit_torch":
                        plan = json.loads((e.out / "plan.json").read_text())
                        self.assertEqual(plan["spec"]["ranks"], e.plan["spec"]["ranks"])
                    self.assertFalse(list(e.folder.rglob("pwned")))

    def test_a_name_never_matches_another_node(self):
        with self.emitted(CASES[0], ["*", "[a-z]*"]) as e:
            e.ok()
            status, stderr, agents = e.launch("other")
            self.assertEqual((status, agents), (2, []))
            self.assertIn("the plan has no node other", stderr)

    def test_a_hostile_address_is_refused(self):
        for name in HOSTILE:
            with self.subTest(name=name), Emitted(with_names(golden_plan(CASES[0]), [name, "other"])) as e:
                self.assertEqual(e.result.returncode, 2)
                self.assertIn("is not a host name or address; give one with --master-addr", e.result.stderr)
                self.assertFalse(e.out.exists())
            with self.subTest(address=name), Emitted(golden_plan(CASES[0]), "--master-addr=" + name) as e:
                self.assertEqual(e.result.returncode, 2)

    def test_model_and_gpu_names_stay_data(self):
        for case in CASES:
            for name in HOSTILE:
                plan = golden_plan(case)
                spec = plan["spec"]
                old = spec["gpus"][0]["type"]
                spec["model"]["name"] = name
                spec["gpus"][0]["type"] = name
                for group in spec["replicaGroups"]:
                    for stage in group["stages"]:
                        stage["gpu"] = name if stage["gpu"] == old else stage["gpu"]
                for run in spec["ranks"]:
                    run["gpu"] = name if run["gpu"] == old else run["gpu"]
                with self.subTest(case=case, name=name), Emitted(plan, "--master-addr", "head") as e:
                    e.ok()
                    self.assertIn(name, {row["type"] for row in e.ranks()})
                    self.assertEqual(e.launch("node-a")[0], 0)
                    if case == "emit_torch":
                        written = json.loads((e.out / "plan.json").read_text())
                        self.assertEqual(written["spec"]["model"]["name"], name)
                    self.assertFalse(list(e.folder.rglob("pwned")))

    def test_script_arguments_pass_through_unchanged(self):
        words = ["dir with blanks/it's.py", "--note", "$(touch pwned); 'x' \"y\"", "two\nlines", "", "-"]
        for case in CASES:
            with self.subTest(case=case), Emitted(golden_plan(case)) as e:
                e.ok()
                status, stderr, agents = e.launch("node-a", words)
                self.assertEqual((status, stderr), (0, ""))
                for agent in agents:
                    at = agent["argv"].index(words[0])
                    rest = agent["argv"][at + 1:]
                    planned = e.argv() if case.startswith("emit_megatron") else []
                    self.assertEqual(rest, planned + words[1:])

    def test_a_folder_with_a_hostile_name_works(self):
        with tempfile.TemporaryDirectory() as root, Emitted(golden_plan(CASES[0])) as e:
            e.ok()
            target = pathlib.Path(root) / "it's $(touch pwned)"
            e.out.rename(target)
            e.out = target
            status, _, agents = e.launch("node-b")
            self.assertEqual((status, len(agents)), (0, 2))


class Launch(unittest.TestCase):
    def test_a_script_that_looks_like_an_option_is_refused(self):
        with Emitted(golden_plan(CASES[0])) as e:
            e.ok()
            self.assertEqual(e.launch("node-a", ["--help"])[0], 2)
            self.assertEqual(e.launch("node-a", [])[0], 2)

    def test_agents_get_their_gpus_and_environment(self):
        with Emitted(golden_plan(CASES[0])) as e:
            e.ok()
            _, _, agents = e.launch("node-b", environment={"TORCH_ELASTIC_WORKER_IDENTICAL": "1"})
            first, second = (agent["env"] for agent in agents)
            self.assertNotIn("CUDA_VISIBLE_DEVICES", first)  # GPUs 0 and 1
            self.assertEqual(second["CUDA_VISIBLE_DEVICES"], "2,3")
            self.assertEqual(first["CUDA_DEVICE_MAX_CONNECTIONS"], "1")
            self.assertEqual(first["TORCH_ELASTIC_WORKER_IDENTICAL"], "0")

    def test_the_environment_overrides_the_address(self):
        with Emitted(golden_plan(CASES[0])) as e:
            e.ok()
            _, _, agents = e.launch("node-a", environment={"MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "1234"})
            for agent in agents:
                self.assertIn("--master-addr=10.0.0.9", agent["argv"])
                self.assertEqual(option(agent["argv"], "--master-port"), 1234)

    def test_the_torch_script_names_its_plan(self):
        with Emitted(golden_plan("emit_torch")) as e:
            e.ok()
            _, _, agents = e.launch("node-a")
            self.assertEqual(agents[0]["env"]["ADP_PLAN"], str(e.out / "plan.json"))

    def test_one_failing_agent_ends_the_node(self):
        with Emitted(golden_plan(CASES[0])) as e:
            e.ok()
            tools = e.folder / "bin"
            tools.mkdir()
            (tools / "torchrun").write_text(
                "#!/bin/sh\nfor a; do case $a in --node-rank=0) exec sleep 60;; --node-rank=2) exit 7;; esac; done\n")
            (tools / "torchrun").chmod(0o755)
            result = subprocess.run([e.out / "launch.sh", "train.py"], check=False, timeout=30,
                                    env={"PATH": f"{tools}:/usr/bin:/bin", "ADP_NODE": "node-a"})
            self.assertEqual(result.returncode, 7)

    def test_agents_that_end_at_once_are_all_heard(self):
        for failing in ("none", "0", "2"):
            with self.subTest(failing=failing), Emitted(golden_plan(CASES[0])) as e:
                e.ok()
                tools = e.folder / "bin"
                tools.mkdir()
                (tools / "torchrun").write_text(
                    "#!/bin/sh\ntouch up.$$\nuntil [ -e go ]; do sleep 0.01; done\ntouch down.$$\n"
                    f"case \" $* \" in *' --node-rank={failing} '*) exit 7;; esac\n")
                (tools / "torchrun").chmod(0o755)
                script = subprocess.Popen([e.out / "launch.sh", "train.py"], cwd=e.folder,
                                          env={"PATH": f"{tools}:/usr/bin:/bin", "ADP_NODE": "node-a"})
                self.wait_for(e.folder, "up.*", 2)
                time.sleep(0.3)  # the script now waits; it next runs when both have ended
                script.send_signal(signal.SIGSTOP)
                (e.folder / "go").touch()
                self.wait_for(e.folder, "down.*", 2)
                time.sleep(0.3)
                script.send_signal(signal.SIGCONT)
                self.assertEqual(script.wait(timeout=30), 0 if failing == "none" else 7)

    def wait_for(self, folder, files, n):
        for _ in range(1000):
            if len(list(folder.glob(files))) == n:
                return
            time.sleep(0.01)
        self.fail(f"no {n} {files}")


def shell_words(script):
    """The words of the case patterns as Python's POSIX lexer reads them."""
    lexer = shlex.shlex(script[script.index("agents_of()"):script.index("\tesac")], posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


if __name__ == "__main__":
    unittest.main()
