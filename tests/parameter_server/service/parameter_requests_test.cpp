#include "lockstep/parameter_server/service/parameter_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "lockstep/runtime/base/errors.h"

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

const std::vector<std::optional<InitialValues>> kInitial{
    std::nullopt,
    ConstantValues{.value = 0.25},
    UniformValues{.low = -0.5, .high = 0.75, .seed = uint64_t{1} << 63},
    NormalValues{.mean = 2, .std = 0.01, .seed = 7},
};

TEST(ParameterRequests, CreatingComesAsItWent) {
  for (const auto& rule : kRules) {
    for (const auto& initial : kInitial) {
      const auto got = encoded_and_decoded(CreateShard{.shard = "table/part_0",
                                                       .variable = "table",
                                                       .rows = {5, int64_t{1} << 40},
                                                       .values = torch::arange(3),
                                                       .initial = initial,
                                                       .rule = rule,
                                                       .filter = {.min_frequency = 3, .steps_to_live = 9}});
      EXPECT_EQ(got.shard, "table/part_0");
      EXPECT_EQ(got.variable, "table");
      EXPECT_EQ(got.rows, (RowRange{5, int64_t{1} << 40}));
      EXPECT_TRUE(got.values.equal(torch::arange(3)));
      EXPECT_EQ(got.initial, initial);
      EXPECT_EQ(got.rule, rule);
      EXPECT_EQ(got.filter, (RowFilter{.min_frequency = 3, .steps_to_live = 9}));
    }
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

TEST(ParameterRequests, StepsOfAllWorkersComeAsTheyWent) {
  const auto given = encoded_and_decoded(
      ContributeShards{.step = 9,
                       .slot = 3,
                       .is_last = false,
                       .parts = {{.shard = "bias", .gradient = torch::ones({2}), .lr = 0.5, .version = 8}}});
  EXPECT_EQ(given.step, 9U);
  EXPECT_EQ(given.slot, 3U);
  EXPECT_FALSE(given.is_last);
  ASSERT_EQ(given.parts.size(), 1U);
  EXPECT_EQ(given.parts[0].shard, "bias");
  EXPECT_EQ(given.parts[0].version, 8U);
  const auto step = encoded_and_decoded(CommitStep{.step = 9, .num_slots = 4});
  EXPECT_EQ(step.step, 9U);
  EXPECT_EQ(step.num_slots, 4U);
  EXPECT_EQ(decode_committed(encode_committed({1, 7})), (std::vector<uint32_t>{1, 7}));
}

TEST(ParameterRequests, ForgettingAndSavingComeAsTheyWent) {
  EXPECT_EQ(encoded_and_decoded(ForgetPushes{12}).before_closure, 12U);
  EXPECT_EQ(encoded_and_decoded(SaveShards{"begun"}).folder, "begun");
}

TEST(ParameterRequests, AnswersComeAsTheyWent) {
  for (const auto origin : {ShardOrigin::kPresent, ShardOrigin::kNew, ShardOrigin::kRestored}) {
    const auto created = decode_created(encode_created({origin, "checkpoint-3"}));
    EXPECT_EQ(created.origin, origin);
    EXPECT_EQ(created.source, "checkpoint-3");
  }
  EXPECT_EQ(decode_saved(encode_saved("{\n}")), "{\n}");
  const auto pulled = decode_pulled(encode_pulled({{torch::ones({2}), 5}, {torch::zeros({}), 0}}));
  ASSERT_EQ(pulled.size(), 2U);
  EXPECT_EQ(pulled[0].version, 5U);
  EXPECT_TRUE(pulled[0].values.equal(torch::ones({2})));
  const auto pushed = decode_pushed(encode_pushed(
      {{PushOutcome::kApplied, 8, 2}, {PushOutcome::kRepeated, 9, 0}, {PushOutcome::kOutdated, 1, 0}}));
  ASSERT_EQ(pushed.size(), 3U);
  EXPECT_EQ(pushed[0].outcome, PushOutcome::kApplied);
  EXPECT_EQ(pushed[0].version, 8U);
  EXPECT_EQ(pushed[0].staleness, 2U);
  EXPECT_EQ(pushed[1].outcome, PushOutcome::kRepeated);
  EXPECT_EQ(pushed[2].outcome, PushOutcome::kOutdated);
}

TEST(ParameterRequests, WhatIsCutOffIsRefused) {
  const std::vector<RpcMessage> whole{
      encode_request(CreateShard{"a", "a", {0, 1}, torch::ones({1}), kInitial[2], kRules[0]}),
      encode_request(PullShards{{{"a", torch::tensor({1})}, {"b", {}}}}),
      encode_request(
          PushShards{{1, 2}, {{.shard = "a", .rows = torch::tensor({1}), .gradient = torch::ones({1})}}}),
      encode_request(ForgetPushes{1}),
      encode_request(SaveShards{"begun"}),
      encode_request(ContributeShards{1, 2, true, {{.shard = "a", .gradient = torch::ones({1})}}}),
      encode_request(CommitStep{1, 2}),
      encode_request(EndServing{}),
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

TEST(ParameterRequests, ATableThatGrowsArrives) {
  const CreateShard sent{
      .shard = "t/part_1",
      .variable = "t",
      .rows = {5, int64_t{1} << 55},
      .values = torch::empty({0, 4}),
      .initial = NormalValues{.std = 2, .seed = 7},
      .rule = AdagradRule{},
      .filter = {},
      .growth = RowGrowth{.max_bytes = int64_t{1} << 40, .num_bits = 55, .takes_numbered_rows = true}};
  const auto request = decode_request(encode_request(sent));
  const auto& got = std::get<CreateShard>(request);
  EXPECT_EQ(got.growth, sent.growth);
  EXPECT_EQ(got.filtered(), (FilteredRows{{}, *sent.initial, sent.rows}));
}

TEST(ParameterRequests, WhatIsNoRequestIsNamed) {
  EXPECT_THAT([] { decode_request({.fields = {8}}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("number of a request, but got 8")));
  // Claims 2^32 - 1 parts and sends none: no memory is allocated for them.
  EXPECT_THAT(
      [] {
        decode_request({.fields = {1, 0xff, 0xff, 0xff, 0xff}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("expected 4294967295 parts")));
  auto rule = encode_request(CreateShard{"", "", {}, torch::ones({1}), ConstantValues{}, SgdRule{}});
  rule.fields.at(1 + 4 + 4 + 8 + 8) = 3;
  EXPECT_THAT([&] { decode_request(rule); },
              ThrowsMessage<InvalidArgument>(HasSubstr("update rule, but got 3")));
  auto initial = encode_request(CreateShard{"", "", {}, torch::ones({1}), ConstantValues{}, SgdRule{}});
  initial.fields.at(initial.fields.size() - 1 - 8 - 16 - 1) = 9;
  EXPECT_THAT([&] { decode_request(initial); },
              ThrowsMessage<InvalidArgument>(HasSubstr("initial values, but got 9")));
  auto flag = encode_request(PullShards{{{"", {}}}});
  flag.fields.back() = 2;
  EXPECT_THAT([&] { decode_request(flag); }, ThrowsMessage<InvalidArgument>(HasSubstr("0 or 1, but got 2")));
}

}  // namespace
}  // namespace lockstep
