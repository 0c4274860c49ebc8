#include "lockstep/datasets/images/mixup.h"

#include <gtest/gtest.h>

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

std::vector<size_t> indices_below(size_t count) {
  std::vector<size_t> indices(count);
  std::iota(indices.begin(), indices.end(), size_t{0});
  return indices;
}

TEST(Mixup, DrawsWeightsOfTheBetaDistribution) {
  constexpr int64_t kDraws = 40000;
  for (const double alpha : {0.05, 0.2, 0.5, 1.0, 2.0, 8.0}) {
    const Mixup mixup{.alpha = alpha, .num_classes = 2, .seed = 9};
    const auto weights = mixup.weights(indices_below(kDraws), 3).to(torch::kDouble);
    EXPECT_GE(weights.min().item<double>(), 0);
    EXPECT_LE(weights.max().item<double>(), 1);
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(weights.mean().item<double>(), 0.5, 5 * std::sqrt(variance / kDraws)) << alpha;
    // The fourth central moment of a symmetric beta distribution: its kurtosis is 3 - 6 / (2 alpha + 3).
    const double fourth = variance * variance * (3 - 6 / (2 * alpha + 3));
    const double of_variance = std::sqrt((fourth - variance * variance) / kDraws);
    EXPECT_NEAR(weights.var().item<double>(), variance, 5 * of_variance) << alpha;
    EXPECT_NEAR((weights - 0.5).pow(4).mean().item<double>(), fourth, 0.03 * fourth) << alpha;
  }
  // Beta(1, 1) is uniform: the largest difference from its distribution function (Kolmogorov and Smirnov).
  const auto sorted = std::get<0>(
      Mixup{.alpha = 1, .num_classes = 2}.weights(indices_below(kDraws), 0).to(torch::kDouble).sort());
  const auto uniform = (torch::arange(kDraws, torch::kDouble) + 0.5) / kDraws;
  EXPECT_LT((sorted - uniform).abs().max().item<double>(), 1.95 / std::sqrt(kDraws));
  // Beta(1/2, 1/2) has the distribution function 2 / pi * asin(sqrt(x)).
  const auto arcsine = std::get<0>(
      Mixup{.alpha = 0.5, .num_classes = 2}.weights(indices_below(kDraws), 0).to(torch::kDouble).sort());
  EXPECT_LT((arcsine.sqrt().asin() * (2 / M_PI) - uniform).abs().max().item<double>(),
            1.95 / std::sqrt(kDraws));
}

TEST(Mixup, DrawsNumbersForEveryAlpha) {
  for (const double alpha : {1e-6, 1e-3, 1e3, 1e6}) {
    const auto weights = Mixup{.alpha = alpha, .num_classes = 2}.weights(indices_below(2000), 0);
    EXPECT_TRUE(weights.isfinite().all().item<bool>()) << alpha;
    EXPECT_NEAR(weights.mean().item<double>(), 0.5, 0.06) << alpha;
  }
}

TEST(Mixup, DrawsPartnersAmongAllExamplesForEachExampleAlone) {
  constexpr size_t kExamples = 10;
  const Mixup mixup{.alpha = 1, .num_classes = 2, .seed = 4};
  const auto partners = mixup.partners(indices_below(5000), 1, kExamples);
  std::vector<int64_t> counts(kExamples);
  for (const size_t partner : partners) ++counts.at(partner);
  for (const int64_t count : counts) EXPECT_NEAR(static_cast<double>(count), 500, 5 * std::sqrt(450.0));
  EXPECT_EQ(mixup.partners(std::vector<size_t>{7, 3}, 1, kExamples),
            (std::vector<size_t>{partners[7], partners[3]}));
  EXPECT_NE(mixup.partners(indices_below(50), 2, kExamples), mixup.partners(indices_below(50), 1, kExamples));
  const auto weights = mixup.weights(indices_below(50), 1);
  EXPECT_TRUE(mixup.weights(std::vector<size_t>{7, 3}, 1).equal(torch::stack({weights[7], weights[3]})));
  EXPECT_FALSE(mixup.weights(indices_below(50), 2).equal(weights));
}

TEST(Mixup, WeighsImagesAndLosses) {
  torch::manual_seed(1);
  const Mixup mixup{.alpha = 0.4, .num_classes = 5};
  const torch::data::Example<> examples(torch::rand({3, 1, 4, 4}), torch::tensor({0, 4, 2}));
  const torch::data::Example<> partners(torch::rand({3, 1, 4, 4}), torch::tensor({1, 4, 3}));
  const auto weights = torch::tensor({0.25F, 0.75F, 1.0F});
  const auto mixed = mixup.mix(examples, partners, weights);
  for (int64_t i = 0; i < 3; ++i) {
    const auto weight = weights[i];
    EXPECT_TRUE(mixed.data[i].allclose(weight * examples.data[i] + (1 - weight) * partners.data[i]));
  }
  EXPECT_TRUE(mixed.target.equal(
      torch::tensor({{0.25F, 0.75F, 0.F, 0.F, 0.F}, {0.F, 0.F, 0.F, 0.F, 1.F}, {0.F, 0.F, 1.F, 0.F, 0.F}})));
  const auto logits = torch::randn({3, 5});
  const auto loss = [&](const torch::Tensor& target) {
    return torch::cross_entropy_loss(logits, target, {}, at::Reduction::None);
  };
  EXPECT_TRUE(
      loss(mixed.target).allclose(weights * loss(examples.target) + (1 - weights) * loss(partners.target)));
}

