// Commands that gpt_transformers_test.py runs. A model is a folder with config.json and model.safetensors.
//
//   gpt_peer logits MODEL IN OUT        writes the logits of the tensor "tokens"
//   gpt_peer generate MODEL COUNT       continues the prompts on standard input, one a line, by the most
//   likely tokens gpt_peer copy MODEL OUT             reads a model and writes it gpt_peer make CONFIG OUT
//   writes a model of a config.json with new weights

#include <torch/types.h>
#include <torch/utils.h>

#include <exception>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/models/gpt/gpt_configuration.h"
#include "lockstep/models/gpt/gpt_generation.h"
#include "lockstep/models/gpt/gpt_weights.h"
#include "lockstep/training/checkpoints/weights_file.h"
#include "lockstep/training/formats/safetensors.h"

namespace lockstep {
namespace {

Gpt load_model(const std::string& folder) {
  Gpt model(read_gpt_configuration(folder + "/config.json"));
  const std::string weights = folder + "/model.safetensors";
  load_gpt_weights(model, load_weights(weights), weights);
  model->eval();
  return model;
}

void save_model(const Gpt& model, const std::string& folder) {
  save_weights(folder + "/model.safetensors", gpt_weights_for_file(model));
  std::ofstream(folder + "/config.json") << gpt_configuration_text(model->options());
}

void write_logits(const std::string& folder, const std::string& in, const std::string& out) {
  auto model = load_model(folder);
  const torch::NoGradGuard no_grad;
  save_safetensors(out, {{"logits", model(load_safetensors(in).tensors.at(0).second)}});
}

void generate_lines(const std::string& folder, int64_t count) {
  std::vector<std::vector<int64_t>> prompts;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    auto& prompt = prompts.emplace_back();
    for (int64_t token = 0; words >> token;) prompt.push_back(token);
  }
  for (const auto& tokens :
       generate(load_model(folder), prompts, {.max_new_tokens = count, .temperature = 0})) {
    for (const int64_t token : tokens) std::cout << token << ' ';
    std::cout << '\n';
  }
}

void run(const std::vector<std::string>& words) {
  const std::string& command = words.at(0);
  if (command == "logits") return write_logits(words.at(1), words.at(2), words.at(3));
  if (command == "generate") return generate_lines(words.at(1), std::stoll(words.at(2)));
  if (command == "copy") return save_model(load_model(words.at(1)), words.at(2));
  if (command == "make") {
    return save_model(Gpt(read_gpt_configuration(words.at(1))), words.at(2));
  }
  throw std::invalid_argument("expected logits, generate, copy or make, but got " + command);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  try {
    lockstep::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
