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

#include "lockstep/parameter_server/shards/growing_assembly.h"
#include "lockstep/parameter_server/shards/parameter_shard.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr int64_t kGrownColumns = 3;
constexpr int kGrownBits = 20;
constexpr int64_t kGrownIds = 60;
const InitialValues kGrownValues = NormalValues{.std = 0.5, .seed = 3};

at::Tensor grown_like() {
  return at::empty({0, kGrownColumns}, at::kDouble);
}

at::Tensor initial_of_id(int64_t id) {
  return make_values(kGrownValues, {id, id + 1}, grown_like());
}

ParameterShard grown_shard(const UpdateRule& rule, const RowFilter& filter = {}, int64_t max_bytes = 0,
                           const RowRange& rows = {0, int64_t{1} << kGrownBits}) {
  return {"t", grown_like(), rule, FilteredRows{filter, kGrownValues, rows},
          RowGrowth{max_bytes, kGrownBits}};
}

std::vector<UpdateRule> rules() {
  return {SgdRule{}, AdagradRule{.initial_accumulator_value = 0.1}, AdamRule{}, AdamRule{.amsgrad = true}};
}

/// A batch of ids with a gradient each.
struct IdBatch {
  std::map<int64_t, at::Tensor> gradients;

  /// Row numbers and gradients for a table that grows, in order.
  std::pair<at::Tensor, at::Tensor> as_rows(const RowRange& range = {0, int64_t{1} << kGrownBits}) const {
    std::map<int64_t, at::Tensor> by_row;
    for (const auto& [id, gradient] : gradients) {
      const int64_t row = scattered_row(id, kGrownBits);
      if (row >= range.begin && row < range.end) by_row[row - range.begin] = gradient;
    }
    std::vector<int64_t> rows;
    std::vector<at::Tensor> values{grown_like()};
    for (const auto& [row, gradient] : by_row) {
      rows.push_back(row);
      values.push_back(gradient);
    }
    return {at::tensor(rows, at::kLong), at::cat(values)};
  }
};

/// Small ids are frequent.
IdBatch random_batch(std::mt19937_64& random) {
  IdBatch batch;
  for (uint64_t i = random() % 12; i > 0; --i) {
    const auto id = static_cast<int64_t>(random() % (1 + random() % kGrownIds));
    batch.gradients[id] = at::randn({1, kGrownColumns}, at::kDouble);
  }
  return batch;
}

at::Tensor row_of_id(const ParameterShard& shard, int64_t id, const RowRange& range = {0, 0}) {
  return shard.pull_rows(at::full({1}, scattered_row(id, kGrownBits) - range.begin, at::kLong)).values;
}

void push_batch(ParameterShard& shard, const IdBatch& batch, uint64_t closure,
                const RowRange& range = {0, int64_t{1} << kGrownBits}) {
  const auto [rows, gradients] = batch.as_rows(range);
  ASSERT_EQ(shard.push_rows(rows, gradients, {.id = {closure, 0}, .lr = 0.1}).outcome, PushOutcome::kApplied);
}

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

/// The parts of a table of the whole range that `count` servers hold, after the same updates.
std::vector<SavedShard> saved_parts(int64_t count, const UpdateRule& rule) {
  std::vector<SavedShard> parts;
  for (const auto& range : cut_rows(int64_t{1} << kGrownBits, count)) {
    std::mt19937_64 random(5);
    at::manual_seed(5);
    auto shard = grown_shard(rule, {}, 0, range);
    for (uint64_t closure = 0; closure < 30; ++closure)
      push_batch(shard, random_batch(random), closure, range);
    parts.push_back({range, shard.save()});
  }
  return parts;
}

