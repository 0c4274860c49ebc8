#include "lockstep/runtime/devices/internal/random_state.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>

namespace lockstep {

at::Generator new_generator(c10::Device device) {
  if (!device.is_cpu() && !device.is_cuda()) {
    // Clones of a plugin's generators are often a CPU's.
    try {
      return at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
    } catch (const c10::Error&) {
      // The backend makes none; its default generator may have a clone all the same.
    }
  }
  return at::globalContext().defaultGenerator(device).clone();
}

at::Tensor random_state_of(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(at::Generator generator, const at::Tensor& state) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

RandomState::RandomState(const std::vector<torch::Device>& devices) {
  std::vector<torch::Device> all{torch::kCPU};
  for (const auto& device : devices) {
    if (std::find(all.begin(), all.end(), device) == all.end()) all.push_back(device);
  }
  for (const auto& device : all)
    states_.emplace_back(device, random_state_of(at::globalContext().defaultGenerator(device)));
}

void RandomState::restore() const {
  for (const auto& [device, state] : states_)
    set_random_state(at::globalContext().defaultGenerator(device), state);
}

}  // namespace lockstep
