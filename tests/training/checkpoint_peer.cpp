// What the tests in Python have Lockstep do:
//
//   checkpoint_peer copy IN OUT                 reads a .safetensors file and writes its tensors and metadata
//   again checkpoint_peer logits WEIGHTS IMAGES OUT   what mobilenet_v2 with these weights makes of the
//   tensor "images"

#include <torch/types.h>
#include <torch/utils.h>

#include <iostream>
#include <string>
#include <vector>

#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/training/checkpoint_error.h"
#include "lockstep/training/safetensors.h"
#include "lockstep/training/state_file.h"
#include "lockstep/training/weights_file.h"

namespace lockstep {
namespace {

void copy(const std::string& in, const std::string& out) {
  if (in.ends_with(".pt")) return save_state_file(out, load_state_file(in));
  const auto loaded = load_safetensors(in);
  save_safetensors(out, loaded.tensors, loaded.metadata);
}

void copy_each(const std::vector<std::string>& files) {
  for (const auto& file : files) {
    try {
      copy(file, file + ".copy");
      std::cout << file << std::endl;
    } catch (const CheckpointError&) {
      // told by its absence
    }
  }
}

void logits(const std::string& weights, const std::string& images, const std::string& out) {
  MobileNetV2 model(MobileNetV2Options{.num_classes = 1000});
  init_weights(*model, weights);
  model->eval();
  const torch::NoGradGuard no_grad;
  save_safetensors(out, {{"logits", model->forward(load_safetensors(images).tensors.at(0).second)}});
}

int run(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "copy" && arguments.size() == 3) {
    copy(arguments[1], arguments[2]);
  } else if (command == "copy_each") {
    copy_each({arguments.begin() + 1, arguments.end()});
  } else if (command == "weights" && arguments.size() == 3) {
    save_weights(arguments[2], load_weights(arguments[1]));
  } else if (command == "logits" && arguments.size() == 4) {
    logits(arguments[1], arguments[2], arguments[3]);
  } else {
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  try {
    return lockstep::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
