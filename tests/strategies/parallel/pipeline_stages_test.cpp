// PipelineStages and Pipeline at their edges. Oracle: the same modules on one device, a micro-batch
// at a time.
#include "lockstep/strategies/parallel/pipeline_stages.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/strategies/parallel/pipeline.h"
#include "lockstep/strategies/pipeline/pipeline_check.h"
#include "lockstep/tests/strategies/parallel/parallel_cases.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

torch::nn::Sequential wave_layers(bool has_norms = true) {
  torch::nn::Sequential layers;
  layers->push_back(wave_linear(6, 8, 1));
  if (has_norms) layers->push_back("first_norm", torch::nn::BatchNorm1d(8));
  layers->push_back(torch::nn::Tanh());
  layers->push_back(wave_linear(8, 8, 2));
  if (has_norms) layers->push_back("second_norm", torch::nn::BatchNorm1d(8));
  layers->push_back(wave_linear(8, 3, 3));
  layers->to(torch::kDouble);
  return layers;
}

torch::Tensor squares(const torch::Tensor& output, const torch::Tensor& target) {
  return (output - target).square().sum(1);
}

std::pair<torch::Tensor, torch::Tensor> wave_batch(int step, int64_t count) {
  return {wave_values({count, 6}, step), wave_values({count, 3}, step + 7)};
}

StrategyOptions stages_along(const Mesh& mesh) {
  return {.intra_op_threads = 1, .seed = 3, .mesh = mesh};
}

