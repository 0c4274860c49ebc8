#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <vector>

#include "lockstep/runtime/replicas/internal/replica_random.h"

namespace lockstep {

/// The settings of a thread on which the results of a function depend besides its inputs: autocast, and the
/// states of random generators.
class ForwardConditions {
 public:
  /// Notes the calling thread's. Random states are those of the replica's generator inside a run, otherwise
  /// of the default generators of the CPU and of the devices of `inputs`.
  ForwardConditions(const std::vector<at::Tensor>& inputs, bool with_random_states);

  /// Drops the states of generators that have not changed since.
  void forget_unused_generators();

 private:
  friend class ForwardConditionsGuard;

  struct Autocast {
    c10::DeviceType device;
    bool is_enabled;
    c10::ScalarType dtype;
  };
  struct RandomState {
    at::Generator generator;
    at::Tensor state;
  };

  void apply_autocast() const;
  void note_generator(const at::Generator& generator);

  std::vector<Autocast> autocasts_;
  std::optional<at::Generator> replica_generator_;
  std::vector<RandomState> random_states_;
};

/// Puts the calling thread under noted conditions while it lives; then puts its own back, the states of
/// random generators included.
///
/// LibTorch's copies of weights cast by autocast are not used meanwhile: a graph would then depend on what
/// was computed before it.
class ForwardConditionsGuard {
 public:
  explicit ForwardConditionsGuard(const ForwardConditions& conditions);
  ~ForwardConditionsGuard();
  ForwardConditionsGuard(const ForwardConditionsGuard&) = delete;
  ForwardConditionsGuard& operator=(const ForwardConditionsGuard&) = delete;

 private:
  ForwardConditions previous_;
  bool was_cache_enabled_;
  std::optional<at::Generator> generator_;
  std::optional<ReplicaRandomGuard> in_replica_;
};

/// Turns off LibTorch's copies of weights cast by autocast while it lives.
class NoAutocastCacheGuard {
 public:
  NoAutocastCacheGuard();
  ~NoAutocastCacheGuard();
  NoAutocastCacheGuard(const NoAutocastCacheGuard&) = delete;
  NoAutocastCacheGuard& operator=(const NoAutocastCacheGuard&) = delete;

 private:
  bool was_enabled_;
};

}  // namespace lockstep
