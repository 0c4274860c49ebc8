#include "lockstep/benchmarks/scaling/measured_scaling.h"

#include <algorithm>
#include <stdexcept>

namespace lockstep::benchmarks {

ExchangePolicy ExchangeKind::policy() const {
  ExchangePolicy policy;
  if (!uses_tcp) policy = {.transport = "shared memory", .costs = kSharedMemoryCosts};
  policy.all_reduce_algorithm = algorithm;
  return policy;
}

ComputeModel MeasuredScaling::compute_model() const {
  std::vector<ComputeModel::Measured> measured;
  for (const auto& row : compute) {
    if (row.num_processes == 1) measured.push_back({static_cast<double>(row.num_examples), row.sample.times});
  }
  return ComputeModel(measured);
}

ClusterModel MeasuredScaling::cluster_model() const {
  const auto over_tcp = [&](PlanAlgorithm algorithm, bool compressed) -> const LocalFit& {
    const auto row = std::find_if(exchanges.begin(), exchanges.end(), [&](const ExchangeRows& rows) {
      return rows.num_processes == 2 && rows.kind.uses_tcp && rows.kind.algorithm == algorithm &&
             rows.kind.compressed == compressed;
    });
    if (row == exchanges.end()) throw std::logic_error("exchanges over TCP were not measured");
    return row->fit;
  };
  const auto& doubling = over_tcp(PlanAlgorithm::kRecursiveDoubling, false);
  const auto& halving = over_tcp(PlanAlgorithm::kHalving, false);
  return {.plain = cost_of(doubling, halving, halving, 0),
          .compressed = cost_of(doubling, halving, over_tcp(PlanAlgorithm::kHalving, true),
                                conversion_seconds_per_byte),
          .num_tensors = num_tensors};
}

}  // namespace lockstep::benchmarks
