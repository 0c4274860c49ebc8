// Trainings over the test device, and over it and CPUs together. LibTorch alone on a CPU is the oracle.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <iostream>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/devices/internal/device_traits.h"
#include "lockstep/strategies/nn/sync_batch_norm.h"
#include "lockstep/tests/device/test_device_test_support.h"
#include "lockstep/tests/support/message_of.h"
#include "lockstep/tests/support/one_device_equivalence.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<torch::Tensor> on_cpu(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> copies;
  for (const auto& tensor : tensors) copies.push_back(tensor.detach().cpu());
  return copies;
}

/// A net whose normalisation depends on the whole batch: [n, 6] to [n, 3].
struct NormedNetImpl : torch::nn::Cloneable<NormedNetImpl> {
  NormedNetImpl() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(6, 5));
    norm = register_module("norm", SyncBatchNorm(5));
    second = register_module("second", torch::nn::Linear(5, 3));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::relu(norm(first(x)))); }

  torch::nn::Linear first{nullptr}, second{nullptr};
  SyncBatchNorm norm{nullptr};
};
TORCH_MODULE(NormedNet);

/// Trains with batches of `batch_size` examples. The replicas' parameters must be bit-equal after every step.
template <typename Net>
std::vector<torch::Tensor> trained_over(const std::vector<std::string>& devices, StrategyOptions options,
                                        int64_t batch_size = kBatchSize) {
  options.intra_op_threads = 1;
  MirroredStrategy strategy(devices, options);
  const Example data = examples_of_three_classes();
  torch::manual_seed(17);
  auto model = strategy.scope([](ReplicaContext&) { return Net(); });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return momentum_sgd()(model[replica]->parameters()); });
  auto batches =
      strategy.distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = batch_size});
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (const auto& batch : batches) {
      strategy.run(plain_step<Net>, model, optimizer, batch);
      const auto first = on_cpu(model.primary()->parameters());
      for (auto& replica : model.local_values()) EXPECT_TRUE(bit_equal(on_cpu(replica->parameters()), first));
    }
  }
  return on_cpu(model.primary()->parameters());
}

std::vector<torch::Tensor> alone(int64_t batch_size = kBatchSize) {
  return trained_alone<TanhNet>(make_tanh_net, examples_of_three_classes(), momentum_sgd(),
                                {.schedule = {.batch_size = batch_size}});
}

constexpr double kExact = 1e-12;

class MixedDevices : public TestDevice {};

TEST_F(MixedDevices, OneDeviceAndSeveralEqualTheCpu) {
  const auto expected = alone();
  for (const int count : {1, 2, 4}) {
    std::vector<std::string> devices;
    for (int i = 0; i < count; ++i) devices.push_back("testdevice:" + std::to_string(i));
    EXPECT_LE(largest_difference(trained_over<TanhNet>(devices, {}), expected), kExact)
        << count << " devices";
  }
  EXPECT_THAT(test_device::races(), testing::IsEmpty());
}

TEST_F(MixedDevices, ACpuAndTwoDevicesEqualTheCpu) {
  EXPECT_LE(largest_difference(trained_over<TanhNet>({"cpu:0", "testdevice:0", "testdevice:1"}, {}), alone()),
            kExact);
  EXPECT_LE(largest_difference(trained_over<TanhNet>({"testdevice:0", "cpu:0"}, {}), alone()), kExact);
  EXPECT_THAT(test_device::races(), testing::IsEmpty());
}

TEST_F(MixedDevices, ShardsInProportionToWeightsEqualTheCpu) {
  for (const int64_t batch_size : {kBatchSize, int64_t{8}, int64_t{2}}) {
    const auto expected = alone(batch_size);
    EXPECT_LE(largest_difference(
                  trained_over<TanhNet>({"cpu:0", "testdevice:0"}, {.replica_weights = {1, 3}}, batch_size),
                  expected),
              kExact)
        << batch_size;
    EXPECT_LE(largest_difference(trained_over<TanhNet>({"cpu:0", "testdevice:0", "testdevice:1"},
                                                       {.replica_weights = {1, 3, 0.5}}, batch_size),
                                 expected),
              kExact)
        << batch_size;
  }
  EXPECT_THAT(test_device::races(), testing::IsEmpty());
}

