# SPDX-License-Identifier: Apache-2.0
"""test_model_schema.py ADP SCHEMA: the schema and the report of adp model have the same keys."""
import json
import subprocess
import sys
import unittest

try:
    import jsonschema
except ImportError:
    print("skipped: needs the Debian package python3-jsonschema")
    sys.exit(77)

ADP, SCHEMA = sys.argv[1:3]


def report(name, form="json"):
    return subprocess.run([ADP, "model", name, "-o", form], check=True, capture_output=True, text=True).stdout


def walk_schema(schema, path=""):
    """Each (path, subschema); array items have the path of their array with [] behind it."""
    yield path, schema
    for key, value in schema.get("properties", {}).items():
        yield from walk_schema(value, f"{path}.{key}")
    if "items" in schema:
        yield from walk_schema(schema["items"], path + "[]")


def keys_of(value, path=""):
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from keys_of(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from keys_of(inner, path + "[]")


class ModelSchema(unittest.TestCase):
    def setUp(self):
        with open(SCHEMA, encoding="utf-8") as file:
            self.schema = json.load(file)
        names = subprocess.run([ADP, "model", "--list"], check=True, capture_output=True, text=True).stdout.split()
        self.reports = [json.loads(report(name)) for name in names]

    def test_the_schema_is_a_schema(self):
        jsonschema.Draft202012Validator.check_schema(self.schema)

    def test_every_model_of_the_catalogue_is_valid(self):
        validator = jsonschema.Draft202012Validator(self.schema)
        self.assertGreater(len(self.reports), 10)
        for document in self.reports:
            self.assertEqual([e.message for e in validator.iter_errors(document)], [])

    def test_schema_and_report_have_the_same_keys(self):
        written = {path for document in self.reports for path in keys_of(document)}
        described = {path for path, _ in walk_schema(self.schema)}
        # The catalogue leaves nothing to note.
        self.assertEqual(described - written, {".status.notes[]"})
        self.assertEqual(written - described, set())

    def test_every_field_is_described_and_every_object_closed(self):
        for path, schema in walk_schema(self.schema):
            self.assertTrue(schema.get("description", "").endswith("."), path)
            if schema.get("type") == "object":
                self.assertIs(schema["additionalProperties"], False, path)

    def test_the_parameters_add_up(self):
        for document in self.reports:
            total = sum(item["parameters"] * item["count"] for item in document["status"]["items"])
            self.assertEqual(total, document["status"]["parameters"])

    def test_yaml_says_the_same_as_json(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("needs python3-yaml")
        for document in self.reports:
            name = document["metadata"]["name"]
            self.assertEqual(yaml.safe_load(report(name, "yaml")), document)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
