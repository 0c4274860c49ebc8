// The tokens that ranks have of a sequence. Oracle: the definition, token by token.
#include "lockstep/strategies/parallel/context_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ContextOrder order_of(int64_t length, int ranks, int index, TokenOrder order) {
  return ContextOrder({.length = length, .ranks = ranks, .index = index, .order = order});
}

std::vector<int64_t> positions_of(const ContextOrder& order) {
  const auto positions = order.positions();
  const auto* data = positions.const_data_ptr<int64_t>();
  return {data, data + positions.numel()};
}

TEST(ContextOrderTest, ZigzagGivesEachRankAChunkFromTheFrontAndOneFromTheEnd) {
  EXPECT_THAT(positions_of(order_of(12, 3, 0, TokenOrder::kZigzag)), ElementsAre(0, 1, 10, 11));
  EXPECT_THAT(positions_of(order_of(12, 3, 1, TokenOrder::kZigzag)), ElementsAre(2, 3, 8, 9));
  EXPECT_THAT(positions_of(order_of(12, 3, 2, TokenOrder::kZigzag)), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(positions_of(order_of(12, 3, 1, TokenOrder::kPlain)), ElementsAre(4, 5, 6, 7));
}

TEST(ContextOrderTest, UnevenChunksDifferByOneTokenAndSoDoTheRanks) {
  // Chunks of 2, 2, 2, 1 tokens.
  EXPECT_THAT(positions_of(order_of(7, 2, 0, TokenOrder::kZigzag)), ElementsAre(0, 1, 6));
  EXPECT_THAT(positions_of(order_of(7, 2, 1, TokenOrder::kZigzag)), ElementsAre(2, 3, 4, 5));
  for (const auto order : {TokenOrder::kPlain, TokenOrder::kZigzag}) {
    for (int ranks = 1; ranks <= 5; ++ranks) {
      for (int64_t length = 0; length <= 30; ++length) {
        std::vector<int64_t> all;
        std::vector<int64_t> counts;
        for (int rank = 0; rank < ranks; ++rank) {
          const auto own = order_of(length, ranks, rank, order);
          const auto positions = positions_of(own);
          EXPECT_TRUE(std::is_sorted(positions.begin(), positions.end()));
          counts.push_back(own.tokens_of(rank));
          EXPECT_EQ(static_cast<int64_t>(positions.size()), counts.back());
          all.insert(all.end(), positions.begin(), positions.end());
        }
        std::sort(all.begin(), all.end());
        std::vector<int64_t> expected(static_cast<size_t>(length));
        std::iota(expected.begin(), expected.end(), 0);
        EXPECT_EQ(all, expected);
        EXPECT_LE(
            *std::max_element(counts.begin(), counts.end()) - *std::min_element(counts.begin(), counts.end()),
            1);
      }
    }
  }
}

TEST(ContextOrderTest, PartsAreTheTokensAtTheRanksPositionsAndRestoreIsTheInverse) {
  for (const auto order : {TokenOrder::kPlain, TokenOrder::kZigzag}) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
      for (const int64_t length : {1, 7, 16, 21}) {
        const auto whole = torch::rand({2, length, 3}, torch::kDouble);
        std::vector<torch::Tensor> parts;
        for (int rank = 0; rank < ranks; ++rank) {
          const auto own = order_of(length, ranks, rank, order);
          parts.push_back(own.own_part(whole, 1));
          EXPECT_TRUE(torch::equal(parts.back(), whole.index_select(1, own.positions())));
          EXPECT_TRUE(torch::equal(own.own_part(whole.transpose(1, 2), -1), parts.back().transpose(1, 2)));
        }
        const auto any = order_of(length, ranks, ranks - 1, order);
        EXPECT_TRUE(torch::equal(any.restore(torch::cat(parts, 1), -2), whole));
        EXPECT_TRUE(torch::equal(any.in_rank_order(whole, 1), torch::cat(parts, 1)));
      }
    }
  }
}

TEST(ContextOrderTest, PartsHaveTheGradientsOfTheirTokens) {
  const auto order = order_of(7, 2, 1, TokenOrder::kZigzag);
  const auto whole = torch::rand({7}, torch::kDouble).requires_grad_();
  (order.own_part(whole, 0) * torch::arange(1, 5)).sum().backward();
  EXPECT_TRUE(torch::equal(whole.grad(), torch::tensor({0., 0., 1., 2., 3., 4., 0.}, torch::kDouble)));
}

TEST(ContextOrderTest, RefusesWhatIsNoOrderAndOtherNumbersOfTokens) {
  const auto refused = [](const ContextOrderOptions& options) {
    return message_of<InvalidArgument>([&] { const ContextOrder order(options); });
  };
  EXPECT_THAT(refused({.length = -1}), HasSubstr("0 or more tokens, but got -1"));
  EXPECT_THAT(refused({.length = 4, .ranks = 0}), HasSubstr("1 or more ranks, but got 0"));
  EXPECT_THAT(refused({.length = 4, .ranks = 2, .index = 2}), HasSubstr("an index of 0 to 1, but got 2"));
  const auto order = order_of(7, 2, 1, TokenOrder::kZigzag);
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                order.own_part(torch::zeros({2, 6}), 1);
              }),
              HasSubstr("7 tokens along dimension 1, but got [2, 6]"));
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                order.restore(torch::zeros({8, 1}), 0);
              }),
              HasSubstr("7 tokens along dimension 0, but got [8, 1]"));
}

}  // namespace
}  // namespace lockstep
