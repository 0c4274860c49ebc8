#include "lockstep/benchmarks/scaling/prediction.h"

#include <algorithm>
#include <charconv>
#include <stdexcept>

namespace lockstep::benchmarks {
namespace {

double read_positive(const std::string& text, const std::string& whole) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value > 0) return value;
  throw std::invalid_argument(
      "expected gigabits a second and microseconds, both positive, such as 10:25, but got '" + whole + "'");
}

}  // namespace

NamedLink parse_link(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string gigabits = text.substr(0, colon);
  const std::string microseconds = colon == std::string::npos ? "" : text.substr(colon + 1);
  return {gigabits + " Gbit/s, " + microseconds + " us",
          {.latency_seconds = read_positive(microseconds, text) * 1e-6,
           .bytes_per_second = read_positive(gigabits, text) * 1e9 / 8}};
}

ComputeModel::ComputeModel(const std::vector<Measured>& measured) {
  std::vector<LinePoint> forward;
  std::vector<LinePoint> backward;
  double most = 0;
  for (const auto& [num_examples, times] : measured) {
    forward.push_back({num_examples, times.forward_seconds});
    backward.push_back({num_examples, times.backward_seconds});
    if (num_examples <= most) continue;
    most = num_examples;
    most_ = times;
  }
  forward_ = fit_line(forward);
  backward_ = fit_line(backward);
}

ComputeTimes ComputeModel::at(double num_examples) const {
  ComputeTimes times = most_;
  times.forward_seconds = forward_.at(num_examples);
  times.backward_seconds = backward_.at(num_examples);
  for (auto& gradient : times.gradients)
    gradient.ready_seconds *= times.backward_seconds / most_.backward_seconds;
  return times;
}

double agreement_bytes(int num_tensors, int num_replicas) {
  return 4.0 * (2 * num_tensors + num_replicas);
}

BucketOptions buckets_of_library(const BucketOptions& given, int num_workers, const ExchangePolicy& policy) {
  return given.or_else({.first_bucket_bytes = kDefaultBuckets.first_bucket_bytes,
                        .bucket_bytes = choose_bucket_bytes(num_workers, policy)});
}

double predict_step(const ClusterModel& cluster, const ComputeTimes& compute, int num_workers,
                    const DeviceLink& link, const Communication& communication,
                    const BucketOptions& buckets) {
  if (num_workers == 1) return compute.seconds();
  const ExchangeCost& cost = communication.compressed ? cluster.compressed : cluster.plain;
  const auto step = compute.in_buckets(buckets_of_library(buckets, num_workers, ExchangePolicy{}));
  std::vector<ExchangeTimes> exchanges;
  for (const auto& bucket : step.buckets)
    exchanges.push_back(exchange_between_machines(cost, num_workers, bucket.bytes, link));
  exchanges.push_back(exchange_between_machines(cluster.plain, num_workers,
                                                agreement_bytes(cluster.num_tensors, num_workers), link));
  return step_seconds(step, exchanges, communication.overlap);
}

double predict_local_step(const LocalFit& plain, const LocalFit& in_buckets, const ComputeTimes& compute,
                          int num_tensors, int cores, Overlap overlap, const BucketOptions& buckets) {
  const double cores_each = std::min(1.0, static_cast<double>(cores) / plain.num_ranks);
  const auto step = compute.in_buckets(buckets_of_library(buckets, plain.num_ranks, plain.policy));
  std::vector<ExchangeTimes> exchanges;
  for (const auto& bucket : step.buckets)
    exchanges.push_back(local_exchange(in_buckets, bucket.bytes, cores_each));
  exchanges.push_back(local_exchange(plain, agreement_bytes(num_tensors, plain.num_ranks), cores_each));
  return step_seconds(step, exchanges, overlap);
}

double predict_gpu_step(const GpuCluster& cluster, RingKind ring, const Communication& communication) {
  ComputeTimes compute{.forward_seconds = cluster.compute_seconds / 3,
                       .backward_seconds = cluster.compute_seconds * 2 / 3};
  compute.buckets = even_buckets(cluster.gradient_bytes, cluster.first_bucket_bytes, cluster.bucket_bytes,
                                 compute.backward_seconds);
  std::vector<ExchangeTimes> exchanges;
  for (const auto& bucket : compute.buckets) {
    const double bytes = communication.compressed ? bucket.bytes * kCompressedShare : bucket.bytes;
    exchanges.push_back({ring == RingKind::kFlat ? flat_all_reduce_seconds(cluster.topology, bytes)
                                                 : hierarchical_all_reduce_seconds(cluster.topology, bytes)});
  }
  return step_seconds(compute, exchanges, communication.overlap);
}

}  // namespace lockstep::benchmarks
