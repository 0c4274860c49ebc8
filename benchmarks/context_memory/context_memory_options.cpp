#include "lockstep/benchmarks/context_memory/context_memory_options.h"

#include <cxxopts.hpp>
#include <stdexcept>
#include <string>

namespace lockstep::benchmarks {
namespace {

void check_count(const std::string& flag, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return;
  throw std::invalid_argument("--" + flag + ": expected 1 to " + std::to_string(most) + ", but got " +
                              std::to_string(value));
}

}  // namespace

ContextMemoryOptions parse_context_memory(int argc, char** argv) {
  constexpr int64_t kMostTokens = 1 << 20;
  constexpr int64_t kMostRanks = 64;
  constexpr int64_t kMostHeads = 1024;
  cxxopts::Options flags("context_memory_benchmark",
                         "Measures the memory of attention over sequences that are cut among ranks.");
  // clang-format off
  flags.add_options()
    ("tokens", "lengths of sequences",
     cxxopts::value<std::vector<int64_t>>()->default_value("1024,2048,4096,8192,16384"))
    ("ranks", "numbers of ranks", cxxopts::value<std::vector<int>>()->default_value("1,2,4"))
    ("heads", "of attention", cxxopts::value<int64_t>()->default_value("4"))
    ("head-width", "numbers of a head", cxxopts::value<int64_t>()->default_value("32"))
    ("method", "ring or all_to_all", cxxopts::value<std::string>()->default_value("ring"));
  // clang-format on
  const auto given = flags.parse(argc, argv);
  const auto method = given["method"].as<std::string>();
  if (method != "ring" && method != "all_to_all")
    throw std::invalid_argument("--method: expected ring or all_to_all, but got " + method);
  ContextMemoryOptions options{.tokens = given["tokens"].as<std::vector<int64_t>>(),
                               .ranks = given["ranks"].as<std::vector<int>>(),
                               .heads = given["heads"].as<int64_t>(),
                               .head_width = given["head-width"].as<int64_t>(),
                               .is_all_to_all = method == "all_to_all"};
  for (const int64_t tokens : options.tokens) check_count("tokens", tokens, kMostTokens);
  for (const int ranks : options.ranks) check_count("ranks", ranks, kMostRanks);
  check_count("heads", options.heads, kMostHeads);
  check_count("head-width", options.head_width, kMostHeads);
  return options;
}

}  // namespace lockstep::benchmarks
