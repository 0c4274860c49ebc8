#include "lockstep/apps/train_mnist/command_line.h"

#include <fmt/format.h>

#include "lockstep/apps/command_line/arguments.h"
#include "lockstep/apps/command_line/usage_error.h"
#include "lockstep/apps/train_mnist/flags.h"

namespace lockstep::apps {
namespace {

// The product of two counts is an int64_t.
constexpr IntegerRange kCounts{.least = 1, .most = 1'000'000'000};
constexpr IntegerRange kThreads{.least = 1, .most = 1024};
constexpr IntegerRange kTasks{.least = 0, .most = 1'000'000};
// Below, the last feature maps have one pixel, and BatchNorm cannot train on a shard of one image.
constexpr IntegerRange kMobileNetSizes{.least = 33, .most = 2048};
constexpr IntegerRange kSimpleCnnSizes{.least = 4, .most = 2048};

void read_strategy(const Arguments& given, std::vector<std::string> strategies, TrainOptions& options) {
  strategies.insert(strategies.begin(), "auto");
  options.strategy = given.name("strategy", strategies, options.strategy);
  given.forbid("devices", "replicas");
  options.devices = given.list("devices");
  options.replicas = static_cast<int>(given.integer("replicas", kThreads, options.replicas));
  given.forbid("replicas-per-device", "replicas");
  options.replicas_per_device =
      static_cast<int>(given.integer("replicas-per-device", kThreads, options.replicas_per_device));
  options.cross_device_ops =
      given.name("cross-device-ops", {"auto", "nccl", "hierarchical_copy", "reduction_to_one_device"},
                 options.cross_device_ops);
  if (given.has("worker-hosts") != given.has("task-index")) {
    const std::string flag = given.has("worker-hosts") ? "worker-hosts" : "task-index";
    throw UsageError(
        fmt::format("--{} {}: expected --worker-hosts and --task-index together", flag, given.text(flag)));
  }
  options.worker_hosts = given.list("worker-hosts");
  options.task_index = static_cast<int>(given.integer("task-index", kTasks, options.task_index));
  options.communication = given.name("communication", {"auto", "ring", "nccl"}, options.communication);
  options.gradient_compression =
      given.name("gradient-compression", {"none", "float16", "bfloat16"}, options.gradient_compression);
  options.threads = static_cast<int>(given.integer("threads", kThreads, options.threads));
}

void read_data(const Arguments& given, TrainOptions& options) {
  options.data = given.text("data", options.data);
  if (options.data.empty()) given.refuse("data", "auto, generated or a path");
  options.limit_train = given.integer("limit-train", kCounts, options.limit_train);
  options.limit_test = given.integer("limit-test", kCounts, options.limit_test);
  options.skip_bad = given.is_on("skip-bad");
}

void read_model(const Arguments& given, TrainOptions& options) {
  options.model = given.choice<ModelKind>(
      "model", {{"simple_cnn", ModelKind::kSimpleCnn}, {"mobilenet_v2", ModelKind::kMobileNetV2}},
      options.model);
  const bool is_mobilenet = options.model == ModelKind::kMobileNetV2;
  if (given.has("head") && !is_mobilenet) {
    throw UsageError(fmt::format("--head {}: expected it with --model mobilenet_v2 only, but got --model {}",
                                 given.text("head"), model_name(options.model)));
  }
  options.head = given.choice<HeadKind>(
      "head", {{"global_average", HeadKind::kGlobalAverage}, {"flattened_dense", HeadKind::kFlattenedDense}},
      options.head);
  options.sync_batch_norm = given.is_on("sync-batch-norm");
  if (options.sync_batch_norm && !is_mobilenet) {
    throw UsageError(
        fmt::format("--sync-batch-norm: expected it with --model mobilenet_v2 only, but got --model {}",
                    model_name(options.model)));
  }
  options.image_size =
      given.integer("image-size", is_mobilenet ? kMobileNetSizes : kSimpleCnnSizes, is_mobilenet ? 64 : 28);
}

void read_optimizer(const Arguments& given, TrainOptions& options) {
  options.optimizer = given.choice<OptimizerKind>(
      "optimizer",
      {{"adam", OptimizerKind::kAdam}, {"adamw", OptimizerKind::kAdamW}, {"sgd", OptimizerKind::kSgd}},
      options.optimizer);
  if (given.has("momentum") && options.optimizer != OptimizerKind::kSgd) {
    throw UsageError(fmt::format("--momentum {}: expected it with --optimizer sgd only, but got {}",
                                 given.text("momentum"), optimizer_name(options.optimizer)));
  }
  options.momentum = given.fraction("momentum", options.momentum);
  options.learning_rate = given.positive("learning-rate", options.learning_rate);
  options.schedule = given.choice<ScheduleKind>(
      "learning-rate-schedule", {{"cosine", ScheduleKind::kCosine}, {"constant", ScheduleKind::kConstant}},
      options.schedule);
  options.scale_learning_rate = given.is_on("scale-learning-rate");
  if (given.has("base-batch-size") && !options.scale_learning_rate) {
    throw UsageError(fmt::format("--base-batch-size {}: expected --scale-learning-rate beside it",
                                 given.text("base-batch-size")));
  }
  options.base_batch_size = given.integer("base-batch-size", kCounts, options.base_batch_size);
}

void read_training(const Arguments& given, TrainOptions& options) {
  given.forbid("global-batch-size", "per-replica-batch-size");
  options.global_batch_size = given.integer("global-batch-size", kCounts, options.global_batch_size);
  options.per_replica_batch_size =
      given.integer("per-replica-batch-size", kCounts, options.per_replica_batch_size);
  options.epochs = given.integer("epochs", kCounts, options.epochs);
  options.steps_per_epoch = given.integer("steps-per-epoch", kCounts, options.steps_per_epoch);
  options.precision = given.choice<PrecisionKind>("precision",
                                                  {{"float32", PrecisionKind::kFloat32},
                                                   {"tf32", PrecisionKind::kTf32},
                                                   {"bfloat16", PrecisionKind::kBFloat16},
                                                   {"float16", PrecisionKind::kFloat16}},
                                                  options.precision);
  options.cuda_graph = given.is_on("cuda-graph");
  read_optimizer(given, options);
  options.seed = given.seed("seed", options.seed);
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments,
                               const std::vector<std::string>& strategies) {
  const Arguments given = parse_arguments(train_flags(strategies), arguments);
  CommandLine line;
  if (given.is_on("help")) {
    line.action = Action::kHelp;
  } else if (given.is_on("version")) {
    line.action = Action::kVersion;
  } else if (given.is_on("list-devices")) {
    line.action = Action::kListDevices;
  } else {
    read_strategy(given, strategies, line.options);
    read_data(given, line.options);
    read_model(given, line.options);
    read_training(given, line.options);
  }
  return line;
}

}  // namespace lockstep::apps
