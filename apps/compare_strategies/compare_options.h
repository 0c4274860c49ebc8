#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/apps/train_mnist/train_options.h"

namespace lockstep::apps {

/// One strategy of the comparison.
struct ComparedStrategy {
  std::string name;   ///< as make_strategy knows it
  int replicas = 0;   ///< asked for, of multi_worker worker processes; 0: the strategy's own choice
  std::string label;  ///< as it was given, `mirrored:2`; a second one of the same label has `#2` after it
  bool operator==(const ComparedStrategy&) const = default;
};

/// How many worker processes it takes.
int num_processes(const ComparedStrategy& strategy);

/// What one process of a comparison measures, in place of comparing: the flags by which the program starts
/// itself.
struct MeasuringProcess {
  int strategy = -1;       ///< which of the strategies; -1: this process compares
  int worker = 0;          ///< of that strategy's worker processes
  std::string result;      ///< file that the measurement goes to
  std::string parameters;  ///< file that worker 0's final parameters go to
};

struct CompareOptions {
  std::vector<ComparedStrategy> strategies;
  TrainOptions work;  ///< what each of them trains
  int64_t steps = 50;
  int64_t warmup_steps = 5;  ///< the first of the steps, which are not timed
  int64_t rounds = 6;
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
