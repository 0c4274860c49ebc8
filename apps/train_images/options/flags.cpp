#include "lockstep/apps/train_images/options/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "lockstep/apps/shared/planning/layout_policy.h"
#include "lockstep/apps/shared/precision/precision_kind.h"
#include "lockstep/apps/shared/session/run_flags.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_flags.h"
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
       "Images: auto, generated, or a path. A path is a folder with MNIST's IDX files (plain or .gz), "
       "or a folder or zip with train/ and test/, each with one folder of PNG, JPEG or WebP images for each "
       "class; or Parquet files: a file, a folder, a pattern such as 'images/*.parquet', or such a place in "
       "an "
       "object store, s3://bucket/images. auto looks for $LOCKSTEP_MNIST_DIR, ./data/mnist and ./mnist.zip, "
       "and else generates "
       "digits",
       defaults.data},
      {"Data", "test-data", "PATH",
       "Parquet files: those to test on (default: files or folders in --data whose names begin with test or "
       "validation, if others begin with train; otherwise a share of --data)"},
      {"Data", "test-share", "X",
       "Parquet files: without others to test on, the share of the images to test on, taken evenly from all",
       number(defaults.test_share)},
      {"Data", "image-column", "NAME",
       "Parquet files: the column of images, as bytes of PNG, JPEG or WebP files, or as Hugging Face's "
       "datasets hold them",
       defaults.image_column},
      {"Data", "label-column", "NAME",
       "Parquet files: the column of labels, numbers from 0 on or names of classes", defaults.label_column},
      {"Data", "parquet-memory", "SIZE",
       "Parquet files: keep at most so much of their row groups in memory, such as 512MiB. The order of the "
       "images depends on it, so resume with the same",
       defaults.parquet_memory},
      {"Data", "limit-train", "N",
       "Train on N images only: the same number of each class from a folder, the first N from other files "
       "(default: all)"},
      {"Data", "limit-test", "N", "Test on N images only, chosen in the same way (default: all)"},
      {"Data", "skip-bad", "", "Leave out images that cannot be read, and list them with the reasons"},
      {"Data", "exif-orientation", "",
       "Turn photos upright as the EXIF orientation in their files says. By default, images are used as they "
       "are stored"},
      {"Data", "image-cache", "PLACE",
       "Where to keep the images of a folder: host, or device, which also keeps a copy on each device, "
       "so that each step copies indices only",
       image_cache_name(defaults.image_cache), FlagRole::kOperation},
      {"Data", "augment", "CHANGES",
       "Change the training images at random, anew in each epoch: a list such as crop=4,flip. crop=N pads "
       "images by N black pixels and cuts their size out of it, flip mirrors half of them left to right, "
       "rotate=X turns them by up to X degrees, brightness=X, contrast=X and saturation=X scale these by 1-X "
       "to 1+X, hue=X shifts it by up to X of the circle, and mixup=X blends each image with another one, "
       "with weights of Beta(X, X)",
       augmentation_text(defaults.augment)},
  };
}

std::vector<Flag> model_flags() {
  const TrainOptions defaults;
  return {
      {"Model", "model", "NAME", "simple_cnn for grey images, or mobilenet_v2 for RGB images",
       model_name(defaults.model)},
      {"Model", "image-size", "N",
       "Resize images to N x N pixels: at least 4 for simple_cnn, at least 33 for mobilenet_v2 "
       "(default: 28 for simple_cnn, 64 for mobilenet_v2)"},
      {"Model", "head", "NAME",
       "Last layers of mobilenet_v2: global_average, as in torchvision, or flattened_dense, which "
       "pools 2x2 and has a dense layer of 512",
       head_name(defaults.head)},
      {"Model", "sync-batch-norm", "",
       "Let mobilenet_v2 normalize by the statistics of all replicas' images. Without it, each replica "
       "uses those of its own images"},
      {"Model", "refresh-batch-norm", "WHEN",
       fmt::format(
           "Measure mobilenet_v2's batch normalization statistics again before each test: always, never, "
           "or auto, which does it if an epoch has fewer than {} steps. Without it, a model that "
           "trains on few images may test at chance for several epochs although it learns",
           kFewSteps),
       batch_norm_refresh_name(defaults.refresh_batch_norm)},
  };
}