TEST(Mixup, MixesEveryMemoryFormatByTheFormula) {
  torch::manual_seed(2);
  const Mixup mixup{.alpha = 0.4, .num_classes = 5};
  const auto own = torch::rand({7, 3, 17, 19}), other = torch::rand({7, 3, 17, 19});
  const auto classes = torch::randint(0, 5, {7}, torch::kLong), weights = torch::rand({7});
  const auto of_each = weights.view({7, 1, 1, 1});
  const auto expected = own * of_each + other * (1 - of_each);
  for (const auto format : {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
    for (const auto& partners : {other, other.contiguous(torch::MemoryFormat::ChannelsLast)}) {
      const auto mixed = mixup.mix({own.contiguous(format), classes}, {partners, classes}, weights);
      EXPECT_TRUE(mixed.data.is_contiguous(format));
      EXPECT_TRUE(mixed.data.equal(expected));
    }
  }
  const auto doubles =
      mixup.mix({own.to(torch::kDouble), classes}, {other.to(torch::kDouble), classes}, weights);
  EXPECT_TRUE(doubles.data.allclose(expected.to(torch::kDouble), 1e-6, 1e-7));
  EXPECT_EQ(doubles.data.scalar_type(), torch::kDouble);
}

/// The nearest number with `bits` bits of significand, and of two the one whose last bit is 0.
double rounded_to_even(double value, int bits) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

TEST(Mixup, RoundsShortTypesOnceAndTiesToEven) {
  const Mixup mixup{.alpha = 1, .num_classes = 2};
  for (const auto& [dtype, bits] : {std::pair(torch::kBFloat16, 8), std::pair(torch::kHalf, 11)}) {
    const double step = std::ldexp(1.0, 1 - bits);  // between neighbours from 1 to 2
    // Means of odd and even neighbours lie in the middle of both.
    std::vector<float> own, other;
    for (int i = 0; i < 40; ++i) {
      own.push_back(static_cast<float>(1 + i * step));
      other.push_back(static_cast<float>(1 + (i % 3 == 2 ? 2 * i + 5 : i + 1) * step));
    }
    const auto batch = [type = dtype](const std::vector<float>& values) {
      return torch::tensor(values).to(type).repeat({3, 1});
    };
    const auto weights = torch::tensor({0.5F, 0.25F, 0.3F});
    const auto classes = torch::tensor({0, 1, 1}, torch::kLong);
    const auto mixed = mixup.mix({batch(own), classes}, {batch(other), classes}, weights);
    ASSERT_EQ(mixed.data.scalar_type(), dtype);
    for (int64_t n = 0; n < 3; ++n) {
      const auto weight = weights[n].item<float>();
      for (size_t i = 0; i < own.size(); ++i) {
        const float mean = own[i] * weight + other[i] * (1 - weight);
        EXPECT_EQ(mixed.data[n][static_cast<int64_t>(i)].item<double>(), rounded_to_even(mean, bits))
            << mean << " of weight " << weight;
      }
    }
    // 1 and its neighbour become 1, the even one; the next two become their even one, too.
    EXPECT_EQ(mixed.data[0][0].item<double>(), 1);
    EXPECT_EQ(mixed.data[0][1].item<double>(), 1 + 2 * step);
    EXPECT_EQ(mixed.target.scalar_type(), torch::kFloat);
  }
}

TEST(Mixup, RefusesWrongArguments) {
  const auto indices = indices_below(2);
  EXPECT_THROW((Mixup{.alpha = -1, .num_classes = 2}.weights(indices, 0)), std::invalid_argument);
  EXPECT_THROW((Mixup{.alpha = NAN, .num_classes = 2}.weights(indices, 0)), std::invalid_argument);
  EXPECT_THROW((Mixup{.alpha = 1}.weights(indices, 0)), std::invalid_argument);
  const torch::data::Example<> two(torch::zeros({2, 3}), torch::tensor({0, 1}));
  const torch::data::Example<> three(torch::zeros({3, 3}), torch::tensor({0, 1, 1}));
  const Mixup mixup{.alpha = 1, .num_classes = 2};
  EXPECT_THROW(mixup.mix(two, three, torch::ones(2)), std::invalid_argument);
  EXPECT_THROW(mixup.mix(two, two, torch::ones(3)), std::invalid_argument);
  EXPECT_THROW(mixup.mix(two, {two.data, two.target.to(torch::kFloat)}, torch::ones(2)),
               std::invalid_argument);
}

TEST(Mixup, RefusesAlphasTargetsAndDatasetsThatItCannotMix) {
  for (const double alpha : {-1.0, 1e-310, 1e7, std::numeric_limits<double>::infinity()})
    EXPECT_THROW(Mixup({.alpha = alpha, .num_classes = 3}).check(), std::invalid_argument) << alpha;
  const Mixup mixup{.alpha = 1e-6, .num_classes = 3, .seed = 1};
  EXPECT_TRUE(mixup.weights({0, 1, 2, 3, 4, 5}, 0).isfinite().all().item<bool>());
  EXPECT_THROW(mixup.partners({0}, 0, 0), std::invalid_argument);
  const torch::data::Example<> good(torch::zeros({2, 4}), torch::tensor({0, 2}, torch::kLong));
  const torch::data::Example<> bad(torch::zeros({2, 4}), torch::tensor({0, 3}, torch::kLong));
  EXPECT_NO_THROW(mixup.mix(good, good, torch::ones({2})));
  EXPECT_THROW(mixup.mix(good, bad, torch::ones({2})), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep
