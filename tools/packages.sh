# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# install_missing PACKAGE...: installs the Debian packages that are not there yet.
install_missing() {
	missing=
	for package in "$@"; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
			missing="$missing $package"
	done
	[ -n "$missing" ] || return 0
	if ! command -v apt-get >/dev/null; then
		echo "Needed, and this is no Debian to install it on:$missing" >&2
		return 1
	fi
	sudo=
	if [ "$(id -u)" != 0 ]; then
		sudo=sudo
		if ! command -v sudo >/dev/null; then
			echo "Needed: run as root, or install:$missing" >&2
			return 1
		fi
	fi
	echo "Installing:$missing" >&2
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq update >&2 || return 1
	# shellcheck disable=SC2086 # words
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $missing \
		>&2 </dev/null || return 1
}
