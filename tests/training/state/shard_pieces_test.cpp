// Places of shards in whole parameters. Oracle: the values that a rank has of a parameter.
#include "lockstep/training/state/internal/shard_pieces.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdint>
#include <random>
#include <vector>

namespace lockstep {
namespace {

/// Copies the pieces to their places in `whole`, and counts them.
void put_pieces(const std::vector<TensorPiece>& pieces, const torch::Tensor& whole,
                const torch::Tensor& counts) {
  for (const auto& [offset, elements, begin] : pieces) {
    auto place = whole;
    auto count = counts;
    if (begin.empty()) {
      place = whole.as_strided({elements.numel()}, {1}, offset);
      count = counts.as_strided({elements.numel()}, {1}, offset);
    } else {
      for (size_t dim = 0; dim < begin.size(); ++dim) {
        const auto along = static_cast<int64_t>(dim);
        place = place.narrow(along, begin[dim], elements.size(along));
        count = count.narrow(along, begin[dim], elements.size(along));
      }
    }
    EXPECT_TRUE(elements.is_contiguous());
    place.copy_(elements);
    count.add_(1);
  }
}

TEST(ShardPiecesTest, PiecesOfAllRanksMakeUpTheParameter) {
  std::mt19937 random(5);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    const int64_t ranks = draw(1, 4);
    std::vector<int64_t> sizes;
    for (int64_t dims = draw(1, 3); dims > 0; --dims) sizes.push_back(draw(1, 4));
    const int64_t dim = draw(0, static_cast<int64_t>(sizes.size()) - 1);
    std::vector<int64_t> sections;
    for (int64_t count = draw(1, 3); count > 0; --count) sections.push_back(ranks * draw(1, 3));
    int64_t length = 0;
    for (const int64_t section : sections) length += section;
    sizes[static_cast<size_t>(dim)] = length;
    if (sections.size() == 1) sections.clear();
    const auto values = torch::arange(c10::multiply_integers(sizes), torch::kLong).view(sizes);
    const auto whole = torch::full_like(values, -1);
    const auto counts = torch::zeros_like(values);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const ShardedParameter cut{.name = "weight",
                                 .sizes = sizes,
                                 .strides = values.strides().vec(),
                                 .offset = rank * length / ranks,
                                 .length = length / ranks,
                                 .axis = "tensor",
                                 .dim = dim,
                                 .sections = sections};
      const auto rows = part_of_values(values, cut);
      if (draw(0, 3) == 0) {
        put_pieces(pieces_of_shard(rows, cut), whole, counts);
        continue;
      }
      mark_shard(rows, cut);
      for (int64_t begin = 0; begin < rows.numel();) {
        const int64_t count = std::min(rows.numel() - begin, draw(1, 12));
        const auto place = slice_of_parameter(rows, "weight", "shard", begin, count);
        const auto pieces = pieces_of_shard(part_of_values(values, place), place);
        put_pieces(pieces, whole, counts);
        begin += count;
      }
    }
    EXPECT_TRUE(whole.equal(values));
    EXPECT_TRUE(counts.equal(torch::ones_like(counts)));
  }
}

TEST(ShardPiecesTest, ASliceOfAMatrixIsAtMostThreeBoxes) {
  const auto values = torch::arange(60).view({10, 6});
  const ShardedParameter cut{.name = "weight",
                             .sizes = {20, 6},
                             .strides = {6, 1},
                             .offset = 10,
                             .length = 10,
                             .axis = "tensor",
                             .dim = 0};
  mark_shard(values, cut);
  const auto pieces_of = [&](int64_t begin, int64_t count) {
    return pieces_of_shard(values.flatten().narrow(0, begin, count),
                           slice_of_parameter(values, "weight", "shard", begin, count));
  };
  EXPECT_EQ(pieces_of(0, 60).size(), 1U);
  EXPECT_EQ(pieces_of(12, 18).size(), 1U);
  const auto pieces = pieces_of(8, 31);  // ends of rows 1 and 6, and four rows between
  ASSERT_EQ(pieces.size(), 3U);
  EXPECT_EQ(pieces[0].begin, (std::vector<int64_t>{11, 2}));
  EXPECT_EQ(pieces[1].elements.sizes(), (std::vector<int64_t>{4, 6}));
  EXPECT_EQ(pieces[2].begin, (std::vector<int64_t>{16, 0}));
  EXPECT_EQ(pieces_of(8, 2).size(), 1U);
}

}  // namespace
}  // namespace lockstep
