#include "lockstep/benchmarks/sharding_memory/sharding_memory_options.h"

#include <cxxopts.hpp>
#include <stdexcept>
#include <string>

namespace lockstep::benchmarks {

ShardingMemoryOptions parse_sharding_memory_job(int argc, char** argv) {
  cxxopts::Options flags("sharding_memory_job",
                         "Trains an MLP and measures its memory, for sharding_memory_benchmark.py.");
  const auto number = [](const char* value) { return cxxopts::value<int64_t>()->default_value(value); };
  // clang-format off
  flags.add_options()
    ("stage", "of the sharding, 0 to 3", number("0"))
    ("replicas", "threads that train, without a cluster", number("1"))
    ("layers", "of the MLP", number("24"))
    ("width", "of each layer", number("2048"))
    ("steps", "of the training; the last one's peak is measured", number("3"));
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
  return {.stage = static_cast<int>(read("stage", 0, 3)),
          .replicas = static_cast<int>(read("replicas", 1, 64)),
          .layers = read("layers", 1, 10'000),
          .width = read("width", 1, 100'000),
          .steps = read("steps", 1, 1'000'000)};
}

}  // namespace lockstep::benchmarks
