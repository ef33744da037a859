# SPDX-License-Identifier: Apache-2.0
"""test_cluster_schema.py CLUSTER_VERDICT SCHEMA FOLDER: what the schema refuses the program refuses, and it admits
what the program reads."""
import glob
import json
import subprocess
import sys
import tempfile
import unittest

try:
    import jsonschema
    import yaml
except ImportError:
    print("skipped: needs the Debian packages python3-jsonschema and python3-yaml")
    sys.exit(77)

VERDICT, SCHEMA, FOLDER = sys.argv[1:4]
HEAD = {"apiVersion": "adp.parallelism/v1alpha1", "kind": "Cluster"}


def as_json(value):
    """YAML's keys that are numbers are text to the program."""
    if isinstance(value, dict):
        return {str(key): as_json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [as_json(inner) for inner in value]
    return value


def verdicts(paths):
    run = subprocess.run([VERDICT, *paths], check=True, capture_output=True, text=True)
    return run.stdout.splitlines()


class ClusterSchema(unittest.TestCase):
    def setUp(self):
        with open(SCHEMA, encoding="utf-8") as file:
            self.schema = json.load(file)
        self.validator = jsonschema.Draft202012Validator(self.schema)

    def test_the_schema_is_a_schema(self):
        jsonschema.Draft202012Validator.check_schema(self.schema)

    def test_schema_and_program_agree_on_the_corpus(self):
        documents = {}
        for path in sorted(glob.glob(FOLDER + "/*.yaml")):
            with open(path, encoding="utf-8") as file:
                loaded = list(yaml.safe_load_all(file))
            if len(loaded) == 1 and isinstance(loaded[0], dict) and loaded[0].get("kind") == "Cluster":
                documents[path] = as_json(loaded[0])
        self.assertGreater(len(documents), 40)
        accepted = refused = 0
        for path, verdict in zip(documents, verdicts(list(documents))):
            valid = self.validator.is_valid(documents[path])
            if verdict == "ok":
                self.assertEqual([e.message for e in self.validator.iter_errors(documents[path])], [], path)
                accepted += 1
            refused += not valid
        self.assertGreater(accepted, 3)
        self.assertGreater(refused, 10)

    def test_each_key_of_the_schema_is_a_key_of_the_program(self):
        """A key misspelt anywhere is refused by both; the right key never as unknown."""
        with open(FOLDER + "/everything.yaml", encoding="utf-8") as file:
            whole = as_json(yaml.safe_load(file))
        cases = []

        def walk(node, path):
            if isinstance(node, dict):
                for key in node:
                    if path and path[-1] == "health":
                        continue
                    cases.append((*path, key))
                    walk(node[key], (*path, key))
            elif isinstance(node, list):
                for i, inner in enumerate(node):
                    walk(inner, (*path, i))

        walk(whole, ())
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for i, case in enumerate(cases):
                changed = json.loads(json.dumps(whole))
                target = changed
                for step in case[:-1]:
                    target = target[step]
                target[case[-1] + "x"] = target[case[-1]]
                self.assertFalse(self.validator.is_valid(changed), case)
                paths.append(f"{folder}/{i}.json")
                with open(paths[-1], "w", encoding="utf-8") as file:
                    json.dump(changed, file)
            for case, verdict in zip(cases, verdicts(paths)):
                self.assertIn(case[-1] + "x", verdict, case)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
