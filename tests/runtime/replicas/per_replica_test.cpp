#include "lockstep/runtime/replicas/per_replica.h"

#include <gtest/gtest.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/replicas/replica_context.h"

namespace lockstep {
namespace {

std::shared_ptr<const std::vector<LogicalDevice>> two_cpus() {
  return std::make_shared<const std::vector<LogicalDevice>>(logical_cpus(2));
}

struct NoGradients : GradientHandler {
  torch::Tensor apply_gradients(ReplicaContext&, torch::optim::Optimizer&, const ApplyOptions&) override {
    return {};
  }
  void reduce_gradients(ReplicaContext&, torch::optim::Optimizer&) override {}
};

TEST(PerReplica, PrintsEachValueWithItsReplicaAndDevice) {
  std::ostringstream numbers;
  numbers << PerReplica<double>({0.25, 0.5}, two_cpus());
  EXPECT_EQ(numbers.str(), "{0: 0.25 (cpu:0), 1: 0.5 (cpu:1)}");
  std::ostringstream gpus;
  gpus << PerReplica<std::string>({"a"}, std::make_shared<const std::vector<LogicalDevice>>(
                                             std::vector<LogicalDevice>{{c10::DeviceType::CUDA, 3}}));
  EXPECT_EQ(gpus.str(), "{0: a (gpu:3)}");
}

TEST(PerReplica, PrintsTensors) {
  std::ostringstream text;
  text << PerReplica<torch::Tensor>({torch::full({}, 0.25), torch::full({}, 0.5)}, two_cpus());
  EXPECT_TRUE(text.str().starts_with("{0: 0.25")) << text.str();
  EXPECT_NE(text.str().find("(cpu:0), 1: 0.5"), std::string::npos) << text.str();
}

TEST(PerReplica, GivesEachReplicaItsOwnValueByItsLocalNumber) {
  PerReplica<int> values({10, 20}, two_cpus());
  NoGradients gradients;
  for (int local = 0; local < 2; ++local) {
    // As on a second machine, where replica_id differs from local_id.
    ReplicaState state{
        .replica_id = local + 4, .local_id = local, .num_replicas = 6, .device = {}, .generator = {}};
    ReplicaContext replica(state, gradients, nullptr, {});
    EXPECT_EQ(values[replica], 10 * (local + 1));
    values[replica] += 1;
    EXPECT_EQ(std::as_const(values)[replica], 10 * (local + 1) + 1);
  }
  EXPECT_EQ(values.local_values(), (std::vector<int>{11, 21}));
}

TEST(PerReplica, GivesTheValueOfALocalReplica) {
  PerReplica<int> values({10, 20}, two_cpus());
  values[0] = 11;
  EXPECT_EQ(values[0], 11);
  EXPECT_EQ(std::as_const(values)[1], 20);
  EXPECT_THROW(values[2], std::out_of_range);
  EXPECT_THROW(std::as_const(values)[-1], std::out_of_range);
}

TEST(PerReplica, MapsEachValueOnItsDevice) {
  PerReplica<int> values({10, 20}, two_cpus());
  values.set_batch_sizes({2, {1, 1}});
  const auto texts = values.map([](const int& value) { return std::to_string(value); });
  EXPECT_EQ(texts.local_values(), (std::vector<std::string>{"10", "20"}));
  EXPECT_EQ(texts.devices(), values.devices());
  EXPECT_FALSE(texts.batch_sizes());  // they are of the batch, not of what was computed from it
}

TEST(PerReplica, CarriesTheSizesOfItsBatch) {
  PerReplica<int> values({1, 2}, two_cpus());
  EXPECT_FALSE(values.batch_sizes());
  values.set_batch_sizes({.global = 5, .local = {3, 2}});
  EXPECT_EQ(values.batch_sizes()->global, 5);
  EXPECT_EQ(values.batch_sizes()->local, (std::vector<int64_t>{3, 2}));
}

}  // namespace
}  // namespace lockstep
