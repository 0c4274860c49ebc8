// Runs the commands of gpt_transformers_test.py, one a line of standard input, and answers each by a line:
// `done`, or the error. A model is a folder with config.json and model.safetensors.
//
//   logits MODEL IN OUT                  writes the logits of the tensor "tokens"
//   generate MODEL PROMPTS COUNT OUT     continues the prompts in a file, one a line, by the most likely
//   tokens copy MODEL OUT                       reads a model and writes it make CONFIG OUT writes a model of
//   a config.json with new weights

#include <torch/types.h>
#include <torch/utils.h>

#include <exception>
#include <fstream>
#include <iostream>
#include <sstream>
#include <stdexcept>
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

void generate_lines(const std::string& folder, const std::string& in, int64_t count, const std::string& out) {
  std::vector<std::vector<int64_t>> prompts;
  std::ifstream lines(in);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    auto& prompt = prompts.emplace_back();
    for (int64_t token = 0; words >> token;) prompt.push_back(token);
  }
  std::ofstream file(out);
  for (const auto& tokens :
       generate(load_model(folder), prompts, {.max_new_tokens = count, .temperature = 0})) {
    for (const int64_t token : tokens) file << token << ' ';
    file << '\n';
  }
}

void run(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  const std::string& command = words.at(0);
  if (command == "logits") return write_logits(words.at(1), words.at(2), words.at(3));
  if (command == "generate")
    return generate_lines(words.at(1), words.at(2), std::stoll(words.at(3)), words.at(4));
  if (command == "copy") return save_model(load_model(words.at(1)), words.at(2));
  if (command == "make") return save_model(Gpt(read_gpt_configuration(words.at(1))), words.at(2));
  throw std::invalid_argument("expected logits, generate, copy or make, but got " + command);
}

}  // namespace
}  // namespace lockstep

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      lockstep::run(line);
      std::cout << "done" << std::endl;
    } catch (const std::exception& error) {
      std::cout << error.what() << std::endl;
    }
  }
  return 0;
}