std::vector<Flag> training_flags() {
  const TrainOptions defaults;
  return {
      {"Training", "epochs", "N", "Number of epochs. Each ends with a test on all test images",
       number(defaults.epochs)},
      {"Training", "steps-per-epoch", "N",
       "Steps in an epoch. The next epoch continues where the last one stopped (default: one pass over "
       "the images)"},
      {"Training", "global-batch-size", "N", "Images in a step, over all replicas",
       number(defaults.global_batch_size)},
      {"Training", "per-replica-batch-size", "N",
       "Images in a step on each replica, instead of --global-batch-size"},
      {"Training", "accumulate-steps", "N",
       "Compute each step in N pieces, one after another, so that a larger batch fits into memory (default: "
       "1). With the axis pipeline of --mesh, ranks compute different pieces at the same time (default: four "
       "times its ranks). The result is the same, but mobilenet_v2 normalizes each piece by its own images",
       "", FlagRole::kOperation},
      pipeline_schedule_flag(),
      stages_per_rank_flag(),
      pipeline_cut_flag(),
      layout_policy_flag("mesh, sharding and number of pieces"),
      device_memory_flag(),
      {"Training", "early-stopping", "N",
       "Stop after N epochs without a better validation loss; 0 never stops early",
       number(defaults.early_stopping)},
      precision_flag(),
      {"Training", "cuda-graph", "",
       "On GPUs, capture a step as a CUDA graph once and replay it. Results stay the same. Small "
       "batches become faster, because the host has less to do",
       "", FlagRole::kOperation},
      {"Training", "no-cudnn-benchmark", "",
       "Let cuDNN choose convolution algorithms by rules instead of measurements, so that runs with "
       "equal seeds are more likely to be equal. For processes with one GPU",
       "", FlagRole::kOperation},
      {"Training", "optimizer", "NAME", "adam, adamw or sgd", optimizer_name(defaults.optimizer)},
      {"Training", "learning-rate", "X", "Learning rate", number(defaults.learning_rate)},
      {"Training", "learning-rate-schedule", "NAME",
       "cosine falls to 0 over all steps. constant. step falls every --schedule-step-epochs epochs. "
       "reduce_on_plateau falls after --schedule-step-epochs epochs without a better validation loss",
       schedule_name(defaults.schedule)},
      {"Training", "schedule-step-epochs", "N",
       "Epochs between falls of the schedules step and reduce_on_plateau",
       number(defaults.schedule_step_epochs)},
      {"Training", "schedule-factor", "X",
       "Factor of each fall of the schedules step and reduce_on_plateau, between 0 and 1",
       number(defaults.schedule_factor)},
      {"Training", "warmup-epochs", "X",
       "Raise the learning rate from 0 during the first X epochs, which may be a fraction of one. The "
       "schedule starts afterwards",
       number(defaults.warmup_epochs)},
      {"Training", "scale-learning-rate", "",
       "Multiply the learning rate by (global batch size / base batch size)"},
      {"Training", "base-batch-size", "N", "Batch size that --learning-rate is meant for",
       number(defaults.base_batch_size)},
      {"Training", "momentum", "X", "Momentum of sgd", number(defaults.momentum)},
      {"Training", "clip-norm", "X",
       "Scale gradients down if their norm over all parameters exceeds X (default: no limit)"},
      {"Training", "ema", "X",
       "Test, record and end with an exponential moving average of the weights, X times the earlier average "
       "and (1 - X) times the weights of each step, 0.999 for example. The first steps use a smaller X "
       "(default: none)"},
      {"Training", "swa-start", "N",
       "Stochastic weight averaging: end with the mean of the weights at the end of epoch N and of each "
       "later one, and use it in the last test (default: none)"},
      {"Training", "swa-learning-rate", "X",
       "Learning rate from epoch --swa-start on, instead of the schedule's"},
      {"Training", "init-weights", "PATH",
       "Start with the weights in a file. Takes those whose names and shapes fit, and lists the "
       "others. The optimizer starts from scratch"},
      {"Training", "strict", "", "Refuse --init-weights unless all names and shapes fit"},
      {"Training", "seed", "N",
       "Seed of the initial weights, of the order of the images, and of random operators such as "
       "dropout. Equal seeds give equal results",
       number(defaults.seed)},
  };
}

namespace {

constexpr const char* kExamples =
    "\nExamples:\n"
    "  train_images                                 # on digits that it generates\n"
    "  train_images --data data/mnist --replicas 2  # on MNIST, with two replicas\n"
    "  train_images --data 'food101/*.parquet' --model mobilenet_v2\n"
    "  train_images --data mnist.zip --model mobilenet_v2 --devices gpu:0,gpu:1 \\\n"
    "    --global-batch-size 256 --scale-learning-rate        # learning rate 0.008\n"
    "  train_images --devices gpu:0 --replicas-per-device 2   # two replicas on one GPU\n"
    "  train_images --run-dir runs/a --early-stopping 3       # recorded; open runs/a/report.html\n"
    "  train_images --config runs/a/config.json --run-dir runs/b --seed 2\n"
    "                                                         # the same with another seed\n"
    "  train_images --backup-dir b --save-every '500 steps'   # run it again to resume\n"
    "  lockstep_launch_local 2 train_images                   # two worker processes\n"
    "\nExit codes: 0 done, 1 any other error, 2 usage, 3 data, 4 checkpoint or folder,\n"
    "5 replicas or workers that lost each other, 6 loss not finite or replicas that differ,\n"
    "7 no memory, disk space, thread or device. 130 and 143: stopped by SIGINT or SIGTERM, after\n"
    "finishing the step.\n";

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
                       {"global-batch-size", "per-replica-batch-size"},
                       {"ema", "swa-start"},
                       {"test-data", "test-share"}},
      .dependents = {{"test-data", "data"},
                     {"test-share", "data"},
                     {"image-column", "data"},
                     {"label-column", "data"},
                     {"parquet-memory", "data"},
                     {"image-size", "model"},
                     {"head", "model"},
                     {"sync-batch-norm", "model"},
                     {"refresh-batch-norm", "model"},
                     {"momentum", "optimizer"},
                     {"stages-per-rank", "pipeline-schedule"},
                     {"schedule-step-epochs", "learning-rate-schedule"},
                     {"schedule-factor", "learning-rate-schedule"},
                     {"base-batch-size", "scale-learning-rate"}},
      .needs = {{"strict", {"init-weights"}}, {"swa-learning-rate", {"swa-start"}}}};
  for (auto& need : run_needs()) table.needs.push_back(std::move(need));
  append(table.flags, data_flags());
  append(table.flags, model_flags());
  append(table.flags, training_flags());
  append(table.flags, run_flags());
  table.flags.push_back(
      {"Run", "find-learning-rate", "",
       "Instead of training, try 100 rising learning rates, one step each, and suggest one; --run-dir gets a "
       "plot, learning_rate.html",
       "", FlagRole::kAction});
  append(table.flags, strategy_flags(strategies));
  append(table.flags, common_flags());
  return table;
}

std::string train_help_text(const std::vector<std::string>& strategies, const std::string& program) {
  return help_text(train_flags(strategies), program);
}

}  // namespace lockstep::apps
