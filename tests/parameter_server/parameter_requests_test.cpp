#include "lockstep/parameter_server/parameter_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <variant>
#include <vector>

#include "lockstep/runtime/errors.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

template <typename Request>
Request encoded_and_decoded(const Request& request) {
  return std::get<Request>(decode_request(encode_request(request)));
}

const std::vector<UpdateRule> kRules{
    SgdRule{.momentum = 0.9, .dampening = 0.1, .weight_decay = 1e-4, .nesterov = true, .maximize = true},
    AdagradRule{.lr_decay = 0.1, .weight_decay = 0.2, .initial_accumulator_value = 0.3, .eps = 1e-7},
    AdamRule{
        .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-6, .weight_decay = 0.5, .is_decoupled = true, .amsgrad = true},
    AdamRule{},
};

TEST(ParameterRequests, CreatingComesAsItWent) {
  for (const auto& rule : kRules) {
    const auto got = encoded_and_decoded(CreateShard{"table/part_0", torch::arange(3), rule});
    EXPECT_EQ(got.shard, "table/part_0");
    EXPECT_TRUE(got.values.equal(torch::arange(3)));
    EXPECT_EQ(got.rule, rule);
  }
}

TEST(ParameterRequests, PullingComesAsItWent) {
  const auto got =
      encoded_and_decoded(PullShards{{{"bias", {}}, {"table", torch::tensor({1, 5})}, {"", {}}}});
  ASSERT_EQ(got.parts.size(), 3U);
  EXPECT_EQ(got.parts[0].shard, "bias");
  EXPECT_FALSE(got.parts[0].rows.defined());
  EXPECT_EQ(got.parts[1].shard, "table");
  EXPECT_TRUE(got.parts[1].rows.equal(torch::tensor({1, 5})));
  EXPECT_EQ(got.parts[2].shard, "");
}

TEST(ParameterRequests, PushingComesAsItWent) {
  const auto got = encoded_and_decoded(PushShards{
      {.closure = 3, .number = uint64_t{1} << 63},
      {{.shard = "bias", .gradient = torch::ones({2}), .lr = 0.1, .version = 17},
       {.shard = "table", .rows = torch::tensor({4}), .gradient = torch::ones({1, 2}), .lr = -1e-300}}});
  EXPECT_EQ(got.id, (PushId{.closure = 3, .number = uint64_t{1} << 63}));
  ASSERT_EQ(got.parts.size(), 2U);
  EXPECT_EQ(got.parts[0].lr, 0.1);
  EXPECT_EQ(got.parts[0].version, 17U);
  EXPECT_FALSE(got.parts[0].rows.defined());
  EXPECT_TRUE(got.parts[0].gradient.equal(torch::ones({2})));
  EXPECT_EQ(got.parts[1].lr, -1e-300);
  EXPECT_TRUE(got.parts[1].rows.equal(torch::tensor({4})));
  EXPECT_EQ(got.parts[1].gradient.sizes(), (std::vector<int64_t>{1, 2}));
}

TEST(ParameterRequests, ForgettingComesAsItWent) {
  EXPECT_EQ(encoded_and_decoded(ForgetPushes{12}).before_closure, 12U);
}

TEST(ParameterRequests, AnswersComeAsTheyWent) {
  EXPECT_TRUE(decode_created(encode_created(true)));
  EXPECT_FALSE(decode_created(encode_created(false)));
  const auto pulled = decode_pulled(encode_pulled({{torch::ones({2}), 5}, {torch::zeros({}), 0}}));
  ASSERT_EQ(pulled.size(), 2U);
  EXPECT_EQ(pulled[0].version, 5U);
  EXPECT_TRUE(pulled[0].values.equal(torch::ones({2})));
  const auto pushed = decode_pushed(encode_pushed({{true, 8, 2}, {false, 9, 0}}));
  ASSERT_EQ(pushed.size(), 2U);
  EXPECT_TRUE(pushed[0].is_applied);
  EXPECT_EQ(pushed[0].version, 8U);
  EXPECT_EQ(pushed[0].staleness, 2U);
  EXPECT_FALSE(pushed[1].is_applied);
}

TEST(ParameterRequests, WhatIsCutOffIsRefused) {
  const std::vector<RpcMessage> whole{
      encode_request(CreateShard{"a", torch::ones({1}), kRules[0]}),
      encode_request(PullShards{{{"a", torch::tensor({1})}, {"b", {}}}}),
      encode_request(
          PushShards{{1, 2}, {{.shard = "a", .rows = torch::tensor({1}), .gradient = torch::ones({1})}}}),
      encode_request(ForgetPushes{1}),
  };
  for (const auto& message : whole) {
    for (size_t size = 0; size < message.fields.size(); ++size) {
      auto cut = message;
      cut.fields.resize(size);
      EXPECT_THROW(decode_request(cut), InvalidArgument) << size;
    }
    auto longer = message;
    longer.fields.push_back(0);
    EXPECT_THROW(decode_request(longer), InvalidArgument);
    auto fuller = message;
    fuller.tensors.push_back(torch::ones({1}));
    EXPECT_THROW(decode_request(fuller), InvalidArgument);
    if (message.tensors.empty()) continue;
    auto emptier = message;
    emptier.tensors.pop_back();
    EXPECT_THROW(decode_request(emptier), InvalidArgument);
  }
}

TEST(ParameterRequests, WhatIsNoRequestIsNamed) {
  EXPECT_THAT([] { decode_request({.fields = {4}}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("number of a request, but got 4")));
  // Four milliard parts, of which none is there: no memory is taken for them.
  EXPECT_THAT(
      [] {
        decode_request({.fields = {1, 0xff, 0xff, 0xff, 0xff}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("expected 4294967295 parts")));
  auto rule = encode_request(CreateShard{"", torch::ones({1}), SgdRule{}});
  rule.fields.at(5) = 3;
  EXPECT_THAT([&] { decode_request(rule); },
              ThrowsMessage<InvalidArgument>(HasSubstr("update rule, but got 3")));
  auto flag = encode_request(PullShards{{{"", {}}}});
  flag.fields.back() = 2;
  EXPECT_THAT([&] { decode_request(flag); }, ThrowsMessage<InvalidArgument>(HasSubstr("0 or 1, but got 2")));
}

}  // namespace
}  // namespace lockstep
