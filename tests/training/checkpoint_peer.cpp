// What the tests in Python have Lockstep do:
//
//   checkpoint_peer copy IN OUT                 reads a .safetensors file and writes its tensors and metadata
//   again checkpoint_peer logits WEIGHTS IMAGES OUT   what mobilenet_v2 with these weights makes of the
//   tensor "images"

#include <torch/types.h>
#include <torch/utils.h>

#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/training/safetensors.h"
#include "lockstep/training/state_dict.h"

namespace lockstep {
namespace {

void copy(const std::string& in, const std::string& out) {
  const auto loaded = load_safetensors(in);
  save_safetensors(out, loaded.tensors, loaded.metadata);
}

void logits(const std::string& weights, const std::string& images, const std::string& out) {
  MobileNetV2 model(MobileNetV2Options{.num_classes = 1000});
  load_state_dict(*model, load_safetensors(weights).tensors, {.source = weights});
  model->eval();
  const torch::NoGradGuard no_grad;
  save_safetensors(out, {{"logits", model->forward(load_safetensors(images).tensors.at(0).second)}});
}

int run(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "copy" && arguments.size() == 3) {
    copy(arguments[1], arguments[2]);
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
