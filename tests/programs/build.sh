#!/usr/bin/env bash
# Builds the programs of this folder, or those named, each with one command.
#
#   build.sh OUT [--variant plain|coverage|counting] [--cc CC] [--mpicc MPICC] [--marks] [PROGRAM...]
#
#   --variant  coverage and counting: the two builds that the detailed level needs, with the flags that
#              "manyscale trace --flags" prints for them (or those in VARIANT_FLAGS); clang only
#   --cc       C compiler (default: clang, else gcc)
#   --mpicc    wrapper with which the programs in apps/ are built (default: mpicc.mpich, else mpicc); it calls CC
#   --marks    mark iterations and regions (runner/tracers/native/manyscale.h)
#
# EXTRA_CFLAGS is put behind the other flags. MANYSCALE is the command of manyscale (default: manyscale).
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)

die() {
    echo "build.sh: $1" >&2
    exit 2
}

# The first of the commands that is installed.
first_installed() {
    local name
    for name; do
        if command -v "$name" >/dev/null; then
            echo "$name"
            return
        fi
    done
}

[ $# -gt 0 ] || die "name the folder to build in"
out=$1
shift
variant=plain cc=$(first_installed clang gcc) mpicc=$(first_installed mpicc.mpich mpicc) marks=() programs=()
while [ $# -gt 0 ]; do
    case $1 in
    --variant | --cc | --mpicc)
        [ $# -gt 1 ] || die "$1 needs a value"
        declare "${1#--}=$2"
        shift 2
        ;;
    --marks)
        marks=(-DMARKS "-I$here/../../runner/tracers/native")
        shift
        ;;
    -*) die "unknown option $1" ;;
    *)
        programs+=("$1")
        shift
        ;;
    esac
done
[ -n "$cc" ] || die "no C compiler; install clang or gcc, or name one with --cc"
command -v "$cc" >/dev/null || die "no compiler $cc; install it or name another one with --cc"

variant_flags=()
case $variant in
plain) ;;
coverage | counting)
    level=$variant
    [ "$variant" = counting ] || level=detailed
    # What is printed is quoted for a shell; xargs takes that off.
    text=${VARIANT_FLAGS:-$(${MANYSCALE:-manyscale} trace --flags "$level")}
    mapfile -t variant_flags < <(xargs -n1 printf '%s\n' <<<"$text")
    ;;
*) die "unknown variant $variant: plain, coverage or counting" ;;
esac

read -ra extra <<<"${EXTRA_CFLAGS:-}"
flags=(-std=c11 -O2 -g -fopenmp "${marks[@]}" "${variant_flags[@]}" "${extra[@]}")

if [ ${#programs[@]} = 0 ]; then
    for source in "$here"/apps/*.c "$here"/kernels/*.c; do
        programs+=("$(basename "$source" .c)")
    done
fi
mkdir -p "$out"
for program in "${programs[@]}"; do
    if [ -f "$here/kernels/$program.c" ]; then
        "$cc" "${flags[@]}" "$here/kernels/$program.c" -o "$out/$program" -lm -ldl
    elif [ -f "$here/apps/$program.c" ]; then
        if [ -z "$mpicc" ]; then
            echo "build.sh: $program needs MPI; it is not built" >&2
            continue
        fi
        MPICH_CC=$cc OMPI_CC=$cc "$mpicc" "${flags[@]}" "$here/apps/$program.c" -o "$out/$program" -lm -ldl
    else
        die "no program $program"
    fi
done
