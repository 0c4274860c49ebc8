// MirroredStrategy on GPUs: several replicas on one, several GPUs, streams, memory.
#include <c10/core/StreamGuard.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "lockstep/datasets/images/image_transform.h"
#include "lockstep/runtime/devices/device_streams.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/tests/gpu/gpu_test_support.h"
#include "lockstep/tests/gpu/small_images.h"
#include "lockstep/tests/support/one_device_equivalence.h"
#include "lockstep/training/metrics/metrics.h"
#include "lockstep/training/optimizers/fused_adam.h"

namespace lockstep {
namespace {

struct Placement {
  std::string name;
  std::vector<std::string> devices;
  int replicas_per_device = 1;
  std::string ops = "auto";
};

class MirroredGpu : public testing::TestWithParam<Placement> {};

INSTANTIATE_TEST_SUITE_P(
    Placements, MirroredGpu,
    testing::Values(Placement{"OneReplica", {"gpu:0"}}, Placement{"TwoOnOneGpu", {"gpu:0"}, 2},
                    Placement{"ThreeOnOneGpu", {"gpu:0"}, 3},
                    Placement{"OneDeviceSumsForTwoOnOneGpu", {"gpu:0"}, 2, "reduction_to_one_device"},
                    Placement{"TwoGpusByCopies", {"gpu:0", "gpu:1"}, 1, "hierarchical_copy"},
                    Placement{"TwoOnEachOfTwoGpus", {"gpu:0", "gpu:1"}, 2, "hierarchical_copy"},
                    Placement{"OneGpuByNccl", {"gpu:0"}, 1, "nccl"},
                    Placement{"TwoGpusByNccl", {"gpu:0", "gpu:1"}, 1, "nccl"},
                    Placement{"OneOfTwoGpusSums", {"gpu:1", "gpu:0"}, 1, "reduction_to_one_device"},
                    Placement{"GpuAndCpu", {"gpu:0", "cpu:0"}}, Placement{"CpuAndGpu", {"cpu:0", "gpu:0"}}),
    [](const auto& info) { return info.param.name; });

// The values are whole numbers, so the order of sums does not matter.
TEST_P(MirroredGpu, CollectivesAndTheirGradientsAreThoseOfTheCpu) {
  const Placement& placement = GetParam();
  LOCKSTEP_NEEDS_GPUS(placement.devices.size() > 1 && placement.devices[1] != "cpu:0" ? 2 : 1);
  forget_races();
  const auto collectives = [](ReplicaContext& replica) {
    const int ranks = replica.num_replicas();
    const int own = replica.replica_id();
    const auto numbers = [&](int64_t rows) {
      return (torch::arange(rows * 3, torch::kDouble) + 10 * own).view({rows, 3}).to(replica.device());
    };
    auto value = numbers(2 * ranks + 1).requires_grad_();
    auto loss = replica.reduce_scatter(ReduceOp::kSum, value).pow(2).sum();
    loss = loss + replica.all_gather(value * (own + 1)).pow(2).sum();
    std::vector<torch::Tensor> rows;
    for (int to = 0; to < ranks; ++to) rows.push_back(value.narrow(0, to, (own + to) % 2));
    for (const auto& part : replica.all_to_all(rows)) loss = loss + part.sum() * (own + 2);
    std::vector<torch::Tensor> results{replica.all_to_all(numbers(ranks), 0, 1)};
    if (ranks > 1) {
      loss = loss + replica.send(value * 3, (own + 1) % ranks);
      const auto got = replica.receive((own + ranks - 1) % ranks, value.sizes(),
                                       torch::TensorOptions(torch::kDouble).requires_grad(true));
      loss = loss + (got * (own + 1)).sum();
    }
    loss.backward();
    results.push_back(value.grad());
    results.push_back(loss.detach());
    for (auto& result : results) result = result.cpu();
    return results;
  };
  MirroredStrategy strategy(placement.devices, {.cross_device_ops = ops_named(placement.ops),
                                                .replicas_per_device = placement.replicas_per_device});
  MirroredStrategy on_cpus(cpu_devices(strategy.num_replicas_in_sync()));
  const auto given = strategy.run(collectives).local_values();
  const auto expected = on_cpus.run(collectives).local_values();
  for (size_t replica = 0; replica < given.size(); ++replica) {
    for (size_t i = 0; i < given[replica].size(); ++i)
      EXPECT_TRUE(torch::equal(given[replica][i], expected[replica][i]))
          << "result " << i << " of " << replica;
  }
  expect_no_races();
}

TEST_P(MirroredGpu, EqualsLibTorchAloneOnTheCpu) {
  const Placement& placement = GetParam();
  LOCKSTEP_NEEDS_GPUS(placement.devices.size() > 1 && placement.devices[1] != "cpu:0" ? 2 : 1);
  forget_races();
  const auto data = examples_of_three_classes();
  MirroredStrategy strategy(placement.devices, {.cross_device_ops = ops_named(placement.ops),
                                                .replicas_per_device = placement.replicas_per_device});
  torch::manual_seed(17);
  auto model = strategy.scope([&](ReplicaContext&) { return make_tanh_net(); });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return momentum_sgd()(model[replica]->parameters()); });
  auto batches =
      strategy.distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = kBatchSize});
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (const auto& batch : batches) strategy.run(plain_step<TanhNet>, model, optimizer, batch);
  }
  const auto trained = on_host(model.primary()->parameters());
  EXPECT_LT(largest_difference(trained, trained_alone<TanhNet>(make_tanh_net, data, momentum_sgd())), 1e-12);
  // Steps may round differently on different kinds of devices.
  const double largest = placement.ops == "auto" && placement.devices.size() > 1 ? 1e-12 : 0;
  for (const auto& replica : model.local_values())
    EXPECT_LE(largest_difference(on_host(replica->parameters()), trained), largest);
  expect_no_races();
}

