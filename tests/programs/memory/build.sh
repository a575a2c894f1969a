#!/usr/bin/env bash
# Builds the programs of this folder: build.sh OUT makes OUT/PROGRAM.O0, .O1 and .O3 (CC, default gcc).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# = 1 ] || { echo "build.sh: name the folder to build in" >&2; exit 2; }
mkdir -p "$1"
for source in "$here"/*.c; do
    for level in 0 1 3; do
        "${CC:-gcc}" -std=gnu11 "-O$level" -g -Wall -Wextra "$source" -o "$1/$(basename "$source" .c).O$level" -lm
    done
done
