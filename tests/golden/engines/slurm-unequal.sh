#!/bin/bash
#SBATCH --job-name=train-mixed
#SBATCH --comment=tonnage:train-mixed:TOKEN
#SBATCH --chdir=FOLDER/train-mixed
#SBATCH --output=FOLDER/train-mixed/output.log
#SBATCH --open-mode=append
#SBATCH --qos=high
#SBATCH --reservation=week
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=1024M
#SBATCH --gres=gpu:volta:2
#SBATCH --nodelist=n1
#SBATCH --no-requeue
#SBATCH --exclude=n9
#SBATCH hetjob
#SBATCH --qos=high
#SBATCH --reservation=week
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --mem=1024M
#SBATCH --gres=shard:rtx_4090:3
#SBATCH --no-requeue
#SBATCH --exclude=n9
# Words in capitals, and what the cluster calls a GPU, are filled in when the job is submitted.

export TONNAGE_FOLDER=FOLDER/train-mixed
# Only the submission that the folder was made for may run: not one whose answer came too late and that was made again.
[ "$(cat "$TONNAGE_FOLDER/token")" = TOKEN ] || exit 0
rm -f "$TONNAGE_FOLDER"/devices.* "$TONNAGE_FOLDER/codes" "$TONNAGE_FOLDER/ended"
echo "$SLURM_JOB_ID $(date +%s)" >>"$TONNAGE_FOLDER/starts"
first=n1
export MASTER_ADDR=$(scontrol show node "$first" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))

process() {
    export RANK=$SLURM_PROCID WORLD_SIZE=2 LOCAL_RANK=0
    echo "$SLURMD_NODENAME ${SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}" >"$TONNAGE_FOLDER/devices.${SLURM_PROCID:-0}"
    # Aside with what bash itself says of a signal: it would print the whole command.
    { train --steps 100 2>&3 3>&-; } 3>&2 2>/dev/null
    local code=$?
    echo $code >>"$TONNAGE_FOLDER/codes"
    exit $code
}
export -f process
srun --kill-on-bad-exit=1 --cpus-per-task=4 --het-group=0-1 bash -c process
code=$?
# Once one process has failed, srun ends the others: its own code would be that of the signal.
own=$(grep -m 1 -v '^0$' "$TONNAGE_FOLDER/codes")
code=${own:-$code}
echo "$code $(date +%s)" >"$TONNAGE_FOLDER/ended"
exit $code
