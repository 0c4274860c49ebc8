#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/compare_strategies/options/compared_work.h"

namespace lockstep::apps {

/// One strategy of the comparison.
struct ComparedStrategy {
  std::string name;  ///< as make_strategy knows it
  /// Asked for; of multi_worker and parameter_server worker processes. 0: the strategy's own choice.
  int replicas = 0;
  std::string label;  ///< as it was given, `mirrored:2`; a second one of the same label has `#2` after it
  std::optional<uint64_t> max_staleness = {};  ///< of parameter_server; none: any
  int servers = 0;                             ///< of parameter_server: their processes
  bool operator==(const ComparedStrategy&) const = default;
};

bool has_servers(const ComparedStrategy& strategy);
/// The processes that train; for a strategy of one process that one.
int num_workers(const ComparedStrategy& strategy);
/// All that it takes: of parameter servers a chief and the servers, too.
int num_processes(const ComparedStrategy& strategy);

/// What one process of a comparison measures, in place of comparing: the flags by which the program starts
/// itself.
struct MeasuringProcess {
  int strategy = -1;       ///< which of the strategies; -1: this process compares
  int process = 0;         ///< of that strategy's processes
  std::string result;      ///< file that the measurement goes to
  std::string parameters;  ///< file that process 0's final parameters go to
};

struct CompareOptions {
  std::vector<ComparedStrategy> strategies;
  ComparedWork work;  ///< what each of them trains
  int64_t steps = 50;
  int64_t warmup_steps = 5;  ///< the first of the steps, which are not timed
  int64_t rounds = 6;
  int servers = 1;                 ///< processes of them, for each parameter_server
  int64_t timeout_seconds = 3600;  ///< of one strategy in one round
  std::string out;                 ///< folder for the results; empty: a new one in ./comparisons
  std::string backup_dir;          ///< where measurements are kept to go on from; empty: nowhere
  std::string resume = "auto";     ///< auto, never, or the path of such a folder
  MeasuringProcess measuring;
  bool quiet = false;
};

enum class CompareAction { kCompare, kHelp, kVersion };

struct CompareCommandLine {
  CompareAction action = CompareAction::kCompare;
  CompareOptions options;
};

/// Reads the arguments after the program's name. `strategies` are the names that --strategies takes. Throws
/// UsageError as parse_command_line() of train_mnist does.
CompareCommandLine parse_compare_command_line(const std::vector<std::string>& arguments,
                                              const std::vector<std::string>& strategies);

/// What --help prints.
std::string compare_help_text(const std::vector<std::string>& strategies);

/// The flags that make the program, started with the arguments of this one, measure instead.
std::vector<std::string> measuring_flags(const MeasuringProcess& process);

}  // namespace lockstep::apps
