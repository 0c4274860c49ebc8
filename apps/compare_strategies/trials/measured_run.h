#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/training/reporting/records/rank_memory.h"

namespace lockstep::apps {

/// Measurements of one training by one process. Times exclude the warm-up.
struct MeasuredRun {
  int64_t replicas = 1;     ///< over all processes
  std::string description;  ///< the strategy's own one-line description
  std::string data;         ///< what was trained on, and why
  int64_t parameters = 0;   ///< number of trained values
  int64_t examples = 0;     ///< examples trained on in `seconds`, over all replicas
  double seconds = 0;
  double data_wait_seconds = 0;  ///< part of `seconds` in which the loop waited for its next batch
  /// Part of `seconds` spent waiting for others; for parameter servers, all but computing.
  double communication_seconds = 0;
  int64_t peak_memory_bytes = 0;  ///< largest resident set of the process
  std::vector<double> losses;     ///< over the global batch, for every step including the warm-up
  /// Memory of each rank for its model; empty if it was not measured.
  std::vector<RankMemory> ranks = {};

  double examples_per_second() const { return static_cast<double>(examples) / seconds; }
};

/// Returns the measurements as JSON.
std::string measured_run_text(const MeasuredRun& run);

/// Parses such JSON. Throws std::runtime_error naming `source` if it is invalid.
MeasuredRun parse_measured_run(const std::string& text, const std::string& source);

/// Writes the measurements as JSON. Throws std::runtime_error naming the file on failure.
void write_measured_run(const std::string& path, const MeasuredRun& run);

/// Reads such a file. Throws std::runtime_error naming the file if it is missing or truncated.
MeasuredRun read_measured_run(const std::string& path);

/// Merges the measurements of several workers of one training: takes speed and losses from the first, sums
/// the memory, averages the waits, and puts the ranks together. Throws std::invalid_argument if there are
/// none.
MeasuredRun merge_workers(const std::vector<MeasuredRun>& workers);

/// Merges the measurements of a training whose chief, the first process, knows everything but the others'
/// memory: sums the memory. Throws std::invalid_argument if there are none.
MeasuredRun merge_into_chief(const std::vector<MeasuredRun>& processes);

}  // namespace lockstep::apps
