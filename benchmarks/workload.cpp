#include "lockstep/benchmarks/workload.h"

#include <fmt/format.h>

namespace lockstep::benchmarks {

std::string Workload::gpu_list() const {
  return fmt::format("{}", fmt::join(gpus, ","));
}

}  // namespace lockstep::benchmarks
