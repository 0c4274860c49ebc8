#include "lockstep/training/layouts/layout_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// A model of blocks between two other parts, with numbers like those of a small Gpt.
PlannedModel searched_model(size_t blocks) {
  PlannedPart block{.name = "block", .is_recomputed = true};
  block.elements = {.whole = 1e3, .cut = 1e6};
  block.largest_tensor.cut = 4e5;
  block.input.between = 1e5;
  block.saved = {.whole = 2e5, .cut = 1e6, .between = 3e5};
  block.forward_extra.whole = 1e5;
  block.backward_extra.cut = 4e5;
  block.forward.flops.cut = 2e9;
  block.backward.flops.cut = 4e9;
  block.forward.bytes.between = 1e7;
  block.summed_forward = block.summed_backward = 2e5;
  block.keys_and_values = 1e5;
  PlannedPart end{.name = "end"};
  end.elements.cut = 5e5;
  end.input.between = 1e5;
  end.saved.cut = 8e5;
  end.forward.flops.cut = 1e9;
  end.backward.flops.cut = 2e9;
  PlannedModel model{.kinds = {end, block}, .parts = {0}};
  model.parts.insert(model.parts.end(), blocks, 1);
  model.parts.push_back(0);
  model.cut_sizes = {8, 12};
  model.sequence_length = 64;
  return model;
}

PlannedCluster searched_cluster(int64_t devices) {
  return {.devices = devices,
          .devices_per_machine = std::min<int64_t>(devices, 4),
          .memory_bytes = 60e6,
          .flops_per_second = 1e12,
          .bytes_per_second = 1e11,
          .operator_seconds = 1e-6,
          .within = {1e-6, 1e10},
          .between = {1e-5, 4e9}};
}

using LayoutKey =
    std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int, int64_t, bool, std::string, int64_t>;

LayoutKey key_of(const PlannedLayout& layout) {
  return {layout.data,  layout.shard,         layout.pipeline,   layout.context,  layout.tensor,
          layout.stage, layout.micro_batches, layout.recomputes, layout.schedule, layout.stages_per_rank};
}

