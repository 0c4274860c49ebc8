#!/bin/bash
# Trains in a container that Docker starts again after a failure: docker.sh DATA BACKUP
set -euo pipefail

data=$(realpath "$1")
mkdir -p "$2"
backup=$(realpath "$2")

docker run --detach --name train-images --restart on-failure:5 --stop-timeout 120 \
  --user "$(id -u):$(id -g)" -v "$data:/data:ro" -v "$backup:/backup" \
  lockstep train_images --data /data --replicas 4 --epochs 90 --backup-dir /backup --save-every "10 minutes"
docker logs --follow train-images
