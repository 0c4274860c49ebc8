#include "lockstep/runtime/devices/internal/random_state.h"

#include <algorithm>

namespace lockstep {

RandomState::RandomState(const std::vector<torch::Device>& devices) {
  std::vector<torch::Device> all{torch::kCPU};
  for (const auto& device : devices) {
    if (std::find(all.begin(), all.end(), device) == all.end()) all.push_back(device);
  }
  for (const auto& device : all)
    states_.emplace_back(device, at::globalContext().defaultGenerator(device).get_state());
}

void RandomState::restore() const {
  for (const auto& [device, state] : states_) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    generator.set_state(state);
  }
}

}  // namespace lockstep
