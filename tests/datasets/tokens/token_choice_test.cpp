#include "lockstep/datasets/tokens/internal/token_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

namespace lockstep {
namespace {

TEST(TokenChoice, DrawsEachTokenForItsShareOfTheNumbers) {
  const std::vector<TokenWeight> weights = {{7, 3}, {2, 1}, {9, 0.5}, {4, 12}, {5, 1e-9}};
  const TokenChoice choice(weights);
  double sum = 0;
  for (const auto& weight : weights) sum += weight.weight;
  // Evenly spaced numbers meet each share to within one step for each end of a part of a column.
  constexpr int kSteps = 1 << 20;
  std::map<uint32_t, int> counts;
  for (int i = 0; i < kSteps; ++i) ++counts[choice.drawn(uint64_t{static_cast<unsigned>(i)} << 44)];
  for (const auto& weight : weights) {
    EXPECT_NEAR(choice.probability(weight.token), weight.weight / sum, 1e-15);
    EXPECT_NEAR(counts[weight.token], kSteps * weight.weight / sum, 10);
  }
  EXPECT_EQ(choice.probability(3), 0);
}

TEST(TokenChoice, KnowsItsEntropy) {
  EXPECT_NEAR(TokenChoice({{1, 2}, {2, 2}, {3, 2}}).entropy(), std::log(3), 1e-15);
  EXPECT_NEAR(TokenChoice({{1, 1}, {2, 3}}).entropy(), std::log(4) - 0.75 * std::log(3), 1e-15);
  EXPECT_EQ(TokenChoice({{1, 5}}).entropy(), 0);
}

TEST(TokenChoice, OfOneTokenDrawsIt) {
  const TokenChoice choice({{6, 0.1}});
  for (const uint64_t number : {uint64_t{0}, uint64_t{1} << 63, UINT64_MAX})
    EXPECT_EQ(choice.drawn(number), 6U);
}

}  // namespace
}  // namespace lockstep
