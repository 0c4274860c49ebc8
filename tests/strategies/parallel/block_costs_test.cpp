// Measured costs of blocks. Oracle: blocks that sleep for known times.
#include "lockstep/strategies/parallel/block_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/strategies/parallel/pipeline.h"
#include "lockstep/tests/strategies/parallel/parallel_cases.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct SleepTimes {
  int forward = 0;  ///< in milliseconds
  int backward = 0;
};

void sleep_for_milliseconds(int64_t count) {
  std::this_thread::sleep_for(std::chrono::milliseconds(count));
}

struct Sleep : torch::autograd::Function<Sleep> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const SleepTimes& times) {
    sleep_for_milliseconds(times.forward);
    context->saved_data["backward"] = int64_t{times.backward};
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    sleep_for_milliseconds(context->saved_data["backward"].toInt());
    return {gradients[0] * 2, {}};
  }
};

/// The first block has most parameters by far, and the last one sleeps longest.
const std::vector<SleepTimes>& sleep_times() {
  static const std::vector<SleepTimes> times{{10, 10}, {0, 20}, {20, 0}, {30, 60}};
  return times;
}

ModelOfBlocks sleeping_model() {
  ModelOfBlocks made{std::make_shared<torch::nn::Module>("Sleeping"), {}};
  for (size_t i = 0; i < sleep_times().size(); ++i) {
    const auto module = std::make_shared<torch::nn::Module>("Sleeper");
    const auto factor = module->register_parameter("factor", torch::ones({i == 0 ? 10'000 : 1}));
    made.model->register_module("block" + std::to_string(i), module);
    made.blocks.push_back({.name = "block" + std::to_string(i),
                           .modules = {module},
                           .forward = [factor, times = sleep_times()[i]](const torch::Tensor& x) {
                             return Sleep::apply(x * factor.narrow(0, 0, 1), times);
                           }});
  }
  return made;
}

TEST(BlockCostsTest, AreTheSecondsOfForwardAndBackward) {
  const auto made = sleeping_model();
  const auto known = [](size_t block) {
    return (sleep_times()[block].forward + sleep_times()[block].backward) / 1000.0;
  };
  // A busy machine lets some sleeps last longer, but not those of every attempt.
  bool is_near = false;
  for (int attempt = 0; attempt < 20 && !is_near; ++attempt) {
    const auto costs = measure_block_costs(made.blocks, torch::ones({2, 3}), {.repeats = 3});
    ASSERT_EQ(costs.size(), sleep_times().size());
    is_near = true;
    for (size_t i = 0; i < costs.size(); ++i) {
      EXPECT_GE(costs[i], known(i) - 1e-4) << i;  // Sleeps are not shorter than that.
      is_near = is_near && costs[i] <= known(i) + 0.015;
    }
  }
  EXPECT_TRUE(is_near);
  for (const auto& parameter : made.model->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST(BlockCostsTest, ABlockOfIntegersAndBlocksWithoutParametersAreMeasured) {
  const auto table = wave_embedding(1);
  const std::vector<PipelineBlock> blocks{
      {"table",
       {table.ptr()},
       [&](const torch::Tensor& ids) { return torch::embedding(table->weight, ids); }},
      {"double", {}, [](const torch::Tensor& x) { return x * 2; }},
      {"choice", {}, [](const torch::Tensor& x) { return x.argmax(-1); }}};
  const torch::NoGradGuard no_grad;  // Passes go backward all the same.
  const auto costs = measure_block_costs(blocks, torch::zeros({2, 3}, torch::kLong));
  ASSERT_EQ(costs.size(), 3U);
  for (const double cost : costs) EXPECT_GT(cost, 0);
}

/// Returns the first blocks of the stages that a strategy makes.
void expect_cut_by_time(Strategy& strategy, std::atomic<int>& num_made,
                        std::vector<std::vector<double>>& all) {
  static std::mutex mutex;
  const auto costs = measure_block_costs(strategy,
                                         [&](ReplicaContext&) {
                                           ++num_made;
                                           return sleeping_model();
                                         },
                                         torch::ones({2, 3}), {.repeats = 3});
  auto model = strategy.scope([&](ReplicaContext& replica) {
    auto made = sleeping_model();
    return Pipeline(replica.axis("pipeline"), made.model, made.blocks, PipelineOptions{.costs = costs});
  });
  for (auto& own : model.local_values()) EXPECT_EQ(own->stages().first_blocks(), (std::vector<size_t>{0, 3}));
  const std::lock_guard lock(mutex);
  all.push_back(costs);
}

TEST(BlockCostsTest, AllRanksCutByTheTimesOfTheFirst) {
  for (const char* mesh : {"pipeline=2", "data=2,pipeline=2"}) {
    const int ranks = parse_mesh(mesh).size();
    const StrategyOptions options{.intra_op_threads = 1, .mesh = parse_mesh(mesh)};
    std::atomic<int> num_made{0};
    std::vector<std::vector<double>> all;
    {
      MirroredStrategy strategy(cpu_devices(ranks), options);
      expect_cut_by_time(strategy, num_made, all);
    }
    EXPECT_EQ(num_made, 1);
    all.clear();
    expect_no_worker_failed(run_strategies(
        {ranks / 2, ranks / 2},
        [&](MultiWorkerMirroredStrategy& strategy) { expect_cut_by_time(strategy, num_made, all); },
        [&](int, WorkerSetUp& set_up) { set_up.options = options; }));
    EXPECT_EQ(num_made, 2);
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0], all[1]) << mesh;
  }
  // By bytes, the first block would have a stage of its own.
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1, .mesh = parse_mesh("pipeline=2")});
  auto model = strategy.scope([&](ReplicaContext& replica) {
    auto made = sleeping_model();
    return Pipeline(replica.axis("pipeline"), made.model, made.blocks);
  });
  EXPECT_EQ(model.primary()->stages().first_blocks(), (std::vector<size_t>{0, 1}));
}

TEST(BlockCostsTest, MeasuringLeavesRandomNumbersAsTheyWere) {
  std::vector<torch::Tensor> drawn;
  for (const bool measures : {false, true}) {
    MirroredStrategy strategy(cpu_devices(2),
                              {.intra_op_threads = 1, .seed = 5, .mesh = parse_mesh("pipeline=2")});
    if (measures) {
      measure_block_costs(
          strategy,
          [](ReplicaContext&) {
            torch::nn::Sequential layers(torch::nn::Linear(4, 4));
            auto blocks = blocks_of_modules(layers);
            blocks.push_back(
                {"dropout", {}, [](const torch::Tensor& x) { return torch::dropout(x, 0.5, true); }});
            return ModelOfBlocks{layers.ptr(), blocks};
          },
          torch::ones({2, 4}));
    }
    const auto numbers = strategy.run([](ReplicaContext& replica) {
      const auto same = torch::rand({4});
      const auto own = replica.rank_random();
      return torch::cat({same, torch::rand({4})});
    });
    drawn.push_back(torch::stack({numbers[0], numbers[1]}));
  }
  EXPECT_TRUE(torch::equal(drawn[0], drawn[1]));
}

TEST(BlockCostsTest, MistakesAreNamed) {
  const std::vector<PipelineBlock> blocks{{"fine", {}, [](const torch::Tensor& x) { return x * 2; }},
                                          {"broken", {}, [](const torch::Tensor& x) {
                                             return x.view({-1, 7});
                                           }}};
  EXPECT_THAT(message_of<c10::Error>([&] {
                measure_block_costs(blocks, torch::ones({2, 3}));
              }),
              HasSubstr("in the block broken"));
  EXPECT_THAT(
      message_of<InvalidArgument>([&] {
        measure_block_costs(blocks, torch::ones({2, 3}), {.repeats = 0});
      }),
      AllOf(HasSubstr("[measure_block_costs] expected a warm_up of 0 or more and at least 1 of repeats"),
            HasSubstr("but got 1 and 0")));
  MirroredStrategy strategy(cpu_devices(2), {.intra_op_threads = 1, .mesh = parse_mesh("pipeline=2")});
  EXPECT_THAT(message_of<c10::Error>([&] {
                measure_block_costs(
                    strategy,
                    [&](ReplicaContext&) {
                      return ModelOfBlocks{std::make_shared<torch::nn::Module>("None"), blocks};
                    },
                    torch::ones({2, 3}));
              }),
              HasSubstr("in the block broken"));
}

}  // namespace
}  // namespace lockstep
