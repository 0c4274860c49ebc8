#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/benchmarks/loops/workload.h"

namespace lockstep::benchmarks {

struct BenchmarkOptions {
  std::set<std::string> parts;  ///< what is measured
  int num_pairs = 21;
  int steps = 8;
  int warm_up_steps = 5;
  int num_starts = 3;
  int num_replicas = 2;  ///< with several GPUs one on each
  Workload workload;
  std::string images;             ///< what the part images trains on
  std::string torch_python;       ///< the interpreter that has the peer; empty: its parts are left out
  std::string tensorflow_python;  ///< likewise
  std::string peers = "benchmarks/peers";
  std::vector<int> bucket_mebibytes = {1, 2, 4, 8, 25};
  /// Those that the part pipeline compares, each with workload.schedule in its place. The only one of a job.
  std::vector<std::string> schedules = {"1f1b", "zb-h1"};
  std::string json;   ///< a file for the results; empty: none
  std::string serve;  ///< the job to be, where this process is one: see own_job()
  int sharding = 0;   ///< of that job: a stage of ShardingOptions
  int tensor = 1;     ///< of that job: ranks that the GPT is cut among
  int pipeline = 1;   ///< of that job: ranks that the GPT's layers are divided among
};

/// Reads the command line. Nothing where --help was asked for and has been printed. Throws
/// std::invalid_argument naming the flag.
std::optional<BenchmarkOptions> parse_options(int argc, char** argv);

}  // namespace lockstep::benchmarks
