#pragma once

#include <string>

#include "lockstep/tests/gpu/gpu_test_support.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {

/// Gives each worker of run_strategies() a GPU of its own, and NCCL between them.
inline void set_up_over_nccl(int rank, WorkerSetUp& worker) {
  worker.devices = {"gpu:" + std::to_string(rank)};
  worker.options.cross_device_ops = nccl_ops();
}

}  // namespace lockstep