torch::optim::SGD wave_sgd(torch::nn::Module& module) {
  return torch::optim::SGD(module.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
}

/// Returns how many threads operators may use in each action of each rank, in two ranks' 1F1B of 4
/// micro-batches.
std::vector<std::vector<int>> threads_of_actions(int intra_op_threads) {
  MirroredStrategy strategy(cpu_devices(2),
                            {.intra_op_threads = intra_op_threads, .mesh = {{"pipeline", 2}}});
  std::vector<std::vector<int>> of_ranks(2);
  auto model = strategy.scope([&](ReplicaContext& replica) {
    auto& own = of_ranks[static_cast<size_t>(replica.axis("pipeline").index())];
    const torch::nn::Functional note([&own](const torch::Tensor& x) {
      own.push_back(at::get_num_threads());
      x.register_hook([&own](const torch::Tensor&) { own.push_back(at::get_num_threads()); });
      return x;
    });
    torch::nn::Sequential layers(wave_linear(6, 8, 1), note, note, wave_linear(8, 3, 2));
    layers->to(torch::kDouble);
    return Pipeline(replica.axis("pipeline"), layers, PipelineOptions{.micro_batches = 4, .cuts = {2}});
  });
  const auto [data, target] = wave_batch(1, 8);
  strategy.run(
      [&, data = data, target = target](ReplicaContext& replica, Pipeline& own) {
        own->forward_backward(replica, data, target, {.losses = squares});
      },
      model);
  return of_ranks;
}

// Each rank waits for the other at three actions; see WaitingRanks.
TEST(PipelineTest, RanksComputeWithTheCoresOfThoseThatWait) {
  EXPECT_THAT(threads_of_actions(2), testing::Each(testing::Each(2)));  // as the user says
  if (std::getenv("OMP_NUM_THREADS") != nullptr) GTEST_SKIP() << "OMP_NUM_THREADS sets the number of threads";
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int own = std::max(1, cores / 2);
  const int both = own + cores / 2;
  const auto threads = threads_of_actions(0);
  EXPECT_THAT(threads[0], testing::ElementsAre(both, own, own, own, own, own, own, both));
  EXPECT_THAT(threads[1], testing::ElementsAre(own, both, own, own, own, own, own, own));
}

TEST(PipelineTest, BatchNormsSeeMicroBatchesAndAllRanksHaveTheirStatistics) {
  constexpr int kMicroBatches = 3;
  auto whole = wave_layers();
  auto whole_sgd = wave_sgd(*whole);
  MirroredStrategy strategy(cpu_devices(2), stages_along({{"pipeline", 2}}));
  auto model = strategy.scope([](ReplicaContext& replica) {
    return Pipeline(replica.axis("pipeline"), wave_layers(), PipelineOptions{.micro_batches = kMicroBatches});
  });
  auto sgd = strategy.scope([&](ReplicaContext& replica) { return wave_sgd(*model[replica]); });
  EXPECT_EQ(model.primary()->named_parameters().keys(), whole->named_parameters().keys());
  EXPECT_EQ(model.primary()->named_buffers().keys(), whole->named_buffers().keys());
  for (int step = 0; step < 5; ++step) {
    const int64_t count = step == 2 ? 8 : 12;
    const auto [data, target] = wave_batch(step, count);
    whole_sgd.zero_grad();
    for (int i = 0; i < kMicroBatches; ++i) {
      const int64_t begin = count * i / kMicroBatches;
      const int64_t length = count * (i + 1) / kMicroBatches - begin;
      (squares(whole->forward(data.narrow(0, begin, length)), target.narrow(0, begin, length)).sum() / count)
          .backward();
    }
    whole_sgd.step();
    strategy.run(
        [&, data = data, target = target](ReplicaContext& replica, Pipeline& own,
                                          torch::optim::SGD& optimizer) {
          optimizer.zero_grad();
          own->forward_backward(replica, data, target, {.losses = squares});
          replica.apply_gradients(optimizer);
        },
        model, sgd);
  }
  const auto expected = whole->named_buffers();
  for (const auto& own : model.local_values()) {
    for (const auto& item : own->named_buffers())
      EXPECT_TRUE(torch::allclose(item.value(), expected[item.key()], 0, 1e-12)) << item.key();
    for (const auto& item : own->named_parameters()) {
      const auto part =
          part_of_values(whole->named_parameters()[item.key()].detach(), *sharded_parameter_of(item.value()));
      EXPECT_TRUE(torch::allclose(item.value(), part, 0, 1e-12)) << item.key();
    }
  }
  whole->eval();
  const auto data = wave_batch(9, 7).first;
  const auto results = strategy.run(
      [&](ReplicaContext&, Pipeline& own) {
        own->eval();
        return own->forward(data);
      },
      model);
  for (const auto& result : results.local_values())
    EXPECT_TRUE(torch::allclose(result, whole->forward(data), 0, 1e-12));
}

TEST(PipelineTest, AutocastComputesTheSameBitsOnAnyNumberOfRanks) {
  std::vector<torch::Tensor> losses;
  for (const int ranks : {1, 2, 3}) {
    MirroredStrategy strategy(cpu_devices(ranks), stages_along({{"pipeline", ranks}}));
    auto model = strategy.scope([](ReplicaContext& replica) {
      auto layers = wave_layers(/*has_norms=*/false);
      layers->to(torch::kFloat);
      return Pipeline(replica.axis("pipeline"), layers, PipelineOptions{.micro_batches = 2});
    });
    auto sgd = strategy.scope([&](ReplicaContext& replica) { return wave_sgd(*model[replica]); });
    for (int step = 0; step < 3; ++step) {
      const auto results = strategy.run(
          [&](ReplicaContext& replica, Pipeline& own, torch::optim::SGD& optimizer) {
            optimizer.zero_grad();
            const auto [data, target] = wave_batch(step, 4);
            const auto result =
                own->forward_backward(replica, data.to(torch::kFloat), target.to(torch::kFloat),
                                      {.losses = squares, .autocast = torch::kBFloat16});
            replica.apply_gradients(optimizer);
            return result.losses;
          },
          model, sgd);
      if (ranks == 1) losses.push_back(results[0]);
      for (const auto& result : results.local_values())
        EXPECT_TRUE(torch::equal(result, losses[static_cast<size_t>(step)])) << ranks << " " << step;
    }
  }
}

TEST(PipelineTest, AScalerSkipsAStepOnAllRanksIfOneStagesGradientIsNotFinite) {
  MirroredStrategy strategy(cpu_devices(2), stages_along({{"pipeline", 2}}));
  auto model = strategy.scope([](ReplicaContext& replica) {
    return Pipeline(replica.axis("pipeline"), wave_layers(false), PipelineOptions{.micro_batches = 2});
  });
  auto sgd = strategy.scope([&](ReplicaContext& replica) { return wave_sgd(*model[replica]); });
  auto scaler = strategy.scope([](ReplicaContext&) { return GradScaler(torch::kCPU, {.init_scale = 1024}); });
  auto whole = wave_layers(false);
  auto whole_sgd = wave_sgd(*whole);
  const auto [data, target] = wave_batch(0, 4);
  (squares(whole->forward(data), target).sum() / 4).backward();
  whole_sgd.step();
  for (const bool is_broken : {true, false}) {
    const auto scales = strategy.run(
        [&, data = data, target = target](ReplicaContext& replica, Pipeline& own,
                                          torch::optim::SGD& optimizer, GradScaler& own_scaler) {
          optimizer.zero_grad();
          own->forward_backward(replica, data, target, {.losses = squares, .scaler = &own_scaler});
          if (is_broken && replica.axis("pipeline").index() == 1) {
            for (auto& parameter : own->parameters()) {
              if (parameter.numel() > 0)
                parameter.mutable_grad().fill_(std::numeric_limits<double>::infinity());
            }
          }
          replica.apply_gradients(optimizer, {.scaler = &own_scaler});
          own_scaler.update();
          return own_scaler.state().scale;
        },
        model, sgd, scaler);
    for (const double scale : scales.local_values()) EXPECT_EQ(scale, 512);
  }
  for (const auto& own : model.local_values()) {
    for (const auto& item : own->named_parameters()) {
      const auto part =
          part_of_values(whole->named_parameters()[item.key()].detach(), *sharded_parameter_of(item.value()));
      EXPECT_TRUE(torch::allclose(item.value(), part, 0, 1e-12)) << item.key();
    }
  }
}

TEST(PipelineTest, FrozenStagesAndStagesCutByHandTrainAsOnOneDevice) {
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    auto whole = wave_layers(false);
    auto whole_sgd = wave_sgd(*whole);
    MirroredStrategy strategy(cpu_devices(2), stages_along({{"pipeline", 2}}));
    const auto freeze = [](torch::nn::Module& module) {
      for (auto& item : module.named_parameters())
        if (item.key().starts_with("0")) item.value().set_requires_grad(false);
    };
    freeze(*whole);
    auto model = strategy.scope([&](ReplicaContext& replica) {
      Pipeline own(replica.axis("pipeline"), wave_layers(false),
                   PipelineOptions{.schedule = schedule, .micro_batches = 2, .cuts = {1}});
      freeze(*own);
      return own;
    });
    EXPECT_EQ(model.primary()->stages().first_blocks(), (std::vector<size_t>{0, 1}));
    auto sgd = strategy.scope([&](ReplicaContext& replica) { return wave_sgd(*model[replica]); });
    for (int step = 0; step < 3; ++step) {
      const auto [data, target] = wave_batch(step, 5);
      whole_sgd.zero_grad();
      (squares(whole->forward(data), target).sum() / 5).backward();
      whole_sgd.step();
      strategy.run(
          [&, data = data, target = target](ReplicaContext& replica, Pipeline& own,
                                            torch::optim::SGD& optimizer) {
            optimizer.zero_grad();
            own->forward_backward(replica, data, target, {.losses = squares});
            replica.apply_gradients(optimizer);
          },
          model, sgd);
    }
    for (const auto& own : model.local_values()) {
      for (const auto& item : own->named_parameters()) {
        const auto part = part_of_values(whole->named_parameters()[item.key()].detach(),
                                         *sharded_parameter_of(item.value()));
        EXPECT_TRUE(torch::allclose(item.value(), part, 0, 1e-12)) << item.key();
      }
    }
  }
}

