"""JSON-Schema-Test-Suite in one file: src/text/constraints/json-schema-test-suite.json.golden.

git clone https://github.com/json-schema-org/JSON-Schema-Test-Suite (MIT; copyright 2012 Julian Berman)
python scripts/goldens/json-schema-test-suite.py JSON-Schema-Test-Suite
"""

import json
import subprocess
import sys
from pathlib import Path

root = Path(sys.argv[1])
tests = root / "tests" / "draft2020-12"
commit = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
cases = []
for path in sorted(tests.rglob("*.json")):
    name = str(path.relative_to(tests))
    # There, formats are notes that do not constrain values.
    if name in ("format.json", "vocabulary.json"):
        continue
    for group in json.loads(path.read_text()):
        schema = group["schema"]
        if isinstance(schema, dict):
            schema = {key: value for key, value in schema.items() if key != "$schema"}
        values = {str(is_valid).lower(): [test["data"] for test in group["tests"] if test["valid"] == is_valid] for is_valid in (True, False)}
        cases.append({"file": name, "about": group["description"], "schema": schema, "valid": values["true"], "invalid": values["false"]})
lines = ",\n".join(json.dumps(case) for case in cases)
origin = f"JSON-Schema-Test-Suite {commit or sys.argv[2]}, draft2020-12; MIT license, copyright 2012 Julian Berman"
golden = Path(__file__).parents[2] / "src/text/constraints/json-schema-test-suite.json.golden"
golden.write_text(f'{{"from": "{origin}",\n"cases": [\n{lines}\n]}}\n')
