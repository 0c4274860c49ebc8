#include "lockstep/runtime/devices/internal/spare_cores.h"

#include <thread>

#include "lockstep/runtime/devices/internal/threads_per_replica.h"

namespace lockstep {
namespace {

thread_local double own_cores = 0;

}  // namespace

double cores_per_replica(int num_replicas) {
  if (is_openmp_limited()) return 0;
  return static_cast<double>(std::thread::hardware_concurrency()) / num_replicas;
}

double cores_of_this_replica() {
  return own_cores;
}

void set_cores_of_this_replica(double cores) {
  own_cores = cores;
}

}  // namespace lockstep
