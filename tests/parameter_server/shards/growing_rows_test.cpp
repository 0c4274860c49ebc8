#include "lockstep/parameter_server/shards/growing_rows.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/parameter_server/shards/grown_shard.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using testing::grown_like;
using testing::grown_shard;
using ::testing::HasSubstr;
using testing::IdBatch;
using testing::initial_of_id;
using testing::kGrownBits;
using testing::kGrownColumns;
using testing::kGrownIds;
using testing::kGrownValues;
using testing::push_batch;
using testing::random_batch;
using testing::row_of_id;
using testing::rules;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

TEST(GrowingRows, TrainAsATableInWhichAllRowsAreKnown) {
  for (const auto& rule : rules()) {
    std::mt19937_64 random(1);
    at::manual_seed(1);
    auto grown = grown_shard(rule);
    ParameterShard dense("d", make_values(kGrownValues, {0, kGrownIds}, grown_like()), rule);
    for (uint64_t closure = 0; closure < 40; ++closure) {
      const auto batch = random_batch(random);
      push_batch(grown, batch, closure);
      std::vector<int64_t> ids;
      std::vector<at::Tensor> gradients{grown_like()};
      for (const auto& [id, gradient] : batch.gradients) {
        ids.push_back(id);
        gradients.push_back(gradient);
      }
      dense.push_rows(at::tensor(ids, at::kLong), at::cat(gradients), {.id = {closure, 0}, .lr = 0.1});
    }
    for (int64_t id = 0; id < kGrownIds; ++id)
      ASSERT_TRUE(row_of_id(grown, id).equal(dense.pull().values.narrow(0, id, 1))) << id;
    EXPECT_TRUE(row_of_id(grown, 12345).equal(initial_of_id(12345)));
  }
}

TEST(GrowingRows, TrainRowsFromTheSameUpdateOnAsATableWithAFilter) {
  for (const auto& rule : rules()) {
    std::mt19937_64 random(2);
    at::manual_seed(2);
    const RowFilter filter{.min_frequency = 3};
    auto grown = grown_shard(rule, filter);
    ParameterShard dense("d", make_values(kGrownValues, {0, kGrownIds}, grown_like()), rule,
                         FilteredRows{filter, kGrownValues, {0, kGrownIds}});
    for (uint64_t closure = 0; closure < 40; ++closure) {
      const auto batch = random_batch(random);
      push_batch(grown, batch, closure);
      std::vector<int64_t> ids;
      std::vector<at::Tensor> gradients{grown_like()};
      for (const auto& [id, gradient] : batch.gradients) {
        ids.push_back(id);
        gradients.push_back(gradient);
      }
      dense.push_rows(at::tensor(ids, at::kLong), at::cat(gradients), {.id = {closure, 0}, .lr = 0.1});
      for (int64_t id = 0; id < kGrownIds; ++id)
        ASSERT_TRUE(row_of_id(grown, id).equal(dense.pull().values.narrow(0, id, 1))) << id;
    }
    EXPECT_LT(grown.extent().rows, kGrownIds);  // rare ones were not made
  }
}

/// A table that grows, as a map by row number.
class MappedRows {
 public:
  MappedRows(const RowFilter& filter, size_t capacity) : filter_(filter), capacity_(capacity) {}

