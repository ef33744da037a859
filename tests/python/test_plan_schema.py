# SPDX-License-Identifier: Apache-2.0
"""test_plan_schema.py PLAN_SAMPLE SCHEMA: the schema and the plan document have the same keys."""
import copy
import json
import subprocess
import sys
import unittest

try:
    import jsonschema
except ImportError:
    print("skipped: needs the Debian package python3-jsonschema")
    sys.exit(77)

PLAN_SAMPLE, SCHEMA = sys.argv[1:3]


def sample(name, form="json"):
    return subprocess.run([PLAN_SAMPLE, name, form], check=True, capture_output=True, text=True).stdout


def walk_schema(schema, path=""):
    """Each (path, subschema); array items have the path of their array with [] behind it."""
    yield path, schema
    for key, value in schema.get("properties", {}).items():
        yield from walk_schema(value, f"{path}.{key}")
    if "items" in schema:
        yield from walk_schema(schema["items"], path + "[]")


def walk_document(value, path=""):
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk_document(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from walk_document(inner, path + "[]")


class PlanSchema(unittest.TestCase):
    def setUp(self):
        with open(SCHEMA, encoding="utf-8") as file:
            self.schema = json.load(file)
        self.documents = [json.loads(sample(name)) for name in ("mixed", "moe")]
        self.validator = jsonschema.Draft202012Validator(self.schema)

    def test_the_schema_is_a_schema(self):
        jsonschema.Draft202012Validator.check_schema(self.schema)

    def test_documents_are_valid(self):
        for document in self.documents:
            self.assertEqual([e.message for e in self.validator.iter_errors(document)], [])

    def test_schema_and_writer_have_the_same_keys(self):
        written = {path for document in self.documents for path in walk_document(document)}
        described = {path for path, _ in walk_schema(self.schema)}
        self.assertEqual(described - written, set(), "in the schema, never written")
        self.assertEqual(written - described, set(), "written, not in the schema")

    def test_every_field_has_a_description(self):
        for path, schema in walk_schema(self.schema):
            self.assertTrue(schema.get("description", "").endswith("."), path)

    def test_every_object_is_closed_and_lists_what_it_needs(self):
        for path, schema in walk_schema(self.schema):
            if schema.get("type") == "object":
                self.assertIs(schema["additionalProperties"], False, path)
                missing = set(schema["properties"]) - set(schema["required"])
                self.assertLessEqual(missing, {"flag"}, path)

    def test_keys_are_camel_case(self):
        for path, _ in walk_schema(self.schema):
            for key in path.replace("[]", "").split(".")[1:]:
                self.assertRegex(key, r"^[a-z][a-zA-Z0-9]*$", path)

    def refused(self, change):
        document = copy.deepcopy(self.documents[0])
        change(document)
        return any(True for _ in self.validator.iter_errors(document))

    def test_wrong_documents_are_refused(self):
        changes = {
            "unknown key": lambda d: d["spec"].update(tensor=8),
            "missing key": lambda d: d["spec"]["parallelism"].pop("tensorParallel"),
            "other version": lambda d: d.update(apiVersion="adp.parallelism/v2"),
            "zero degree": lambda d: d["spec"]["parallelism"].update(tensorParallel=0),
            "ZeRO 4": lambda d: d["spec"]["parallelism"].update(zeroStage=4),
            "unknown recomputation": lambda d: d["spec"]["stages"][0].update(recompute="some"),
            "text for a number": lambda d: d["prediction"]["step"].update(stepSeconds="12"),
            "no GPU numbers": lambda d: d["spec"]["ranks"][0].update(gpuIndices="0-"),
            "faster than healthy": lambda d: d["spec"]["replicaGroups"][0]["stages"][0].update(speedFraction=1.1),
        }
        for name, change in changes.items():
            self.assertTrue(self.refused(change), name)

    def test_a_job_that_never_ends_is_valid(self):
        self.assertFalse(self.refused(lambda d: d["prediction"]["training"].update(totalSeconds=None)))

    def test_yaml_says_the_same_as_json(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("needs python3-yaml")
        for name, document in zip(("mixed", "moe"), self.documents):
            self.assertEqual(yaml.safe_load(sample(name, "yaml")), document)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