TEST_F(MixedDevices, BatchNormalisationCountsTheExamplesOfUnevenShards) {
  // The running statistics of 13 examples in one batch need no last, smaller one.
  const auto expected = trained_over<NormedNet>({"cpu:0"}, {}, kExamples);
  EXPECT_LE(largest_difference(
                trained_over<NormedNet>({"cpu:0", "testdevice:0"}, {.replica_weights = {1, 3}}, kExamples),
                expected),
            kExact);
  EXPECT_LE(
      largest_difference(trained_over<NormedNet>({"testdevice:0", "testdevice:1"}, {}, kExamples), expected),
      kExact);
  EXPECT_THAT(test_device::races(), testing::IsEmpty());
}

TEST_F(MixedDevices, GetShardsInProportionToTheirWeights) {
  MirroredStrategy strategy({"cpu:0", "testdevice:0"}, {.intra_op_threads = 1, .replica_weights = {1, 3}});
  EXPECT_EQ(strategy.replica_weights(), (std::vector<double>{1, 3}));
  EXPECT_THAT(strategy.describe(), AllOf(HasSubstr("ReductionToOneDevice (devices of different kinds)"),
                                         HasSubstr("batches cut by weights 1 3")));
  auto batches = strategy.distribute_dataset(TensorDataset(torch::arange(16.0), torch::arange(16)),
                                             {.global_batch_size = 8});
  int64_t begin = 0;
  for (const auto& batch : batches) {
    EXPECT_EQ(batch.batch_sizes()->local, (std::vector<int64_t>{2, 6}));
    EXPECT_TRUE(
        torch::equal(batch.local_values()[0].data, torch::arange(begin, begin + 2).to(torch::kFloat)));
    EXPECT_EQ(batch.local_values()[1].data.device(), test_device::device(0));
    EXPECT_TRUE(torch::equal(batch.local_values()[1].data.cpu(),
                             torch::arange(begin + 2, begin + 8).to(torch::kFloat)));
    begin += 8;
  }
  EXPECT_EQ(begin, 16);
}

TEST_F(MixedDevices, RefuseWeightsThatAreNotPositiveOrNotOneForEach) {
  const auto refusal = [](const ReplicaWeights& weights) {
    return message_of<InvalidArgument>([&] {
      MirroredStrategy strategy({"cpu:0", "testdevice:0"}, {.replica_weights = weights});
    });
  };
  EXPECT_THAT(refusal({1, 0}),
              HasSubstr("expected positive replica_weights, one for each of the 2 replicas, but got 1, 0"));
  EXPECT_THAT(refusal({1}), HasSubstr("one for each of the 2 replicas, but got 1"));
  EXPECT_THAT(refusal({1, -2}), HasSubstr("but got 1, -2"));
  EXPECT_THAT(refusal({1, std::nan("")}), HasSubstr("but got 1, nan"));
}

TEST_F(MixedDevices, MeasuredWeightsGiveASlowDeviceLessAndEqualTheCpu) {
  test_device::slow_down(0, 8);
  const auto trained = [](MirroredStrategy& strategy) {
    torch::manual_seed(3);
    const auto data = torch::randn({64, 32}, torch::kDouble);
    auto model = strategy.scope([](ReplicaContext&) {
      torch::nn::Sequential net(torch::nn::Linear(32, 256), torch::nn::Tanh(), torch::nn::Linear(256, 4));
      net->to(torch::kDouble);
      return net;
    });
    auto optimizer = strategy.scope([&](ReplicaContext& replica) {
      return OptimizerPointer(std::make_unique<torch::optim::SGD>(model[replica]->parameters(), 0.01));
    });
    auto batches =
        strategy.distribute_dataset(TensorDataset(data, torch::arange(64)), {.global_batch_size = 64});
    for (int epoch = 0; epoch < 40; ++epoch) {
      for (const auto& batch : batches) {
        strategy.run(
            [](ReplicaContext& replica, torch::nn::Sequential& net, OptimizerPointer& sgd,
               const Example& shard) {
              sgd->zero_grad();
              compute_average_loss(replica, net->forward(shard.data).square().sum(1)).backward();
              replica.apply_gradients(*sgd);
            },
            model, optimizer, batch);
      }
    }
    return on_cpu(model.primary()->parameters());
  };
  MirroredStrategy mixed({"cpu:0", "testdevice:0"},
                         {.intra_op_threads = 1, .replica_weights = ReplicaWeights::measured()});
  EXPECT_TRUE(mixed.replica_weights().empty()) << "equal until something was measured";
  const auto values = trained(mixed);
  const auto weights = mixed.replica_weights();
  ASSERT_EQ(weights.size(), 2u);
  EXPECT_GT(weights[0], 2 * weights[1]) << "the device is at least eight times as slow as the CPU";
  MirroredStrategy one({"cpu:0"}, {.intra_op_threads = 1});
  EXPECT_LE(largest_difference(values, trained(one)), kExact);
}

