// Memory that it takes to make a model. Oracle: the bytes that LibTorch's allocator counts, and the model's
// parameters.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "lockstep/measurement/counted_allocator.h"
#include "lockstep/models/gpt/gpt.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"

namespace lockstep {
namespace {

// Before the first tensor is made.
const bool is_counting = (measurement::count_cpu_tensors(), true);

constexpr int64_t kBytes = sizeof(float);

GptOptions deep_gpt(bool has_tied_head) {
  return {.vocabulary_size = 100,
          .max_length = 16,
          .num_layers = 8,
          .num_heads = 4,
          .width = 64,
          .has_tied_head = has_tied_head};
}

struct RankBytes {
  int64_t peak = 0;  ///< while the model was made
  int64_t kept = 0;  ///< parameters
};

RankBytes bytes_of(const Gpt& gpt, const measurement::TensorAccount& account) {
  RankBytes bytes{.peak = account.peak()};
  for (const auto& parameter : gpt->parameters()) bytes.kept += static_cast<int64_t>(parameter.nbytes());
  return bytes;
}

TEST(GptMemoryTest, ARankWithStagesNeverHasTheWholeModel) {
  ASSERT_TRUE(is_counting);
  for (const bool has_tied_head : {false, true}) {
    const GptOptions options = deep_gpt(has_tied_head);
    const int64_t whole = num_gpt_parameters(options) * kBytes;
    MirroredStrategy strategy(cpu_devices(4), {.intra_op_threads = 1, .mesh = {{"pipeline", 4}}});
    std::vector<RankBytes> ranks(4);
    const auto model = strategy.scope([&](ReplicaContext& replica) {
      const auto account = std::make_shared<measurement::TensorAccount>();
      const measurement::TensorAccountGuard guard(account);
      Gpt gpt(options, GptAxes{.stages = &replica.axis("pipeline")});
      ranks[static_cast<size_t>(replica.axis("pipeline").index())] = bytes_of(gpt, *account);
      return gpt;
    });
    for (const auto& [peak, kept] : ranks) {
      EXPECT_GE(peak, kept);
      // Its own part, a block or a table of another stage, and temporary values.
      EXPECT_LE(peak, kept + whole / 5);
      EXPECT_LE(kept, whole / 2);
    }
  }
}

TEST(GptMemoryTest, StagesHaveTheInitialValuesOfTheWholeModel) {
  for (const bool has_tied_head : {false, true}) {
    const GptOptions options = deep_gpt(has_tied_head);
    MirroredStrategy alone(cpu_devices(1), {.intra_op_threads = 1});
    torch::manual_seed(5);
    const auto whole = alone.scope([&](ReplicaContext&) { return Gpt(options); });
    const auto expected = whole.primary()->named_parameters();
    MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1, .mesh = {{"pipeline", 2}}});
    torch::manual_seed(5);
    const auto model = strategy.scope(
        [&](ReplicaContext& replica) { return Gpt(options, GptAxes{.stages = &replica.axis("pipeline")}); });
    int64_t elements = 0;
    for (const auto& own : model.local_values()) {
      for (const auto& item : own->named_parameters()) {
        if (item.value().numel() == 0) continue;
        EXPECT_TRUE(torch::equal(item.value(), expected[item.key()])) << item.key();
        elements += item.value().numel();
      }
    }
    EXPECT_GE(elements, num_gpt_parameters(options));
  }
}

}  // namespace
}  // namespace lockstep