TEST(GrowingAssembly, AnotherNumberOfServersHasTheSameRows) {
  for (const auto& rule : rules()) {
    const auto whole = saved_parts(1, rule);
    for (const auto& [before, after] : {std::pair(3, 1), std::pair(1, 2), std::pair(2, 3)}) {
      const auto parts = saved_parts(before, rule);
      int64_t num_rows = 0;
      for (const auto& range : cut_rows(int64_t{1} << kGrownBits, after)) {
        const FilteredRows filtered{{}, kGrownValues, range};
        const auto saved = assemble_growing(parts, filtered, RowGrowth{0, kGrownBits});
        auto shard = grown_shard(rule, {}, 0, range);
        shard.restore(saved);
        EXPECT_EQ(shard.save().version, 30U);
        num_rows += shard.extent().rows;
        auto expected = grown_shard(rule);
        expected.restore(whole[0].saved);
        for (int64_t id = 0; id < kGrownIds; ++id) {
          const int64_t row = scattered_row(id, kGrownBits);
          if (row < range.begin || row >= range.end) continue;
          ASSERT_TRUE(row_of_id(shard, id, range).equal(row_of_id(expected, id)));
        }
      }
      EXPECT_EQ(num_rows, whole[0].saved.values.size(0));
    }
  }
}

TEST(GrowingAssembly, RowsOfATableWithNumbersAreThoseOfItsIds) {
  const RowFilter filter{.min_frequency = 2};
  for (const bool is_filtered : {false, true}) {
    std::mt19937_64 random(6);
    at::manual_seed(6);
    std::vector<SavedShard> parts;
    std::vector<at::Tensor> values;
    std::vector<bool> is_trained(kGrownIds, !is_filtered);
    for (const auto& range : cut_rows(kGrownIds, 2)) {
      std::optional<FilteredRows> filtered;
      if (is_filtered) filtered = FilteredRows{filter, kGrownValues, range};
      ParameterShard dense("d", make_values(kGrownValues, range, grown_like()), AdagradRule{}, filtered);
      std::map<int64_t, int> times;
      for (uint64_t closure = 0; closure < 20; ++closure) {
        std::vector<int64_t> rows;
        for (int64_t row = 0; row < range.size(); ++row)
          if (random() % static_cast<uint64_t>(row + 1) == 0) rows.push_back(row);
        for (const int64_t row : rows)
          if (++times[row] >= 2) is_trained[static_cast<size_t>(range.begin + row)] = true;
        dense.push_rows(at::tensor(rows, at::kLong),
                        at::randn({static_cast<int64_t>(rows.size()), kGrownColumns}, at::kDouble),
                        {.id = {closure, 0}, .lr = 0.1});
      }
      parts.push_back({range, dense.save(), is_filtered ? std::optional(filter) : std::nullopt});
      values.push_back(dense.pull().values);
    }
    const RowRange all{0, int64_t{1} << kGrownBits};
    auto grown = grown_shard(AdagradRule{}, is_filtered ? filter : RowFilter{});
    EXPECT_THAT([&] { assemble_growing(parts, *grown.filtered(), *grown.growth()); },
                ThrowsMessage<InvalidArgument>(HasSubstr("but got rows 0 to 29 of one that does not")));
    const RowGrowth growth{.num_bits = kGrownBits, .takes_numbered_rows = true};
    grown.restore(assemble_growing(parts, *grown.filtered(), growth));
    EXPECT_EQ(grown.extent().rows, std::count(is_trained.begin(), is_trained.end(), true));
    for (int64_t id = 0; id < kGrownIds; ++id)
      EXPECT_TRUE(row_of_id(grown, id).equal(at::cat(values).narrow(0, id, 1)));
    auto after = grown_shard(AdagradRule{}, is_filtered ? filter : RowFilter{}, 0, all);
    after.restore(grown.save());
    EXPECT_EQ(after.save().version, 20U);
    // Another filter from now on changes nothing about which rows were trained.
    for (const int64_t min_frequency : {1, 3}) {
      if (!is_filtered) continue;
      auto other = grown_shard(AdagradRule{}, RowFilter{.min_frequency = min_frequency});
      other.restore(assemble_growing(parts, *other.filtered(), growth));
      EXPECT_EQ(other.extent().rows, grown.extent().rows) << min_frequency;
    }
  }
}

