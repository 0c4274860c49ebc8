#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/compare_strategies/options/compared_work.h"

namespace lockstep::apps {

/// One strategy of the comparison.
struct ComparedStrategy {
  std::string name;  ///< name that make_strategy accepts
  /// Requested number of replicas; for multi_worker, tpu and parameter_server, of worker processes. 0: the
  /// strategy chooses.
  int replicas = 0;
  std::string label;  ///< the strategy as given, such as `mirrored:2`; a repeated label gets the suffix `#2`
  std::optional<uint64_t> max_staleness = {};  ///< for parameter_server; none: any staleness
  int servers = 0;                             ///< number of server processes, for parameter_server
  std::string mesh = {};                       ///< of `replicas` ranks, as --mesh takes it; empty: one axis
  int sharding = 0;                            ///< stage
  std::vector<std::string> devices = {};       ///< of the replicas; empty: chosen for `replicas`
  std::string replica_weights = {};            ///< as --replica-weights takes them
  bool operator==(const ComparedStrategy&) const = default;
};

bool has_servers(const ComparedStrategy& strategy);
/// Returns whether its replicas are in worker processes: of multi_worker, parameter_server, and tpu without
/// named devices.
bool has_workers(const ComparedStrategy& strategy);
/// Returns the number of processes that train: 1 for a single-process strategy.
int num_workers(const ComparedStrategy& strategy);
/// Returns the number of all processes: parameter_server also has a chief and its servers.
int num_processes(const ComparedStrategy& strategy);

/// Tells a process to measure one strategy instead of comparing. The program starts itself with these flags.
struct MeasuringProcess {
  int strategy = -1;       ///< index of the strategy; -1: this process compares
  int process = 0;         ///< index among the strategy's processes
  std::string result;      ///< file for the measurement
  std::string parameters;  ///< file for the final parameters of process 0
};

struct CompareOptions {
  std::vector<ComparedStrategy> strategies;
  ComparedWork work;  ///< training that each strategy runs
  int64_t steps = 50;
  int64_t warmup_steps = 5;  ///< leading steps that are not timed
  int64_t rounds = 6;
  int servers = 1;                 ///< server processes for each parameter_server
  int64_t timeout_seconds = 3600;  ///< time limit of one strategy in one round
  std::string out;                 ///< folder for the results; empty: a new one in ./comparisons
  std::string backup_dir;       ///< folder that keeps measurements for a later resume; empty: none are kept
  std::string resume = "auto";  ///< auto, never, or the path of another such folder
  MeasuringProcess measuring;
  bool quiet = false;
};

enum class CompareAction { kCompare, kHelp, kVersion };

struct CompareCommandLine {
  CompareAction action = CompareAction::kCompare;
  CompareOptions options;
};

/// Parses the arguments after the program's name. `strategies` are the names that --strategies accepts.
/// Throws UsageError as parse_command_line() of train_images does.
CompareCommandLine parse_compare_command_line(const std::vector<std::string>& arguments,
                                              const std::vector<std::string>& strategies);

/// Returns the text that --help prints; `program` is the program as it was called.
std::string compare_help_text(const std::vector<std::string>& strategies, const std::string& program = "");

/// Returns the flags that, appended to this program's arguments, make it measure instead of compare.
std::vector<std::string> measuring_flags(const MeasuringProcess& process);

}  // namespace lockstep::apps
