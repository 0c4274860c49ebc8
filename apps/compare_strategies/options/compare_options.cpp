#include "lockstep/apps/compare_strategies/options/compare_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "lockstep/apps/compare_strategies/options/work_flags.h"
#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/runtime/base/internal/closest_name.h"

namespace lockstep::apps {
namespace {

constexpr IntegerRange kSteps{.least = 1, .most = 1'000'000};
constexpr IntegerRange kWarmupSteps{.least = 0, .most = 1'000'000};
constexpr IntegerRange kRounds{.least = 1, .most = 1000};
constexpr IntegerRange kSeconds{.least = 1, .most = 1'000'000};
constexpr IntegerRange kReplicas{.least = 1, .most = 1024};
constexpr IntegerRange kServers{.least = 1, .most = 1024};
constexpr IntegerRange kStaleness{.least = 0, .most = 1'000'000'000};
constexpr IntegerRange kStages{.least = 1, .most = 3};
constexpr IntegerRange kIndices{.least = 0, .most = 4096};

constexpr const char* kExamples =
    "\nExamples:\n"
    "  compare_strategies --strategies default,mirrored:2,one_device --model simple_cnn --steps 50\n"
    "  compare_strategies --strategies mirrored:2,multi_worker:2 --data data/mnist --out two_replicas\n"
    "  compare_strategies --strategies default,mirrored:2 --optimizer sgd --precision float64\n"
    "                                                    # do both train the same parameters?\n"
    "  compare_strategies --strategies mirrored:2,parameter_server:2,parameter_server:2:0 \\\n"
    "    --model wide_deep                               # workers that step alone, or together\n"
    "  compare_strategies --strategies default,mirrored:2,multi_worker:2 --model small --steps 50\n"
    "                                                    # a language model\n"
    "  compare_strategies --strategies mirrored:2,mirrored:tensor=2,mirrored:context=2,mirrored:2/3 \\\n"
    "    --model small                                   # meshes, and a stage of sharding\n"
    "\ndocs/comparing.md explains the table and the files.\n"
    "\nExit codes: 0 done, 2 usage, 4 --backup-dir belongs to another comparison or process or cannot be\n"
    "written, 7 no memory, disk space, thread or device, 130 and 143 stopped by SIGINT or SIGTERM. If a\n"
    "strategy fails, the others are compared anyway, and the exit code is that of the first one that\n"
    "failed.\n";

FlagTable compare_flags(const std::vector<std::string>& strategies) {
  const CompareOptions defaults;
  const auto number = [](int64_t value) { return fmt::format("{}", value); };
  FlagTable table{
      .program = "compare_strategies",
      .summary =
          "Compares strategies: trains the same steps under each, and shows speed, results and memory.",
      .after = kExamples,
      .alternatives = {{"global-batch-size", "tokens-per-step"}},
      .needs = {{"resume", {"backup-dir"}}}};
  table.flags = {
      {"Comparison", "strategies", "LIST",
       fmt::format(
           "Strategies to compare, as NAME or NAME:N: {}. The others are compared with the first. N is the "
           "number of replicas; for multi_worker, tpu and parameter_server, of worker processes on this "
           "machine. NAME:MESH arranges as many in a mesh, whose axes are joined by +, such as "
           "mirrored:data=2+tensor=2. NAME:N/STAGE and NAME:MESH/STAGE shard as --sharding of the trainers. "
           "mirrored:DEVICES names devices, joined by +, and @WEIGHTS at the end cuts batches as "
           "--replica-weights, such as mirrored:cpu:0+gpu:0@measured or mirrored:2@1+3. "
           "parameter_server, for click models, also takes NAME:N:S: between reading the values "
           "of a step and making it, S steps of others may come; with 0, all workers step together",
           fmt::join(strategies, ", "))},
      {"Comparison", "steps", "N", "Steps that each strategy trains in each round", number(defaults.steps)},
      {"Comparison", "warmup-steps", "N",
       "Number of first steps that are not timed (default: 5, or one less than --steps)"},
      {"Comparison", "rounds", "N",
       "Number of rounds. Each starts every strategy again, in the opposite order of the round before. "
       "Advice and intervals need 6 or more",
       number(defaults.rounds)},
      {"Comparison", "ps", "N", "Number of server processes for parameter_server", number(defaults.servers)},
      {"Comparison", "out", "DIR",
       "New or empty folder for comparison.json and report.html (default: a new folder in "
       "./comparisons)"},
      {"Comparison", "backup-dir", "DIR",
       "Save each measurement in a folder. If the program ends early, the same command continues with "
       "the missing ones"},
      {"Comparison", "resume", "FROM",
       "auto takes the measurements in --backup-dir. never starts over. Or the path of another folder "
       "with measurements",
       defaults.resume},
      {"Comparison", "timeout", "N", "Seconds that a strategy may take in a round",
       number(defaults.timeout_seconds)},
      {"Comparison", "quiet", "", "Print no progress on standard error"}};
  for (auto& flag : work_flags(strategies)) table.flags.push_back(std::move(flag));
  for (auto& flag : common_flags()) table.flags.push_back(flag);
  // The program passes these to its own processes; a group without a name is not listed.
  for (const char* name : {"measure-strategy", "measure-process"}) table.flags.push_back({"", name, "N", ""});
  for (const char* name : {"measure-result", "measure-parameters"})
    table.flags.push_back({"", name, "PATH", ""});
  return table;
}

std::vector<std::string> pieces_of(const std::string& text, char separator) {
  std::vector<std::string> pieces(1);
  for (const char c : text) {
    if (c == separator) {
      pieces.emplace_back();
    } else {
      pieces.back() += c;
    }
  }
  return pieces;
}

/// Splits at +, since commas are between strategies. The parts may not be empty.
std::optional<std::vector<std::string>> parts_joined_by_plus(const std::string& text) {
  auto parts = pieces_of(text, '+');
  if (std::find(parts.begin(), parts.end(), "") != parts.end()) return std::nullopt;
  return parts;
}

/// Returns whether the strategy's replicas may be arranged in a mesh, and shard.
bool takes_meshes(const ComparedStrategy& strategy) {
  return strategy.name != "default" && strategy.name != "one_device" && !has_servers(strategy);
}

/// Returns whether the strategy's devices may be named, as all are in one process.
bool takes_devices(const ComparedStrategy& strategy) {
  return strategy.name == "mirrored" || strategy.name == "tpu";
}

/// Reads axes that are joined by +, since commas are between strategies. Their names and roles are checked
/// when the strategy is made.
void read_mesh(const std::string& spelling, const std::string& text, ComparedStrategy& strategy) {
  int64_t ranks = 1;
  std::string rest = text;
  while (true) {
    const auto plus = rest.find('+');
    const std::string axis = rest.substr(0, plus);
    const auto equals = axis.find('=');
    if (equals == std::string::npos) {
      throw UsageError(fmt::format(
          "{}: expected axes with their sizes, such as data=2+tensor=2, but got '{}'", spelling, text));
    }
    const std::string size = axis.substr(equals + 1, axis.find(':', equals) - equals - 1);
    ranks *= parse_integer(spelling, size, kReplicas);
    if (ranks > kReplicas.most) {
      throw UsageError(fmt::format("{}: expected a mesh of at most {} ranks, but got '{}'", spelling,
                                   kReplicas.most, text));
    }
    strategy.mesh += (strategy.mesh.empty() ? "" : ",") + axis;
    if (plus == std::string::npos) break;
    rest.erase(0, plus + 1);
  }
  strategy.replicas = static_cast<int>(ranks);
}

/// Reads and removes weights of the replicas at the end of the text. Their values are checked when the
/// strategy is made.
std::string without_weights(const std::string& text, ComparedStrategy& strategy) {
  const auto at = text.find('@');
  if (at == std::string::npos) return text;
  const auto weights = parts_joined_by_plus(text.substr(at + 1));
  if (!weights) {
    throw UsageError(
        fmt::format("--strategies {}: expected measured, or numbers joined by +, after @, but got '{}'", text,
                    text.substr(at + 1)));
  }
  strategy.replica_weights = fmt::format("{}", fmt::join(*weights, ","));
  return text.substr(0, at);
}

/// Reads and removes a stage of sharding at the end of the text.
std::string without_stage(const std::string& text, ComparedStrategy& strategy) {
  const auto slash = text.find('/');
  if (slash == std::string::npos) return text;
  strategy.sharding =
      static_cast<int>(parse_integer(fmt::format("--strategies {}", text), text.substr(slash + 1), kStages));
  return text.substr(0, slash);
}

ComparedStrategy parse_strategy(const std::string& text, const std::vector<std::string>& names) {
  ComparedStrategy strategy{.label = text};
  const std::string stageless = without_stage(without_weights(text, strategy), strategy);
  const auto pieces = pieces_of(stageless, ':');
  strategy.name = pieces[0];
  if (std::find(names.begin(), names.end(), strategy.name) == names.end()) {
    throw UsageError(fmt::format("--strategies: expected {}, each alone or with :N, but got '{}'{}",
                                 fmt::join(names, ", "), text, did_you_mean(strategy.name, names)));
  }
  const std::string spelling = fmt::format("--strategies {}", text);
  const auto colon = stageless.find(':');
  const bool has_mesh = stageless.find('=') != std::string::npos;
  if ((has_mesh || strategy.sharding > 0) && !takes_meshes(strategy)) {
    throw UsageError(
        fmt::format("{}: expected a mesh or a stage of sharding with mirrored or multi_worker, but "
                    "got {}",
                    spelling, strategy.name));
  }
  const bool has_devices = !has_mesh && colon != std::string::npos && colon + 1 < stageless.size() &&
                           std::isalpha(static_cast<unsigned char>(stageless[colon + 1])) != 0 &&
                           stageless.find_first_of(":+", colon + 1) != std::string::npos;
  if ((has_devices || !strategy.replica_weights.empty()) && !takes_devices(strategy)) {
    throw UsageError(
        fmt::format("{}: expected devices or weights of replicas with mirrored or tpu, but got {}", spelling,
                    strategy.name));
  }
  if (has_devices) {
    const auto devices = parts_joined_by_plus(stageless.substr(colon + 1));
    if (!devices) {
      throw UsageError(fmt::format("{}: expected devices joined by +, but got '{}'", spelling,
                                   stageless.substr(colon + 1)));
    }
    strategy.devices = *devices;
    strategy.replicas = static_cast<int>(devices->size());
    return strategy;
  }
  if (has_mesh) {
    read_mesh(spelling, stageless.substr(colon + 1), strategy);
    return strategy;
  }
  if (pieces.size() > (has_servers(strategy) ? 3 : 2)) {
    throw UsageError(fmt::format("{}: expected {}, but got '{}'", spelling,
                                 has_servers(strategy) ? "NAME, NAME:N or NAME:N:S" : "NAME or NAME:N",
                                 text));
  }
  if (pieces.size() > 1) strategy.replicas = static_cast<int>(parse_integer(spelling, pieces[1], kReplicas));
  if (pieces.size() > 2)
    strategy.max_staleness = static_cast<uint64_t>(parse_integer(spelling, pieces[2], kStaleness));
  return strategy;
}

std::vector<ComparedStrategy> parse_strategies(const std::vector<std::string>& texts,
                                               const std::vector<std::string>& names) {
  if (texts.empty())
    throw UsageError("--strategies: expected at least one, such as default,mirrored:2, but got none");
  std::vector<ComparedStrategy> strategies;
  for (const auto& text : texts) {
    auto strategy = parse_strategy(text, names);
    const auto same = std::count_if(strategies.begin(), strategies.end(), [&](const auto& other) {
      return other.name == strategy.name && other.replicas == strategy.replicas &&
             other.max_staleness == strategy.max_staleness && other.mesh == strategy.mesh &&
             other.sharding == strategy.sharding && other.devices == strategy.devices &&
             other.replica_weights == strategy.replica_weights;
    });
    if (same > 0) strategy.label += fmt::format("#{}", same + 1);
    strategies.push_back(std::move(strategy));
  }
  return strategies;
}

MeasuringProcess read_measuring(const Arguments& given) {
  return {.strategy = static_cast<int>(given.integer("measure-strategy", kIndices, -1)),
          .process = static_cast<int>(given.integer("measure-process", kIndices, 0)),
          .result = given.text("measure-result", ""),
          .parameters = given.text("measure-parameters", "")};
}

void read_steps(const Arguments& given, CompareOptions& options) {
  options.steps = given.integer("steps", kSteps, options.steps);
  options.warmup_steps =
      given.integer("warmup-steps", kWarmupSteps, std::min(options.warmup_steps, options.steps - 1));
  if (options.warmup_steps >= options.steps)
    given.refuse_together("warmup-steps",
                          fmt::format("expected fewer than the {} of --steps", options.steps));
  options.rounds = given.integer("rounds", kRounds, options.rounds);
  options.timeout_seconds = given.integer("timeout", kSeconds, options.timeout_seconds);
}

void read_servers(const Arguments& given, const ComparedWork& work, CompareOptions& options) {
  options.servers = static_cast<int>(given.integer("ps", kServers, options.servers));
  bool are_there = false;
  for (auto& strategy : options.strategies) {
    if (!has_servers(strategy)) continue;
    if (!is_of_clicks(work))
      throw UsageError(fmt::format("--strategies {}: expected it with --model {} only, but got {}",
                                   strategy.label, models_of_clicks_text(), model_of(work)));
    strategy.servers = options.servers;
    are_there = true;
  }
  if (given.has("ps") && !are_there)
    given.refuse_together("ps", "expected parameter_server among --strategies");
}

}  // namespace

bool has_servers(const ComparedStrategy& strategy) {
  return strategy.name == "parameter_server";
}

bool has_workers(const ComparedStrategy& strategy) {
  return strategy.name == "multi_worker" || (strategy.name == "tpu" && strategy.devices.empty()) ||
         has_servers(strategy);
}

int num_workers(const ComparedStrategy& strategy) {
  return has_workers(strategy) ? std::max(1, strategy.replicas) : 1;
}

int num_processes(const ComparedStrategy& strategy) {
  return num_workers(strategy) + (has_servers(strategy) ? 1 + strategy.servers : 0);
}

CompareCommandLine parse_compare_command_line(const std::vector<std::string>& arguments,
                                              const std::vector<std::string>& strategies) {
  const FlagTable table = compare_flags(strategies);
  const Arguments given = parse_arguments(table, arguments);
  CompareCommandLine line;
  if (given.is_on("help")) {
    line.action = CompareAction::kHelp;
    return line;
  }
  if (given.is_on("version")) {
    line.action = CompareAction::kVersion;
    return line;
  }
  given.check_alternatives(table);
  given.check_needs(table);
  CompareOptions& options = line.options;
  options.strategies = parse_strategies(given.list("strategies"), strategies);
  read_steps(given, options);
  options.out = given.text("out", "");
  if (given.has("out") && options.out.empty()) given.refuse("out", "a folder");
  options.backup_dir = given.text("backup-dir", "");
  if (given.has("backup-dir") && options.backup_dir.empty()) given.refuse("backup-dir", "a folder");
  options.resume = given.text("resume", options.resume);
  if (options.resume.empty()) given.refuse("resume", "auto, never or a path");
  options.quiet = given.is_on("quiet");
  options.work = read_work(given, strategies);
  read_servers(given, options.work, options);
  options.measuring = read_measuring(given);
  return line;
}

std::string compare_help_text(const std::vector<std::string>& strategies, const std::string& program) {
  return help_text(compare_flags(strategies), program);
}

std::vector<std::string> measuring_flags(const MeasuringProcess& process) {
  std::vector<std::string> flags{"--measure-strategy", fmt::format("{}", process.strategy),
                                 "--measure-process",  fmt::format("{}", process.process),
                                 "--measure-result",   process.result};
  if (!process.parameters.empty()) flags.insert(flags.end(), {"--measure-parameters", process.parameters});
  return flags;
}

}  // namespace lockstep::apps
