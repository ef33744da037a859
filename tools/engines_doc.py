#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rewrites the tables of docs/engines.md from data/engines.csv: tools/engines_doc.py"""
import csv
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIRST_CONSTANT = "tp_overlap_frac"  # keys before it are levers and rules


def escape(text):
    return text.replace("|", "\\|")


def main():
    with open(ROOT / "data/engines.csv", newline="", encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    engines = {}
    for row in rows:
        engines.setdefault((row["engine"], row["version"]), {})[row["key"]] = row["value"]

    def value(engine, version, key):
        while key not in engines[engine, version]:
            version = engines[engine, version]["inherits"]
        return engines[engine, version][key]

    order = [row["key"] for row in rows if (row["engine"], row["version"]) == next(iter(engines))]
    order.remove("default")
    first_constant = order.index(FIRST_CONSTANT)

    def overview(keys):
        yield "| key | " + " | ".join(f"{e} {v}" for e, v in engines) + " |"
        yield "| --- |" + " --- |" * len(engines)
        for key in keys:
            yield f"| `{key}` | " + " | ".join(escape(value(e, v, key)) for e, v in engines) + " |"

    path = ROOT / "docs/engines.md"
    lines = [path.read_text(encoding="utf-8").split("## Levers and rules")[0].rstrip(), ""]
    lines += ["## Levers and rules", "", *overview(order[:first_constant]), ""]
    lines += ["## Cost and memory constants", ""]
    lines += ["Meaning and unit of each key: `include/adp/engine.h`; how memory uses them: "
              "[internals/memory.md](internals/memory.md).", ""]
    lines += [*overview(order[first_constant:]), "", "## Sources", ""]
    for engine, version in engines:
        lines += [f"### {engine} {version}", "", "| key | value | source |", "| --- | --- | --- |"]
        lines += [f"| `{r['key']}` | {escape(r['value'])} | {escape(r['source'])} |"
                  for r in rows if (r["engine"], r["version"]) == (engine, version)]
        lines.append("")
    path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


main()
