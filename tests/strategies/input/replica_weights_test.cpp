#include "lockstep/strategies/input/replica_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/strategies/input/batch_shares.h"

namespace lockstep {
namespace {

using Bounds = std::vector<int64_t>;

TEST(ReplicaWeights, CutEqualPiecesByTheCeilingOfExamplesOverReplicas) {
  for (int64_t n = 0; n <= 20; ++n) {
    for (int replicas = 1; replicas <= 6; ++replicas) {
      const Bounds bounds = cut_equally(n, replicas);
      ASSERT_EQ(bounds.size(), static_cast<size_t>(replicas) + 1);
      EXPECT_EQ(bounds.front(), 0);
      EXPECT_EQ(bounds.back(), n) << "every example goes to one replica";
      for (size_t i = 0; i + 1 < bounds.size(); ++i)
        EXPECT_EQ(bounds[i + 1] - bounds[i], std::min(n - bounds[i], (n + replicas - 1) / replicas));
    }
  }
}

TEST(ReplicaWeights, CutPiecesInProportionToWithinOneExample) {
  const std::vector<std::vector<double>> cases{{1, 3}, {1, 1, 1}, {0.5, 2.25, 1e-3, 7}, {1e9, 1}, {5}};
  for (const auto& weights : cases) {
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (int64_t n = 0; n <= 100; ++n) {
      const Bounds bounds = cut_by_weights(n, weights);
      ASSERT_EQ(bounds.size(), weights.size() + 1);
      EXPECT_EQ(bounds.front(), 0);
      EXPECT_EQ(bounds.back(), n) << "every example goes to one replica";
      for (size_t i = 0; i < weights.size(); ++i) {
        const auto size = static_cast<double>(bounds[i + 1] - bounds[i]);
        EXPECT_GE(size, 0);
        EXPECT_LE(std::abs(size - static_cast<double>(n) * weights[i] / total), 1)
            << n << " examples, replica " << i;
      }
    }
  }
  EXPECT_EQ(cut_by_weights(8, {1, 3}), (Bounds{0, 2, 8}));
  EXPECT_EQ(cut_by_weights(100, {1, 2, 2}), (Bounds{0, 20, 60, 100}));
}

TEST(ReplicaWeights, AreEqualPiecesUnlessGivenOrMeasured) {
  EXPECT_TRUE(ReplicaWeights().values().empty());
  EXPECT_FALSE(ReplicaWeights().are_measured());
  EXPECT_EQ(ReplicaWeights({1, 3}).values(), (std::vector<double>{1, 3}));
  EXPECT_TRUE(ReplicaWeights::measured().are_measured());
}

TEST(BatchShares, CutEquallyUntilTheyGetWeights) {
  BatchShares shares(3, {});
  EXPECT_EQ(shares.cut(10), (Bounds{0, 4, 8, 10}));
  shares.set_weights({1, 1, 3});
  EXPECT_EQ(shares.cut(10), (Bounds{0, 2, 4, 10}));
  EXPECT_EQ(shares.weights(), (std::vector<double>{1, 1, 3}));
}

TEST(BatchShares, CutAWorkersOwnBatchByTheWeightsOfItsReplicas) {
  EXPECT_EQ(BatchShares(4, {1, 1, 1, 3}).cut_among(8, 2, 2), (Bounds{0, 2, 8}));
  EXPECT_EQ(BatchShares(4, {}).cut_among(8, 2, 2), (Bounds{0, 4, 8}));
}

}  // namespace
}  // namespace lockstep
