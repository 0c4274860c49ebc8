#!/bin/bash
#SBATCH --job-name=train-images
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --signal=TERM@120
#SBATCH --open-mode=append
#SBATCH --output=train-images-%j.log
# Trains on four nodes, one worker on each. Saves before the time limit and queues itself again until the training is
# complete. Submit it with sbatch. The folders must be on a file system that all nodes share.
set -euo pipefail

data=${DATA:-$HOME/data/mnist}
backup=${BACKUP:-$HOME/backup/$SLURM_JOB_ID}
max_restarts=${MAX_RESTARTS:-20}

# All workers of this start get the same secret through srun.
LOCKSTEP_JOB_TOKEN=$(openssl rand -hex 32)
export LOCKSTEP_JOB_TOKEN
# Two jobs on one node need different ports.
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))

status=0
srun --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" train_images --strategy multi_worker --data "$data" \
  --epochs 90 --backup-dir "$backup" --save-every "10 minutes" || status=$?

case $status in
  0) echo "complete" ;;
  # A restart would find the same: usage, data, checkpoint or numbers.
  2 | 3 | 4 | 6) exit "$status" ;;
  *)
    # 143: the signal before the time limit. Others, such as 5: a worker or its node was lost.
    if ((${SLURM_RESTART_COUNT:-0} >= max_restarts)); then
      echo "restarted $max_restarts times already: giving up" >&2
      exit "$status"
    fi
    echo "exit code $status: queued again" >&2
    scontrol requeue "$SLURM_JOB_ID"
    ;;
esac
