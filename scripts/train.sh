#!/usr/bin/env bash
# scripts/train.sh [flag...]
#
# Trains an image classifier. Installs missing packages, builds train_images and runs it with the
# given flags. Without --data, it takes the images that LOCKSTEP_MNIST_DIR names, ./data/mnist or
# ./mnist.zip, and generates digits if there is none of them. The most used flags:
#
#   --data PATH            MNIST's files, or train/ and test/ with a folder of images for each class
#   --model NAME           the network, such as simple_cnn or mobilenet_v2
#   --devices LIST         devices of the replicas, such as gpu:0,gpu:1 or cpu:0,cpu:1
#   --global-batch-size N  examples in each step, over all replicas
#   --epochs N             how often to go through the data
#   --run-dir DIR          write metrics, plots and a report to a new folder
#   --backup-dir DIR       save checkpoints there, and resume from the newest one
#   --fast-dev-run         train and evaluate on a few batches, to see whether everything works
#
# Once it is built, --help lists all flags.
set -euo pipefail
from=$PWD
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

for argument in "$@"; do
  [[ $argument == --help || $argument == -h ]] || continue
  [[ ! -x build/release/bin/train_images ]] || exec build/release/bin/train_images --help
  help_if_asked "$argument"
done
build_and_run "$from" train_images "$@"
