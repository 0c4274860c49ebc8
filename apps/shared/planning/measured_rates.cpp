#include "lockstep/apps/shared/planning/measured_rates.h"

#include <ATen/Parallel.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
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
#include "lockstep/training/planning/module_recorder.h"

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

enum class Between : uint8_t { kNothing, kWork };

/// Sums `elements` numbers over the threads of all devices, as replicas do, again and again. Returns the
/// seconds of a sum. With work between the sums, these are the seconds by which they make it longer.
double seconds_of_sum(int64_t devices, int64_t elements, int calls, Between between) {
  constexpr int64_t kWorkSize = 160;  // about a tenth of a millisecond
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
      const auto factor = torch::ones({kWorkSize, kWorkSize});
      auto product = torch::empty_like(factor);
      const auto median_call = [&](bool works, bool sums) {
        std::vector<double> seconds;
        for (int i = 0; i < calls; ++i) {
          const auto started = std::chrono::steady_clock::now();
          if (works) torch::mm_out(product, factor, factor);
          if (sums) all_reduce_(*channel.backend(rank), ReduceOp::kSum, {values});
          seconds.push_back(measurement::seconds_since(started));
        }
        return median_of(seconds);
      };
      const bool works = between == Between::kWork;
      const double alone = works ? median_call(true, false) : 0;
      medians[static_cast<size_t>(rank)] = median_call(works, true) - alone;
      channel.leave(rank);
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
  const double few = seconds_of_sum(devices, kFew, kCallsOfFew, Between::kNothing);
  const double many = seconds_of_sum(devices, kMany, kCallsOfMany, Between::kNothing);
  // Ranks that compute reach a sum at different moments, wait, and are woken up.
  const double after_work = seconds_of_sum(devices, kFew, kCallsOfFew, Between::kWork);
  // A ring of n ranks has 2 (n - 1) steps.
  return {.latency_seconds = std::max(few, after_work) / (2.0 * (ranks - 1)),
          .bytes_per_second = ring_bytes(ranks, 4.0 * kMany) / std::max(many - few, few)};
}

/// Measures an operator, forward or backward, whose tensors are so small that its call alone counts. Views
/// and what autograd does are part of it. The operators are counted as records count them.
double measured_operator(int64_t devices) {
  constexpr int64_t kWidth = 16, kExamples = 4;
  const auto make = [&] {
    torch::nn::Sequential model;
    for (int i = 0; i < 8; ++i) {
      model->push_back(torch::nn::Linear(kWidth, kWidth));
      model->push_back(torch::nn::GELU());
      model->push_back(torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWidth})));
    }
    return model;
  };
  const auto batch_of = [&](int64_t examples) { return std::vector{torch::ones({examples, kWidth})}; };
  ModuleRecorder recorder(
      {.fewer_examples = kExamples, .more_examples = 2 * kExamples, .records_halves = false});
  auto recorded = make();
  const auto record = recorder.record(*recorded, batch_of, [&](const std::vector<torch::Tensor>& batch) {
    return recorded->forward(batch[0]).sum();
  });
  const double seconds = seconds_of_call(devices, [&] {
    return [model = make(), batch = batch_of(kExamples)]() mutable {
      const torch::AutoGradMode with_gradients(true);
      model->zero_grad();
      model->forward(batch[0]).sum().backward();
    };
  });
  return seconds / static_cast<double>(record.operators.size());
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
  if (cluster.operator_seconds == 0) cluster.operator_seconds = measured_operator(cluster.devices);
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
