#include "lockstep/apps/train_gpt/training/gpt_axes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/shared/strategy_choice/pipeline_axis.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep::apps {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kMesh = "data=2,tensor=2";

GptOptions divisible() {
  return {.vocabulary_size = 64, .num_heads = 4, .width = 16};
}

std::string refusal_of(const std::string& mesh, const GptOptions& model, const BaseModel& base = {},
                       const std::string& data = "text.txt") {
  GptTrainOptions options;
  options.data = {data};
  return message_of<UsageError>([&] { check_axes(parse_mesh(mesh), options, base, model); });
}

TEST(GptAxesTest, ModelsAreCutAlongTheAxisTensor) {
  EXPECT_EQ(axis_of_parts(parse_mesh(kMesh)), "tensor");
  EXPECT_EQ(axis_of_parts(parse_mesh("tensor=2,data=2")), "tensor");
  for (const char* mesh : {"data=4", "data=2,shard=2", "data=2,tensor=1", "tensor=2:data"})
    EXPECT_EQ(axis_of_parts(parse_mesh(mesh)), "") << mesh;
}

TEST(GptAxesTest, SizesThatTheRanksDivideAreTaken) {
  for (const char* mesh : {kMesh, "tensor=4", "data=3", "tensor=3:data", "data=2,tensor=1"})
    EXPECT_NO_THROW(check_axes(parse_mesh(mesh), {}, {}, divisible())) << mesh;
}

TEST(GptAxesTest, ASizeThatTheRanksDoNotDivideIsRefusedByItsFlag) {
  GptOptions model = divisible();
  model.num_heads = 8;
  model.num_key_value_heads = 1;
  EXPECT_THAT(refusal_of(kMesh, model), AllOf(HasSubstr("--kv-heads 1: expected a number that the 2 ranks"),
                                              HasSubstr("--mesh data=2,tensor=2"), HasSubstr("2 would do")));
  model = divisible();
  model.num_heads = 1;
  EXPECT_THAT(refusal_of(kMesh, model), HasSubstr("--heads 1"));
  model = divisible();
  model.hidden_width = 31;
  EXPECT_THAT(refusal_of(kMesh, model), AllOf(HasSubstr("--mlp-hidden 31"), HasSubstr("30 or 32 would do")));
  model = divisible();
  model.vocabulary_size = 63;
  EXPECT_THAT(refusal_of(kMesh, model), AllOf(HasSubstr("--vocabulary-size 63"), HasSubstr("64 would do")));
}

TEST(GptAxesTest, AModelOfAFileIsRefusedWithRanksThatWouldDo) {
  GptOptions model = divisible();
  model.num_heads = 6;
  model.width = 24;
  model.num_key_value_heads = 3;
  model.vocabulary_size = 63;
  EXPECT_THAT(refusal_of("tensor=2", model, {.name = "a/config.json", .is_of_file = true}),
              AllOf(HasSubstr("--mesh tensor=2"), HasSubstr("3 heads of keys and values of a/config.json"),
                    HasSubstr("1 or 3 would do")));
  model = divisible();
  model.vocabulary_size = 78;
  EXPECT_THAT(refusal_of("tensor=4", model, {}, "generated"),
              AllOf(HasSubstr("78 tokens of the vocabulary of the generated language"),
                    HasSubstr("1 or 2 would do")));
}

TEST(GptAxesTest, ShardsOfTheSequenceNeedTheAxisAndALengthThatItsRanksDivide) {
  GptTrainOptions options;
  const auto check = [&](const std::string& mesh, int64_t length) {
    check_sequence_parallel(parse_mesh(mesh), options, length);
  };
  EXPECT_NO_THROW(check("data=2", 7));
  options.sequence_parallel = true;
  EXPECT_NO_THROW(check(kMesh, 8));
  EXPECT_THAT(message_of<UsageError>([&] { check("data=2", 8); }),
              AllOf(HasSubstr("--sequence-parallel"), HasSubstr("axis tensor"), HasSubstr("but got data=2")));
  EXPECT_THAT(message_of<UsageError>([&] { check("tensor=4", 30); }),
              AllOf(HasSubstr("--sequence-length 30"), HasSubstr("28 or 32 would do")));
}