TEST(PipelineTest, RecordedTimesAreThoseOfTheScheduleOfAllRanks) {
  MirroredStrategy strategy(cpu_devices(2), stages_along({{"pipeline", 2}}));
  auto model = strategy.scope([](ReplicaContext& replica) {
    return Pipeline(replica.axis("pipeline"), wave_layers(false), PipelineOptions{.micro_batches = 4});
  });
  const auto timelines = strategy.run(
      [](ReplicaContext& replica, Pipeline& own) {
        own->stages().record_times(true);
        const auto [data, target] = wave_batch(0, 8);
        own->forward_backward(replica, data, target, {.losses = squares});
        return own->stages().gather_times();
      },
      model);
  const auto& schedule = model.primary()->stages().schedule();
  for (const auto& timeline : timelines.local_values()) {
    ASSERT_EQ(timeline.ranks.size(), 2U);
    for (size_t rank = 0; rank < 2; ++rank) {
      ASSERT_EQ(timeline.ranks[rank].size(), schedule.actions[rank].size());
      double before = 0;
      for (size_t i = 0; i < timeline.ranks[rank].size(); ++i) {
        const auto& timed = timeline.ranks[rank][i];
        EXPECT_EQ(timed.action, schedule.actions[rank][i]);
        EXPECT_LE(before, timed.begin);
        EXPECT_LE(timed.begin, timed.end);
        before = timed.end;
      }
    }
    EXPECT_EQ(timeline.ranks[1][0].end, timelines[0].ranks[1][0].end);
    // The second rank has its first input once the first rank has computed it.
    EXPECT_GE(timeline.ranks[1][1].begin, timeline.ranks[0][0].end);
  }
}

