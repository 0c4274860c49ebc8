#include "lockstep/apps/shared/planning/measured_rates.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
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
#include "lockstep/runtime/backends/local_backend.h"
#include "lockstep/runtime/collectives/collectives.h"
#include "lockstep/training/layouts/all_reduce_model.h"

namespace lockstep::apps {
namespace {

double median_of(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size()) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

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
      median = median_of(calls);
    });
  }
  for (auto& thread : threads) thread.join();
  return std::accumulate(medians.begin(), medians.end(), 0.0) / static_cast<double>(devices);
}

/// Sums `elements` numbers over the threads of all devices, as replicas do, again and again. Returns the
/// seconds of a sum.
double seconds_of_sum(int64_t devices, int64_t elements, int calls) {
  LocalChannel channel(static_cast<int>(devices), LocalAlgorithm::kSplitOverReplicas,
                       std::chrono::minutes(1));
  channel.enter();
  std::vector<double> medians(static_cast<size_t>(devices));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < static_cast<int>(devices); ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      const torch::NoGradGuard no_grad;
      const auto values = torch::zeros({elements});
      std::vector<double> seconds;
      for (int i = 0; i < calls; ++i) {
        const auto started = std::chrono::steady_clock::now();
        all_reduce_(*channel.backend(rank), ReduceOp::kSum, {values});
        seconds.push_back(measurement::seconds_since(started));
      }
      channel.leave(rank);
      medians[static_cast<size_t>(rank)] = median_of(seconds);
    });
  }
  for (auto& thread : threads) thread.join();
  return std::accumulate(medians.begin(), medians.end(), 0.0) / static_cast<double>(devices);
}

/// Measures what a message between two replicas takes, from sums of few and of many numbers.
DeviceLink measured_link(int64_t devices) {
  constexpr int64_t kFew = 8, kMany = int64_t{1} << 19;
  constexpr int kCallsOfFew = 500, kCallsOfMany = 50;
  const int ranks = static_cast<int>(devices);
  const double few = seconds_of_sum(devices, kFew, kCallsOfFew);
  const double many = seconds_of_sum(devices, kMany, kCallsOfMany);
  // A ring of n ranks has 2 (n - 1) steps.
  return {.latency_seconds = few / (2.0 * (ranks - 1)),
          .bytes_per_second = ring_bytes(ranks, 4.0 * kMany) / std::max(many - few, few)};
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
    // Forward and backward, as autograd calls operators.
    constexpr int kCalls = 64;
    const double seconds = seconds_of_call(cluster.devices, [] {
      return [a = torch::ones({8}, torch::requires_grad())] {
        const torch::AutoGradMode with_gradients(true);
        torch::Tensor y = a;
        for (int i = 0; i < kCalls; ++i) y = y.mul(2);
        torch::autograd::grad({y}, {a}, {torch::ones({8})});
      };
    });
    cluster.operator_seconds = seconds / (2 * kCalls);
  }
  DeviceLink& link = cluster.within;
  if (cluster.devices > 1 && (link.bytes_per_second == 0 || link.latency_seconds == 0)) {
    const DeviceLink measured = measured_link(cluster.devices);
    if (link.bytes_per_second == 0) link.bytes_per_second = measured.bytes_per_second;
    if (link.latency_seconds == 0) link.latency_seconds = measured.latency_seconds;
  } else if (link.bytes_per_second == 0) {
    link.bytes_per_second = cluster.bytes_per_second;
  }
  cluster.taken_share = 1;
  cluster.shares_units = true;
}

}  // namespace lockstep::apps