TEST(MirroredGpuStreams, EachReplicaOfAGpuHasAStreamOfItsOwn) {
  LOCKSTEP_NEEDS_GPUS(1);
  MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 3});
  const auto streams =
      strategy.run([](ReplicaContext& replica) { return current_stream(replica.device()).id(); });
  const auto again =
      strategy.run([](ReplicaContext& replica) { return current_stream(replica.device()).id(); });
  const std::set<int64_t> different(streams.local_values().begin(), streams.local_values().end());
  EXPECT_EQ(different.size(), 3);
  EXPECT_FALSE(different.contains(0)) << "the default stream would make the others wait";
  EXPECT_EQ(streams.local_values(), again.local_values());
}

TEST(MirroredGpuStreams, OrderTheCallersWorkBeforeAndAfterARun) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2});
  const c10::StreamGuard on_own_stream(stream_from_pool(torch::Device(torch::kCUDA, 0)));
  for (int step = 1; step < 4; ++step) {
    const auto value = torch::full({8}, step, torch::Device(torch::kCUDA, 0));
    const auto results = strategy.run(
        [](ReplicaContext& replica, const torch::Tensor& x) {
          return replica.all_reduce(ReduceOp::kSum, x * (replica.replica_id() + 1));
        },
        value);
    EXPECT_EQ((results.local_values()[0] + results.local_values()[1]).sum().item<int64_t>(),
              8 * 2 * 3 * step);
  }
  expect_no_races();
}

TEST(MirroredGpuStreams, CollectivesInBackwardOfReplicasOnOneGpuMeet) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  // In a thread that the replicas share, the first backward would wait for a second that cannot begin.
  MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2, .timeout = std::chrono::seconds(20)});
  const auto gradients = strategy.run([](ReplicaContext& replica) {
    auto x = torch::full({3}, replica.replica_id() + 1.0, replica.device()).requires_grad_();
    const auto sum = replica.all_reduce(ReduceOp::kSum, x * x);
    (sum * (replica.replica_id() + 1)).sum().backward();
    return x.grad();
  });
  // d/dx of (1 + 2) * sum(x^2): the losses of both replicas depend on each x.
  EXPECT_EQ(gradients.local_values()[0].cpu()[0].item<double>(), 2 * 1 * 3);
  EXPECT_EQ(gradients.local_values()[1].cpu()[0].item<double>(), 2 * 2 * 3);
  expect_no_races();
}

TEST(MirroredGpuStreams, AStepMakesTheHostWaitForNothing) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  const auto data = examples_of_three_classes();
  MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2});
  auto model = strategy.scope([&](ReplicaContext&) { return make_tanh_net(); });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return FusedAdam(model[replica]->parameters(), 1e-3); });
  auto mean_loss = strategy.scope([](ReplicaContext&) { return Mean(); });
  auto accuracy = strategy.scope([](ReplicaContext&) { return CategoricalAccuracy(); });
  auto batches = strategy
                     .distribute_dataset(TensorDataset(data.data, data.target),
                                         {.global_batch_size = 4, .shuffle_seed = 1})
                     .repeat();
  const auto step = [](ReplicaContext& replica, TanhNet& net, FusedAdam& adam, Mean& mean,
                       CategoricalAccuracy& matches, const Example& batch) {
    adam.zero_grad();
    const auto logits = net->forward(batch.data);
    const auto losses = torch::cross_entropy_loss(logits, batch.target, {}, at::Reduction::None);
    compute_average_loss(replica, losses).backward();
    replica.apply_gradients(adam, {.clip_norm = 0.1});
    mean.update(losses);
    matches.update(logits, batch.target);
  };
  auto batch = batches.begin();
  for (int warm = 0; warm < 3; ++warm, ++batch) {
    strategy.run(step, model, optimizer, mean_loss, accuracy, *batch);
  }
  {
    const HostMustNotWait guard;
    for (int i = 0; i < 10; ++i, ++batch) strategy.run(step, model, optimizer, mean_loss, accuracy, *batch);
  }
  EXPECT_GT(result(mean_loss), 0);
  EXPECT_GT(result(accuracy), 0);
  expect_no_races();
}

TEST(MirroredGpuInput, IsMadeOnAStreamOfItsOwn) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2});
  const auto numbers = torch::arange(64, torch::kFloat);
  const torch::Device gpu(torch::kCUDA, 0);
  const auto offset = torch::full({}, 100, gpu);
  std::mutex mutex;
  std::set<int64_t> streams;
  auto batches =
      strategy.distribute_dataset(TensorDataset(numbers, numbers), {.global_batch_size = 8, .num_workers = 2})
          .map([&](const Example& shard) {
            const std::lock_guard<std::mutex> lock(mutex);
            streams.insert(current_stream(gpu).id());
            return Example{shard.data + offset, shard.target};
          });
  double total = 0;
  for (const auto& batch : batches) {
    const auto sums = strategy.run(
        [](ReplicaContext&, const Example& shard) { return (shard.data - shard.target).sum(); }, batch);
    total += strategy.reduce(ReduceOp::kSum, sums).item<double>();
  }
  EXPECT_EQ(total, 6400);
  EXPECT_EQ(streams.size(), 1);
  EXPECT_FALSE(streams.contains(current_stream(gpu).id()));
  expect_no_races();
}

TEST(MirroredGpuInput, MayBeReadOutsideARunToo) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2});
  const auto numbers = torch::arange(32, torch::kFloat);
  auto batches = strategy.distribute_dataset(TensorDataset(numbers, numbers), {.global_batch_size = 8});
  double total = 0;
  for (auto& batch : batches) {
    for (const auto& shard : batch.local_values()) total += shard.data.sum().item<double>();
  }
  EXPECT_EQ(total, 31 * 32 / 2);
  expect_no_races();
}

struct Wrapped {
  torch::Tensor data;
};