std::string make_error(const torch::nn::Sequential& layers, const PipelineOptions& options) {
  return message_of<InvalidArgument>([&] {
    MirroredStrategy strategy(cpu_devices(2), stages_along({{"pipeline", 2}}));
    strategy.scope(
        [&](ReplicaContext& replica) { return Pipeline(replica.axis("pipeline"), layers, options); });
  });
}

TEST(PipelineErrorsTest, OptionsThatDoNotFitAreRefused) {
  EXPECT_THAT(make_error(wave_layers(false), {.costs = {1, 2}}),
              HasSubstr("expected a cost of each of 4 blocks, but got 2"));
  EXPECT_THAT(make_error(wave_layers(false), {.cuts = {9}}),
              HasSubstr("expected the first block of a stage to be from 1 to 3, but got 9"));
  EXPECT_THAT(make_error(wave_layers(false), {.make_schedule =
                                                  [](int, int count) {
                                                    return forward_schedule({0, 1}, count);
                                                  }}),
              HasSubstr("expected a schedule that goes backward, but got forward"));
  EXPECT_THAT(
      make_error(wave_layers(false), {.make_schedule = [](int, int) { return gpipe_schedule(3, 2); }}),
      HasSubstr("expected a schedule of 2 ranks and 4 micro-batches, but got one of 3 and 2"));
  EXPECT_THAT(make_error(wave_layers(false), {.make_schedule =
                                                  [](int ranks, int count) {
                                                    auto schedule = gpipe_schedule(ranks, count);
                                                    schedule.actions[0].pop_back();
                                                    return schedule;
                                                  }}),
              HasSubstr("stage 0"));
  struct ScalarImpl : torch::nn::Module {
    ScalarImpl() { register_parameter("factor", torch::ones({})); }
    torch::Tensor forward(const torch::Tensor& x) { return x; }
  };
  torch::nn::Sequential layers(wave_linear(6, 3, 1), std::make_shared<ScalarImpl>());
  EXPECT_THAT(make_error(layers, {}),
              HasSubstr("expected parameters with dimensions, but 1.factor has none: give it the shape [1]"));
}

