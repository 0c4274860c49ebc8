// Batches that go through stages one after another without draining. Oracles: PipelineStages::forward(), and
// the same modules on one device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/strategies/parallel/pipeline.h"
#include "lockstep/tests/strategies/parallel/pipeline_cases.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/worker_strategies.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The last one is smaller, so it has fewer micro-batches, and one is empty.
const std::vector<int64_t>& streamed_sizes() {
  static const std::vector<int64_t> sizes{7, 7, 0, 9, 7, 7, 2};
  return sizes;
}

StrategyOptions streams_along(const std::string& mesh) {
  return {.intra_op_threads = 1, .seed = 3, .mesh = parse_mesh(mesh), .timeout = std::chrono::seconds(30)};
}

/// Runs `work` by threads, and by two workers if there are several ranks.
void by_threads_and_workers(const std::string& mesh, const std::function<void(Strategy&)>& work) {
  const int ranks = parse_mesh(mesh).size();
  {
    MirroredStrategy strategy(cpu_devices(ranks), streams_along(mesh));
    work(strategy);
  }
  if (ranks < 2) return;
  expect_no_worker_failed(run_strategies(
      {ranks / 2, ranks - ranks / 2}, [&](MultiWorkerMirroredStrategy& strategy) { work(strategy); },
      [&](int, WorkerSetUp& set_up) { set_up.options = streams_along(mesh); }));
}

std::vector<torch::Tensor> results_of_stream(PipelineStages& stages, std::vector<torch::Tensor> inputs) {
  std::vector<torch::Tensor> results;
  stages.stream({std::move(inputs)}, [&](size_t batch, const torch::Tensor& result) {
    TORCH_CHECK(batch == results.size(), "results out of order");
    results.push_back(result.clone());
  });
  return results;
}

TEST(PipelineStreamsTest, ResultsAreThoseOfOneBatchAfterAnotherBitForBit) {
  const auto oracle = made_apart([] { return StagedNet(StagedNetOptions{}); });
  for (const char* schedule : {"1f1b", "interleaved", "zb-v"}) {
    for (const char* mesh : {"pipeline=1", "pipeline=2", "pipeline=4", "data=2,pipeline=2"}) {
      by_threads_and_workers(mesh, [&](Strategy& strategy) {
        auto model = strategy.scope([&](ReplicaContext& replica) {
          return StagedNet(StagedNetOptions{.pipeline = {.schedule = schedule, .micro_batches = 4},
                                            .stages = &replica.axis("pipeline")});
        });
        model.eval();
        const auto same = strategy.run(
            [&](ReplicaContext& replica, StagedNet& net) {
              const torch::NoGradGuard no_grad;
              std::vector<torch::Tensor> inputs;
              for (const int64_t size : streamed_sizes()) {
                const int step = 10 * replica.replica_id() + static_cast<int>(inputs.size());
                inputs.push_back(examples_of_step(step, size).first);
              }
              int count = 0;
              // Shapes are known the second time.
              for (int round = 0; round < 2; ++round) {
                const auto results = results_of_stream(*net->stages, inputs);
                TORCH_CHECK(results.size() == inputs.size());
                for (size_t batch = 0; batch < inputs.size(); ++batch) {
                  count += torch::equal(results[batch], net->stages->forward(inputs[batch])) ? 1 : 0;
                  TORCH_CHECK(
                      torch::allclose(results[batch], StagedNet(oracle)->logits(inputs[batch]), 0, 1e-12));
                }
              }
              return count;
            },
            model);
        for (const int count : same.local_values())
          EXPECT_EQ(count, 2 * static_cast<int>(streamed_sizes().size())) << schedule << " " << mesh;
      });
    }
  }
}

/// The order of events in the stages of all ranks.
class StageEvents {
 public:
  /// Notes that a stage has begun a batch.
  void begin(int stage, int batch) {
    const std::lock_guard lock(mutex_);
    auto& begun = begun_[stage];
    begun = std::max(begun, batch + 1);
    changed_.notify_all();
  }
  /// Returns whether the stage has begun the batch, or does so in time.
  bool wait_for(int stage, int batch) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(15), [&] { return begun_[stage] > batch; });
  }
  int num_begun(int stage) {
    const std::lock_guard lock(mutex_);
    return begun_[stage];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, int> begun_;
};

/// Stages of one block each, which double their input. `on_batch(stage, batch)` is called with the number
/// that is in the batch.
torch::nn::Sequential watched_stages(int count, const std::function<void(int stage, int batch)>& on_batch) {
  torch::nn::Sequential layers;
  for (int stage = 0; stage < count; ++stage) {
    layers->push_back(torch::nn::Functional([stage, on_batch](const torch::Tensor& x) {
      if (x.size(0) > 0) on_batch(stage, static_cast<int>(x[0][1].item<double>()));
      return torch::cat({x.narrow(1, 0, 1) * 2, x.narrow(1, 1, 1)}, 1);
    }));
  }
  return layers;
}

torch::Tensor numbered_batch(int number, int64_t size) {
  return torch::stack({torch::arange(size, torch::kDouble), torch::full({size}, number, torch::kDouble)}, 1);
}

Mirrored<Pipeline> watched_pipeline(Strategy& strategy, int ranks,
                                    const std::function<void(int stage, int batch)>& on_batch) {
  std::vector<size_t> cuts;
  for (int stage = 1; stage < ranks; ++stage) cuts.push_back(static_cast<size_t>(stage));
  auto model = strategy.scope([&](ReplicaContext& replica) {
    return Pipeline(replica.axis("pipeline"), watched_stages(ranks, on_batch),
                    PipelineOptions{.micro_batches = 3, .cuts = cuts});
  });
  model.eval();
  return model;
}

/// Runs a stream of numbered batches, the last one smaller, whose results `take` gets on rank 0 of the axis.
void run_numbered_stream(Strategy& strategy, int ranks, int num_batches,
                         const std::function<void(int stage, int batch)>& on_batch,
                         const std::function<void(int batch)>& take) {
  auto model = watched_pipeline(strategy, ranks, on_batch);
  strategy.run(
      [&](ReplicaContext& replica, Pipeline& own) {
        std::vector<torch::Tensor> inputs;
        for (int batch = 0; batch < num_batches; ++batch)
          inputs.push_back(numbered_batch(batch, batch + 1 == num_batches ? 2 : 6));
        size_t taken = 0;
        own->stream({inputs}, [&](size_t batch, const torch::Tensor& result) {
          TORCH_CHECK(batch == taken++);
          TORCH_CHECK(torch::equal(result.select(1, 0), inputs[batch].select(1, 0) * (1 << ranks)));
          if (replica.axis("pipeline").index() == 0) take(static_cast<int>(batch));
        });
        TORCH_CHECK(taken == inputs.size());
      },
      model);
}

TEST(PipelineStreamsTest, TheFirstStageBeginsABatchBeforeTheLastStageHasEndedTheOneBefore) {
  constexpr int kBatches = 6;
  for (const int ranks : {2, 3}) {
    // The last stage ends no batch before the first stage has begun the next one: if the pipeline drained, it
    // would wait in vain.
    const auto expect_overlap = [&](const auto& run) {
      StageEvents events;
      std::atomic<int> checks{0};
      const auto on_batch = [&](int stage, int batch) {
        events.begin(stage, batch);
        if (stage + 1 < ranks || batch + 1 == kBatches) return;
        TORCH_CHECK(events.wait_for(0, batch + 1), "batch ", batch + 1, " has not begun");
        ++checks;
      };
      const auto take = [&](int batch) {
        TORCH_CHECK(events.num_begun(0) <= batch + ranks, "too many batches are under way");
        if (batch + 1 < kBatches) TORCH_CHECK(events.num_begun(0) > batch + 1, "a result came too early");
      };
      run([&](Strategy& strategy) { run_numbered_stream(strategy, ranks, kBatches, on_batch, take); });
      EXPECT_EQ(checks, 3 * (kBatches - 1));  // in each micro-batch
    };
    const StrategyOptions options = streams_along("pipeline=" + std::to_string(ranks));
    expect_overlap([&](const std::function<void(Strategy&)>& work) {
      MirroredStrategy strategy(cpu_devices(ranks), options);
      work(strategy);
    });
    expect_overlap([&](const std::function<void(Strategy&)>& work) {
      expect_no_worker_failed(run_strategies(
          {1, ranks - 1}, [&](MultiWorkerMirroredStrategy& strategy) { work(strategy); },
          [&](int, WorkerSetUp& set_up) { set_up.options = options; }));
    });
  }
}

