// Lockstep's side of generation_benchmark.py: reads numbers of tokens from standard input, continues the same
// prompts by as many, and answers with the seconds that it took and a sum of the tokens.

#include <torch/types.h>
#include <torch/utils.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/benchmarks/generation/generation_options.h"
#include "lockstep/measurement/seconds_since.h"
#include "lockstep/models/gpt/gpt_configuration.h"
#include "lockstep/models/gpt/gpt_generation.h"
#include "lockstep/models/gpt/gpt_presets.h"
#include "lockstep/models/gpt/gpt_weights.h"
#include "lockstep/training/checkpoints/weights_file.h"

namespace lockstep::benchmarks {
namespace {

using Prompts = std::vector<std::vector<int64_t>>;

void make_model(const GenerationJobOptions& options) {
  torch::manual_seed(1);
  const Gpt model(gpt_preset(options.make));
  save_weights(options.model + "/model.safetensors", gpt_weights_for_file(model));
  std::ofstream(options.model + "/config.json") << gpt_configuration_text(model->options());
}

/// The same prompts as peers/transformers_generation.py makes.
Prompts make_prompts(const GenerationJobOptions& options, int64_t vocabulary_size) {
  Prompts prompts;
  for (int64_t row = 0; row < options.batch_size; ++row) {
    auto& prompt = prompts.emplace_back();
    prompt.reserve(static_cast<size_t>(options.prompt_tokens));
    for (int64_t i = 0; i < options.prompt_tokens; ++i)
      prompt.push_back((7919 * row + 104729 * i + 13) % vocabulary_size);
  }
  return prompts;
}

void serve(const GenerationJobOptions& options) {
  Gpt model(read_gpt_configuration(options.model + "/config.json"));
  load_gpt_weights(model, load_weights(options.model + "/model.safetensors"));
  const Prompts prompts = make_prompts(options, model->options().vocabulary_size);
  std::cout << "ready" << std::endl;
  for (std::string request; std::getline(std::cin, request);) {
    const int64_t count = std::stoll(request);
    const auto begin = std::chrono::steady_clock::now();
    const auto generated = generate(model, prompts, {.max_new_tokens = count, .temperature = 0});
    const double seconds = measurement::seconds_since(begin);
    int64_t sum = 0;
    for (const auto& tokens : generated) {
      if (static_cast<int64_t>(tokens.size()) != count)
        throw std::runtime_error("expected room for as many tokens as asked for");
      for (const int64_t token : tokens) sum += token;
    }
    std::cout << seconds << ' ' << sum << std::endl;
  }
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  try {
    const auto options = lockstep::benchmarks::parse_generation_job(argc, argv);
    options.make.empty() ? lockstep::benchmarks::serve(options) : lockstep::benchmarks::make_model(options);
  } catch (const std::exception& error) {
    std::cerr << "generation_job: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
