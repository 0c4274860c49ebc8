#include "lockstep/strategies/nn/internal/forward_conditions.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <algorithm>

#include "lockstep/runtime/devices/internal/random_state.h"

namespace lockstep {

ForwardConditions::ForwardConditions(const std::vector<at::Tensor>& inputs, bool with_random_states)
    : replica_generator_(ReplicaRandomGuard::current()) {
  for (const auto device : at::autocast::_AUTOCAST_SUPPORTED_DEVICES) {
    autocasts_.push_back(
        {device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)});
  }
  if (!with_random_states) return;
  if (replica_generator_) {
    note_generator(*replica_generator_);
    if (const auto of_rank = ReplicaRandomGuard::current_of_rank()) note_generator(*of_rank);
    return;
  }
  note_generator(at::globalContext().defaultGenerator(c10::Device(c10::DeviceType::CPU)));
  for (const auto& input : inputs) {
    if (!input.defined() || input.is_cpu() || input.is_meta()) continue;
    note_generator(at::globalContext().defaultGenerator(input.device()));
  }
}

void ForwardConditions::note_generator(const at::Generator& generator) {
  const bool is_noted = std::any_of(random_states_.begin(), random_states_.end(),
                                    [&](const auto& noted) { return noted.generator == generator; });
  if (!is_noted) random_states_.push_back({generator, random_state_of(generator)});
}

void ForwardConditions::forget_unused_generators() {
  const auto is_unused = [](const RandomState& noted) {
    return random_state_of(noted.generator).equal(noted.state);
  };
  random_states_.erase(std::remove_if(random_states_.begin(), random_states_.end(), is_unused),
                       random_states_.end());
}

void ForwardConditions::apply_autocast() const {
  for (const auto& autocast : autocasts_) {
    at::autocast::set_autocast_enabled(autocast.device, autocast.is_enabled);
    at::autocast::set_autocast_dtype(autocast.device, autocast.dtype);
  }
}

ForwardConditionsGuard::ForwardConditionsGuard(const ForwardConditions& conditions)
    : previous_({}, /*with_random_states=*/false),
      was_cache_enabled_(at::autocast::is_autocast_cache_enabled()),
      generator_(conditions.replica_generator_) {
  for (const auto& noted : conditions.random_states_) previous_.note_generator(noted.generator);
  for (const auto& noted : conditions.random_states_) set_random_state(noted.generator, noted.state);
  conditions.apply_autocast();
  at::autocast::set_autocast_cache_enabled(false);
  // The engine may run backward in a thread of its own, which has no replica.
  if (generator_) in_replica_.emplace(*generator_);
}

ForwardConditionsGuard::~ForwardConditionsGuard() {
  in_replica_.reset();
  at::autocast::set_autocast_cache_enabled(was_cache_enabled_);
  previous_.apply_autocast();
  for (const auto& noted : previous_.random_states_) set_random_state(noted.generator, noted.state);
}

NoAutocastCacheGuard::NoAutocastCacheGuard() : was_enabled_(at::autocast::is_autocast_cache_enabled()) {
  at::autocast::set_autocast_cache_enabled(false);
}

NoAutocastCacheGuard::~NoAutocastCacheGuard() {
  at::autocast::set_autocast_cache_enabled(was_enabled_);
}

}  // namespace lockstep