TEST(PipelineStreamsTest, AnErrorInAStageReleasesAllRanksAndNamesStageMicroBatchAndBatch) {
  constexpr int kBatches = 6;
  for (const int ranks : {2, 3}) {
    const std::string mesh = "pipeline=" + std::to_string(ranks);
    MirroredStrategy strategy(cpu_devices(ranks), streams_along(mesh));
    std::atomic<bool> breaks{true};
    auto model = watched_pipeline(strategy, ranks, [&](int stage, int batch) {
      TORCH_CHECK(!breaks || stage != 1 || batch != 3, "the stage breaks");
    });
    const auto run = [&] {
      return strategy.run(
          [&](ReplicaContext&, Pipeline& own) {
            PipelineInputs inputs{.batches = {}, .first_number = 40};
            for (int batch = 0; batch < kBatches; ++batch) inputs.batches.push_back(numbered_batch(batch, 6));
            int taken = 0;
            own->stream(inputs, [&](size_t, const torch::Tensor&) { ++taken; });
            return taken;
          },
          model);
    };
    EXPECT_THAT(message_of<c10::Error>(run),
                AllOf(HasSubstr("the stage breaks"),
                      HasSubstr("in the forward of stage 1 for micro-batch 0 of batch 43")));
    breaks = false;
    const auto taken = run();
    for (const int count : taken.local_values()) EXPECT_EQ(count, kBatches);
  }
}

TEST(PipelineStreamsTest, AnErrorInAStageEndsTheStreamOfOtherWorkers) {
  const auto errors = run_strategies(
      {1, 1},
      [&](MultiWorkerMirroredStrategy& strategy) {
        run_numbered_stream(
            strategy, 2, 6,
            [](int stage, int batch) { TORCH_CHECK(stage != 1 || batch != 2, "the stage breaks"); },
            [](int) {});
      },
      [](int, WorkerSetUp& set_up) { set_up.options = streams_along("pipeline=2"); });
  ASSERT_TRUE(errors[0] != nullptr && errors[1] != nullptr);
  EXPECT_THAT(message_of<c10::Error>([&] { std::rethrow_exception(errors[1]); }),
              HasSubstr("in the forward of stage 1 for micro-batch 0 of batch 2"));
}

TEST(PipelineStreamsTest, AnErrorOfTheOneWhoTakesResultsReleasesAllRanks) {
  MirroredStrategy strategy(cpu_devices(2), streams_along("pipeline=2"));
  EXPECT_THAT(message_of<std::runtime_error>([&] {
                run_numbered_stream(
                    strategy, 2, 6, [](int, int) {},
                    [](int batch) {
                      if (batch == 1) throw std::runtime_error("no more");
                    });
              }),
              HasSubstr("no more"));
}

TEST(PipelineStreamsTest, LayersThatTrainSeeOneWholeBatchAfterAnother) {
  const auto make_layers = [] {
    torch::nn::Sequential layers(wave_linear(4, 6, 1), torch::nn::BatchNorm1d(6), wave_linear(6, 3, 2),
                                 torch::nn::BatchNorm1d(3));
    layers->to(torch::kDouble);
    return layers;
  };
  auto whole = make_layers();
  std::vector<torch::Tensor> inputs, expected;
  for (int batch = 0; batch < 3; ++batch) {
    inputs.push_back(wave_values({5 + batch, 4}, batch));
    expected.push_back(whole->forward(inputs.back()).detach());
  }
  MirroredStrategy strategy(cpu_devices(2), streams_along("pipeline=2"));
  auto model = strategy.scope([&](ReplicaContext& replica) {
    return Pipeline(replica.axis("pipeline"), make_layers(), PipelineOptions{.cuts = {2}});
  });
  const auto results = strategy.run(
      [&](ReplicaContext&, Pipeline& own) { return results_of_stream(own->stages(), inputs); }, model);
  for (const auto& of_rank : results.local_values()) {
    ASSERT_EQ(of_rank.size(), inputs.size());
    for (size_t batch = 0; batch < inputs.size(); ++batch)
      EXPECT_TRUE(torch::allclose(of_rank[batch], expected[batch], 0, 1e-12));
  }
  for (const auto& own : model.local_values()) {
    for (const auto& item : own->named_buffers())
      EXPECT_TRUE(torch::allclose(item.value(), whole->named_buffers()[item.key()], 0, 1e-12)) << item.key();
  }
}

TEST(PipelineStreamsTest, NoBatchesAndInputsWithoutExamples) {
  MirroredStrategy strategy(cpu_devices(2), streams_along("pipeline=2"));
  auto model = watched_pipeline(strategy, 2, [](int, int) {});
  strategy.run(
      [](ReplicaContext&, Pipeline& own) {
        own->stream({}, [](size_t, const torch::Tensor&) { TORCH_CHECK(false, "there are no results"); });
      },
      model);
  EXPECT_THAT(message_of<InvalidArgument>([&] {
                strategy.run(
                    [](ReplicaContext&, Pipeline& own) {
                      own->stream({{torch::ones({})}}, [](size_t, const torch::Tensor&) {});
                    },
                    model);
              }),
              HasSubstr("expected an input with examples, but got a scalar"));
}

}  // namespace
}  // namespace lockstep
