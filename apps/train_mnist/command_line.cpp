#include "lockstep/apps/train_mnist/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cxxopts.hpp>
#include <utility>

#include "lockstep/apps/train_mnist/closest_name.h"
#include "lockstep/apps/train_mnist/flags.h"
#include "lockstep/apps/train_mnist/number_argument.h"
#include "lockstep/apps/train_mnist/usage_error.h"

namespace lockstep::apps {
namespace {

// The product of two counts is an int64_t.
constexpr IntegerRange kCounts{.least = 1, .most = 1'000'000'000};
constexpr IntegerRange kThreads{.least = 1, .most = 1024};
constexpr IntegerRange kTasks{.least = 0, .most = 1'000'000};
// Below, the last feature maps have one pixel, and BatchNorm cannot train on a shard of one image.
constexpr IntegerRange kMobileNetSizes{.least = 33, .most = 2048};
constexpr IntegerRange kSimpleCnnSizes{.least = 4, .most = 2048};

/// The value of a flag that takes one of a few names.
template <typename Value>
Value parse_choice(const std::string& flag, const std::string& text,
                   const std::vector<std::pair<std::string, Value>>& choices) {
  std::vector<std::string> names;
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
    names.push_back(name);
  }
  throw UsageError(fmt::format("{}: expected {}, but got '{}'{}", flag, fmt::join(names, ", "), text,
                               did_you_mean(text, names)));
}

std::string parse_name(const std::string& flag, const std::string& text,
                       const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::string>> choices;
  choices.reserve(names.size());
  for (const auto& name : names) choices.emplace_back(name, name);
  return parse_choice(flag, text, choices);
}

/// Splits at commas. An empty piece stays, so that whoever reads the devices refuses it.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> pieces(1);
  for (const char c : text) {
    if (c == ',') {
      pieces.emplace_back();
    } else {
      pieces.back() += c;
    }
  }
  return pieces;
}

/// The arguments that were given, by flag.
class Given {
 public:
  explicit Given(const cxxopts::ParseResult& result) : result_(result) {}

  bool has(const std::string& flag) const { return result_.count(flag) > 0; }
  /// Of a flag that takes no value; `--flag=false` is off.
  bool is_on(const std::string& flag) const { return has(flag) && result_[flag].as<bool>(); }
  std::string text(const std::string& flag) const { return result_[flag].as<std::string>(); }
  int64_t integer(const std::string& flag, const IntegerRange& range, int64_t otherwise) const {
    return has(flag) ? parse_integer("--" + flag, text(flag), range) : otherwise;
  }
  void forbid(const std::string& flag, const std::string& other) const {
    if (has(flag) && has(other)) {
      throw UsageError(
          fmt::format("--{} {}: expected one of --{} and --{}, but got both", flag, text(flag), flag, other));
    }
  }

