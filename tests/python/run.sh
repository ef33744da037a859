#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh MODULE [env]: runs tests/python/MODULE.py; with env under the environment of tools/python_env.
# Exits 77 when the test says that it has nothing to run.
set -u
here=$(cd -- "$(dirname -- "$0")" && pwd)
python=python3
if [ "${2:-}" = env ]; then
	python=$("$here/../../tools/python_env")/bin/python || exit 1
fi
cd "$here" || exit 1
PYTHONDONTWRITEBYTECODE=1 exec "$python" -c '
import sys, unittest
try:
    module = __import__(sys.argv[1])
except unittest.SkipTest as reason:
    print("skipped:", reason)
    sys.exit(77)
unittest.main(module, argv=sys.argv[1:], verbosity=2)
' "$1"
