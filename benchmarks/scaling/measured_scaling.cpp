#include "lockstep/benchmarks/scaling/measured_scaling.h"

namespace lockstep::benchmarks {
namespace {

constexpr double kSentShare = 0.5;  // 16 bits instead of 32

}  // namespace

ComputeModel MeasuredScaling::compute_model() const {
  std::vector<ComputeModel::Measured> measured;
  for (const auto& row : compute) {
    if (row.num_processes == 1) measured.push_back({static_cast<double>(row.num_examples), row.sample.times});
  }
  return ComputeModel(measured);
}

ClusterModel MeasuredScaling::cluster_model() const {
  std::vector<LoopbackFit> plain;
  std::vector<LoopbackFit> compressed;
  for (const auto& rows : exchanges) {
    auto& fits = rows.compressed ? compressed : plain;
    if (rows.num_processes <= num_cores || fits.empty()) fits.push_back(rows.fit);
  }
  return {cost_of(plain, 0, 1), cost_of(compressed, conversion_seconds_per_byte, kSentShare), num_tensors};
}

}  // namespace lockstep::benchmarks
