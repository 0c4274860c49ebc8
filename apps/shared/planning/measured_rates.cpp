#include "lockstep/apps/shared/planning/measured_rates.h"

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/measurement/seconds_since.h"

namespace lockstep::apps {
namespace {

/// Calls `work` again and again for a third of a second, on each of `devices` threads at the same time.
/// Returns the seconds of a call, the median of each thread's, averaged.
template <typename Make>
double seconds_of_call(int64_t devices, const Make& make) {
  constexpr double kSeconds = 0.3;
  std::vector<double> medians(static_cast<size_t>(devices));
  std::vector<std::thread> threads;
  const int of_device =
      std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / static_cast<int>(devices));
  for (auto& median : medians) {
    threads.emplace_back([&] {
      at::set_num_threads(of_device);
      const torch::NoGradGuard no_grad;
      auto work = make();
      work();
      std::vector<double> calls;
      const auto begin = std::chrono::steady_clock::now();
      do {
        const auto started = std::chrono::steady_clock::now();
        work();
        calls.push_back(measurement::seconds_since(started));
      } while (measurement::seconds_since(begin) < kSeconds);
      std::nth_element(calls.begin(), calls.begin() + static_cast<int64_t>(calls.size()) / 2, calls.end());
      median = calls[calls.size() / 2];
    });
  }
  for (auto& thread : threads) thread.join();
  return std::accumulate(medians.begin(), medians.end(), 0.0) / static_cast<double>(devices);
}

at::ScalarType dtype_of(PlannedNumbers numbers) {
  switch (numbers) {
    case PlannedNumbers::kFloat32:
      return torch::kFloat;
    case PlannedNumbers::kFloat64:
      return torch::kDouble;
    case PlannedNumbers::kMixed:
      break;
  }
  return torch::kBFloat16;
}

}  // namespace

double memory_of_machine() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  double kibibytes = 0;
  while (file >> name >> kibibytes) {
    if (name == "MemAvailable:") return 1024 * kibibytes;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::numeric_limits<double>::infinity();
}

void measure_rates(PlannedNumbers numbers, PlannedCluster& cluster) {
  if (cluster.flops_per_second == 0) {
    constexpr int64_t kSize = 512;
    const double seconds = seconds_of_call(cluster.devices, [&] {
      const auto a = torch::ones({kSize, kSize}, dtype_of(numbers));
      return [a, product = torch::empty_like(a)]() mutable { torch::mm_out(product, a, a); };
    });
    cluster.flops_per_second = 2.0 * kSize * kSize * kSize / seconds;
  }
  if (cluster.bytes_per_second == 0) {
    // Tensors like activations: larger than a cache, in part.
    constexpr int64_t kElements = int64_t{1} << 20;
    const double seconds = seconds_of_call(cluster.devices, [&] {
      const auto a = torch::ones({kElements});
      return [a, sum = torch::empty_like(a)]() mutable { torch::add_out(sum, a, a); };
    });
    cluster.bytes_per_second = 3.0 * 4 * kElements / seconds;
  }
  if (cluster.operator_seconds == 0) {
    constexpr int kCalls = 64;
    const double seconds = seconds_of_call(cluster.devices, [] {
      return [a = torch::ones({8}), sum = torch::empty({8})]() mutable {
        for (int i = 0; i < kCalls; ++i) torch::add_out(sum, a, a);
      };
    });
    cluster.operator_seconds = seconds / kCalls;
  }
  constexpr double kPasses = 4;
  if (cluster.within.bytes_per_second == 0)
    cluster.within.bytes_per_second = cluster.bytes_per_second / kPasses;
  cluster.taken_share = 1;
  cluster.shares_units = true;
}

}  // namespace lockstep::apps