TEST(PipelineErrorsTest, InputsThatDoNotFitAreRefused) {
  MirroredStrategy strategy(cpu_devices(2), stages_along({{"pipeline", 2}}));
  auto model = strategy.scope([](ReplicaContext& replica) {
    return Pipeline(replica.axis("pipeline"), wave_layers(false), PipelineOptions{.micro_batches = 2});
  });
  const auto error_of = [&](const torch::Tensor& data, const torch::Tensor& target,
                            bool has_gradients = true) {
    return message_of<InvalidArgument>([&] {
      strategy.run(
          [&](ReplicaContext& replica, Pipeline& own) {
            const torch::AutoGradMode mode(has_gradients);
            own->forward_backward(replica, data, target, {.losses = squares});
          },
          model);
    });
  };
  EXPECT_THAT(error_of(wave_values({4, 6}, 1), wave_values({3, 3}, 1)),
              HasSubstr("expected an input and a target of as many examples, but got [4, 6] and [3, 3]"));
  EXPECT_THAT(error_of(wave_values({4, 6}, 1), wave_values({4, 3}, 1), false),
              HasSubstr("expected gradients to be enabled in forward_backward()"));
}

/// Hides a model from the strategy, which binds modules alone.
struct HiddenPipeline {
  Pipeline model{nullptr};
};

TEST(PipelineErrorsTest, AModelOfSeveralRanksThatNoStrategyHasBoundIsRefused) {
  const std::string expected =
      "[Pipeline] expected a call in a run of the strategy whose scope made the model";
  for (const int ranks : {1, 2}) {
    MirroredStrategy strategy(cpu_devices(ranks), stages_along({{"pipeline", ranks}}));
    auto hidden = strategy.scope([](ReplicaContext& replica) {
      return HiddenPipeline{
          Pipeline(replica.axis("pipeline"), wave_layers(false), PipelineOptions{.micro_batches = 2})};
    });
    const auto [data, target] = wave_batch(0, 4);
    const std::vector<std::function<void(ReplicaContext&, Pipeline&)>> calls{
        [&, data = data](ReplicaContext&, Pipeline& own) { own->forward(data); },
        [&, data = data](ReplicaContext&, Pipeline& own) {
          own->stream({{data}}, [](size_t, const torch::Tensor&) {});
        },
        [&, data = data, target = target](ReplicaContext& replica, Pipeline& own) {
          own->forward_backward(replica, data, target, {.losses = squares});
        }};
    for (const auto& call : calls) {
      const auto run = [&] {
        strategy.run([&](ReplicaContext& replica, HiddenPipeline& own) { call(replica, own.model); }, hidden);
      };
      if (ranks == 1) {
        EXPECT_NO_THROW(run());  // needs nobody else
      } else {
        EXPECT_THAT(message_of<InvalidArgument>(run), HasSubstr(expected));
      }
    }
  }
}

TEST(PipelineErrorsTest, AShapeThatDependsOnValuesIsRefused) {
  MirroredStrategy strategy(cpu_devices(2), stages_along({{"pipeline", 2}}));
  auto model = strategy.scope([](ReplicaContext& replica) {
    torch::nn::Sequential layers(
        torch::nn::Functional([](const torch::Tensor& x) { return x.narrow(1, 0, x[0][0].item<int64_t>()); }),
        torch::nn::Functional([](const torch::Tensor& x) { return x * 2; }));
    return Pipeline(replica.axis("pipeline"), layers, PipelineOptions{.micro_batches = 2});
  });
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.run(
                    [](ReplicaContext& replica, Pipeline& own) {
                      auto data = torch::ones({4, 3}, torch::kDouble);
                      data[2][0] = 2;
                      own->forward_backward(replica, data, torch::ones({4, 1}),
                                            {.losses = [](const auto& x, const auto&) { return x.sum(1); }});
                    },
                    model);
              }),
              HasSubstr("expected the result of stage 0 for micro-batch 1 to be Double [2, 1] as for other "
                        "inputs of this size, but got Double [2, 2]"));
}

