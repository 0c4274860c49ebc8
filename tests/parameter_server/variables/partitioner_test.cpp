#include "lockstep/parameter_server/variables/partitioner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Unless a comment says otherwise, the numbers in this file equal those of TensorFlow 2.21's partitioners of
// the same names.
TEST(FixedShardsPartitioner, GivesEveryVariableAsManyButNoMoreThanItsRows) {
  const FixedShardsPartitioner partitioner(3);
  EXPECT_EQ(partitioner.num_shards({{10, 4}}), 3);
  EXPECT_EQ(partitioner.num_shards({{3}}), 3);
  EXPECT_EQ(partitioner.num_shards({{2, 100}}), 2);
}

TEST(MinSizePartitioner, LetsNoShardBeSmaller) {
  const MinSizePartitioner partitioner({.min_shard_bytes = 256, .max_shards = 5});
  EXPECT_EQ(partitioner.num_shards({{63}, 4}), 1);       // 252 bytes
  EXPECT_EQ(partitioner.num_shards({{127}, 4}), 1);      // 508; TensorFlow makes two, both too small
  EXPECT_EQ(partitioner.num_shards({{128}, 4}), 2);      // 512
  EXPECT_EQ(partitioner.num_shards({{64, 4}, 8}), 5);    // 2,048
  EXPECT_EQ(partitioner.num_shards({{2, 1000}, 4}), 2);  // no more shards than rows
}

TEST(MinSizePartitioner, CutsNothingUnlessItIsAllowedMoreThanOneShard) {
  EXPECT_EQ(MinSizePartitioner({}).num_shards({{1000000, 64}}), 1);
}

TEST(MaxSizePartitioner, LetsNoShardBeLarger) {
  const MaxSizePartitioner partitioner({.max_shard_bytes = 100});
  EXPECT_EQ(partitioner.num_shards({{25}, 4}), 1);
  EXPECT_EQ(partitioner.num_shards({{26}, 4}), 2);
  EXPECT_EQ(partitioner.num_shards({{10, 12}, 4}), 5);  // two rows of 48 bytes each
  EXPECT_EQ(partitioner.num_shards({{7, 100}, 4}), 7);  // a row of 400 bytes cannot be cut
}

TEST(MaxSizePartitioner, GivesNoMoreThanItMay) {
  EXPECT_EQ(MaxSizePartitioner({.max_shard_bytes = 4, .max_shards = 3}).num_shards({{100}}), 3);
}

TEST(MaxSizePartitioner, KeepsItsPromiseForAnyShape) {
  for (const int64_t limit : {1, 7, 64, 1000}) {
    const MaxSizePartitioner partitioner({.max_shard_bytes = limit});
    for (int64_t rows = 1; rows < 40; ++rows) {
      for (const int64_t columns : {1, 2, 5}) {
        const VariableShape shape{{rows, columns}};
        const int64_t count = partitioner.num_shards(shape);
        for (const RowRange& range : cut_rows(rows, count))
          EXPECT_LE(range.size() * shape.row_bytes(), std::max(limit, shape.row_bytes()));
      }
    }
  }
}

TEST(BalancedPartitioner, GivesEveryServerAsManyShardsOfTheSizesThatItMayHave) {
  const BalancedPartitioner partitioner({.num_servers = 3, .min_shard_bytes = 100, .max_shard_bytes = 1000});
  EXPECT_EQ(partitioner.num_shards({{49}}), 1);       // 196 bytes
  EXPECT_EQ(partitioner.num_shards({{50}}), 2);       // 200
  EXPECT_EQ(partitioner.num_shards({{75}}), 3);       // 300
  EXPECT_EQ(partitioner.num_shards({{750}}), 3);      // 3,000
  EXPECT_EQ(partitioner.num_shards({{751}}), 6);      // otherwise one would have 1,004
  EXPECT_EQ(partitioner.num_shards({{2, 1000}}), 2);  // no more shards than rows
  EXPECT_EQ(partitioner.num_shards({{10, 1000}}), 10);
  EXPECT_EQ(partitioner.num_shards({{5, 0}}), 1);
  for (int64_t rows = 1; rows < 3000; ++rows) {
    const int64_t count = partitioner.num_shards({{rows, 2}});
    const auto ranges = cut_rows(rows, count);
    EXPECT_LE(ranges.front().size() * 8, 1000) << rows;
    if (rows * 8 >= 300) {
      EXPECT_EQ(count % 3, 0) << rows;
      EXPECT_GE(ranges.back().size() * 8, 96) << rows;  // rows are not cut
    }
  }
}

TEST(Partitioner, LeavesScalarsAndEmptyVariablesWhole) {
  const FixedShardsPartitioner partitioner(4);
  EXPECT_EQ(partitioner.num_shards({{}}), 1);
  EXPECT_EQ(partitioner.num_shards({{0, 4}}), 1);
  EXPECT_EQ(MaxSizePartitioner({.max_shard_bytes = 8}).num_shards({{5, 0}}), 1);
}

TEST(Partitioner, RefusesLimitsBelowOne) {
  EXPECT_THAT([] { FixedShardsPartitioner(0); },
              ThrowsMessage<InvalidArgument>(HasSubstr("num_shards: expected 1 or more, but got 0")));
  EXPECT_THAT([] { MinSizePartitioner({.min_shard_bytes = 0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("min_shard_bytes")));
  EXPECT_THAT([] { MinSizePartitioner({.max_shards = -1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("max_shards: expected 1 or more, but got -1")));
  EXPECT_THAT([] { MaxSizePartitioner({.max_shard_bytes = 0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("max_shard_bytes")));
  EXPECT_THAT([] { BalancedPartitioner({.num_servers = 0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("num_servers: expected 1 or more, but got 0")));
  EXPECT_THAT([] { MaxSizePartitioner({.max_shards = 0}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("max_shards")));
}

TEST(CutRows, GivesWhatIsLeftOverToTheFirst) {
  EXPECT_THAT(cut_rows(10, 3), ElementsAre(RowRange{0, 4}, RowRange{4, 7}, RowRange{7, 10}));
  EXPECT_THAT(cut_rows(5, 5),
              ElementsAre(RowRange{0, 1}, RowRange{1, 2}, RowRange{2, 3}, RowRange{3, 4}, RowRange{4, 5}));
  EXPECT_THAT(cut_rows(1, 2), ElementsAre(RowRange{0, 1}, RowRange{1, 1}));
  EXPECT_THAT(cut_rows(0, 1), ElementsAre(RowRange{0, 0}));
}

TEST(CutRows, RefusesWhatCannotBeCut) {
  EXPECT_THROW(cut_rows(-1, 1), InvalidArgument);
  EXPECT_THROW(cut_rows(1, 0), InvalidArgument);
}

TEST(ShardName, NumbersTheShardsOfAVariableThatIsCut) {
  EXPECT_EQ(shard_name("table", 3, 4), "table/part_3");
  EXPECT_EQ(shard_name("bias", 0, 1), "bias");
}

}  // namespace
}  // namespace lockstep
