// Devices and links that sleep, whose clocks are compared with formulas.
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "lockstep/benchmarks/emulation/emulated_channel.h"
#include "lockstep/benchmarks/emulation/emulated_links.h"
#include "lockstep/benchmarks/emulation/emulated_operators.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/training/layouts/all_reduce_model.h"

namespace lockstep::benchmarks {
namespace {

using Moment = EmulatedDevice::Moment;

constexpr double kNanosecond = 1e-9;

double seconds_between(Moment begin, Moment end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Two machines with two devices each.
PlannedCluster two_machines() {
  return {.devices = 4,
          .devices_per_machine = 2,
          .flops_per_second = 1e6,
          .bytes_per_second = 1e5,
          .operator_seconds = 1e-4,
          .within = {.latency_seconds = 1e-4, .bytes_per_second = 1e5},
          .between = {.latency_seconds = 1e-3, .bytes_per_second = 2e4}};
}

TEST(EmulatedLinksTest, CollectivesTakeTheTimeOfTheirRings) {
  const auto cluster = two_machines();
  const Moment begin{};
  constexpr double kBytes = 400;
  const auto seconds = [&](CollectiveKind kind, const std::vector<int>& ranks) {
    EmulatedLinks links(cluster);
    return seconds_between(begin, links.collective(kind, ranks, kBytes, begin));
  };
  const double within = ring_all_reduce_seconds(2, kBytes, cluster.within);
  const double between = ring_all_reduce_seconds(2, kBytes, cluster.between);
  EXPECT_NEAR(seconds(CollectiveKind::kAllReduce, {0, 1}), within, kNanosecond);
  EXPECT_NEAR(seconds(CollectiveKind::kAllReduce, {0, 2}), between, kNanosecond);
  EXPECT_NEAR(
      seconds(CollectiveKind::kAllReduce, {0, 1, 2, 3}),
      hierarchical_all_reduce_seconds(
          {.num_machines = 2, .replicas_each = 2, .within = cluster.within, .between = cluster.between},
          kBytes),
      kNanosecond);
  EXPECT_NEAR(seconds(CollectiveKind::kGather, {0, 1, 2, 3}), (within + between) / 2, kNanosecond);
  // Each rank sends a quarter to its neighbour, and each machine four quarters to the other one.
  EXPECT_NEAR(seconds(CollectiveKind::kExchange, {0, 1, 2, 3}), 1e-4 + 100 / 1e5 + 2 * 1e-3 + 400 / 2e4,
              kNanosecond);
}

TEST(EmulatedLinksTest, TransfersShareAPort) {
  EmulatedLinks links(two_machines());
  const Moment begin{};
  const auto arrival = [&](int from, int to, double bytes) {
    return seconds_between(begin, links.message(from, to, bytes, begin));
  };
  EXPECT_NEAR(arrival(0, 1, 500), 1e-4 + 500 / 1e5, kNanosecond);
  // With half of the port: twice as long, unless the first one is done before.
  EXPECT_NEAR(arrival(0, 1, 200), 1e-4 + 2 * 200 / 1e5, kNanosecond);
  EXPECT_NEAR(arrival(0, 1, 5000), 1e-4 + (700 + 5000) / 1e5, kNanosecond);
  // Other devices have ports of their own, but share that of their machine.
  EXPECT_NEAR(arrival(1, 0, 500), 1e-4 + 500 / 1e5, kNanosecond);
  EXPECT_NEAR(arrival(0, 2, 200), 1e-3 + 200 / 2e4, kNanosecond);
  EXPECT_NEAR(arrival(1, 3, 200), 1e-3 + 2 * 200 / 2e4, kNanosecond);
  EXPECT_NEAR(arrival(2, 0, 200), 1e-3 + 200 / 2e4, kNanosecond);
}

TEST(EmulatedOperatorsTest, TakeTheTimeOfTheirOwnWork) {
  PlannedCluster cluster = two_machines();
  cluster.bytes_per_second = 1e6;  // products take longer than their bytes
  EmulatedDevice device(cluster);
  const auto seconds_of = [&](const auto& work) {
    const auto begin = EmulatedDevice::Clock::now();
    device.begin(begin);
    {
      const EmulatedOperatorsGuard emulated(device);
      work();
    }
    return seconds_between(begin, device.now());
  };
  const auto a = torch::ones({20, 30}), b = torch::ones({30, 10}), row = torch::ones({10});
  const double call = cluster.operator_seconds;
  const double product = 2 * 20 * 30 * 10 / cluster.flops_per_second;
  EXPECT_NEAR(seconds_of([&] { a.mm(b); }), product + call, kNanosecond);
  // One operator that calls another one, which computes.
  EXPECT_NEAR(seconds_of([&] { torch::matmul(a, b); }), product + call, kNanosecond);
  EXPECT_NEAR(seconds_of([&] { a.add(a); }), 3 * 600 * 4 / cluster.bytes_per_second + call, kNanosecond);
  EXPECT_NEAR(seconds_of([&] { a.t().view({30, 20}).narrow(0, 0, 5); }), 0, kNanosecond);
  EXPECT_NEAR(seconds_of([&] {
                const UncountedOperatorsGuard uncounted;
                a.mm(b);
              }),
              0, kNanosecond);
  // A product of a vector reads for longer than it computes.
  const auto vector = torch::ones({30});
  EXPECT_NEAR(seconds_of([&] { a.mv(vector); }), (600 + 30 + 20) * 4 / cluster.bytes_per_second + call,
              kNanosecond);
  // In place: the result is read and written.
  auto c = torch::zeros({20, 10});
  EXPECT_NEAR(seconds_of([&] { c.add_(row); }), (2 * 200 + 10) * 4 / cluster.bytes_per_second + call,
              kNanosecond);
  // Backward has two more products, of which the second is that of the transposed operands.
  const auto weight = torch::ones({30, 10}, torch::requires_grad());
  const auto x = torch::ones({20, 30}, torch::requires_grad());
  const auto y = x.mm(weight);
  const auto gradient = torch::ones_like(y);
  EXPECT_NEAR(seconds_of([&] { y.backward(gradient); }), 2 * (product + call), call / 2);
}

TEST(EmulatedOperatorsTest, CausalAttentionSkipsBlocks) {
  PlannedCluster cluster = two_machines();
  cluster.operator_seconds = 0;
  cluster.bytes_per_second = 1e15;
  cluster.flops_per_second = 1e9;
  EmulatedDevice device(cluster);
  constexpr int64_t kTokens = 256, kWidth = 8;
  const auto x = torch::rand({1, 2, kTokens, kWidth});
  for (const bool is_causal : {false, true}) {
    const auto begin = EmulatedDevice::Clock::now();
    device.begin(begin);
    {
      const EmulatedOperatorsGuard emulated(device);
      at::scaled_dot_product_attention(x, x, x, {}, 0, is_causal);
    }
    // Blocks of 64 tokens: of 16 pairs of blocks, 6 are behind the diagonal.
    const double pairs = kTokens * kTokens * (is_causal ? 10.0 / 16 : 1);
    EXPECT_NEAR(seconds_between(begin, device.now()), 2 * 2 * pairs * 2 * kWidth / 1e9, 1e-6);
  }
}

/// Runs a function on all ranks of a mesh with tensor = 2. Returns the seconds of each rank's clock.
template <typename Function>
std::vector<double> seconds_on_ranks(const PlannedCluster& cluster, const Function& function) {
  const auto machines = std::make_shared<EmulatedMachines>(cluster);
  MirroredStrategy strategy(cpu_devices(4),
                            {.cross_device_ops = std::make_shared<EmulatedCommunication>(machines),
                             .intra_op_threads = 1,
                             .seed = 1,
                             .mesh = {{"data", 2}, {"tensor", 2}}});
  const auto begin = EmulatedDevice::Clock::now();
  strategy.run([&](ReplicaContext& replica) {
    auto& device = machines->device(replica.rank());
    device.begin(begin);
    function(replica, device);
  });
  std::vector<double> seconds;
  for (const auto& device : machines->devices) seconds.push_back(seconds_between(begin, device.now()));
  return seconds;
}

TEST(EmulatedCommunicationTest, SumsAndDelays) {
  const auto cluster = two_machines();
  const auto seconds = seconds_on_ranks(cluster, [](ReplicaContext& replica, EmulatedDevice& device) {
    // The second rank of each pair comes later.
    if (replica.rank() % 2 == 1) device.compute(2000, 0);
    const auto sum =
        replica.axis("tensor").all_reduce(ReduceOp::kSum, torch::full({100}, 1.0 + replica.rank()));
    const float expected = replica.rank() < 2 ? 3 : 7;
    EXPECT_TRUE(sum.equal(torch::full({100}, expected)));
  });
  const double late = 2000 / cluster.flops_per_second + cluster.operator_seconds;
  for (const double of_rank : seconds)
    EXPECT_NEAR(of_rank, late + ring_all_reduce_seconds(2, 400, cluster.within), kNanosecond * 10);
}

TEST(EmulatedCommunicationTest, MessagesArriveLaterAndTheSenderGoesOn) {
  const auto cluster = two_machines();
  const auto seconds = seconds_on_ranks(cluster, [](ReplicaContext& replica, EmulatedDevice&) {
    auto& axis = replica.axis("data");
    if (axis.index() == 0) {
      axis.send(torch::full({50}, 1.0 + replica.rank()), 1);
    } else {
      const auto value = axis.receive(0, {50}, torch::kFloat);
      EXPECT_TRUE(value.equal(torch::full({50}, replica.rank() - 1.0F)));
    }
  });
  EXPECT_NEAR(seconds[0], 0, kNanosecond);
  EXPECT_NEAR(seconds[1], 0, kNanosecond);
  // Two messages of 200 bytes over one machine's port: the later one has half of it.
  const double alone = 200 / 2e4, latency = 1e-3;
  EXPECT_NEAR(std::min(seconds[2], seconds[3]), latency + alone, kNanosecond * 10);
  EXPECT_NEAR(std::max(seconds[2], seconds[3]), latency + 2 * alone, kNanosecond * 10);
}

// Devices compute while a gradient is summed.
TEST(EmulatedCommunicationTest, GradientsAreSummedBehindBackward) {
  PlannedCluster cluster = two_machines();
  cluster.operator_seconds = 0;
  cluster.bytes_per_second = 1e12;
  cluster.flops_per_second = 1e7;
  cluster.within.bytes_per_second = cluster.between.bytes_per_second = 1e6;
  const auto machines = std::make_shared<EmulatedMachines>(cluster);
  MirroredStrategy strategy(cpu_devices(4),
                            {.cross_device_ops = std::make_shared<EmulatedCommunication>(machines),
                             .intra_op_threads = 1,
                             .seed = 1,
                             .buckets = {.first_bucket_bytes = 4096, .bucket_bytes = 4096}});
  constexpr int64_t kWidth = 64, kLayers = 4, kExamples = 64;
  auto models = strategy.scope([&](ReplicaContext&) {
    torch::nn::Sequential layers;
    for (int64_t i = 0; i < kLayers; ++i)
      layers->push_back(torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false)));
    return layers;
  });
  auto optimizers = strategy.scope([&](ReplicaContext& replica) {
    return std::make_unique<torch::optim::SGD>(models[replica]->parameters(), 0.1);
  });
  double seconds = 0;
  for (int step = 0; step < 3; ++step) {
    const auto begin = EmulatedDevice::Clock::now();
    strategy.run(
        [&](ReplicaContext& replica, torch::nn::Sequential& model, auto& optimizer) {
          auto& device = machines->device(replica.rank());
          device.begin(begin);
          const EmulatedOperatorsGuard emulated(device);
          optimizer->zero_grad();
          model->forward(torch::ones({kExamples, kWidth})).sum().backward();
          replica.apply_gradients(*optimizer);
        },
        models, optimizers);
    seconds = seconds_between(begin, machines->device(0).now());
  }
  const double product = 2.0 * kExamples * kWidth * kWidth / cluster.flops_per_second;
  // The first layer needs no gradient of its input.
  const double computing = product * (3 * kLayers - 1);
  const double bytes = 4.0 * kWidth * kWidth;
  const double sum = hierarchical_all_reduce_seconds(
      {.num_machines = 2, .replicas_each = 2, .within = cluster.within, .between = cluster.between}, bytes);
  ASSERT_LT(sum, 2 * product);
  EXPECT_GE(seconds, computing + sum - 1e-6);
  EXPECT_LT(seconds, computing + 2 * sum);
}

}  // namespace
}  // namespace lockstep::benchmarks
