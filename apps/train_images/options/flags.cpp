#include "lockstep/apps/train_images/options/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "lockstep/apps/shared/monitoring/metrics_flags.h"
#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"
#include "lockstep/apps/train_images/options/command_line.h"
#include "lockstep/apps/train_images/options/train_options.h"

namespace lockstep::apps {
namespace {

template <typename Value>
std::string number(Value value) {
  return fmt::format("{}", value);
}

}  // namespace

std::vector<Flag> data_flags() {
  const TrainOptions defaults;
  return {
      {"Data", "data", "PATH",
       "auto, generated, or a path: a folder with MNIST's IDX files (plain or .gz), or a folder or zip with "
       "train/ and test/, each with one folder of PNG or JPEG images a class. auto takes "
       "$LOCKSTEP_MNIST_DIR, ./data/mnist or ./mnist.zip, else generated digits",
       defaults.data},
      {"Data", "limit-train", "N", "Train on N images only (default: all)"},
      {"Data", "limit-test", "N", "Test on N images only (default: all)"},
      {"Data", "skip-bad", "", "Leave out images that cannot be decoded, and say how many"},
      {"Data", "image-cache", "PLACE",
       "Memory for the images of a folder: host, or device, which also keeps them on each device, so that a "
       "step copies only their indices",
       image_cache_name(defaults.image_cache)},
  };
}

std::vector<Flag> model_flags() {
  const TrainOptions defaults;
  return {
      {"Model", "model", "NAME", "simple_cnn (grey) or mobilenet_v2 (RGB)", model_name(defaults.model)},
      {"Model", "image-size", "N",
       "Height and width in pixels that images are resized to; simple_cnn takes 4 or more, mobilenet_v2 33 "
       "or more (default: 28 for simple_cnn, 64 for mobilenet_v2)"},
      {"Model", "head", "NAME",
       "Of mobilenet_v2: global_average (torchvision's) or flattened_dense (pooling 2x2, dense 512)",
       head_name(defaults.head)},
      {"Model", "sync-batch-norm", "",
       "Of mobilenet_v2: batch normalisation by the statistics of all replicas' images, instead of each by "
       "its own"},
  };
}

std::vector<Flag> training_flags() {
  const TrainOptions defaults;
  return {
      {"Training", "epochs", "N", "Epochs; each ends with a test on all test images",
       number(defaults.epochs)},
      {"Training", "steps-per-epoch", "N",
       "Steps of an epoch; the next one goes on where it stopped (default: one pass over the images)"},
      {"Training", "global-batch-size", "N", "Images of a step over all replicas",
       number(defaults.global_batch_size)},
      {"Training", "per-replica-batch-size", "N", "Instead: images of a step on each replica"},
      {"Training", "accumulate-steps", "N",
       "Pieces that each replica computes its images of a step in, one after another, so that a larger batch "
       "fits into memory: the step is the same",
       number(defaults.accumulate_steps)},
      {"Training", "early-stopping", "N", "Stop after N epochs without a better validation loss; 0: never",
       number(defaults.early_stopping)},
      {"Training", "precision", "NAME",
       "float32 (on GPUs with TF32 in convolutions, as in PyTorch), ieee (float32 without TF32), float64 "
       "(model and images in it), tf32 (GPUs: float32 with TF32 in products and convolutions), "
       "bfloat16 or float16 (forward and backward in it where that is accurate enough, parameters in "
       "float32; "
       "float16 scales the loss). float16 is slow on a CPU",
       precision_name(defaults.precision)},
      {"Training", "cuda-graph", "",
       "GPUs: capture a step once as a CUDA graph, and replay it from then on: the same results with less "
       "work for the host, which counts where batches are small"},
      {"Training", "no-cudnn-benchmark", "",
       "One GPU in a process: let cuDNN choose its convolution algorithms by rules, instead of measuring "
       "which "
       "is fastest. Runs with equal seeds are then more likely to be equal"},
      {"Training", "optimizer", "NAME", "adam, adamw, sgd", optimizer_name(defaults.optimizer)},
      {"Training", "learning-rate", "X", "Learning rate", number(defaults.learning_rate)},
      {"Training", "learning-rate-schedule", "NAME",
       "cosine (falls to 0 over all epochs' steps, along half a cosine), constant, step (falls every "
       "--schedule-step-epochs) or reduce_on_plateau (falls after --schedule-step-epochs without a better "
       "validation loss)",
       schedule_name(defaults.schedule)},
      {"Training", "schedule-step-epochs", "N", "Epochs of step and reduce_on_plateau (there)",
       number(defaults.schedule_step_epochs)},
      {"Training", "schedule-factor", "X",
       "What step and reduce_on_plateau multiply the learning rate by, above 0 and below 1",
       number(defaults.schedule_factor)},
      {"Training", "warmup-epochs", "X",
       "Epochs, or a fraction of one, in which the learning rate rises from 0 before its schedule begins",
       number(defaults.warmup_epochs)},
      {"Training", "scale-learning-rate", "",
       "Multiply the learning rate by global batch size / base batch size"},
      {"Training", "base-batch-size", "N", "The batch size that --learning-rate is meant for",
       number(defaults.base_batch_size)},
      {"Training", "momentum", "X", "Of sgd", number(defaults.momentum)},
      {"Training", "clip-norm", "X",
       "Scale the gradients down where their norm over all parameters is larger (default: any norm)"},
      {"Training", "init-weights", "PATH",
       "Start with the weights of another run: those of the same names and shapes are taken, the others "
       "listed; the optimizer starts anew"},
      {"Training", "strict", "", "Refuse --init-weights unless every name and shape fits"},
      {"Training", "seed", "N", "Seed of everything random: equal seeds, equal results",
       number(defaults.seed)},
  };
}

std::vector<Flag> record_flags() {
  const TrainOptions defaults;
  return {
      {"Run", "config", "FILE",
       "Take the values of a configuration file, such as the config.json of an earlier run, which repeats "
       "that run; flags beside it win",
       "", FlagRole::kAction},
      {"Run", "run-dir", "DIR",
       "Record the run in a new folder: config.json, metrics, TensorBoard's files, checkpoints, report.html",
       "", FlagRole::kProcess},
      {"Run", "log-every", "N", "Steps between two whose metrics are recorded there",
       number(defaults.log_every)},
      {"Run", "profile", "N", "Record a profile of N steps there (default: none)"},
      {"Run", "mlflow-dir", "DIR",
       "Record the run for MLflow in a folder that many runs share, for `mlflow ui --backend-store-uri DIR`",
       "", FlagRole::kProcess},
      {"Run", "find-learning-rate", "",
       "Instead of training, try 100 rising learning rates, one step each, and suggest one; --run-dir gets a "
       "plot, learning_rate.html",
       "", FlagRole::kAction},
      {"Run", "fast-dev-run", "",
       "Try everything quickly: 5 steps, a test on as many images, and no files but those of --run-dir", "",
       FlagRole::kAction},
      {"Run", "backup-dir", "DIR",
       "Save the training in a folder as it goes, so that the same command goes on where it ended, to the "
       "step: "
       "after a signal, a crash or a lost machine. Worker 0 writes there",
       "", FlagRole::kProcess},
      {"Run", "save-every", "TIME", "Between two checkpoints there: epoch, 3 epochs, 500 steps, 10 minutes",
       defaults.save_every},
      {"Run", "shard-backup", "",
       "With several workers each writes a part of a checkpoint: --backup-dir is a folder that all share, "
       "such "
       "as on a network file system"},
      {"Run", "resume", "FROM",
       "auto (the newest whole checkpoint in --backup-dir, if there is one), never, or the path of a "
       "checkpoint or of a folder with some",
       defaults.resume, FlagRole::kProcess},
      {"Run", "check-replicas", "N",
       "Steps between two comparisons of all replicas' parameters and optimizer states, bit by bit; 0: none",
       number(defaults.check_replicas)},
      {"Run", "on-not-finite", "ACTION",
       "Where a loss, a parameter or an optimizer's state is NaN or infinite on any replica: stop; skip "
       "(look "
       "after every step, and undo one that has led to it); roll_back (look after every 100 steps of an "
       "epoch "
       "and at its end, and undo all since the last look)",
       not_finite_name(defaults.on_not_finite)},
      {"Run", "quiet", "", "Print errors only"},
  };
}

namespace {

constexpr const char* kExamples =
    "\nExamples:\n"
    "  train_images                                          # digits that it draws itself\n"
    "  train_images --data data/mnist --replicas 2           # MNIST, two replicas\n"
    "  train_images --data mnist.zip --model mobilenet_v2 --strategy mirrored --devices gpu:0,gpu:1 \\\n"
    "    --global-batch-size 256 --scale-learning-rate      # learning rate 0.008\n"
    "  train_images --devices gpu:0 --replicas-per-device 2  # two replicas on one GPU\n"
    "  train_images --run-dir runs/a --early-stopping 3      # recorded, to be seen in runs/a/report.html\n"
    "  train_images --config runs/a/config.json --run-dir runs/b --seed 2\n"
    "                                                       # the same with another seed\n"
    "  train_images --backup-dir b --save-every '500 steps'  # goes on where it ended when run again\n"
    "  scripts/launch_local.sh 2 train_images                # two worker processes on this machine\n"
    "\nExit codes: 0 done, 1 any other error, 2 usage, 3 data, 4 checkpoint or run folder, 5 replicas or "
    "workers that lost each "
    "other,\n"
    "6 loss not finite or replicas that differ, 7 out of memory, threads or a GPU, 130 and 143 stopped\n"
    "by SIGINT or SIGTERM after the step it was in.\n";

void append(std::vector<Flag>& flags, std::vector<Flag> more) {
  for (auto& flag : more) flags.push_back(std::move(flag));
}

}  // namespace

FlagTable train_flags(const std::vector<std::string>& strategies) {
  FlagTable table{
      .program = "train_images",
      .former_program = "train_mnist",
      .summary = "Trains an image classifier on MNIST or on your own images, on any number of replicas.",
      .after = kExamples,
      .alternatives = {{"devices", "replicas"},
                       {"replicas-per-device", "replicas"},
                       {"global-batch-size", "per-replica-batch-size"}},
      .dependents = {{"image-size", "model"},
                     {"head", "model"},
                     {"sync-batch-norm", "model"},
                     {"momentum", "optimizer"},
                     {"schedule-step-epochs", "learning-rate-schedule"},
                     {"schedule-factor", "learning-rate-schedule"},
                     {"base-batch-size", "scale-learning-rate"},
                     {"log-every", "run-dir"},
                     {"metrics-address", "metrics-port"},
                     {"profile", "run-dir"},
                     {"save-every", "backup-dir"},
                     {"shard-backup", "backup-dir"},
                     {"resume", "backup-dir"}}};
  append(table.flags, data_flags());
  append(table.flags, model_flags());
  append(table.flags, training_flags());
  append(table.flags, record_flags());
  append(table.flags, metrics_flags());
  append(table.flags, strategy_flags(strategies));
  append(table.flags, common_flags());
  return table;
}

std::string help_text(const std::vector<std::string>& strategies) {
  return help_text(train_flags(strategies));
}

}  // namespace lockstep::apps
