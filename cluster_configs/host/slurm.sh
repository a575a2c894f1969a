#!/bin/bash
# One study on several nodes of a Slurm cluster. Edit the lines marked EDIT, then:
#
#   sbatch slurm.sh STUDY [-o DIR] [--cache DIR] ...      # the arguments of `manyscale run`
#
# Ray starts on every node of the job, the study runs on the first, and Ray ends with it. Run directory and cache
# (default: below $HOME) must be on a file system that the nodes share, or in object storage (s3://BUCKET/NAME).
#
# Two minutes before its time is over, or where a node is lost, the job is queued again, and the run goes on in the same
# run directory: -o DIR, or manyscale-JOBID.
#SBATCH --job-name=manyscale
#SBATCH --nodes=2                  # EDIT
#SBATCH --ntasks-per-node=1        # one Ray per node; it uses all cores given to the task
#SBATCH --cpus-per-task=48         # EDIT: cores of a node
#SBATCH --exclusive                # Ray takes the whole node, and its ports
#SBATCH --time=02:00:00            # EDIT
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --open-mode=append
#SBATCH --output=manyscale-%j.log
set -euo pipefail

if [ $# -eq 0 ]; then
    echo "usage: sbatch slurm.sh STUDY [options of manyscale run]" >&2
    exit 2
fi

# module load python/3.11          # EDIT: what your site needs
# shellcheck disable=SC1091
. "$HOME/manyscale-env/bin/activate" # EDIT: the environment that holds manyscale, seen by all nodes

output=
words=("$@")
for number in "${!words[@]}"; do
    case ${words[number]} in
        -o | --output) output=${words[number + 1]:-} ;;
        -o?*) output=${words[number]#-o} ;;
        --output=*) output=${words[number]#--output=} ;;
    esac
done
if [ -z "$output" ]; then
    output=manyscale-$SLURM_JOB_ID
    words+=(-o "$output")
fi
if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && manyscale status "$output" >/dev/null 2>&1; then
    words+=(--resume)
fi

# A secret of this job: Ray listens on all interfaces, and the network has other users.
RAY_AUTH_TOKEN=$(python3 -c 'import secrets; print(secrets.token_hex(32))')
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN RAY_USAGE_STATS_ENABLED=0
# Sockets and logs, on each node's own disk; a short path, since sockets allow 107 characters.
export RAY_TMPDIR=/tmp/ray-$SLURM_JOB_ID
# Nodes start at different times; wait up to five minutes for all.
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300

srun rm -rf "$RAY_TMPDIR" # of an attempt before
srun mkdir -p "$RAY_TMPDIR/ray"
trap 'srun rm -rf "$RAY_TMPDIR"' EXIT
trap 'echo "the time is almost over: queued again"; scontrol requeue "$SLURM_JOB_ID"' USR1

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --kill-on-bad-exit=1 ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_JOB_NUM_NODES" \
    --num-cpus "$SLURM_CPUS_PER_TASK" -- manyscale run "${words[@]}" --executor ray --address auto &
step=$! status=0
while kill -0 "$step" 2>/dev/null; do # a signal ends `wait` before the step
    wait "$step" && status=0 || status=$?
done
exit "$status"
