#include "lockstep/benchmarks/workload.h"

namespace lockstep::benchmarks {

std::string Workload::gpu_list() const {
  std::string list;
  for (const auto& gpu : gpus) list += (list.empty() ? "" : ",") + gpu;
  return list;
}

}  // namespace lockstep::benchmarks