std::string refusal_of_experts(const std::string& mesh, int64_t experts, int stage = 0) {
  const auto parsed = parse_mesh(mesh);
  MirroredStrategy strategy(cpu_devices(parsed.size()),
                            {.intra_op_threads = 1, .mesh = parsed, .sharding = {.stage = stage}});
  GptOptions model = divisible();
  model.num_experts = experts;
  return message_of<UsageError>([&] { check_experts(strategy, model); });
}

TEST(GptAxesTest, RanksAlongTheAxisExpertShareTheExperts) {
  EXPECT_EQ(axis_of_experts(parse_mesh("data=2,expert=2")), "expert");
  for (const char* mesh : {"data=4", "data=2,expert=1", "expert=2:model"})
    EXPECT_EQ(axis_of_experts(parse_mesh(mesh)), "") << mesh;
  GptOptions model = divisible();
  for (const int64_t experts : {0, 3}) {
    model.num_experts = experts;
    MirroredStrategy without(cpu_devices(2), {.intra_op_threads = 1});
    EXPECT_NO_THROW(check_experts(without, model));
  }
  model.num_experts = 8;
  MirroredStrategy sharded(
      cpu_devices(2),
      {.intra_op_threads = 1, .mesh = {{"data", 1}, {"expert", 2}}, .sharding = {.stage = 3}});
  EXPECT_NO_THROW(check_experts(sharded, model));
  MirroredStrategy with_contexts(
      cpu_devices(4),
      {.intra_op_threads = 1, .mesh = {{"expert", 2}, {"context", 2}}, .sharding = {.stage = 2}});
  EXPECT_NO_THROW(check_experts(with_contexts, model));
}

TEST(GptAxesTest, ExpertsThatTheMeshCannotDivideAreRefused) {
  EXPECT_THAT(refusal_of_experts("expert=2", 0),
              HasSubstr("--mesh expert=2: expected --experts with the axis expert"));
  EXPECT_THAT(
      refusal_of_experts("data=2,expert=2", 7),
      AllOf(HasSubstr("--experts 7: expected a number that the 2 ranks along the axis expert of --mesh "
                      "data=2,expert=2 divide"),
            HasSubstr("6 or 8 would do")));
  EXPECT_THAT(refusal_of_experts("expert=4", 2), HasSubstr("divide: 4 would do"));
  EXPECT_THAT(
      refusal_of_experts("expert=2,data=2", 8, 3),
      HasSubstr("--sharding 3: expected a --mesh whose last axis is expert, but got expert=2,data=2"));
}

TEST(GptAxesTest, SequencesAreCutAlongTheAxisOfThatRole) {
  EXPECT_EQ(axis_of_tokens(parse_mesh("data=2,context=2,tensor=2")), "context");
  EXPECT_EQ(axis_of_tokens(parse_mesh("inner=2:context")), "inner");
  for (const char* mesh : {"data=4", kMesh, "data=2,context=1", "context=2:data"})
    EXPECT_EQ(axis_of_tokens(parse_mesh(mesh)), "") << mesh;
  EXPECT_THAT(refusal_of("context=2,inner=2:context", divisible()),
              HasSubstr("expected context as the only axis along which sequences are cut, but got inner"));
}

TEST(GptAxesTest, ThingsThatModelsAlongAContextAxisCannotDoAreRefused) {
  GptTrainOptions options;
  const auto refusal = [&](const std::string& mesh) {
    return message_of<UsageError>([&] { check_axes(parse_mesh(mesh), options, {}, divisible()); });
  };
  EXPECT_NO_THROW(check_axes(parse_mesh("context=3"), options, {}, divisible()));
  options.dropout = 0.1;
  EXPECT_THAT(refusal("data=2,context=2"),
              HasSubstr("--dropout 0.1: expected 0 with --mesh data=2,context=2"));
  options.dropout = 0;
  options.context_attention = GptContextAttention::kAllToAll;
  EXPECT_NO_THROW(check_axes(parse_mesh("context=4"), options, {}, divisible()));
  EXPECT_NO_THROW(check_axes(parse_mesh("context=2,tensor=2"), options, {}, divisible()));
  EXPECT_THAT(refusal("data=2"), HasSubstr("several ranks along the axis context, but got data=2"));
  EXPECT_THAT(refusal("context=3"), AllOf(HasSubstr("heads that the 3 ranks along the axis context"),
                                          HasSubstr("but got 4: --heads 3 or 6 would do, as does ring")));
  EXPECT_THAT(refusal("context=4,tensor=2"),
              AllOf(HasSubstr("heads of each part"), HasSubstr("but got 2: --heads 8 would do")));
}