/// Counts the graphs that hold something for backward.
struct CountedGraphs {
  std::atomic<int> alive{0};
  std::atomic<int> most{0};
};

struct Counted : torch::autograd::Function<Counted> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               CountedGraphs* graphs) {
    const int now = ++graphs->alive;
    if (now > graphs->most) graphs->most = now;  // one thread at a time adds to it
    auto* const held = new char;
    context->saved_data["held"] = torch::from_blob(
        held, {1},
        [graphs](void* memory) {
          --graphs->alive;
          delete static_cast<char*>(memory);
        },
        torch::kByte);
    return x * 1;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0], {}};
  }
};

TEST(PipelineMemoryTest, RanksKeepTheMicroBatchesThatTheProofOfTheScheduleStates) {
  constexpr int kRanks = 4;
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    std::vector<CountedGraphs> graphs(kRanks);
    MirroredStrategy strategy(cpu_devices(kRanks), stages_along({{"pipeline", kRanks}}));
    auto model = strategy.scope([&](ReplicaContext& replica) {
      torch::nn::Sequential layers;
      for (int rank = 0; rank < kRanks; ++rank) {
        auto layer = wave_linear(6, 6, rank);
        layers->push_back(torch::nn::Functional(
            [layer, own = &graphs[static_cast<size_t>(rank)]](const torch::Tensor& x) mutable {
              return Counted::apply(layer(x), own);
            }));
      }
      return Pipeline(replica.axis("pipeline"), layers,
                      PipelineOptions{.schedule = schedule, .micro_batches = 8, .cuts = {1, 2, 3}});
    });
    strategy.run(
        [](ReplicaContext& replica, Pipeline& own) {
          const auto [data, target] = wave_batch(0, 16);
          own->forward_backward(replica, data, target, {.losses = [](const auto& x, const auto& y) {
                                  return squares(x.narrow(1, 0, 3), y);
                                }});
        },
        model);
    const auto stated = check_pipeline_schedule(model.primary()->stages().schedule()).most_alive;
    for (size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_LE(graphs[rank].most, stated[rank]) << schedule << " " << rank;
      EXPECT_GE(graphs[rank].most, std::min(stated[rank], 1));
      EXPECT_EQ(graphs[rank].alive, 0);
    }
    if (std::string(schedule) == "gpipe") {
      EXPECT_EQ(graphs[0].most, 8);
    } else {
      EXPECT_LE(graphs[3].most, schedule == std::string("1f1b") ? 1 : kRanks);
    }
  }
}

/// Fails in backward.
struct FailsBackward : torch::autograd::Function<FailsBackward> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) { return x * 1; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list) {
    TORCH_CHECK(false, "backward breaks");
  }
};

TEST(PipelineErrorsTest, ErrorsOfBackwardNameTheStageAndTheMicroBatchAndReleaseTheOtherRanks) {
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    MirroredStrategy strategy(cpu_devices(2), stages_along({{"pipeline", 2}}));
    auto model = strategy.scope([&](ReplicaContext& replica) {
      torch::nn::Sequential layers(wave_linear(6, 3, 1), torch::nn::Functional([](const torch::Tensor& x) {
                                     return FailsBackward::apply(x);
                                   }));
      return Pipeline(replica.axis("pipeline"), layers,
                      PipelineOptions{.schedule = schedule, .micro_batches = 2, .cuts = {1}});
    });
    EXPECT_THAT(message_of<c10::Error>([&] {
                  strategy.run(
                      [](ReplicaContext& replica, Pipeline& own) {
                        const auto [data, target] = wave_batch(0, 4);
                        own->forward_backward(replica, data, target, {.losses = squares});
                      },
                      model);
                }),
                AllOf(HasSubstr("backward breaks"), HasSubstr("of stage 1 for micro-batch 0")));
  }
}

}  // namespace
}  // namespace lockstep
