#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh BUILD TESTS: installs the build into an empty folder, compiles a program against it with pkg-config
# alone, and looks into the Debian package.
set -eu
build=$1
tests=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

DESTDIR=$work/root cmake --install "$build" >"$work/log" || { cat "$work/log"; exit 1; }
pc=$(find "$work/root" -name adp.pc)
prefix=$work/root$(pkg-config --variable=prefix "$pc")
set -x
# shellcheck disable=SC2046 # the flags are words
cc -std=c17 -Wall -Wextra -Werror "$tests/consumer.c" -o "$work/consumer" \
	$(pkg-config --define-variable=prefix="$prefix" --cflags --libs "$pc")
"$work/consumer"
for header in "$prefix"/include/adp/*.h; do # each public header stands alone
	echo "#include <adp/$(basename "$header")>" >"$work/one.c"
	cc -std=c17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I"$prefix/include" "$work/one.c"
done

(cd "$work" && cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work/package" >"$work/log" 2>&1) || {
	cat "$work/log"
	exit 1
}
deb=$(echo "$work"/package/adp_*.deb)
dpkg-deb --field "$deb" Depends | grep -q libjansson4
dpkg-deb --field "$deb" Depends | grep -q libyaml-0-2
dpkg-deb --contents "$deb" >"$work/contents"
for path in usr/bin/adp usr/include/adp/plan.h usr/share/adp/data/ usr/share/adp/schema/; do
	grep -q " ./$path" "$work/contents" || { echo "the package lacks $path"; exit 1; }
done
