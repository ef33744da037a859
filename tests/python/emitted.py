# SPDX-License-Identifier: Apache-2.0
"""Runs `adp emit` and reads what it wrote. ADP names the program, else it is looked up."""
import copy
import csv
import json
import os
import pathlib
import stat
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ADP = os.environ.get("ADP", "adp")


def golden_plan(case):
    """The plan document of a golden case, as data to change."""
    return json.loads((ROOT / "tests/golden" / case / "plan.json").read_text())


def flag_types():
    """flag -> type, of data/megatron_flags.csv."""
    text = (ROOT / "data/megatron_flags.csv").read_text().splitlines()
    return {row["flag"]: row for row in csv.DictReader(line for line in text if not line.startswith("#"))}


class Emitted:
    """The files of one plan in a folder of their own; use as a context."""

    def __init__(self, plan, *options):
        self.plan = plan
        self.options = options

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        self.result = subprocess.run(
            [ADP, "emit", "-d", str(self.folder / "out"), *self.options, "-"],
            input=json.dumps(self.plan), text=True, capture_output=True, check=False)
        self.out = self.folder / "out"
        return self

    def __exit__(self, *_):
        self._folder.cleanup()

    def ok(self):
        if self.result.returncode != 0:
            raise AssertionError(self.result.stderr)
        return self

    def ranks(self):
        with open(self.out / "ranks.csv", newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def argv(self):
        return (self.out / "megatron.args").read_text().splitlines()

    def arguments(self):
        """megatron.args as a dict; True for a flag without value, numbers as numbers."""
        types = flag_types()
        convert = {"int": int, "float": float}
        found, words = {}, self.argv()
        while words:
            flag = words.pop(0)
            kind = types[flag]["type"]
            found[flag] = True if kind == "flag" else convert.get(kind, str)(words.pop(0))
        return found

    def launch(self, node, script=("train.py",), environment=None):
        """
        Runs launch.sh as on `node` with a torchrun that only tells what it was given. Returns
        (exit status, stderr, [{"argv": [...], "env": {...}}]), one entry per agent in the order of node rank.
        """
        tools = self.folder / "bin"
        tools.mkdir(exist_ok=True)
        recorder = tools / "torchrun"
        recorder.write_text(
            "#!/usr/bin/env python3\n"
            "import json, os, sys, tempfile\n"
            "with tempfile.NamedTemporaryFile('w', dir=os.environ['CALLS'], delete=False) as f:\n"
            "    json.dump({'argv': sys.argv[1:], 'env': dict(os.environ)}, f)\n")
        recorder.chmod(recorder.stat().st_mode | stat.S_IXUSR)
        with tempfile.TemporaryDirectory() as calls:
            env = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": "/", "LC_ALL": "C.UTF-8", "CALLS": calls, "ADP_NODE": node}
            env.update(environment or {})
            result = subprocess.run([str(self.out / "launch.sh"), *script], env=env, text=True, capture_output=True,
                                    check=False, timeout=60)
            agents = [json.loads(path.read_text()) for path in pathlib.Path(calls).iterdir()]
        agents.sort(key=lambda agent: option(agent["argv"], "--node-rank"))
        return result.returncode, result.stderr, agents


def option(argv, name):
    """The number after --name= in a torchrun command."""
    return int(next(word.split("=", 1)[1] for word in argv if word.startswith(name + "=")))


def with_names(plan, names):
    """A copy whose placement uses these node names, in the order of first use."""
    changed = copy.deepcopy(plan)
    seen = {}
    for run in changed["spec"]["ranks"]:
        run["nodes"] = [pattern(names[seen.setdefault(node, len(seen))]) for node in run["nodes"]]
    return changed


def pattern(name):
    """A node name as the plan document writes it: '[' and '\\' would start a range."""
    return name.replace("\\", "\\\\").replace("[", "\\[")