/// Pushes a gradient of ones for an id to the shard that has its row.
void push_id(const std::vector<ParameterShard*>& shards, const std::vector<RowRange>& ranges, int64_t id,
             uint64_t closure) {
  for (size_t i = 0; i < shards.size(); ++i) {
    const int64_t row = scattered_row(id, kGrownBits);
    if (row < ranges[i].begin || row >= ranges[i].end) continue;
    shards[i]->push_rows(at::full({1}, row - ranges[i].begin, at::kLong),
                         at::ones({1, kGrownColumns}, at::kDouble), {.id = {closure, 0}, .lr = 0.1});
  }
}

std::vector<SavedShard> saved_of(const std::vector<ParameterShard*>& shards,
                                 const std::vector<RowRange>& ranges) {
  std::vector<SavedShard> parts;
  for (size_t i = 0; i < shards.size(); ++i) parts.push_back({ranges[i], shards[i]->save()});
  return parts;
}

TEST(GrowingAssembly, CountsOfIdsWithoutARowHoldOnAnotherNumberOfServers) {
  const RowFilter filter{.min_frequency = 3};
  const auto before = cut_rows(int64_t{1} << kGrownBits, 2), after = cut_rows(int64_t{1} << kGrownBits, 3);
  ParameterShard one = grown_shard(SgdRule{}, filter, 0, before[0]);
  ParameterShard two = grown_shard(SgdRule{}, filter, 0, before[1]);
  for (int64_t id = 0; id < 20; ++id) {
    push_id({&one, &two}, before, id, static_cast<uint64_t>(2 * id));
    push_id({&one, &two}, before, id, static_cast<uint64_t>(2 * id + 1));
  }
  const auto parts = saved_of({&one, &two}, before);
  int64_t num_rows = 0;
  for (const RowRange& range : after) {
    ParameterShard shard = grown_shard(SgdRule{}, filter, 0, range);
    shard.restore(assemble_growing(parts, *shard.filtered(), *shard.growth()));
    EXPECT_EQ(shard.extent().rows, 0);
    for (int64_t id = 0; id < 20; ++id) push_id({&shard}, {range}, id, static_cast<uint64_t>(100 + id));
    num_rows += shard.extent().rows;
  }
  EXPECT_EQ(num_rows, 20);
}

TEST(GrowingAssembly, RowsAreAsOldAsTheirOwnServerCounted) {
  const RowFilter filter{.steps_to_live = 10};
  const auto halves = cut_rows(int64_t{1} << kGrownBits, 2);
  ParameterShard one = grown_shard(SgdRule{}, filter, 0, halves[0]);
  ParameterShard two = grown_shard(SgdRule{}, filter, 0, halves[1]);
  // Ids of each half, the first of which gets many more updates.
  std::vector<int64_t> first, second;
  for (int64_t id = 0; id < 100; ++id)
    (scattered_row(id, kGrownBits) < halves[0].end ? first : second).push_back(id);
  uint64_t closure = 0;
  for (int i = 0; i < 50; ++i) push_id({&one, &two}, halves, first[0], closure++);
  push_id({&one, &two}, halves, second[0], closure++);
  const RowRange all{0, int64_t{1} << kGrownBits};
  ParameterShard whole = grown_shard(SgdRule{}, filter, 0, all);
  const auto parts = saved_of({&one, &two}, halves);
  whole.restore(assemble_growing(parts, *whole.filtered(), *whole.growth()));
  for (int i = 0; i < 9; ++i) push_id({&whole}, {all}, first[0], closure++);
  EXPECT_EQ(whole.extent().rows, 2);
  push_id({&whole}, {all}, first[0], closure++);
  EXPECT_EQ(whole.extent().rows, 1);
  EXPECT_THAT(([&] {
                assemble_growing({parts[0], parts[0]}, *whole.filtered(), *whole.growth());
              }),
              ThrowsMessage<InvalidArgument>(HasSubstr("expected each row in one part, but got row")));
  for (const int num_bits : {-1, 1, 63})
    EXPECT_THAT(([&] {
                  assemble_growing(parts, *whole.filtered(), RowGrowth{0, num_bits});
                }),
                ThrowsMessage<InvalidArgument>(HasSubstr("num_bits: expected 2 to 62, but got")));
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
