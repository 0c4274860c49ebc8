#include "lockstep/parameter_server/shards/growing_assembly.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/parameter_server/shards/grown_shard.h"

namespace lockstep {
namespace {

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
using ::testing::ThrowsMessage;

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

TEST(GrowingAssembly, ThreeServersOfATableWithNumbersWarmStartOneThatGrows) {
  // As a run with ShardedEmbedding on three servers leaves it, for one server with a GrowingEmbedding.
  std::vector<SavedShard> parts;
  std::vector<at::Tensor> values;
  at::manual_seed(9);
  for (const auto& range : cut_rows(kGrownIds, 3)) {
    ParameterShard dense("d", make_values(kGrownValues, range, grown_like()), AdamRule{});
    for (uint64_t closure = 0; closure < 7; ++closure)
      dense.push_rows(at::arange(range.size()), at::randn({range.size(), kGrownColumns}, at::kDouble),
                      {.id = {closure, 0}, .lr = 0.1});
    parts.push_back({range, dense.save()});
    values.push_back(dense.pull().values);
  }
  const RowGrowth growth{.num_bits = kGrownBits, .takes_numbered_rows = true};
  auto one = grown_shard(AdamRule{});
  one.restore(assemble_growing(parts, *one.filtered(), growth));
  EXPECT_EQ(one.extent().rows, kGrownIds);
  const auto all = at::cat(values);
  for (int64_t id = 0; id < kGrownIds; ++id)
    ASSERT_TRUE(row_of_id(one, id).equal(all.narrow(0, id, 1))) << id;
  EXPECT_TRUE(row_of_id(one, kGrownIds).equal(initial_of_id(kGrownIds)));
  // Their optimizer's state goes on, too: the same step has the same result.
  ParameterShard dense("d", all, AdamRule{});
  ParameterShard::Saved whole{all, {}, 7, parts[0].saved.pushes, nullptr};
  for (const auto& [name, tensor] : parts[0].saved.optimizer) {
    std::vector<at::Tensor> own;
    for (const auto& part : parts)
      for (const auto& [other, state] : part.saved.optimizer)
        if (other == name) own.push_back(state);
    whole.optimizer.emplace_back(name, tensor.dim() == 0 ? tensor : at::cat(own));
  }
  dense.restore(whole);
  IdBatch batch;
  for (int64_t id = 0; id < kGrownIds; id += 7)
    batch.gradients[id] = at::randn({1, kGrownColumns}, at::kDouble);
  push_batch(one, batch, 100);
  std::vector<int64_t> ids;
  std::vector<at::Tensor> gradients;
  for (const auto& [id, gradient] : batch.gradients) {
    ids.push_back(id);
    gradients.push_back(gradient);
  }
  dense.push_rows(at::tensor(ids, at::kLong), at::cat(gradients), {.id = {100, 0}, .lr = 0.1});
  for (int64_t id = 0; id < kGrownIds; ++id)
    ASSERT_TRUE(row_of_id(one, id).equal(dense.pull().values.narrow(0, id, 1))) << id;
}

TEST(GrowingAssembly, RowsOfSeveralServersKeepTheOrderOfTheirLastUse) {
  const auto halves = cut_rows(int64_t{1} << kGrownBits, 2);
  ParameterShard one = grown_shard(SgdRule{}, {}, 0, halves[0]);
  ParameterShard two = grown_shard(SgdRule{}, {}, 0, halves[1]);
  ParameterShard known = grown_shard(SgdRule{});
  for (uint64_t closure = 0; closure < kGrownIds; ++closure) {
    IdBatch batch;
    batch.gradients[static_cast<int64_t>(closure * 7 % kGrownIds)] =
        at::ones({1, kGrownColumns}, at::kDouble);
    push_batch(one, batch, closure, halves[0]);
    push_batch(two, batch, closure, halves[1]);
    push_batch(known, batch, closure);
  }
  // Each has made all updates, most of which had rows of the other one only.
  auto united = grown_shard(SgdRule{}, {}, 608 + 60 * 10);
  united.restore(
      assemble_growing(saved_of({&one, &two}, halves), *united.filtered(), RowGrowth{0, kGrownBits}));
  ASSERT_EQ(united.extent().rows, 10);
  for (uint64_t closure = 0; closure < kGrownIds; ++closure) {
    const auto id = static_cast<int64_t>(closure * 7 % kGrownIds);
    EXPECT_TRUE(
        row_of_id(united, id).equal(closure < kGrownIds - 10 ? initial_of_id(id) : row_of_id(known, id)))
        << id;
  }
}

}  // namespace
}  // namespace lockstep
