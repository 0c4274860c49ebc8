#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::apps {

/// What one process measured of one training; without the warm-up where it is about time.
struct MeasuredRun {
  int64_t replicas = 1;     ///< over all processes
  std::string description;  ///< the strategy's own, in a line
  std::string data;         ///< what was trained on, and why
  int64_t parameters = 0;   ///< trained values
  int64_t examples = 0;     ///< trained on in that time, over all replicas
  double seconds = 0;
  double data_wait_seconds = 0;      ///< of it, in which the loop waited for its next batch
  double communication_seconds = 0;  ///< of it, waited for the others; of parameter servers all but computing
  int64_t peak_memory_bytes = 0;     ///< largest resident set of the process
  std::vector<double> losses;        ///< of the global batch of every step, warm-up included

  double examples_per_second() const { return static_cast<double>(examples) / seconds; }
};

/// As JSON.
std::string measured_run_text(const MeasuredRun& run);

/// Reads such a text. Throws std::runtime_error naming `source`, where it comes from.
MeasuredRun parse_measured_run(const std::string& text, const std::string& source);

/// Writes it as JSON. Throws std::runtime_error naming the file where that fails.
void write_measured_run(const std::string& path, const MeasuredRun& run);

/// Reads it back. Throws std::runtime_error naming the file, for one that is missing or cut off, too.
MeasuredRun read_measured_run(const std::string& path);

/// One training of several worker processes: time and loss of the first, memory of all together, waits their
/// mean. Throws std::invalid_argument for none.
MeasuredRun merge_workers(const std::vector<MeasuredRun>& workers);

/// One training whose first process, the chief, knows all about it but the others' memory. Throws likewise.
MeasuredRun merge_into_chief(const std::vector<MeasuredRun>& processes);

}  // namespace lockstep::apps
