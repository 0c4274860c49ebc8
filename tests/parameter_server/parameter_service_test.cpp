#include "lockstep/parameter_server/parameter_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/errors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

bool create(ParameterService& service, const std::string& name, const at::Tensor& values,
            const UpdateRule& rule = SgdRule{}) {
  return decode_created(service.handle(encode_request(CreateShard{name, values, rule})));
}

std::vector<PushResult> push(ParameterService& service, const PushShards& request) {
  return decode_pushed(service.handle(encode_request(request)));
}

TEST(ParameterService, HoldsTheShardsThatWereMade) {
  ParameterService service;
  EXPECT_TRUE(create(service, "table", torch::arange(6, torch::kFloat).view({3, 2})));
  EXPECT_TRUE(create(service, "bias", torch::ones({2})));
  EXPECT_EQ(service.shard_names(), (std::vector<std::string>{"bias", "table"}));
  const auto pulled = decode_pulled(
      service.handle(encode_request(PullShards{{{"bias", {}}, {"table", torch::tensor({2, 0})}}})));
  EXPECT_TRUE(pulled.at(0).values.equal(torch::ones({2})));
  EXPECT_TRUE(pulled.at(1).values.equal(torch::tensor({{4.F, 5.F}, {0.F, 1.F}})));
}

TEST(ParameterService, KeepsAShardThatIsMadeAgain) {
  ParameterService service;
  create(service, "bias", torch::ones({2}));
  EXPECT_FALSE(create(service, "bias", torch::zeros({2})));
  EXPECT_TRUE(service.shard("bias")->pull().values.equal(torch::ones({2})));
  EXPECT_THAT(
      [&] { create(service, "bias", torch::ones({3})); },
      ThrowsMessage<InvalidArgument>(HasSubstr("bias: expected values of CPUFloatType of shape [2]")));
  EXPECT_THAT(
      [&] { create(service, "bias", torch::ones({2}), AdamRule{}); },
      ThrowsMessage<InvalidArgument>(HasSubstr("bias: expected the optimizer that it was made with")));
}

TEST(ParameterService, StepsEachShardByItsPart) {
  ParameterService service;
  create(service, "table", torch::zeros({3, 2}));
  create(service, "bias", torch::zeros({2}));
  const PushShards request{
      {.closure = 1},
      {{.shard = "bias", .gradient = torch::ones({2}), .lr = 1},
       {.shard = "table", .rows = torch::tensor({1}), .gradient = torch::ones({1, 2}), .lr = 0.5}}};
  for (const auto& result : push(service, request)) EXPECT_TRUE(result.is_applied);
  for (const auto& result : push(service, request)) EXPECT_FALSE(result.is_applied);
  EXPECT_TRUE(service.shard("bias")->pull().values.equal(torch::full({2}, -1.F)));
  EXPECT_TRUE(
      service.shard("table")->pull().values.equal(torch::tensor({{0.F, 0.F}, {-.5F, -.5F}, {0.F, 0.F}})));
  service.handle(encode_request(ForgetPushes{5}));
  auto late = request;
  late.id = {.closure = 4};
  for (const auto& result : push(service, late)) EXPECT_FALSE(result.is_applied);
}

TEST(ParameterService, NamesAShardThatItDoesNotHold) {
  ParameterService service;
  create(service, "bias", torch::ones({2}));
  EXPECT_THAT(
      [&] {
        service.handle(encode_request(PullShards{{{"weight", {}}}}));
      },
      ThrowsMessage<InvalidArgument>("expected one of its 1 shards, but got 'weight'"));
  EXPECT_THROW(push(service, {{}, {{.shard = "weight", .gradient = torch::ones({2})}}}), InvalidArgument);
  EXPECT_THROW(service.handle({.fields = {9}}), InvalidArgument);
}

TEST(ParameterService, ServesManyThreadsAtOnce) {
  ParameterService service;
  std::vector<std::thread> threads;
  constexpr int kThreads = 4;
  constexpr int kSteps = 50;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      create(service, "sum", torch::zeros({8}));
      create(service, "own " + std::to_string(i), torch::zeros({8}));
      for (int step = 0; step < kSteps; ++step)
        push(service, {{.closure = static_cast<uint64_t>(i), .number = static_cast<uint64_t>(step)},
                       {{.shard = "sum", .gradient = torch::ones({8}), .lr = -1}}});
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_TRUE(service.shard("sum")->pull().values.equal(torch::full({8}, 1.F * kThreads * kSteps)));
  EXPECT_EQ(service.shard_names().size(), 1U + kThreads);
}

}  // namespace
}  // namespace lockstep
