#include "lockstep/benchmarks/scaling/exchange_model.h"

#include <gtest/gtest.h>

namespace lockstep::benchmarks {
namespace {

/// A fit of processes whose exchanges take 0.2 s, 0.1 s a message, 0.01 s a byte on the ring and 0.002 s a
/// byte of gradients. Bytes on the ring take half of their time on the processor.
LoopbackFit synthetic_fit(int num_ranks) {
  std::vector<ExchangeSample> samples;
  for (const double bytes : {10.0, 100.0, 1000.0}) {
    samples.push_back({bytes,
                       0.2 + 3 * (num_ranks - 1) * 0.1 + 0.01 * ring_bytes(num_ranks, bytes) + 0.002 * bytes,
                       0.3 * (num_ranks - 1) + 0.005 * ring_bytes(num_ranks, bytes)});
  }
  return fit_loopback(num_ranks, samples);
}

TEST(ExchangeModel, FindsWhatTheSamplesAreMadeOf) {
  const auto cost = cost_of({synthetic_fit(2), synthetic_fit(4)}, 0.002, 0.5);
  EXPECT_NEAR(cost.fixed_seconds, 0.2, 1e-9);
  EXPECT_NEAR(cost.message_seconds, 0.1, 1e-9);
  EXPECT_NEAR(cost.seconds_per_ring_byte, 0.01, 1e-9);
  EXPECT_NEAR(cost.cpu_seconds_per_message, 0.1, 1e-9);
  EXPECT_NEAR(cost.cpu_seconds_per_ring_byte, 0.005, 1e-9);
}

// By hand, for 8 ranks: 21 messages, and 1.75 bytes on the ring for each of 80.
TEST(ExchangeModel, SendsAsFastAsTheSlowerOfSoftwareAndLink) {
  const auto cost = cost_of({synthetic_fit(2), synthetic_fit(4)}, 0.002, 0.5);
  const double always = 0.2 + 21 * (0.1 + 0.03) + 0.002 * 80;
  EXPECT_NEAR(exchange_between_machines(cost, 8, 80, {0.03, 1e9}).seconds, always + 140 * 0.01, 1e-9);
  EXPECT_NEAR(exchange_between_machines(cost, 8, 80, {0.03, 10}).seconds, always + 140 * 0.5 / 10, 1e-9);
}

TEST(ExchangeModel, TakesNoMoreThanTheProcessorOfItsTime) {
  const auto fit = synthetic_fit(2);
  const auto alone = exchange_over_loopback(fit, 1000, 1);
  EXPECT_NEAR(alone.seconds, 0.2 + 0.3 + 10 + 2, 1e-6);
  EXPECT_NEAR(alone.taken_share, 5.3 / 12.5, 1e-6);
  EXPECT_NEAR(exchange_over_loopback(fit, 1000, 0.5).taken_share, 2 * 5.3 / 12.5, 1e-6);
  EXPECT_EQ(exchange_over_loopback(fit, 1000, 0.1).taken_share, 1);
  // A slow link leaves the processor free.
  EXPECT_LT(exchange_between_machines(cost_of({fit}, 0, 1), 2, 1000, {0, 1e-3}).taken_share, 1e-4);
}

TEST(ExchangeModel, OneWorkerHasNoneToExchangeWith) {
  const auto exchange = exchange_between_machines(cost_of({synthetic_fit(2)}, 0, 1), 1, 1000, {1, 1});
  EXPECT_EQ(exchange.seconds, 0);
  EXPECT_EQ(exchange.taken_share, 0);
}

// Nothing separates the messages from the rest, so all of it counts as messages.
TEST(ExchangeModel, WithOneNumberOfRanksHasNoFixedPart) {
  const auto cost = cost_of({synthetic_fit(2)}, 0, 1);
  EXPECT_EQ(cost.fixed_seconds, 0);
  EXPECT_NEAR(3 * cost.message_seconds, 0.5, 1e-9);
}

}  // namespace
}  // namespace lockstep::benchmarks