  /// Makes a step of SGD at a rate of 0.1.
  void step(const IdBatch& batch) {
    ++update_;
    const auto [rows, gradients] = batch.as_rows();
    std::vector<int64_t> known, made;
    for (int64_t i = 0; i < rows.numel(); ++i) {
      const auto row = rows[i].item<int64_t>();
      if (rows_.contains(row)) {
        known.push_back(i);
      } else if (filter_.min_frequency <= 1 || ++counts_[row] >= filter_.min_frequency) {
        made.push_back(i);
      }
    }
    for (const int64_t i : known) use(rows[i].item<int64_t>(), gradients.narrow(0, i, 1));
    for (const int64_t i : made) {
      const auto row = rows[i].item<int64_t>();
      if (rows_.size() == capacity_) {
        const auto oldest = std::min_element(
            rows_.begin(), rows_.end(),
            [](const auto& one, const auto& other) { return one.second.order < other.second.order; });
        if (oldest->second.update == update_) break;
        rows_.erase(oldest);
      }
      rows_[row].value = initial_of_id(id_of_scattered_row(row, kGrownBits));
      use(row, gradients.narrow(0, i, 1));
    }
    if (filter_.steps_to_live == 0) return;
    std::erase_if(rows_,
                  [&](const auto& each) { return update_ - each.second.update >= filter_.steps_to_live; });
    if (update_ % filter_.steps_to_live == 0)
      for (auto& [row, count] : counts_) count /= 2;
  }
  at::Tensor row_of(int64_t id) const {
    const auto found = rows_.find(scattered_row(id, kGrownBits));
    return found == rows_.end() ? initial_of_id(id) : found->second.value;
  }
  size_t size() const { return rows_.size(); }

 private:
  struct Row {
    at::Tensor value;
    int64_t update = 0;
    int64_t order = 0;
  };
  void use(int64_t row, const at::Tensor& gradient) {
    auto& own = rows_[row];
    own.value = own.value - gradient * 0.1;
    own.update = update_;
    own.order = ++uses_;
  }

  const RowFilter filter_;
  const size_t capacity_;
  std::map<int64_t, Row> rows_;
  std::map<int64_t, int64_t> counts_;
  int64_t update_ = 0;
  int64_t uses_ = 0;
};

TEST(GrowingRows, ComeAndGoAsInAMapOverRandomUpdatesAndRestarts) {
  std::mt19937_64 random(3);
  at::manual_seed(3);
  int num_full = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const RowFilter filter{.min_frequency = trial % 4, .steps_to_live = trial % 3 * 5};
    // With a filter, an eighth of the limit is for counts, which must not collide here.
    const int64_t max_bytes = trial % 5 == 0 ? 0 : 1200 + 80 * (trial % 7);
    if (max_bytes > 0 && filter.min_frequency > 1) continue;
    const auto make = [&] {
      return std::make_unique<ParameterShard>("t", grown_like(), SgdRule{},
                                              FilteredRows{filter, kGrownValues, {0, 1 << kGrownBits}},
                                              RowGrowth{max_bytes, kGrownBits});
    };
    auto shard = make();
    // A row of 24 bytes takes 32 more for its place and 4 for its chain; see MemoryRowStore.
    const auto capacity = max_bytes == 0 ? size_t{1} << 30 : static_cast<size_t>((max_bytes - 608) / 60);
    MappedRows mapped(filter, capacity);
    for (uint64_t closure = 0; closure < 50; ++closure) {
      const auto batch = random_batch(random);
      push_batch(*shard, batch, closure);
      mapped.step(batch);
      ASSERT_EQ(shard->extent().rows, mapped.size()) << trial << " " << closure;
      num_full += mapped.size() == capacity ? 1 : 0;
      if (max_bytes > 0) {
        ASSERT_LE(shard->extent().bytes, max_bytes);
      }
      for (int64_t id = 0; id < kGrownIds; ++id)
        ASSERT_LT((row_of_id(*shard, id) - mapped.row_of(id)).abs().max().item<double>(), 1e-12);
      if (random() % 8 == 0) {
        const auto saved = shard->save();
        shard = make();
        shard->restore(saved);
      }
    }
  }
  EXPECT_GT(num_full, 100);
}

TEST(GrowingRows, RestoredRowsGoOnAsIfNothingHappened) {
  const RowFilter filter{.min_frequency = 2, .steps_to_live = 6};
  for (const auto& rule : rules()) {
    std::mt19937_64 random(4);
    at::manual_seed(4);
    auto one = grown_shard(rule, filter, 6000);
    for (uint64_t closure = 0; closure < 20; ++closure) push_batch(one, random_batch(random), closure);
    auto other = grown_shard(rule, filter, 6000);
    other.restore(one.save());
    for (uint64_t closure = 20; closure < 60; ++closure) {
      const auto batch = random_batch(random);
      push_batch(one, batch, closure);
      push_batch(other, batch, closure);
    }
    const auto left = one.save(), right = other.save();
    EXPECT_TRUE(left.values.equal(right.values));
    ASSERT_EQ(left.optimizer.size(), right.optimizer.size());
    for (size_t i = 0; i < left.optimizer.size(); ++i)
      EXPECT_TRUE(left.optimizer[i].second.equal(right.optimizer[i].second)) << left.optimizer[i].first;
    EXPECT_GT(left.values.size(0), 0);
  }
}