TEST(GptAxesTest, ShardsOfPartsOfSequencesNeedALengthThatBothAxesDivide) {
  GptTrainOptions options;
  options.sequence_parallel = true;
  const auto check = [&](int64_t length) {
    check_sequence_parallel(parse_mesh("context=2,tensor=2"), options, length);
  };
  EXPECT_NO_THROW(check(12));
  EXPECT_THAT(message_of<UsageError>([&] { check(14); }),
              AllOf(HasSubstr("2 ranks along the axis tensor and the 2 along context"),
                    HasSubstr("12 or 16 would do")));
}

TEST(GptAxesTest, AnotherAxisThatCutsModelsIsRefused) {
  EXPECT_THAT(refusal_of("inner=2:model,tensor=2", divisible()), HasSubstr("but got inner"));
  EXPECT_THAT(refusal_of("inner=2:model,pipeline=2", divisible()), HasSubstr("but got inner"));
}

/// Returns the micro-batches that a step of `batch` sequences has.
int64_t planned_micro_batches(const std::string& mesh, GptTrainOptions options, int64_t batch,
                              int64_t given = 1) {
  MirroredStrategy strategy(cpu_devices(parse_mesh(mesh).size()), {.mesh = parse_mesh(mesh)});
  GptPlan plan{.model = divisible(), .global_batch_size = batch, .micro_batches = given};
  plan.model.num_layers = 2;
  plan.model.num_experts = options.experts;
  plan_pipeline(strategy, options, plan);
  return plan.micro_batches;
}

TEST(GptPipelineTest, ModelsAreCutIntoStagesAlongTheAxisPipeline) {
  EXPECT_EQ(axis_of_pipeline(parse_mesh("data=2,pipeline=2")), "pipeline");
  for (const char* mesh : {"data=4", "pipeline=1", "pipeline=2:data", "tensor=2"})
    EXPECT_EQ(axis_of_pipeline(parse_mesh(mesh)), "") << mesh;
  EXPECT_NO_THROW(check_axes(parse_mesh("pipeline=2,tensor=2"), {}, {}, divisible()));
}

TEST(GptPipelineTest, AStepHasFourMicroBatchesForEachRankUnlessAFlagDecides) {
  EXPECT_EQ(planned_micro_batches("pipeline=2", {}, 32), 8);
  EXPECT_EQ(planned_micro_batches("pipeline=2,data=4", {}, 17), 5);  // as many as a replica has sequences
  GptTrainOptions options;
  options.micro_batch_size = 2;
  EXPECT_EQ(planned_micro_batches("pipeline=2", options, 32, 3), 3);
  options.pipeline_schedule = "interleaved";
  EXPECT_EQ(planned_micro_batches("pipeline=2", options, 32, 3), 4);  // which the ranks divide
  EXPECT_EQ(planned_micro_batches("data=2", {}, 32, 3), 3);
}

TEST(GptPipelineTest, ThingsThatModelsInStagesCannotDoAreRefused) {
  const auto refusal = [](const std::string& mesh, const GptTrainOptions& options) {
    return message_of<UsageError>([&] { planned_micro_batches(mesh, options, 32); });
  };
  GptTrainOptions options;
  options.pipeline_schedule = "zb-v";
  EXPECT_THAT(refusal("data=2", options), HasSubstr("--pipeline-schedule zb-v: expected a --mesh with"));
  EXPECT_THAT(refusal("pipeline=4", options),
              HasSubstr("--layers 2: expected at least 6 for the 8 stages of --mesh pipeline=4"));
  options.pipeline_schedule = "1f1b";
  options.cuda_graph = true;
  EXPECT_THAT(refusal("pipeline=2", options), HasSubstr("--cuda-graph: expected no CUDA graph"));
  options.cuda_graph = false;
  options.experts = 4;
  EXPECT_EQ(planned_micro_batches("expert=2,pipeline=2", options, 32), 8);
  EXPECT_EQ(planned_micro_batches("pipeline=2,context=2", {}, 32), 8);
}

}  // namespace
}  // namespace lockstep::apps
