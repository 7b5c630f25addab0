#!/bin/bash
#SBATCH --job-name=train-vit
#SBATCH --comment=tonnage:train-vit:TOKEN
#SBATCH --chdir=/home/me
#SBATCH --output=FOLDER/train-vit/output.log
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=6
#SBATCH --mem=49152M
#SBATCH --gres=gpu:h200:2
#SBATCH --constraint=hopper
#SBATCH --no-requeue
# Words in capitals, and what the cluster calls a GPU, are filled in when the job is submitted.
# From the environment of sbatch: OMP_NUM_THREADS
# In program: a copy of model.py, train.py

export TONNAGE_FOLDER=FOLDER/train-vit
# Only the submission that the folder was made for may run: not one whose answer came too late and that was made again.
[ "$(cat "$TONNAGE_FOLDER/token")" = TOKEN ] || exit 0
rm -f "$TONNAGE_FOLDER"/devices.* "$TONNAGE_FOLDER/codes" "$TONNAGE_FOLDER/ended"
echo "$SLURM_JOB_ID $(date +%s)" >>"$TONNAGE_FOLDER/starts"

process() {
    echo "$SLURMD_NODENAME ${SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}" >"$TONNAGE_FOLDER/devices.${SLURM_PROCID:-0}"
    # Aside with what bash itself says of a signal: it would print the whole command.
    { /usr/bin/python3 "$TONNAGE_FOLDER"/program/train.py --name 'a b' 2>&3 3>&-; } 3>&2 2>/dev/null
    local code=$?
    echo $code >>"$TONNAGE_FOLDER/codes"
    exit $code
}
export -f process
bash -c process
code=$?
echo "$code $(date +%s)" >"$TONNAGE_FOLDER/ended"
exit $code
