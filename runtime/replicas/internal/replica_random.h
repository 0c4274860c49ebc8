#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

#include "lockstep/runtime/devices/device.h"

namespace lockstep {

/// A generator of its own for replica `replica_id` on `device`. Its seed mixes both numbers, so that the
/// replicas' streams differ and equal seeds give equal runs.
at::Generator make_replica_generator(const LogicalDevice& device, uint64_t seed, int replica_id);

/// While it lives, random operators that this thread calls without a generator (dropout, bernoulli_, normal_,
/// randn, ...) draw from `generator` in place of the process's one, which would serialise the replicas'
/// threads and mix their streams. Operators on another device than the generator's are left alone.
///
/// It works below user code: a dispatch key that no backend uses is switched on for this thread, and the
/// random operators' kernels under that key fill in the missing generator. A kernel has no argument to carry
/// a context in, so this is the one place of the library that looks at a thread_local.
class ReplicaRandomGuard {
 public:
  explicit ReplicaRandomGuard(const at::Generator& generator);
  ~ReplicaRandomGuard();
  ReplicaRandomGuard(const ReplicaRandomGuard&) = delete;
  ReplicaRandomGuard& operator=(const ReplicaRandomGuard&) = delete;

 private:
  const at::Generator* previous_;
  c10::impl::IncludeDispatchKeyGuard include_key_;
};

}  // namespace lockstep
