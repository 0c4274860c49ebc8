#include "lockstep/benchmarks/planning/planning_options.h"

#include <cxxopts.hpp>
#include <stdexcept>
#include <string>

namespace lockstep::benchmarks {

PlanningOptions parse_planning(int argc, char** argv) {
  cxxopts::Options flags("planning_benchmark",
                         "Compares the planned memory of random trainings with what they need.");
  const auto number = [](const char* value) { return cxxopts::value<int64_t>()->default_value(value); };
  // clang-format off
  flags.add_options()
    ("first", "number of the first training", number("1"))
    ("trainings", "how many trainings", number("60"))
    ("worker-of", "be a worker of this training, and print its bytes (the program calls itself so)",
      cxxopts::value<int64_t>());
  // clang-format on
  const auto given = flags.parse(argc, argv);
  const auto read = [&](const std::string& name, int64_t least, int64_t most) {
    const auto value = given[name].as<int64_t>();
    if (value < least || value > most) {
      throw std::invalid_argument("--" + name + ": expected " + std::to_string(least) + " to " +
                                  std::to_string(most) + ", but got " + std::to_string(value));
    }
    return value;
  };
  constexpr int64_t kMostNumber = 1'000'000'000;
  PlanningOptions options{.first = read("first", 0, kMostNumber),
                          .trainings = read("trainings", 1, 1'000'000)};
  if (given.count("worker-of") > 0) options.worker_of = read("worker-of", 0, kMostNumber);
  return options;
}

}  // namespace lockstep::benchmarks
