#pragma once

// Helpers for tests of GPU code, on real GPUs and on fake ones.

#include <gtest/gtest.h>

#include <ATen/Context.h>

#include <memory>
#include <string>

#include "lockstep/runtime/devices/device.h"
#include "lockstep/strategies/communication/cross_device_ops.h"

#ifdef LOCKSTEP_WITH_CUDA
#include <c10/cuda/CUDAFunctions.h>
#else
#include "lockstep/tests/gpu/fake_gpu.h"
#endif

namespace lockstep {

/// Leaves the test where the machine has fewer GPUs.
#define LOCKSTEP_NEEDS_GPUS(count)                                                          \
  if (num_gpus() < (count)) {                                                               \
    GTEST_SKIP() << "it takes " << (count) << " GPUs, but this machine has " << num_gpus(); \
  }

/// While it lives, cuDNN takes only algorithms that give the same bits each time.
class DeterministicConvolutions {
 public:
  DeterministicConvolutions() { at::globalContext().setDeterministicCuDNN(true); }
  ~DeterministicConvolutions() { at::globalContext().setDeterministicCuDNN(before_); }

 private:
  const bool before_ = at::globalContext().deterministicCuDNN();
};

#ifdef LOCKSTEP_WITH_CUDA

/// NCCL, or an imitation on fake GPUs.
inline std::shared_ptr<CrossDeviceOps> nccl_ops() {
  return make_cross_device_ops("nccl");
}

/// Real GPUs do not tell.
inline void forget_races() {}
inline void expect_no_races() {}

/// While it lives, whatever makes the host wait for a GPU throws.
class HostMustNotWait {
 public:
  HostMustNotWait() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR); }
  ~HostMustNotWait() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED); }
};

#else

inline std::shared_ptr<CrossDeviceOps> nccl_ops() {
  return std::make_shared<BackendAllReduce>("FakeNccl", fake_gpu::nccl_factory());
}

inline void forget_races() {
  fake_gpu::forget();
}

inline void expect_no_races() {
  for (const auto& race : fake_gpu::races()) ADD_FAILURE() << race;
}

/// Fails the test if the host has waited for a GPU while it lived.
class HostMustNotWait {
 public:
  HostMustNotWait() : before_(fake_gpu::host_waits().size()) {}
  ~HostMustNotWait() {
    const auto waits = fake_gpu::host_waits();
    for (size_t i = before_; i < waits.size(); ++i) ADD_FAILURE() << "the host waited for " << waits[i];
  }

 private:
  size_t before_;
};

#endif

/// By name, `nccl` as nccl_ops().
inline std::shared_ptr<CrossDeviceOps> ops_named(const std::string& name) {
  return name == "nccl" ? nccl_ops() : make_cross_device_ops(name);
}

}  // namespace lockstep
