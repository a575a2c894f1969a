#!/usr/bin/env bash
# Builds the programs of this folder: build.sh OUT makes OUT/PROGRAM.O0, .O1 and .O3 (CC, default gcc). Their debug
# information names sources relative to this folder.
set -euo pipefail
[ $# = 1 ] || { echo "build.sh: name the folder to build in" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")"
for source in *.c; do
    for level in 0 1 3; do
        "${CC:-gcc}" -std=gnu11 "-O$level" -g "-ffile-prefix-map=$PWD=." -Wall -Wextra "$source" \
            -o "$out/${source%.c}.O$level" -lm
    done
done
