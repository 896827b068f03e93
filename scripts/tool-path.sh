#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0
# Prints the path of a tool that setup.sh keeps in the cache: python or bindgen.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

case ${1:?usage: tool-path.sh python|bindgen} in
python) echo "$(venv_dir)/bin/python" ;;
bindgen) echo "$CACHE/cargo/bin/bindgen" ;;
*) die "no such tool: $1" ;;
esac