TEST(GrowingRows, ASmallerLimitKeepsTheRowsUsedLast) {
  auto large = grown_shard(SgdRule{});
  for (uint64_t closure = 0; closure < kGrownIds; ++closure) {
    IdBatch batch;
    batch.gradients[static_cast<int64_t>(closure)] = at::ones({1, kGrownColumns}, at::kDouble);
    push_batch(large, batch, closure);
  }
  auto small = grown_shard(SgdRule{}, {}, 608 + 60 * 10);
  small.restore(large.save());
  ASSERT_EQ(small.extent().rows, 10);
  for (int64_t id = 0; id < kGrownIds; ++id)
    EXPECT_TRUE(row_of_id(small, id).equal(id < kGrownIds - 10 ? initial_of_id(id) : row_of_id(large, id)));
}

TEST(GrowingRows, RefusesWhatCannotBeAndChangesNothing) {
  auto shard = grown_shard(SgdRule{});
  IdBatch batch;
  batch.gradients[4] = at::ones({1, kGrownColumns}, at::kDouble);
  push_batch(shard, batch, 0);
  const auto before = shard.save();
  EXPECT_THAT([&] { shard.pull(); },
              ThrowsMessage<InvalidArgument>(StartsWith("t: expected numbers of rows")));
  const PushedStep step{.id = {1, 0}, .lr = 0.1};
  EXPECT_THAT(
      [&] {
        shard.push(at::ones({1, kGrownColumns}, at::kDouble), step);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("as it grows")));
  const auto row = [](int64_t number) { return at::full({1}, number, at::kLong); };
  EXPECT_THAT(
      [&] {
        shard.push_rows(row(int64_t{1} << kGrownBits), at::ones({1, 3}, at::kDouble), step);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("1048576")));
  EXPECT_THAT(
      [&] {
        shard.push_rows(row(4), at::ones({1, 2}, at::kDouble), step);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("expected gradients")));
  EXPECT_THAT(
      [&] {
        grown_shard(SgdRule{.momentum = 0.9}).push_rows(row(4), at::ones({1, 3}, at::kDouble), step);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("momentum")));
  for (const std::string name : {"rows", "row_last_update", "step"}) {
    auto wrong = shard.save();
    for (auto& [part, tensor] : wrong.optimizer)
      if (part == name) tensor = name == "step" ? at::zeros({2}) : at::full({1}, int64_t{1} << 40, at::kLong);
    EXPECT_THAT([&] { shard.restore(wrong); }, ThrowsMessage<InvalidArgument>(HasSubstr(name)));
  }
  EXPECT_TRUE(shard.save().values.equal(before.values));
  EXPECT_THAT(
      [] { grown_shard(SgdRule{}, {}, 100); },
      ThrowsMessage<InvalidArgument>(AllOf(StartsWith("t: "), HasSubstr("max_bytes"), HasSubstr("100"))));
  EXPECT_THAT([] { grown_shard(SgdRule{}, {.min_frequency = 40000}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("min_frequency: expected 0 to 32767, but got 40000")));
  EXPECT_THAT(
      [&] {
        shard.check_alike({1 << kGrownBits, 3}, at::kDouble, SgdRule{}, shard.filtered());
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("expected a table that grows")));
  EXPECT_THAT(
      [&] {
        shard.check_alike({1 << kGrownBits, 3}, at::kDouble, SgdRule{}, shard.filtered(),
                          RowGrowth{5, kGrownBits});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("but got 5 bytes")));
}

}  // namespace
}  // namespace lockstep