 private:
  const cxxopts::ParseResult& result_;
};

void read_strategy(const Given& given, std::vector<std::string> strategies, TrainOptions& options) {
  strategies.insert(strategies.begin(), "auto");
  if (given.has("strategy")) options.strategy = parse_name("--strategy", given.text("strategy"), strategies);
  given.forbid("devices", "replicas");
  if (given.has("devices")) options.devices = split(given.text("devices"));
  options.replicas = static_cast<int>(given.integer("replicas", kThreads, options.replicas));
  given.forbid("replicas-per-device", "replicas");
  options.replicas_per_device =
      static_cast<int>(given.integer("replicas-per-device", kThreads, options.replicas_per_device));
  if (given.has("cross-device-ops")) {
    options.cross_device_ops = parse_name("--cross-device-ops", given.text("cross-device-ops"),
                                          {"auto", "nccl", "hierarchical_copy", "reduction_to_one_device"});
  }
  if (given.has("worker-hosts") != given.has("task-index")) {
    const std::string flag = given.has("worker-hosts") ? "worker-hosts" : "task-index";
    throw UsageError(
        fmt::format("--{} {}: expected --worker-hosts and --task-index together", flag, given.text(flag)));
  }
  if (given.has("worker-hosts")) options.worker_hosts = split(given.text("worker-hosts"));
  options.task_index = static_cast<int>(given.integer("task-index", kTasks, options.task_index));
  if (given.has("communication")) {
    options.communication =
        parse_name("--communication", given.text("communication"), {"auto", "ring", "nccl"});
  }
  if (given.has("gradient-compression")) {
    options.gradient_compression = parse_name("--gradient-compression", given.text("gradient-compression"),
                                              {"none", "float16", "bfloat16"});
  }
  options.threads = static_cast<int>(given.integer("threads", kThreads, options.threads));
}

void read_data(const Given& given, TrainOptions& options) {
  if (given.has("data")) options.data = given.text("data");
  if (options.data.empty()) throw UsageError("--data: expected auto, generated or a path, but got ''");
  options.limit_train = given.integer("limit-train", kCounts, options.limit_train);
  options.limit_test = given.integer("limit-test", kCounts, options.limit_test);
  options.skip_bad = given.is_on("skip-bad");
}

void read_model(const Given& given, TrainOptions& options) {
  if (given.has("model")) {
    options.model = parse_choice<ModelKind>(
        "--model", given.text("model"),
        {{"simple_cnn", ModelKind::kSimpleCnn}, {"mobilenet_v2", ModelKind::kMobileNetV2}});
  }
  const bool is_mobilenet = options.model == ModelKind::kMobileNetV2;
  if (given.has("head")) {
    if (!is_mobilenet) {
      throw UsageError(
          fmt::format("--head {}: expected it with --model mobilenet_v2 only, but got --model {}",
                      given.text("head"), model_name(options.model)));
    }
    options.head = parse_choice<HeadKind>(
        "--head", given.text("head"),
        {{"global_average", HeadKind::kGlobalAverage}, {"flattened_dense", HeadKind::kFlattenedDense}});
  }
  options.sync_batch_norm = given.is_on("sync-batch-norm");
  if (options.sync_batch_norm && !is_mobilenet) {
    throw UsageError(
        fmt::format("--sync-batch-norm: expected it with --model mobilenet_v2 only, but got --model {}",
                    model_name(options.model)));
  }
  options.image_size =
      given.integer("image-size", is_mobilenet ? kMobileNetSizes : kSimpleCnnSizes, is_mobilenet ? 64 : 28);
}

void read_training(const Given& given, TrainOptions& options) {
  given.forbid("global-batch-size", "per-replica-batch-size");
  options.global_batch_size = given.integer("global-batch-size", kCounts, options.global_batch_size);
  options.per_replica_batch_size =
      given.integer("per-replica-batch-size", kCounts, options.per_replica_batch_size);
  options.epochs = given.integer("epochs", kCounts, options.epochs);
  options.steps_per_epoch = given.integer("steps-per-epoch", kCounts, options.steps_per_epoch);
  if (given.has("precision")) {
    options.precision = parse_choice<PrecisionKind>("--precision", given.text("precision"),
                                                    {{"float32", PrecisionKind::kFloat32},
                                                     {"tf32", PrecisionKind::kTf32},
                                                     {"bfloat16", PrecisionKind::kBFloat16},
                                                     {"float16", PrecisionKind::kFloat16}});
  }
  options.cuda_graph = given.is_on("cuda-graph");
  if (given.has("optimizer")) {
    options.optimizer = parse_choice<OptimizerKind>(
        "--optimizer", given.text("optimizer"),
        {{"adam", OptimizerKind::kAdam}, {"adamw", OptimizerKind::kAdamW}, {"sgd", OptimizerKind::kSgd}});
  }
  if (given.has("momentum")) {
    if (options.optimizer != OptimizerKind::kSgd) {
      throw UsageError(fmt::format("--momentum {}: expected it with --optimizer sgd only, but got {}",
                                   given.text("momentum"), optimizer_name(options.optimizer)));
    }
    options.momentum = parse_fraction("--momentum", given.text("momentum"));
  }
  if (given.has("learning-rate"))
    options.learning_rate = parse_positive("--learning-rate", given.text("learning-rate"));
  if (given.has("learning-rate-schedule")) {
    options.schedule = parse_choice<ScheduleKind>(
        "--learning-rate-schedule", given.text("learning-rate-schedule"),
        {{"cosine", ScheduleKind::kCosine}, {"constant", ScheduleKind::kConstant}});
  }
  options.scale_learning_rate = given.is_on("scale-learning-rate");
  if (given.has("base-batch-size") && !options.scale_learning_rate) {
    throw UsageError(fmt::format("--base-batch-size {}: expected --scale-learning-rate beside it",
                                 given.text("base-batch-size")));
  }
  options.base_batch_size = given.integer("base-batch-size", kCounts, options.base_batch_size);
  if (given.has("seed")) options.seed = parse_seed("--seed", given.text("seed"));
}

/// Throws UsageError for what is no flag, and for a flag in the place of another's value.
void check_arguments(const std::vector<std::string>& arguments, const cxxopts::ParseResult& result) {
  for (size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i].starts_with("--") && takes_value(arguments[i - 1])) {
      throw UsageError(
          fmt::format("{}: expected a value, but got the flag {}", arguments[i - 1], arguments[i]));
    }
  }
  if (!result.unmatched().empty()) {
    const std::string& argument = result.unmatched().front();
    const std::string flag = argument.substr(0, argument.find('='));
    if (argument.empty() || argument[0] != '-')
      throw UsageError(fmt::format("'{}': expected a flag, such as --epochs 5", argument));
    throw UsageError(fmt::format("{}: expected a flag of this program{}; --help lists them", flag,
                                 did_you_mean(flag, flag_spellings())));
  }
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments,
                               const std::vector<std::string>& strategies) {
  if (!arguments.empty() && takes_value(arguments.back()))
    throw UsageError(arguments.back() + ": expected a value, but got none");
  std::vector<const char*> argv{"train_mnist"};
  for (const auto& argument : arguments) argv.push_back(argument.c_str());
  auto flags = make_flags(strategies);
  flags.allow_unrecognised_options();
  CommandLine line;
  try {
    const cxxopts::ParseResult result = flags.parse(static_cast<int>(argv.size()), argv.data());
    check_arguments(arguments, result);
    const Given given(result);
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
  } catch (const cxxopts::exceptions::exception& error) {
    throw UsageError(error.what());
  }
  return line;
}

}  // namespace lockstep::apps