/// All layouts with numbers up to the devices, by plain loops.
std::set<LayoutKey> layouts_by_loops(const LayoutPlanner& planner, const std::set<int64_t>& micro_batches) {
  std::set<LayoutKey> keys;
  const int64_t most = planner.cluster().devices;
  PlannedLayout layout;
  for (layout.data = 1; layout.data <= most; ++layout.data)
    for (layout.shard = 1; layout.shard <= most; ++layout.shard)
      for (layout.pipeline = 1; layout.pipeline <= most; ++layout.pipeline)
        for (layout.context = 1; layout.context <= most; ++layout.context)
          for (layout.tensor = 1; layout.tensor <= most; ++layout.tensor)
            for (layout.stage = 0; layout.stage <= 3; ++layout.stage)
              for (const int64_t count : micro_batches)
                for (const std::string schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"})
                  for (const int64_t stages : {1, 2, 4})
                    for (const bool recomputes : {false, true}) {
                      layout.micro_batches = count;
                      layout.schedule = schedule;
                      layout.stages_per_rank = stages;
                      layout.recomputes = recomputes;
                      const bool is_plain = layout.pipeline > 1 || schedule == "1f1b";
                      const bool has_shards = (layout.stage > 0) == (layout.shard > 1);
                      if (is_plain && has_shards && !planner.refusal(layout)) keys.insert(key_of(layout));
                    }
  return keys;
}

TEST(LayoutSearch, TriesAllLayouts) {
  const LayoutPlanner planner(searched_model(6), searched_cluster(8), {.global_batch = 16});
  std::set<LayoutKey> found;
  size_t count = 0;
  for_each_layout(planner, {}, [&](const PlannedLayout& layout) {
    ++count;
    found.insert(key_of(layout));
    EXPECT_EQ(layout.ranks(), 8);
    EXPECT_EQ(layout.has_sequence_shards, layout.tensor > 1);
  });
  EXPECT_EQ(count, found.size());
  // A replica of 1 to 8 has 16 to 2 examples: micro-batches of 1, 2, 4, ... of them.
  EXPECT_EQ(found, layouts_by_loops(planner, {1, 2, 4, 8, 16}));
}

// A planner remembers stages and schedules, which must be those of each layout.
TEST(LayoutSearch, PlansEachLayoutAsIfItWereTheOnlyOne) {
  const LayoutPlanner planner(searched_model(14), searched_cluster(8), {.global_batch = 16});
  for_each_layout(planner, {}, [&](const PlannedLayout& layout) {
    const LayoutPlanner fresh(planner.model(), planner.cluster(), planner.training());
    EXPECT_EQ(planner.memory(layout).peak(), fresh.memory(layout).peak()) << layout.mesh();
    EXPECT_EQ(planner.time(layout).seconds(), fresh.time(layout).seconds()) << layout.mesh();
  });
}

struct FittingLayout {
  double seconds = 0;
  double peak = 0;
  int changes = 0;  // of replicas that each have everything
};

/// The fastest first, but for the simplest of those within 1 % of it.
void rank_by_hand(std::vector<FittingLayout>& layouts) {
  if (layouts.empty()) return;
  std::sort(layouts.begin(), layouts.end(), [](const auto& a, const auto& b) {
    return std::tie(a.seconds, a.peak) < std::tie(b.seconds, b.peak);
  });
  const double most = 1.01 * layouts[0].seconds;
  size_t simplest = 0;
  for (size_t i = 1; i < layouts.size() && layouts[i].seconds <= most; ++i) {
    if (layouts[i].changes < layouts[simplest].changes) simplest = i;
  }
  const auto begin = layouts.begin();
  std::rotate(begin, begin + static_cast<std::ptrdiff_t>(simplest),
              begin + static_cast<std::ptrdiff_t>(simplest) + 1);
}

TEST(LayoutSearch, FindsTheFastestOfAllThatFitAndOfTiesTheSimplest) {
  int moved = 0;
  std::mt19937 random(7);
  for (int trial = 0; trial < 12; ++trial) {
    PlannedCluster cluster = searched_cluster(8);
    const auto between = [&](double low, double high) {
      return std::uniform_real_distribution(low, high)(random);
    };
    cluster.memory_bytes = between(20e6, 120e6);
    cluster.within.bytes_per_second = between(1e8, 1e11);
    cluster.between.bytes_per_second = between(1e8, 1e10);
    cluster.taken_share = trial % 3 == 0 ? 1 : 0;
    const LayoutPlanner planner(searched_model(6), cluster, {.global_batch = 16});
    std::vector<FittingLayout> fitting;
    size_t tried = 0;
    for_each_layout(planner, {}, [&](const PlannedLayout& layout) {
      ++tried;
      const double peak = planner.memory(layout).peak();
      if (peak > cluster.memory_bytes) return;
      fitting.push_back({planner.time(layout).seconds(), peak, num_changes(layout, {.data = 8})});
    });
    rank_by_hand(fitting);
    const auto search = search_layouts(planner, {.most_ranked = 20});
    EXPECT_EQ(search.num_candidates, tried);
    EXPECT_EQ(search.num_fit, fitting.size());
    ASSERT_EQ(search.ranked.size(), std::min<size_t>(20, fitting.size()));
    for (size_t i = 0; i < search.ranked.size(); ++i) {
      EXPECT_DOUBLE_EQ(search.ranked[i].time.seconds(), fitting[i].seconds);
      EXPECT_LE(search.ranked[i].memory.peak(), cluster.memory_bytes);
    }
    if (fitting.size() > 1 && fitting[1].seconds < fitting[0].seconds) ++moved;
  }
  EXPECT_GT(moved, 0) << "no trial has a tie";
}

TEST(LayoutSearch, NamesTheSmallestChangeThatFits) {
  const LayoutPlanner planner(searched_model(6), searched_cluster(8), {.global_batch = 16});
  const auto search = search_layouts(planner, {.most_unfit = 100});
  ASSERT_FALSE(search.unfit.empty());
  for (const auto& unfit : search.unfit) {
    EXPECT_GT(unfit.memory.peak(), 60e6);
    ASSERT_TRUE(unfit.change);
    EXPECT_LE(planner.memory(*unfit.change).peak(), 60e6);
    // No layout with fewer changes fits.
    const int changes = num_changes(unfit.layout, *unfit.change);
    for_each_layout(planner, {}, [&](const PlannedLayout& other) {
      if (num_changes(unfit.layout, other) >= changes) return;
      EXPECT_GT(planner.memory(other).peak(), 60e6);
    });
  }
}

TEST(LayoutSearch, SaysWhatNeedsLeastIfNothingFits) {
  PlannedCluster cluster = searched_cluster(4);
  cluster.memory_bytes = 1e6;
  const LayoutPlanner planner(searched_model(6), cluster, {.global_batch = 4});
  const auto search = search_layouts(planner);
  EXPECT_TRUE(search.ranked.empty());
  ASSERT_TRUE(search.smallest);
  double least = search.smallest->memory.peak();
  for_each_layout(planner, {},
                  [&](const PlannedLayout& layout) { EXPECT_GE(planner.memory(layout).peak(), least); });
  for (const auto& unfit : search.unfit) EXPECT_FALSE(unfit.change);
}

TEST(LayoutSearch, KeepsToAMesh) {
  const LayoutPlanner planner(searched_model(6), searched_cluster(8), {.global_batch = 16});
  const auto search = search_layouts(planner, {.mesh = "pipeline=2,tensor=4"});
  ASSERT_FALSE(search.ranked.empty());
  for (const auto& choice : search.ranked) EXPECT_EQ(choice.layout.mesh(), "pipeline=2,tensor=4");
}

// A count in place of a time: layouts of 64 devices are many, and few of them are simulated.
TEST(LayoutSearch, PlansMoreThanTenThousandLayouts) {
  PlannedCluster cluster = searched_cluster(64);
  cluster.memory_bytes = 1e9;
  const LayoutPlanner planner(searched_model(62), cluster, {.global_batch = 256});
  EXPECT_GT(search_layouts(planner).num_candidates, 10'000);
}

TEST(LayoutSearch, RefusesToRankNothing) {
  const LayoutPlanner planner(searched_model(2), searched_cluster(1), {});
  EXPECT_THROW(search_layouts(planner, {.most_ranked = 0}), InvalidArgument);
}

// Three kinds of machines, on which different kinds of plans must win.
TEST(LayoutSearch, RanksByWhatIsScarce) {
  const auto best = [](PlannedCluster cluster, PlannedModel model) {
    const LayoutPlanner planner(std::move(model), cluster, {.global_batch = 32});
    return search_layouts(planner).ranked.at(0).layout;
  };
  PlannedCluster fast = searched_cluster(8);
  fast.devices_per_machine = 8;
  fast.memory_bytes = 1e12;
  // Many examples, few parameters, and enough memory: replicas.
  EXPECT_EQ(best(fast, searched_model(6)).replicas(), 8);
  // Parameters that no link can sum in time: stages or parts of layers.
  PlannedModel large = searched_model(6);
  large.kinds[1].elements.cut = 1e9;
  fast.within.bytes_per_second = 1e9;
  EXPECT_EQ(best(fast, large).replicas(), 1);
  // The same with no more memory than a part of the parameters needs, a fast link, and layers that nobody
  // cuts: shards, as a pipeline would wait.
  large.cut_sizes.clear();
  large.sequence_length = 0;
  fast.within.bytes_per_second = 1e13;
  fast.memory_bytes = 32e9;
  EXPECT_EQ(best(fast, large).stage, 3);
}

}  // namespace
}  // namespace lockstep