/// Trains on devices without the abilities that plugins need not have. Returns what went wrong.
std::string trained_without_abilities() {
  test_device::lack_abilities();
  const DeviceTraits& traits = device_traits(c10::DeviceType::PrivateUse1);
  if (traits.has_stream_pool || traits.has_events || traits.has_stream_queries || traits.has_stream_waits ||
      traits.has_pinned_memory)
    return "an ability was found that the backend refuses";
  const auto expected = alone();
  for (const std::vector<std::string>& devices :
       {std::vector<std::string>{"testdevice:0", "testdevice:1"}, {"cpu:0", "testdevice:2"}}) {
    if (largest_difference(trained_over<TanhNet>(devices, {.replica_weights = ReplicaWeights::measured()}),
                           expected) > kExact)
      return "it trained something else on " + devices[0] + " and " + devices[1];
  }
  MirroredStrategy strategy({"testdevice:3"});
  const auto where =
      strategy.run([](ReplicaContext&) { return torch::zeros({1}, torch::kPrivateUse1).device().str(); });
  if (where.local_values()[0] != "testdevice:3")
    return "a replica's current device is " + where.local_values()[0];
  // The iterator ends while its batch is still in use.
  const Example data = examples_of_three_classes();
  auto batches =
      strategy.distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = kBatchSize});
  const auto batch = *batches.begin();
  // A caller's mistake is no failure of the device, which cannot be asked.
  try {
    strategy.run([](ReplicaContext& replica) { torch::ones({2}, replica.device()).view({3}); });
  } catch (const DeviceFailure& failure) {
    return failure.what();
  } catch (const c10::Error&) {
    return test_device::races().empty() ? "" : test_device::races()[0];
  }
  return "a wrong view was accepted";
}

TEST_F(MixedDevices, TrainOnABackendThatLacksWhatPluginsNeedNotHave) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // abilities are asked for once a process
  EXPECT_EXIT(
      {
        std::string wrong = "an exception";
        try {
          wrong = trained_without_abilities();
        } catch (const std::exception& error) {
          wrong += std::string(": ") + error.what();
        }
        std::cerr << "wrong: '" << wrong << "'\n";
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "wrong: ''");
}

TEST_F(MixedDevices, AFailingDeviceIsNamedAndTheCpuReleased) {
  MirroredStrategy strategy({"cpu:0", "testdevice:1"}, {.intra_op_threads = 1});
  auto model = strategy.scope([](ReplicaContext&) { return TanhNet(); });
  auto optimizer =
      strategy.scope([&](ReplicaContext& replica) { return momentum_sgd()(model[replica]->parameters()); });
  const Example data = examples_of_three_classes();
  auto batches =
      strategy.distribute_dataset(TensorDataset(data.data, data.target), {.global_batch_size = 13});
  const auto batch = *batches.begin();
  strategy.run(plain_step<TanhNet>, model, optimizer, batch);
  test_device::fail_at_operator(1, 5, test_device::Fault::kOutOfMemory);
  EXPECT_THAT(message_of<OutOfMemory>([&] { strategy.run(plain_step<TanhNet>, model, optimizer, batch); }),
              AllOf(HasSubstr("replica 1 on testdevice:1 is out of memory"),
                    HasSubstr("fewer replicas on this testdevice device")));
  strategy.restore_consistency(model, optimizer);
  strategy.run(plain_step<TanhNet>, model, optimizer, batch);
  test_device::fail_at_operator(1, 5, test_device::Fault::kLost);
  EXPECT_THAT(message_of<DeviceFailure>([&] { strategy.run(plain_step<TanhNet>, model, optimizer, batch); }),
              HasSubstr("replica 1 on testdevice:1: "));
}

}  // namespace
}  // namespace lockstep