TEST(MirroredGpuInput, KeepsItsStreamFromLoopToLoop) {
  LOCKSTEP_NEEDS_GPUS(1);
  MirroredStrategy strategy({"gpu:0"});
  const auto numbers = torch::arange(4, torch::kFloat);
  const torch::Device gpu(torch::kCUDA, 0);
  std::mutex mutex;
  std::set<int64_t> streams;
  auto batches = strategy.distribute_dataset(TensorDataset(numbers, numbers), {.global_batch_size = 4})
                     .map([&](Example shard) {
                       const std::lock_guard<std::mutex> lock(mutex);
                       streams.insert(current_stream(gpu).id());
                       return shard;
                     });
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (const auto& batch : batches) EXPECT_EQ(batch.local_values().size(), 1);
  }
  EXPECT_EQ(streams.size(), 1);
}

TEST(MirroredGpuInput, OfATypeWhoseTensorsAreUnknownIsOrderedToo) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  static_assert(!HasTensors<Wrapped>);
  MirroredStrategy strategy({"gpu:0"}, {.replicas_per_device = 2});
  const auto numbers = torch::arange(32, torch::kFloat);
  auto batches = strategy.distribute_dataset(TensorDataset(numbers, numbers), {.global_batch_size = 8})
                     .map([](const Example& shard) { return Wrapped{shard.data * 2}; });
  const c10::StreamGuard on_own_stream(stream_from_pool(torch::Device(torch::kCUDA, 0)));
  double total = 0;
  for (auto& batch : batches) {
    for (const auto& shard : batch.local_values()) total += shard.data.sum().item<double>();
  }
  EXPECT_EQ(total, 31 * 32);
  expect_no_races();
}

TEST(MirroredGpuInput, MayShareMemoryBetweenItsElements) {
  LOCKSTEP_NEEDS_GPUS(1);
  const auto target = torch::ones({1}).expand({6});
  const auto there = BatchTraits<torch::Tensor>::to(target, torch::Device(torch::kCUDA, 0));
  EXPECT_TRUE(torch::equal(there.cpu(), torch::ones({6})));
}

TEST(MirroredGpuInput, TransformsImagesWithoutMakingTheHostWait) {
  LOCKSTEP_NEEDS_GPUS(1);
  forget_races();
  const ImageTransform transform{
      .image_size = 12, .channels = 3, .mean = {0.1, 0.2, 0.3}, .stddev = {0.4, 0.5, 0.6}};
  torch::manual_seed(5);
  const auto images = torch::randint(0, 256, {4, 1, 28, 28}).to(torch::kByte);
  torch::Tensor transformed;
  {
    const HostMustNotWait guard;
    transformed = transform(BatchTraits<torch::Tensor>::to(images, torch::Device(torch::kCUDA, 0)));
  }
  EXPECT_TRUE(transformed.is_cuda());
  EXPECT_TRUE(transformed.is_contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(torch::allclose(transformed.cpu(), transform(images), 1e-5, 1e-5));
  expect_no_races();
}

TEST(MirroredGpuRandom, DropoutDrawsFromTheReplicasOwnStream) {
  LOCKSTEP_NEEDS_GPUS(1);
  const auto drawn = [](uint64_t seed) {
    MirroredStrategy strategy({"gpu:0"}, {.seed = seed, .replicas_per_device = 2});
    const auto masks = strategy.run([](ReplicaContext& replica) {
      auto x = torch::ones({1000}, replica.device()).requires_grad_();
      const auto y = torch::dropout(x, 0.25, /*train=*/true);
      y.sum().backward();
      EXPECT_TRUE(torch::equal(x.grad(), y.detach())) << "backward has forward's mask";
      return y.detach();
    });
    return on_host(masks.local_values());
  };
  const auto once = drawn(3);
  EXPECT_TRUE(bit_equal(once, drawn(3)));
  EXPECT_FALSE(bit_equal(once, drawn(4)));
  EXPECT_FALSE(torch::equal(once[0], once[1]));
  for (const auto& values : once) {
    EXPECT_NEAR(values.count_nonzero().item<int64_t>(), 750, 6 * std::sqrt(1000 * 0.25 * 0.75));
    EXPECT_NEAR(values.max().item<double>(), 1 / 0.75, 1e-6);
  }
}

}  // namespace
}  // namespace lockstep
