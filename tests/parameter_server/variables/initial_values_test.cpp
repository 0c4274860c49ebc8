#include "lockstep/parameter_server/variables/initial_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const auto kLike = torch::empty({0, 5});

TEST(InitialValues, ConstantsAreWhatTheyAre) {
  EXPECT_TRUE(make_values(ConstantValues{0.5}, {3, 7}, kLike).equal(torch::full({4, 5}, 0.5F)));
  EXPECT_EQ(make_values(ConstantValues{}, {0, 2}, torch::empty({0, 3, 2}, torch::kDouble)).scalar_type(),
            torch::kDouble);
}

TEST(InitialValues, AreTheSameHoweverTheVariableIsCut) {
  for (const InitialValues& initial : {InitialValues(UniformValues{.low = -1, .high = 2, .seed = 9}),
                                       InitialValues(NormalValues{.seed = 9})}) {
    const auto whole = make_values(initial, {0, 10}, kLike);
    const auto parts = torch::cat({make_values(initial, {0, 4}, kLike), make_values(initial, {4, 5}, kLike),
                                   make_values(initial, {5, 10}, kLike)});
    EXPECT_TRUE(whole.equal(parts));
    EXPECT_FALSE(whole[0].equal(whole[1]));
  }
  EXPECT_FALSE(make_values(UniformValues{.seed = 1}, {0, 10}, kLike)
                   .equal(make_values(UniformValues{.seed = 2}, {0, 10}, kLike)));
}

// Each moment is that of the distribution, within five of its standard deviations.
TEST(InitialValues, UniformOnesHaveTheDistributionsMoments) {
  const auto values =
      make_values(UniformValues{.low = -3, .high = 5, .seed = 4}, {0, 20'000}, kLike).to(torch::kDouble);
  const double n = static_cast<double>(values.numel());
  EXPECT_GE(values.min().item<double>(), -3);
  EXPECT_LE(values.max().item<double>(), 5);
  EXPECT_LT(values.min().item<double>(), -2.99);
  EXPECT_GT(values.max().item<double>(), 4.99);
  const double variance = 64.0 / 12;
  EXPECT_NEAR(values.mean().item<double>(), 1, 5 * std::sqrt(variance / n));
  // The fourth central moment of a uniform distribution is 9/5 of its squared variance.
  EXPECT_NEAR((values - 1).square().mean().item<double>(), variance,
              5 * std::sqrt(0.8 * variance * variance / n));
}

TEST(InitialValues, NormalOnesHaveTheDistributionsMoments) {
  const auto values =
      make_values(NormalValues{.mean = 2, .std = 3, .seed = 4}, {0, 20'000}, kLike).to(torch::kDouble);
  const double n = static_cast<double>(values.numel());
  const auto scaled = (values - 2) / 3;
  EXPECT_NEAR(scaled.mean().item<double>(), 0, 5 * std::sqrt(1 / n));
  EXPECT_NEAR(scaled.pow(2).mean().item<double>(), 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(scaled.pow(3).mean().item<double>(), 0, 5 * std::sqrt(15 / n));
  EXPECT_NEAR(scaled.pow(4).mean().item<double>(), 3, 5 * std::sqrt(96 / n));
  // Neighbours made from the same pair of numbers are independent.
  EXPECT_NEAR((scaled.select(1, 0) * scaled.select(1, 1)).mean().item<double>(), 0, 5 * std::sqrt(5 / n));
  const auto far = (scaled.abs() > 2).to(torch::kDouble).mean().item<double>();
  EXPECT_NEAR(far, std::erfc(std::sqrt(2.0)), 5 * std::sqrt(0.0455 / n));
}

TEST(InitialValues, OfNoRowsAndOfNoColumnsAreEmpty) {
  EXPECT_EQ(make_values(NormalValues{}, {4, 4}, kLike).sizes(), (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(make_values(NormalValues{}, {4, 6}, torch::empty({0, 0})).sizes(), (std::vector<int64_t>{2, 0}));
}

TEST(InitialValues, OutOfRangeAreRefused) {
  const auto refuses = [](const InitialValues& initial, const std::string& text) {
    EXPECT_THAT(
        [&] {
          make_values(initial, {0, 1}, kLike);
        },
        ThrowsMessage<InvalidArgument>(HasSubstr(text)));
  };
  refuses(ConstantValues{std::nan("")}, "finite value, but got nan");
  refuses(UniformValues{.low = 1, .high = 0}, "high of at least low, but got 0 and 1");
  refuses(UniformValues{.high = std::numeric_limits<double>::infinity()}, "finite high");
  refuses(NormalValues{.std = -1}, "std of 0 or more, but got -1");
  EXPECT_THROW(make_values(ConstantValues{}, {0, 1}, torch::empty({0}, torch::kLong)), InvalidArgument);
  EXPECT_THROW(make_values(ConstantValues{}, {0, 1}, torch::zeros({})), InvalidArgument);
  EXPECT_THROW(make_values(ConstantValues{}, {0, 1}, {}), InvalidArgument);
  EXPECT_THROW(make_values(ConstantValues{}, {2, 1}, kLike), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
