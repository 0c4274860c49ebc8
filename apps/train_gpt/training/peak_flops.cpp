#include "lockstep/apps/train_gpt/training/peak_flops.h"

#include <c10/util/StringUtil.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "lockstep/apps/shared/precision/precision_choice.h"
#include "lockstep/measurement/gpu_peak.h"
#include "lockstep/measurement/seconds_since.h"
#include "lockstep/runtime/devices/internal/gpu_name.h"

namespace lockstep::apps {
namespace {

/// Multiplies square matrices for a third of a second, as a linear layer does in forward and for the
/// gradients of its input and its weight: some kernels are several times as fast for one of these. Returns
/// the operations per second of the fastest product.
double measured_flops(const torch::Device& device, at::ScalarType dtype) {
  constexpr int64_t kSize = 1024;
  constexpr double kSeconds = 0.3;
  const torch::NoGradGuard no_grad;
  const auto options = torch::TensorOptions(dtype).device(device);
  const auto a = torch::ones({kSize, kSize}, options);
  auto product = torch::empty({kSize, kSize}, options);
  const auto begin = std::chrono::steady_clock::now();
  double fastest = 0;
  do {
    for (const auto& [left, right] : {std::pair{a, a.t()}, std::pair{a, a}, std::pair{a.t(), a}}) {
      const auto started = std::chrono::steady_clock::now();
      torch::mm_out(product, left, right);
      product[0][0].item<double>();  // waits for the device
      fastest = std::max(fastest, 2.0 * kSize * kSize * kSize / measurement::seconds_since(started));
    }
  } while (measurement::seconds_since(begin) < kSeconds);
  return fastest;
}

}  // namespace

PeakFlops peak_flops(Strategy& strategy, PrecisionKind precision) {
  const auto numbers = matrix_numbers(precision);
  const bool is_cast = autocast_dtype(precision) != at::kFloat;
  const auto dtype = is_cast ? autocast_dtype(precision) : parameter_dtype(precision);
  const auto& devices = strategy.devices();
  const auto stated = [&](const LogicalDevice& device) -> std::optional<double> {
    return device.is_cuda() ? measurement::gpu_peak_flops(gpu_name(device.index), numbers) : std::nullopt;
  };
  const auto speeds = strategy.run([&](ReplicaContext& replica) {
    const auto& device = devices[static_cast<size_t>(replica.local_replica_id())];
    // Several replicas on one GPU share its speed.
    const auto sharing = static_cast<double>(std::count(devices.begin(), devices.end(), device));
    if (const auto peak = stated(device)) return *peak / sharing;
    return measured_flops(replica.device(), dtype);
  });
  // The sum counts one rank of each replica.
  const double ranks_per_replica =
      static_cast<double>(strategy.num_ranks()) / static_cast<double>(strategy.num_replicas_in_sync());
  PeakFlops peak{.flops_per_second = strategy.reduce(ReduceOp::kSum, speeds) * ranks_per_replica};
  const LogicalDevice& first = devices.front();
  peak.source =
      stated(first) ? c10::str("stated for ", gpu_name(first.index)) : "of a matrix product just now";
  return peak;
}

}  // namespace lockstep::apps
