#include "lockstep/benchmarks/scaling/exchange_model.h"

#include <algorithm>
#include <cmath>

namespace lockstep::benchmarks {
namespace {

ExchangeTimes exchange_of(double seconds, double cpu_seconds, double cores_each) {
  if (seconds <= 0) return {};
  return {seconds, std::min(1.0, cpu_seconds / (seconds * cores_each))};
}

int64_t whole(double bytes) {
  return static_cast<int64_t>(std::llround(bytes));
}

/// Returns the line over the rounds of the two algorithms, of what does not depend on the bytes.
Line over_rounds(double doubling, double halving) {
  std::vector<LinePoint> points;
  if (doubling > 0) points.push_back({1, doubling});
  if (halving > 0) points.push_back({2, halving});
  return points.empty() ? Line{} : fit_line(points);
}

}  // namespace

ExchangePlan plan_of_library(const ExchangePolicy& policy, int num_ranks, double bytes) {
  constexpr auto kKind = CollectiveKind::kAllReduce;
  const auto algorithm = policy.all_reduce_algorithm
                             ? *policy.all_reduce_algorithm
                             : algorithm_for(choose_algorithms(kKind, num_ranks, policy.costs), whole(bytes));
  return make_plan(kKind, algorithm, 0, num_ranks);
}

double sent_bytes(const ExchangePolicy& policy, int num_ranks, double bytes) {
  const auto plan = plan_of_library(policy, num_ranks, bytes);
  return static_cast<double>(costs_of(plan, even_blocks(whole(bytes), plan.num_blocks)).bytes_sent);
}

LocalFit fit_exchanges(LocalFit fit, const std::vector<ExchangeSample>& samples) {
  std::vector<LinePoint> seconds;
  std::vector<LinePoint> cpu_seconds;
  for (const auto& sample : samples) {
    const double bytes = sent_bytes(fit.policy, fit.num_ranks, fit.sent_share * sample.bytes);
    seconds.push_back({bytes, sample.seconds});
    cpu_seconds.push_back({bytes, sample.cpu_seconds});
  }
  fit.seconds = fit_line(seconds);
  fit.cpu_seconds = fit_line(cpu_seconds);
  return fit;
}

ExchangeTimes local_exchange(const LocalFit& fit, double bytes, double cores_each) {
  const double sent = sent_bytes(fit.policy, fit.num_ranks, fit.sent_share * bytes);
  return exchange_of(fit.seconds.at(sent), fit.cpu_seconds.at(sent), cores_each);
}

ExchangeCost cost_of(const LocalFit& doubling, const LocalFit& halving, const LocalFit& bytes_fit,
                     double conversion_seconds_per_byte) {
  const Line seconds = over_rounds(doubling.seconds.intercept, halving.seconds.intercept);
  const Line cpu_seconds = over_rounds(doubling.cpu_seconds.intercept, halving.cpu_seconds.intercept);
  // The fit's slope includes the conversion. Two ranks send as many bytes as they exchange.
  const double conversion = conversion_seconds_per_byte / bytes_fit.sent_share;
  return {.fixed_seconds = seconds.intercept,
          .software = {.seconds_per_message = seconds.slope,
                       .seconds_per_byte = std::max(0.0, bytes_fit.seconds.slope - conversion)},
          .seconds_per_byte = conversion_seconds_per_byte,
          .sent_share = bytes_fit.sent_share,
          .cpu_fixed_seconds = cpu_seconds.intercept,
          .cpu_seconds_per_round = cpu_seconds.slope,
          .cpu_seconds_per_sent_byte = bytes_fit.cpu_seconds.slope};
}

ExchangeTimes exchange_between_machines(const ExchangeCost& cost, int num_ranks, double bytes,
                                        const DeviceLink& link) {
  if (num_ranks == 1) return {};
  const double exchanged = cost.sent_share * bytes;
  const auto plan = plan_of_library(ExchangePolicy{}, num_ranks, exchanged);
  const auto blocks = even_blocks(whole(exchanged), plan.num_blocks);
  LinkCosts costs = cost.software;
  costs.seconds_per_message += link.latency_seconds;
  costs.seconds_per_byte = std::max(costs.seconds_per_byte, 1 / link.bytes_per_second);
  const auto work = costs_of(plan, blocks);
  const double seconds =
      cost.fixed_seconds + cost.seconds_per_byte * bytes + estimated_seconds(plan, blocks, costs);
  const double cpu_seconds = cost.cpu_fixed_seconds + work.num_rounds * cost.cpu_seconds_per_round +
                             static_cast<double>(work.bytes_sent) * cost.cpu_seconds_per_sent_byte;
  return exchange_of(seconds, cpu_seconds, /*cores_each=*/1);
}

}  // namespace lockstep::benchmarks
