#include "lockstep/benchmarks/generation/generation_options.h"

#include <cxxopts.hpp>
#include <stdexcept>

namespace lockstep::benchmarks {

GenerationJobOptions parse_generation_job(int argc, char** argv) {
  cxxopts::Options flags("generation_job", "Generates tokens, for generation_benchmark.py.");
  const auto number = [] { return cxxopts::value<int64_t>(); };
  // clang-format off
  flags.add_options()
    ("model", "a folder with config.json and model.safetensors", cxxopts::value<std::string>())
    ("make", "a preset: writes such a model with new weights", cxxopts::value<std::string>()->default_value(""))
    ("batch-size", "sequences", number()->default_value("1"))
    ("prompt-tokens", "tokens of each prompt", number()->default_value("32"));
  // clang-format on
  const auto given = flags.parse(argc, argv);
  GenerationJobOptions options;
  options.model = given["model"].as<std::string>();
  options.make = given["make"].as<std::string>();
  options.batch_size = given["batch-size"].as<int64_t>();
  options.prompt_tokens = given["prompt-tokens"].as<int64_t>();
  if (options.batch_size < 1 || options.prompt_tokens < 1)
    throw std::invalid_argument("--batch-size, --prompt-tokens: expected 1 or more");
  return options;
}

}  // namespace lockstep::benchmarks
