#include <c10/util/StringUtil.h>

#include <algorithm>
#include <exception>
#include <iostream>
#include <iterator>
#include <memory>

#include "lockstep/benchmarks/all_reduce_loop.h"
#include "lockstep/benchmarks/comparisons.h"
#include "lockstep/benchmarks/loops/training_loop.h"
#include "lockstep/runtime/gradients/bucket_layout.h"

namespace lockstep::benchmarks {
namespace {

constexpr int64_t kKibibyte = 1 << 10;
constexpr int64_t kMebibyte = 1 << 20;

struct Payload {
  std::string name;
  std::vector<int64_t> bytes;  ///< of each tensor

  int64_t total() const {
    int64_t sum = 0;
    for (const int64_t size : bytes) sum += size;
    return sum;
  }
};

/// Returns the sums of one step of the workload: gradients in buckets of the library's default sizes.
Payload gradient_buckets(const Workload& workload) {
  std::vector<BucketItem> items;
  for (const auto& parameter : WorkloadModel(workload)->parameters())
    items.push_back({static_cast<int64_t>(parameter.nbytes()), "float32"});
  // Backward reaches the last layers first.
  std::vector<size_t> order;
  for (size_t i = items.size(); i > 0; --i) order.push_back(i - 1);
  const bool is_gpt = workload.model == BenchmarkModel::kGpt;
  Payload payload{is_gpt ? "gradient buckets of a GPT" : "gradient buckets of MobileNetV2", {}};
  for (const auto& bucket : assign_buckets(items, order, BucketOptions{})) {
    int64_t bytes = 0;
    for (const size_t item : bucket) bytes += items[item].bytes;
    payload.bytes.push_back(bytes);
  }
  return payload;
}

std::vector<Payload> payloads(const Workload& workload) {
  return {{"64 KiB", {64 * kKibibyte}},
          {"512 KiB", {512 * kKibibyte}},
          {"4 MiB", {4 * kMebibyte}},
          {"32 MiB", {32 * kMebibyte}},
          gradient_buckets(workload)};
}

ReplicaDevices replica_devices(const BenchmarkOptions& options) {
  const auto& gpus = options.workload.gpus;
  if (gpus.empty()) return {cpu_devices(options.num_replicas), 1};
  return {gpus, gpus.size() == 1 ? options.num_replicas : 1};
}

struct Op {
  std::string name;
  std::unique_ptr<AllReduceLoop> loop;
};

/// Returns why NCCL cannot serve the devices; empty if it might.
std::string reason_against_nccl(const BenchmarkOptions& options, const ReplicaDevices& devices) {
  if (options.workload.gpus.empty()) return "no GPU";
  if (devices.replicas_per_device == 1) return "";
  return c10::str("it takes a GPU for each of ", devices.num_replicas(), " replicas, but --gpus names ",
                  options.workload.gpu_list());
}

/// Small sums are repeated more often, so that starting the threads and waiting for the device do not distort
/// the measurement.
int repetitions_of(const BenchmarkOptions& options, const Payload& payload) {
  return options.steps * static_cast<int>(std::clamp<int64_t>(4 * kMebibyte / payload.total(), 1, 64));
}

}  // namespace

void compare_cross_device_ops(const BenchmarkOptions& options, Report& report) {
  if (options.num_replicas < 2) {
    report.add_not_measured("ops", "it takes --replicas of at least 2");
    return;
  }
  const ReplicaDevices devices = replica_devices(options);
  AllReduceLoop reference(kReferenceOp, devices);
  std::vector<Op> others;
  others.push_back(
      {"reduction_to_one_device", std::make_unique<AllReduceLoop>("reduction_to_one_device", devices)});
  std::string without_nccl = reason_against_nccl(options, devices);
  if (without_nccl.empty()) {
    try {
      others.push_back({"nccl", std::make_unique<AllReduceLoop>("nccl", devices)});
    } catch (const std::exception& error) {  // any failure to connect
      without_nccl = error.what();
    }
  }

  for (const auto& payload : payloads(options.workload)) {
    const int repetitions = repetitions_of(options, payload);
    const auto seconds_of = [&](AllReduceLoop& loop) {
      return [&] { return loop.seconds_for(repetitions) / repetitions; };
    };
    reference.set_tensors(payload.bytes);
    reference.seconds_for(repetitions);
    std::vector<AlternatingPairs> pairs;
    std::vector<double> reference_seconds;
    for (auto& other : others) {
      other.loop->set_tensors(payload.bytes);
      other.loop->seconds_for(repetitions);
      std::cerr << "    " << other.name << ", " << payload.name << '\n';
      pairs.push_back(measure_alternating_pairs(options.num_pairs, seconds_of(reference),
                                                seconds_of(*other.loop), &std::cerr));
      std::copy(pairs.back().first.begin(), pairs.back().first.end(), std::back_inserter(reference_seconds));
    }
    const OpRow row{.replicas = devices.str(), .tensors = payload.name, .bytes = payload.total()};
    report.add_reference_op(row, reference_seconds);
    for (size_t i = 0; i < others.size(); ++i) report.add_op(others[i].name, row, pairs[i]);
  }
  if (!without_nccl.empty()) report.add_unmeasured_op("nccl", devices.str(), without_nccl);
}

}  // namespace lockstep::benchmarks
