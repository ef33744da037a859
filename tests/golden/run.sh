#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh ADP CASE: runs the shell commands in CASE/cmd and compares with what the case expects:
#   cmd              commands; `adp` is the program under test, the working folder a copy of the case,
#                    $ADP_SOURCE_DIR the source tree
#   expected_stdout  missing = nothing
#   expected_stderr  missing = nothing
#   exit             exit status, missing = 0
# ADP_GOLDEN_UPDATE=1 writes what came out into the case instead; read the difference before you commit it.
set -u
adp=$1
case_dir=$(cd "$2" && pwd) || exit 2
ADP_SOURCE_DIR=$(cd "$(dirname "$0")/../.." && pwd) || exit 2
export ADP_SOURCE_DIR
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/run" || exit 2
ln -s "$(realpath "$adp")" "$work/bin/adp"
cp -R "$case_dir/." "$work/run/" || exit 2
rm -f "$work/run/cmd" "$work/run/exit" "$work/run/expected_stdout" "$work/run/expected_stderr"

(
	cd "$work/run" || exit 2
	PATH=$work/bin:$PATH LC_ALL=C.UTF-8 TZ=UTC COLUMNS=100 sh "$case_dir/cmd"
) </dev/null >"$work/stdout" 2>"$work/stderr"
status=$?

if [ "${ADP_GOLDEN_UPDATE:-}" = 1 ]; then
	for stream in stdout stderr; do
		rm -f "$case_dir/expected_$stream"
		[ ! -s "$work/$stream" ] || cp "$work/$stream" "$case_dir/expected_$stream"
	done
	rm -f "$case_dir/exit"
	[ $status = 0 ] || echo $status >"$case_dir/exit"
	exit 0
fi

failed=0
for stream in stdout stderr; do
	expected=$case_dir/expected_$stream
	[ -e "$expected" ] || expected=/dev/null
	diff -u "$expected" "$work/$stream" || failed=1
done
expected=$(cat "$case_dir/exit" 2>/dev/null || echo 0)
if [ "$status" != "$expected" ]; then
	echo "exit status $status, expected $expected"
	failed=1
fi
exit $failed
