#include "lockstep/benchmarks/scaling/exchange_model.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep::benchmarks {
namespace {

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

/// A fit of two processes whose exchanges take 0.2 s, 0.1 s a round and 0.01 s a byte sent, and 0.002 s a
/// byte of gradients to compress. Rounds and bytes take half of their time on the processor.
LocalFit synthetic_fit(PlanAlgorithm algorithm, double sent_share = 1) {
  const double conversion = sent_share < 1 ? 0.002 : 0;
  const int rounds = algorithm == PlanAlgorithm::kHalving ? 2 : 1;
  std::vector<ExchangeSample> samples;
  for (const double bytes : {8.0, 80.0, 8000.0}) {
    samples.push_back({bytes, 0.2 + rounds * 0.1 + 0.01 * sent_share * bytes + conversion * bytes,
                       rounds * 0.05 + 0.005 * sent_share * bytes});
  }
  return fit_exchanges({.policy = {.all_reduce_algorithm = algorithm}, .sent_share = sent_share}, samples);
}

ExchangeCost synthetic_cost() {
  const auto halving = synthetic_fit(PlanAlgorithm::kHalving);
  return cost_of(synthetic_fit(PlanAlgorithm::kRecursiveDoubling), halving, halving, 0);
}

TEST(ExchangeModel, FindsWhatTheSamplesAreMadeOf) {
  const auto cost =
      cost_of(synthetic_fit(PlanAlgorithm::kRecursiveDoubling), synthetic_fit(PlanAlgorithm::kHalving),
              synthetic_fit(PlanAlgorithm::kHalving, 0.5), 0.002);
  EXPECT_NEAR(cost.fixed_seconds, 0.2, 1e-9);
  EXPECT_NEAR(cost.software.seconds_per_message, 0.1, 1e-9);
  EXPECT_NEAR(cost.software.seconds_per_byte, 0.01, 1e-9);
  EXPECT_EQ(cost.seconds_per_byte, 0.002);
  EXPECT_EQ(cost.sent_share, 0.5);
  EXPECT_NEAR(cost.cpu_fixed_seconds, 0, 1e-9);
  EXPECT_NEAR(cost.cpu_seconds_per_round, 0.05, 1e-9);
  EXPECT_NEAR(cost.cpu_seconds_per_sent_byte, 0.005, 1e-9);
}

// By hand, for 64 ranks: short messages are doubled in 6 rounds of all bytes. Long ones are halved and
// doubled in 12 rounds, and 2 * 63 / 64 of their bytes are sent.
TEST(ExchangeModel, SendsAsFastAsTheSlowerOfSoftwareAndLink) {
  const auto cost = synthetic_cost();
  const auto seconds = [&](double bytes, double bytes_per_second) {
    return exchange_between_machines(cost, 64, bytes, {0.03, bytes_per_second}).seconds;
  };
  EXPECT_NEAR(seconds(80, 1e9), 0.2 + 6 * 0.13 + 480 * 0.01, 1e-9);
  EXPECT_NEAR(seconds(80, 10), 0.2 + 6 * 0.13 + 480 / 10.0, 1e-9);
  EXPECT_NEAR(seconds(6.4e6, 1e9), 0.2 + 12 * 0.13 + 12.6e6 * 0.01, 1e-3);
  EXPECT_NEAR(seconds(6.4e6, 10), 0.2 + 12 * 0.13 + 12.6e6 / 10, 1e-3);
}

// Patarasuk and Yuan's bound for the bytes, and the logarithm of the number of ranks for the messages.
TEST(ExchangeModel, CountsTheMessagesOfTheLibraryFor64Workers) {
  const auto seconds = [](double bytes, const DeviceLink& link) {
    return exchange_between_machines({}, 64, bytes, link).seconds;
  };
  const DeviceLink only_latency{1, kUnlimited};
  EXPECT_DOUBLE_EQ(seconds(4096, only_latency), 6);
  EXPECT_DOUBLE_EQ(seconds(1 << 20, only_latency), 12);
  EXPECT_DOUBLE_EQ(seconds(1 << 20, {0, 1}), 2 * 63.0 / 64 * (1 << 20));
}

TEST(ExchangeModel, TakesNoMoreThanTheProcessorOfItsTime) {
  const auto fit = synthetic_fit(PlanAlgorithm::kHalving);
  const auto alone = local_exchange(fit, 1000, 1);
  EXPECT_NEAR(alone.seconds, 0.4 + 10, 1e-6);
  EXPECT_NEAR(alone.taken_share, 5.1 / 10.4, 1e-6);
  EXPECT_NEAR(local_exchange(fit, 1000, 0.5).taken_share, 2 * 5.1 / 10.4, 1e-6);
  EXPECT_EQ(local_exchange(fit, 1000, 0.1).taken_share, 1);
  // A slow link leaves the processor free.
  EXPECT_LT(exchange_between_machines(synthetic_cost(), 2, 1000, {0, 1e-3}).taken_share, 1e-4);
}

TEST(ExchangeModel, OneWorkerHasNoneToExchangeWith) {
  const auto exchange = exchange_between_machines(synthetic_cost(), 1, 1000, {1, 1});
  EXPECT_EQ(exchange.seconds, 0);
  EXPECT_EQ(exchange.taken_share, 0);
}

}  // namespace
}  // namespace lockstep::benchmarks
