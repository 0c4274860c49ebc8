#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>
#include <optional>

#include "lockstep/runtime/devices/device.h"

namespace lockstep {

/// Makes a generator for replica `replica_id` on `device`. Its seed combines `seed` and `replica_id`, so
/// replicas draw different streams and equal seeds give equal runs.
at::Generator make_replica_generator(const LogicalDevice& device, uint64_t seed, int replica_id);

/// While this object lives, random operators that this thread calls without a generator (dropout, bernoulli_,
/// normal_, randn, ...) draw from `generator` instead of the process's default generator, which would
/// serialise the replicas' threads and mix their streams. Operators on other devices are not affected.
///
/// It works below user code: it enables, for this thread, a dispatch key that no backend uses; the random
/// operators' kernels under that key fill in the missing generator. Kernels cannot receive a context as an
/// argument, so this is the only place in the library that reads a thread_local.
class ReplicaRandomGuard {
 public:
  /// `of_rank`, if given, is the generator that a RankRandom of this thread draws from, for recomputations.
  explicit ReplicaRandomGuard(const at::Generator& generator, const at::Generator* of_rank = nullptr);
  ~ReplicaRandomGuard();
  ReplicaRandomGuard(const ReplicaRandomGuard&) = delete;
  ReplicaRandomGuard& operator=(const ReplicaRandomGuard&) = delete;

  /// Returns the generator of the innermost guard in this thread, or none.
  static std::optional<at::Generator> current();
  /// Returns the rank's generator that the innermost guard with one was given, or none.
  static std::optional<at::Generator> current_of_rank();

 private:
  const at::Generator* previous_;
  const at::Generator* previous_of_rank_;
  c10::impl::IncludeDispatchKeyGuard include_key_;
};

}  // namespace lockstep
