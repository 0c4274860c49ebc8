#pragma once

#include <cmath>
#include <regex>
#include <string>
#include <vector>

#include "lockstep/tests/support/process_runner.h"

namespace lockstep::testing {

/// Runs the built train_images. LOCKSTEP_MNIST_DIR is unset unless `options` sets it.
inline ProcessResult train_images(const std::vector<std::string>& arguments, ProcessOptions options = {}) {
  options.variables.try_emplace("LOCKSTEP_MNIST_DIR", "");
  return run_process(TRAIN_IMAGES, arguments, options);
}

/// The numbers of one epoch's line.
struct EpochNumbers {
  double loss = NAN;
  double accuracy = NAN;
  double test_accuracy = NAN;
};

/// Every line of the output that is exactly an epoch's, in order.
inline std::vector<EpochNumbers> epochs_of(const ProcessResult& result) {
  static const std::regex line(
      R"((?:^|\n)epoch (\d+)/\d+  loss (\d+\.\d{4})  accuracy ([01]\.\d{4})  test accuracy ([01]\.\d{4})  \d+ images/s(?=\n))");
  std::vector<EpochNumbers> epochs;
  for (std::sregex_iterator at(result.out.begin(), result.out.end(), line), end; at != end; ++at) {
    if (std::stoul((*at)[1]) != epochs.size() + 1) return {};
    epochs.push_back({std::stod((*at)[2]), std::stod((*at)[3]), std::stod((*at)[4])});
  }
  return epochs;
}

/// One training on generated digits with SimpleCnn that takes about a second, with one thread: tests run
/// at the same time.
inline std::vector<std::string> short_training(const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{"--data",    "generated", "--limit-train", "320", "--limit-test", "50",
                                     "--threads", "1",         "--epochs",      "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

}  // namespace lockstep::testing
