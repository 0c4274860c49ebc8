#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/apps/compare_strategies/report/result_folder.h"
#include "lockstep/tests/support/process_runner.h"

namespace lockstep::testing {

inline std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Runs comparisons on one thread, without GPUs, whose files go into `out_`.
class CompareStrategiesProgram : public ::testing::Test {
 protected:
  ProcessResult compare(std::vector<std::string> arguments, ProcessOptions options = {},
                        const std::string& program = COMPARE_STRATEGIES) {
    arguments.insert(arguments.begin(), {"--out", out_, "--threads", "1"});
    options.variables.try_emplace("LOCKSTEP_MNIST_DIR", "");
    options.variables.try_emplace("CUDA_VISIBLE_DEVICES", "-1");
    options.timeout_seconds = 300;
    return run_process(program, arguments, options);
  }

  /// A comparison on generated digits that takes seconds.
  ProcessResult compare_shortly(const std::string& strategies, const std::vector<std::string>& more = {},
                                const std::string& program = COMPARE_STRATEGIES) {
    std::vector<std::string> arguments{"--strategies", strategies, "--data", "generated", "--limit-train",
                                       "640",          "--steps",  "4",      "--rounds",  "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return compare(arguments, {}, program);
  }

  nlohmann::json results() { return nlohmann::json::parse(text_of(out_ + "/comparison.json")); }

  apps::WorkFolder folder_;
  std::string out_ = folder_.path() + "/out";
};

}  // namespace lockstep::testing
