#pragma once

#include <cstdint>
#include <string>

namespace lockstep::benchmarks {

/// One job of generation_benchmark.py.
struct GenerationJobOptions {
  std::string model;  ///< folder with config.json and model.safetensors
  std::string make;   ///< a preset: write such a model with new weights into the folder, and end
  int64_t batch_size = 1;
  int64_t prompt_tokens = 32;
};

/// Throws std::invalid_argument naming the flag.
GenerationJobOptions parse_generation_job(int argc, char** argv);

}  // namespace lockstep::benchmarks
