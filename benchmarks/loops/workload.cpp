#include "lockstep/benchmarks/loops/workload.h"

#include <fmt/format.h>

namespace lockstep::benchmarks {

std::string Workload::gpu_list() const {
  return fmt::format("{}", fmt::join(gpus, ","));
}

const char* Workload::model_name() const {
  return model == BenchmarkModel::kGpt ? "gpt" : "mobilenet_v2";
}

}  // namespace lockstep::benchmarks
