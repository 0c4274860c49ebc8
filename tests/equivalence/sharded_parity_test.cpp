// Sharded trainings of an MLP equal those on one device: each stage, by threads and by workers, with
// recomputation, clipping, accumulation, uneven last batches and empty shards, 20 steps in float64.
#include "lockstep/tests/equivalence/sharded_parity.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>
#include <tuple>

#include "lockstep/tests/equivalence/random_net.h"

namespace lockstep {
namespace {

using Kind = LayerPlan::Kind;

/// Units in a unit between layers that every replica has whole; one weight is frozen, and parameters have
/// fewer elements than there are replicas.
LayerPlan mlp() {
  const LayerPlan inner{.kind = Kind::kBlock,
                        .inputs = 5,
                        .outputs = 5,
                        .is_unit = true,
                        .is_recomputed = true,
                        .layers = {{.inputs = 5, .outputs = 9, .is_unit = true},
                                   {.inputs = 9, .outputs = 1, .is_frozen = true},
                                   {.inputs = 1, .outputs = 5}}};
  return {.kind = Kind::kBlock,
          .inputs = 6,
          .outputs = 3,
          .layers = {{.inputs = 6, .outputs = 5},
                     inner,
                     {.inputs = 5, .outputs = 5, .is_unit = true, .keeps_until_backward = true},
                     {.kind = Kind::kAgain, .inputs = 5, .outputs = 5, .again = 2},
                     {.inputs = 5, .outputs = 3}}};
}

ParityTraining training_of(const LayerPlan& plan) {
  torch::manual_seed(21);
  return {.make_net = [plan](NetPlace& place) { return make_random_net(plan, place); },
          .data = {torch::randn({13, plan.inputs}, torch::kDouble),
                   torch::randn({13, plan.outputs}, torch::kDouble)},
          .optimizers = {"fused_adamw", "sgd"},
          .batch_size = 5,
          .micro_batches = 2,
          .clip_norm = 0.3};
}

struct Ranks {
  const char* name;
  std::vector<int> workers;
  Mesh mesh;
};

void PrintTo(const Ranks& ranks, std::ostream* stream) {
  *stream << ranks.name;
}

class ShardedParity : public testing::TestWithParam<std::tuple<int, Ranks>> {};

TEST_P(ShardedParity, TwentyStepsOfAnMlpEqualThoseOnOneDevice) {
  const auto& [stage, ranks] = GetParam();
  EXPECT_EQ(problem_of(training_of(mlp()), {.workers = ranks.workers, .mesh = ranks.mesh, .stage = stage}),
            "");
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, ShardedParity,
    testing::Combine(testing::Values(1, 2, 3),
                     testing::Values(Ranks{"1", {1}, {}}, Ranks{"2", {2}, {}}, Ranks{"4", {4}, {}},
                                     Ranks{"2x2", {4}, {{"data", 2}, {"shard", 2}}},
                                     Ranks{"2x2_across", {4}, {{"shard", 2}, {"data", 2}}},
                                     Ranks{"2_workers", {1, 1}, {}}, Ranks{"4_workers", {1, 1, 1, 1}, {}},
                                     Ranks{"2_workers_of_2", {2, 2}, {}},
                                     Ranks{"2x2_workers", {2, 2}, {{"data", 2}, {"shard", 2}}},
                                     Ranks{"2x2_workers_across", {2, 2}, {{"shard", 2}, {"data", 2}}})),
    [](const auto& info) {
      return "stage" + std::to_string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
    });

TEST(ShardedParityTest, ADifferenceIsFound) {
  const ParityTraining training = training_of(mlp());
  ParityTraining other = training;
  other.clip_norm = 0.31;
  const auto expected = on_one_device(training, 2);
  EXPECT_NE(difference_of(on_one_device(other, 2), expected), "");
  other = training;
  other.optimizers[1] = "adam";
  EXPECT_NE(difference_of(on_replicas(other, {.workers = {2}, .stage = 3}), expected), "");
}

}  // namespace
}  // namespace lockstep
