#!/usr/bin/env bash
# scripts/train.sh [--program NAME] [flag...]
#
# Trains an image classifier, or with --program another model. Installs missing packages, builds the
# program and runs it with the given flags. The programs:
#
#   train_images           images: MNIST's or your own, or generated digits (the default program)
#   train_gpt              text: a language model on files, or on a generated language
#   train_ctr              clicks: the probability of a click, on click logs or generated ones
#
# train_images without --data takes the images that LOCKSTEP_MNIST_DIR names, ./data/mnist or
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
# Once a program is built, --help lists all of its flags.
set -euo pipefail
from=$PWD
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

program=train_images
arguments=()
while (($# > 0)); do
  case $1 in
    --program)
      (($# > 1)) || fail "--program: expected train_images, train_gpt or train_ctr, but got nothing" 2
      program=$2
      shift
      ;;
    --program=*) program=${1#--program=} ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
case $program in
  train_images | train_gpt | train_ctr) ;;
  *) fail "--program: expected train_images, train_gpt or train_ctr, but got '$program'" 2 ;;
esac

for argument in "${arguments[@]}"; do
  [[ $argument == --help || $argument == -h ]] || continue
  [[ ! -x build/release/bin/$program ]] || exec "build/release/bin/$program" --help
  help_if_asked "$argument"
done
build_and_run "$from" "$program" "${arguments[@]}"
