#!/usr/bin/env bash
# Builds programs of this folder: build.sh OUT [PROGRAM...] makes OUT/PROGRAM.O0, .O1 and .O3 (CC, default gcc) of all,
# or of those that are named. Their debug information names sources relative to this folder.
set -euo pipefail
[ $# -ge 1 ] || { echo "build.sh: name the folder to build in" >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")"
shift
for source in $([ $# = 0 ] && ls ./*.c || printf '%s.c\n' "$@"); do
    source=${source#./}
    for level in 0 1 3; do
        "${CC:-gcc}" -std=gnu11 "-O$level" -g "-ffile-prefix-map=$PWD=." -Wall -Wextra "$source" \
            -o "$out/${source%.c}.O$level" -lm
    done
done
