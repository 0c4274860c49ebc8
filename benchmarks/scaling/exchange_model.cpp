#include "lockstep/benchmarks/scaling/exchange_model.h"

#include <algorithm>
#include <stdexcept>

namespace lockstep::benchmarks {
namespace {

double num_messages(int num_ranks) {
  return 3.0 * (num_ranks - 1);
}

ExchangeTimes exchange_of(double seconds, double cpu_seconds, double cores_each) {
  if (seconds <= 0) return {};
  return {seconds, std::min(1.0, cpu_seconds / (seconds * cores_each))};
}

}  // namespace

LoopbackFit fit_loopback(int num_ranks, const std::vector<ExchangeSample>& samples) {
  std::vector<LinePoint> seconds;
  std::vector<LinePoint> cpu_seconds;
  for (const auto& sample : samples) {
    const double bytes = ring_bytes(num_ranks, sample.bytes);
    seconds.push_back({bytes, sample.seconds});
    cpu_seconds.push_back({bytes, sample.cpu_seconds});
  }
  return {num_ranks, fit_line(seconds), fit_line(cpu_seconds)};
}

ExchangeTimes exchange_over_loopback(const LoopbackFit& fit, double bytes, double cores_each) {
  const double on_ring = ring_bytes(fit.num_ranks, bytes);
  return exchange_of(fit.seconds.at(on_ring), fit.cpu_seconds.at(on_ring), cores_each);
}

ExchangeCost cost_of(const std::vector<LoopbackFit>& fits, double conversion_seconds_per_byte,
                     double sent_share) {
  if (fits.empty()) throw std::invalid_argument("[cost_of] expected at least one fit, but got none");
  std::vector<LinePoint> without_bytes;
  for (const auto& fit : fits) {
    if (fit.seconds.intercept > 0)
      without_bytes.push_back({num_messages(fit.num_ranks), fit.seconds.intercept});
  }
  const Line over_messages = without_bytes.empty() ? Line{} : fit_line(without_bytes);
  const LoopbackFit& first = fits.front();
  // The first fit's slope includes the conversion, which is divided by the ring's bytes for a gradient byte.
  const double conversion = conversion_seconds_per_byte / ring_bytes(first.num_ranks, 1);
  return {.fixed_seconds = over_messages.intercept,
          .message_seconds = over_messages.slope,
          .seconds_per_ring_byte = std::max(0.0, first.seconds.slope - conversion),
          .seconds_per_byte = conversion_seconds_per_byte,
          .sent_share = sent_share,
          .cpu_seconds_per_message = first.cpu_seconds.intercept / num_messages(first.num_ranks),
          .cpu_seconds_per_ring_byte = first.cpu_seconds.slope};
}

ExchangeTimes exchange_between_machines(const ExchangeCost& cost, int num_ranks, double bytes,
                                        const Link& link) {
  if (num_ranks == 1) return {};
  const double on_ring = ring_bytes(num_ranks, bytes);
  const double seconds =
      cost.fixed_seconds + num_messages(num_ranks) * (cost.message_seconds + link.latency_seconds) +
      cost.seconds_per_byte * bytes +
      on_ring * std::max(cost.seconds_per_ring_byte, cost.sent_share / link.bytes_per_second);
  const double cpu_seconds =
      num_messages(num_ranks) * cost.cpu_seconds_per_message + on_ring * cost.cpu_seconds_per_ring_byte;
  return exchange_of(seconds, cpu_seconds, /*cores_each=*/1);
}

}  // namespace lockstep::benchmarks
