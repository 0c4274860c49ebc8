#include "lockstep/apps/shared/planning/gpt_parts.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/models/gpt/gpt.h"
#include "lockstep/models/gpt/gpt_cut.h"
#include "lockstep/models/gpt/gpt_flops.h"
#include "lockstep/models/gpt/gpt_presets.h"
#include "lockstep/training/layouts/layout_planner.h"
#include "lockstep/training/planning/memory_plan.h"
#include "lockstep/training/planning/module_recorder.h"

namespace lockstep::apps {
namespace {

struct PlannedGptCase {
  std::string name;
  GptOptions options;
  int64_t length = 32;
};

GptOptions llama_of(GptOptions options) {
  options.positions = GptPositions::kRotary;
  options.norm = GptNorm::kRmsNorm;
  options.activation = GptActivation::kSwiGlu;
  options.has_attention_bias = options.has_mlp_bias = false;
  return options;
}

const std::vector<PlannedGptCase>& planned_gpts() {
  static const std::vector<PlannedGptCase> cases{
      {"Gpt2", {.vocabulary_size = 100, .max_length = 32, .num_layers = 3, .num_heads = 4, .width = 64}},
      {"Gpt2Wide",
       {.vocabulary_size = 70,
        .max_length = 48,
        .num_layers = 4,
        .num_heads = 2,
        .width = 128,
        .hidden_width = 320},
       48},
      {"Gpt2Tied",
       {.vocabulary_size = 200,
        .max_length = 64,
        .num_layers = 3,
        .num_heads = 8,
        .width = 64,
        .has_tied_head = true},
       16},
      {"Llama", llama_of({.vocabulary_size = 100,
                          .max_length = 32,
                          .num_layers = 3,
                          .num_heads = 4,
                          .width = 64,
                          .hidden_width = 172})},
      {"LlamaGrouped", llama_of({.vocabulary_size = 90,
                                 .max_length = 64,
                                 .num_layers = 5,
                                 .num_heads = 8,
                                 .num_key_value_heads = 2,
                                 .width = 64,
                                 .hidden_width = 320})},
      {"LlamaTied", llama_of({.vocabulary_size = 300,
                              .max_length = 32,
                              .num_layers = 4,
                              .num_heads = 4,
                              .num_key_value_heads = 1,
                              .width = 64,
                              .hidden_width = 200,
                              .has_tied_head = true})}};
  return cases;
}

RecordedStep recorded(const PlannedGptCase& of) {
  at::set_num_threads(1);
  ModuleRecorder recorder;
  Gpt model(of.options, [&](const ModelPart& part) {
    return WrappedPart{part.module, [&recorder, name = part.name](const auto& function, const auto& x) {
                         return recorder.call(name, function, x);
                       }};
  });
  return recorder.record(
      *model,
      [&](int64_t examples) {
        const auto tokens = [&] { return torch::randint(of.options.vocabulary_size, {examples, of.length}); };
        return std::vector{tokens(), tokens()};
      },
      [&](const std::vector<torch::Tensor>& batch) { return model->losses(batch[0], batch[1]).mean(); });
}

/// Bytes of an example that are live beyond those at the event `from`, at most, before the event `to`;
/// without the gradients of parameters.
double most_live(const RecordedStep& record, int from, int to) {
  double live = 0, most = 0;
  for (int event = from; event < to; ++event) {
    const auto& [kind, number] = record.events[static_cast<size_t>(event)];
    const bool is_allocated = kind == RecordedEvent::Kind::kAllocate;
    if (!is_allocated && kind != RecordedEvent::Kind::kFree) continue;
    const auto& allocation = record.allocations[static_cast<size_t>(number)];
    if (allocation.parameter < 0) live += (is_allocated ? 1 : -1) * allocation.bytes.per_example;
    most = std::max(most, live);
  }
  return most;
}

double flops_of_block(const RecordedStep& record, int block, bool is_backward) {
  double sum = 0;
  for (const auto& one : record.operators)
    if (one.block == block && one.is_backward == is_backward) sum += one.flops.per_example;
  return sum;
}

class GptPartsTest : public testing::TestWithParam<size_t> {
 protected:
  const PlannedGptCase& gpt() const { return planned_gpts()[GetParam()]; }
};

TEST_P(GptPartsTest, HaveTheParametersOfTheModel) {
  const auto planned = planned_gpt(gpt().options, gpt().length, PlannedNumbers::kFloat32);
  EXPECT_EQ(planned.elements(), static_cast<double>(num_gpt_parameters(gpt().options)));
  const auto record = recorded(gpt());
  double of_block = 0;
  for (const auto& parameter : record.parameters)
    if (parameter.name.starts_with("blocks.1.")) of_block += static_cast<double>(parameter.elements);
  EXPECT_EQ(planned.kinds[1].elements.sum(), of_block);
}

TEST_P(GptPartsTest, KeepAndComputeWhatTheRecorderSees) {
  const auto record = recorded(gpt());
  const auto block = planned_gpt(gpt().options, gpt().length, PlannedNumbers::kFloat32).kinds[1];
  const auto number =
      std::find(record.blocks.begin(), record.blocks.end(), "blocks.1") - record.blocks.begin();
  const auto call = *std::find_if(record.calls.begin(), record.calls.end(),
                                  [&](const auto& one) { return one.block == number; });
  double saved = 0;
  for (const auto& allocation : record.allocations)
    if (allocation.is_saved && allocation.call >= 0 &&
        record.calls[static_cast<size_t>(allocation.call)].block == number)
      saved += allocation.bytes.per_example;
  // A block keeps its input, and its result is the input of the next one: both have the same size.
  EXPECT_DOUBLE_EQ(block.saved.sum(), saved);
  const double vectors = block.input.sum();
  EXPECT_DOUBLE_EQ(block.forward_extra.sum() + block.saved.sum(),
                   most_live(record, call.begins_at, call.ends_at) + vectors);
  EXPECT_DOUBLE_EQ(block.backward_extra.sum() - vectors,
                   most_live(record, call.backward_begins_at, call.backward_ends_at));
  EXPECT_DOUBLE_EQ(block.forward.flops.sum(), flops_of_block(record, static_cast<int>(number), false));
  EXPECT_DOUBLE_EQ(block.backward.flops.sum(), flops_of_block(record, static_cast<int>(number), true));
}

TEST_P(GptPartsTest, NeedTheMemoryThatTheRecordedStepNeeds) {
  const auto record = recorded(gpt());
  for (const int64_t replicas : {1, 2, 4}) {
    for (int stage = 0; stage <= (replicas > 1 ? 3 : 0); ++stage) {
      for (const bool recomputes : {false, true}) {
        for (const int64_t micro_batches : {1, 3}) {
          TrainingLayout layout{
              .replicas = replicas, .stage = stage, .examples = 24, .micro_batches = micro_batches};
          if (recomputes) layout.recomputed = record.blocks_named("blocks.");
          const double expected = static_cast<double>(plan_memory(record, layout).peak());
          PlannedLayout planned{.stage = stage, .micro_batches = micro_batches, .recomputes = recomputes};
          (stage == 0 ? planned.data : planned.shard) = replicas;
          const LayoutPlanner planner(
              planned_gpt(gpt().options, gpt().length, PlannedNumbers::kFloat32),
              {.devices = replicas, .devices_per_machine = replicas, .shares_units = true},
              {.global_batch = 24 * replicas * micro_batches});
          EXPECT_NEAR(planner.memory(planned).peak() / expected, 1, 0.05)
              << planned.mesh() << " stage " << stage << " recomputes " << recomputes << " micro-batches "
              << micro_batches;
        }
      }
    }
  }
}

TEST_P(GptPartsTest, NeedTheMemoryOfStagesThatTheRecordedStepNeeds) {
  const auto record = recorded(gpt());
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"}) {
    const bool has_two = schedule == std::string("interleaved") || schedule == std::string("zb-v");
    for (const bool recomputes : {false, true}) {
      TrainingLayout layout{.examples = 24, .micro_batches = 6};
      layout.pipeline = {.ranks = 2,
                         .schedule = schedule,
                         .blocks = record.pipeline_blocks("blocks."),
                         .costs = gpt_block_flops(gpt().options, gpt().length)};
      if (recomputes) layout.recomputed = record.blocks_named("blocks.");
      const auto expected = plan_memory_of_ranks(record, layout);
      const LayoutPlanner planner(planned_gpt(gpt().options, gpt().length, PlannedNumbers::kFloat32),
                                  {.devices = 2, .devices_per_machine = 2}, {.global_batch = 24 * 6});
      const auto planned = planner.memory_of_ranks({.pipeline = 2,
                                                    .micro_batches = 6,
                                                    .recomputes = recomputes,
                                                    .schedule = schedule,
                                                    .stages_per_rank = has_two ? 2 : 1});
      for (size_t rank = 0; rank < expected.size(); ++rank)
        EXPECT_NEAR(planned[rank].peak() / static_cast<double>(expected[rank].peak()), 1, 0.2)
            << schedule << " rank " << rank << " recomputes " << recomputes;
    }
  }
}

GptOptions with_experts(GptOptions options, int64_t shared) {
  options.num_experts = 6;
  options.num_shared_experts = shared;
  return options;
}

// Without making the models, of which the largest has a trillion parameters.
TEST(PlannedGpt, HasAsManyParametersAsTheModel) {
  std::vector<GptOptions> models{with_experts(planned_gpts()[0].options, 0),
                                 with_experts(planned_gpts()[4].options, 2),
                                 {.vocabulary_size = 51200,
                                  .max_length = 2048,
                                  .num_layers = 128,
                                  .num_heads = 160,
                                  .width = 25600,
                                  .has_tied_head = true}};
  for (const auto& name : gpt_preset_names()) models.push_back(gpt_preset(name));
  for (const auto& model : models)
    EXPECT_EQ(planned_gpt(model, 64, PlannedNumbers::kMixed).elements(),
              static_cast<double>(num_gpt_parameters(model)));
}

// The model itself refuses the other numbers of ranks.
TEST(PlannedGpt, IsCutByTheRanksThatDivideItsSizes) {
  for (const auto& model : {planned_gpts()[0].options, planned_gpts()[4].options, gpt_preset("llama-3.1-8b"),
                            with_experts(planned_gpts()[0].options, 0)}) {
    const auto planned = planned_gpt(model, 64, PlannedNumbers::kFloat32);
    for (int64_t ranks = 2; ranks <= 16; ++ranks) {
      const LayoutPlanner planner(planned, {.devices = ranks}, {});
      EXPECT_EQ(planner.refusal({.tensor = ranks}).has_value(),
                uncut_gpt_size(complete_gpt_options(model), ranks).has_value())
          << ranks << " ranks";
    }
  }
}

// A token's operations are those of PaLM's formula, but for a vocabulary that is looked up and norms.
TEST(PlannedGpt, HasTheOperationsOfTraining) {
  for (const char* name : {"llama-2-7b", "llama-3.1-8b", "tinyllama-1.1b"}) {
    const auto model = gpt_preset(name);
    constexpr int64_t kLength = 1024;
    const auto planned = planned_gpt(model, kLength, PlannedNumbers::kFloat32);
    double flops = 0;
    for (const size_t kind : planned.parts)
      flops += planned.kinds[kind].forward.flops.sum() + planned.kinds[kind].backward.flops.sum();
    // The backward of fused attention has five products where the formula has four.
    EXPECT_NEAR(flops / kLength / gpt_training_flops(model, kLength), 1, 0.03) << name;
  }
}

// Of the pairs of blocks of 64 tokens, those behind the mask. Both have the same share of all products.
TEST(PlannedGpt, SkipsBlocksOfTokensThatTheMaskHides) {
  const auto& model = planned_gpts()[0].options;
  for (const int64_t blocks : {1, 2, 3, 8, 32}) {
    const auto part = planned_gpt(model, 64 * blocks, PlannedNumbers::kFloat32).kinds[1];
    int64_t hidden = 0;
    for (int64_t query = 0; query < blocks; ++query)
      for (int64_t key = 0; key < blocks; ++key) hidden += key > query ? 1 : 0;
    const double pairs = static_cast<double>(hidden) * 64 * 64;
    EXPECT_NEAR(part.forward.skipped_flops.sum(), pairs * 4 * static_cast<double>(model.width), 1e-3);
    EXPECT_NEAR(part.backward.skipped_flops.sum(), pairs * 10 * static_cast<double>(model.width), 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpts, GptPartsTest, testing::Range(size_t{0}, planned_gpts().size()),
                         [](const auto& test) { return planned_gpts()[test.param].name; });

}  // namespace
}  // namespace lockstep::apps
