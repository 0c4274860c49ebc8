#include "lockstep/parameter_server/service/parameter_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// A variable in one piece.
CreateShard whole(const std::string& name, const at::Tensor& values, const UpdateRule& rule = SgdRule{}) {
  return {.shard = name,
          .variable = name,
          .rows = {0, values.size(0)},
          .values = values,
          .initial = std::nullopt,
          .rule = rule};
}

ShardOrigin create(ParameterService& service, const CreateShard& request) {
  return decode_created(service.handle(encode_request(request))).origin;
}

ShardOrigin create(ParameterService& service, const std::string& name, const at::Tensor& values,
                   const UpdateRule& rule = SgdRule{}) {
  return create(service, whole(name, values, rule));
}

std::vector<PushResult> push(ParameterService& service, const PushShards& request) {
  return decode_pushed(service.handle(encode_request(request)));
}

TEST(ParameterService, HoldsTheShardsThatWereMade) {
  ParameterService service;
  EXPECT_EQ(create(service, "table", torch::arange(6, torch::kFloat).view({3, 2})), ShardOrigin::kNew);
  EXPECT_EQ(create(service, "bias", torch::ones({2})), ShardOrigin::kNew);
  EXPECT_EQ(service.shard_names(), (std::vector<std::string>{"bias", "table"}));
  const auto pulled = decode_pulled(
      service.handle(encode_request(PullShards{{{"bias", {}}, {"table", torch::tensor({2, 0})}}})));
  EXPECT_TRUE(pulled.at(0).values.equal(torch::ones({2})));
  EXPECT_TRUE(pulled.at(1).values.equal(torch::tensor({{4.F, 5.F}, {0.F, 1.F}})));
}

TEST(ParameterService, KeepsAShardThatIsMadeAgain) {
  ParameterService service;
  create(service, "bias", torch::ones({2}));
  EXPECT_EQ(create(service, "bias", torch::zeros({2})), ShardOrigin::kPresent);
  EXPECT_TRUE(service.shard("bias")->pull().values.equal(torch::ones({2})));
  EXPECT_THAT([&] { create(service, "bias", torch::ones({2}, torch::kDouble)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("bias: expected values of Float of shape [2]")));
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
  for (const auto& result : push(service, request)) EXPECT_EQ(result.outcome, PushOutcome::kApplied);
  for (const auto& result : push(service, request)) EXPECT_EQ(result.outcome, PushOutcome::kRepeated);
  EXPECT_TRUE(service.shard("bias")->pull().values.equal(torch::full({2}, -1.F)));
  EXPECT_TRUE(
      service.shard("table")->pull().values.equal(torch::tensor({{0.F, 0.F}, {-.5F, -.5F}, {0.F, 0.F}})));
  service.handle(encode_request(ForgetPushes{5}));
  auto late = request;
  late.id = {.closure = 4};
  for (const auto& result : push(service, late)) EXPECT_EQ(result.outcome, PushOutcome::kRepeated);
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

TEST(ParameterService, MakesTheValuesThatItIsOnlyToldOf) {
  ParameterService service;
  const NormalValues normal{.mean = 1, .std = 2, .seed = 3};
  const auto request = [&](const RowRange& rows, const at::Tensor& like) {
    return CreateShard{.shard = "table/part_1",
                       .variable = "table",
                       .rows = rows,
                       .values = like,
                       .initial = normal,
                       .rule = SgdRule{}};
  };
  EXPECT_EQ(create(service, request({10, 14}, torch::empty({0, 3}))), ShardOrigin::kNew);
  EXPECT_TRUE(service.shard("table/part_1")
                  ->pull()
                  .values.equal(make_values(normal, {10, 14}, torch::empty({0, 3}))));
  EXPECT_EQ(create(service, request({10, 14}, torch::empty({0, 3}))), ShardOrigin::kPresent);
  EXPECT_THAT(([&] {
                create(service, request({10, 15}, torch::empty({0, 3})));
              }),
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("table/part_1: expected rows 10 to 13 of table"),
                                                   HasSubstr("but got 10 to 14 of table"))));
  EXPECT_THROW(create(service, request({10, 14}, torch::empty({0, 4}))), InvalidArgument);
}

TEST(ParameterService, RefusesValuesOfOtherRowsThanItIsToldOf) {
  ParameterService service;
  auto request = whole("table", torch::zeros({3, 2}));
  request.rows.end = 4;
  EXPECT_THAT([&] { create(service, request); },
              ThrowsMessage<InvalidArgument>(HasSubstr("table: expected 4 rows of values, for rows 0 to 3")));
  request.rows = {-3, 0};
  EXPECT_THROW(create(service, request), InvalidArgument);
  request.rows = {0, 3};
  request.initial = ConstantValues{};
  EXPECT_THROW(create(service, request), InvalidArgument);  // given both
  request.values = torch::zeros({});
  request.rows = {0, 1};
  EXPECT_THROW(create(service, request), InvalidArgument);  // a scalar has no rows
  EXPECT_TRUE(service.shard_names().empty());
}

/// Saves to memory.
class TestStorage : public ShardStorage {
 public:
  std::optional<ParameterShard::Saved> find(const std::string& variable, const RowRange& rows) override {
    const auto found = saved_.find(variable);
    if (found == saved_.end()) return std::nullopt;
    if (found->second.rows != rows) throw InvalidArgument("other rows");
    return found->second.saved;
  }
  std::optional<ParameterShard::Saved> find_growing(const std::string& variable, const FilteredRows& filtered,
                                                    const RowGrowth& /*growth*/) override {
    return find(variable, filtered.rows);
  }
  std::string source() const override { return saved_.empty() ? "" : "memory"; }
  std::string save(const std::string& folder, const std::vector<HeldShard>& shards) override {
    for (const auto& held : shards) saved_[held.variable] = {held.rows, held.shard->save()};
    return "saved in " + folder;
  }

 private:
  struct Entry {
    RowRange rows;
    ParameterShard::Saved saved;
  };
  std::map<std::string, Entry> saved_;
};

TEST(ParameterService, GoesOnFromWhatWasSaved) {
  const auto storage = std::make_shared<TestStorage>();
  const PushShards push_one{{.closure = 1}, {{.shard = "bias", .gradient = torch::ones({2}), .lr = 1}}};
  {
    ParameterService service(storage);
    create(service, "bias", torch::zeros({2}));
    push(service, push_one);
    EXPECT_EQ(decode_saved(service.handle(encode_request(SaveShards{"here"}))), "saved in here");
  }
  ParameterService service(storage);
  EXPECT_EQ(create(service, "bias", torch::zeros({2})), ShardOrigin::kRestored);
  EXPECT_TRUE(service.shard("bias")->pull().values.equal(torch::full({2}, -1.F)));
  EXPECT_EQ(push(service, push_one).at(0).outcome, PushOutcome::kRepeated);
  EXPECT_EQ(create(service, "new", torch::zeros({2})), ShardOrigin::kNew);

  // A server that restores its shards before any request gives the same answer.
  ParameterService early(storage);
  const auto again = std::make_shared<ParameterShard>("bias", torch::zeros({2}), SgdRule{});
  early.restore({"bias", {0, 2}, again});
  const CreateShard bias{.shard = "bias",
                         .variable = "bias",
                         .rows = {0, 2},
                         .values = torch::zeros({2}),
                         .initial = std::nullopt,
                         .rule = SgdRule{}};
  const auto created = decode_created(early.handle(encode_request(bias)));
  EXPECT_EQ(created.origin, ShardOrigin::kRestored);
  EXPECT_EQ(created.source, "memory");
  EXPECT_EQ(create(early, bias), ShardOrigin::kPresent);

  ParameterService other(storage);
  EXPECT_THAT([&] { create(other, "bias", torch::zeros({2}, torch::kDouble)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("bias: expected values of Float")));
  EXPECT_THROW(create(other, "bias", torch::zeros({3})), InvalidArgument);
  EXPECT_TRUE(other.shard_names().empty());
}

/// A table that grows, whose rows are made by the second update with their id.
CreateShard growing(int64_t max_bytes) {
  return {.shard = "t",
          .variable = "t",
          .rows = {0, 1 << 20},
          .values = torch::empty({0, 2}),
          .initial = NormalValues{.seed = 3},
          .rule = SgdRule{},
          .filter = {.min_frequency = 2},
          .growth = RowGrowth{.max_bytes = max_bytes, .num_bits = 20}};
}

PushShards growing_push(uint64_t closure, const std::vector<int64_t>& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  return {{.closure = closure},
          {{.shard = "t", .rows = torch::tensor(rows), .gradient = torch::ones({count, 2}), .lr = 1}}};
}

TEST(ParameterService, ATableThatGrowsComesBackWithAnotherLimitOfMemory) {
  constexpr int64_t kSavedLimit = 1 << 20;
  const auto storage = std::make_shared<TestStorage>();
  ParameterService service(storage);
  create(service, growing(kSavedLimit));
  push(service, growing_push(1, {3, 70, 900}));
  push(service, growing_push(2, {3, 70}));
  ASSERT_EQ(service.shard("t")->extent().rows, 2);
  service.handle(encode_request(SaveShards{"here"}));
  const auto all = torch::tensor({3, 70, 900});
  const auto expected = service.shard("t")->pull_rows(all).values;
  for (const int64_t limit : {kSavedLimit, kSavedLimit / 8, 4 * kSavedLimit, int64_t{0}}) {
    ParameterService again(storage);
    const auto request = growing(kSavedLimit);
    const auto saved = storage->find("t", request.rows);
    const auto own = std::make_shared<ParameterShard>("t", saved->values, request.rule, request.filtered(),
                                                      request.growth);
    own->restore(*saved);
    again.restore({"t", request.rows, own});  // a server's own shards, before it knows the limit
    EXPECT_EQ(create(again, growing(limit)), ShardOrigin::kRestored);
    EXPECT_EQ(again.shard("t")->growth()->max_bytes, limit);
    EXPECT_EQ(again.shard("t")->extent().rows, 2);
    EXPECT_TRUE(again.shard("t")->pull_rows(all).values.equal(expected));
    // An id that was counted once needs one more update only, in a sketch of another size, too.
    EXPECT_EQ(push(again, growing_push(2, {900})).at(0).outcome, PushOutcome::kRepeated);
    push(again, growing_push(3, {900, 1000}));
    EXPECT_EQ(again.shard("t")->extent().rows, 3);
    // Nobody may change the limit of a table that is used.
    EXPECT_THAT([&] { create(again, growing(limit + 5)); },
                ThrowsMessage<InvalidArgument>(HasSubstr("t: expected a limit of")));
  }
}

TEST(ParameterService, TellsOfTheJobsEnd) {
  int ends = 0;
  ParameterService service(nullptr, [&] { ++ends; });
  service.handle(encode_request(EndServing{}));
  EXPECT_EQ(ends, 1);
  ParameterService().handle(encode_request(EndServing{}));
}

TEST(ParameterService, SavesNothingWithoutAStorage) {
  ParameterService service;
  EXPECT_THAT([&] { service.handle(encode_request(SaveShards{"here"})); },
              ThrowsMessage<InvalidArgument>(HasSubstr("was given no folder")));
}

HeldShard part(const std::string& name, const RowRange& rows) {
  return {"table", rows, std::make_shared<ParameterShard>(name, torch::full({rows.size()}, 7.F), SgdRule{})};
}

TEST(ParameterService, GivesUpRestoredShardsOfAVariableThatIsCutOtherwise) {
  ParameterService service;
  service.restore(part("table/part_0", {0, 3}));
  service.restore(part("table/part_1", {3, 6}));
  EXPECT_THROW(service.restore(part("table/part_1", {3, 6})), InvalidArgument);
  CreateShard request{.shard = "table/part_1",
                      .variable = "table",
                      .rows = {4, 8},
                      .values = torch::zeros({4}),
                      .initial = std::nullopt,
                      .rule = SgdRule{}};
  EXPECT_EQ(create(service, request), ShardOrigin::kNew);
  EXPECT_EQ(service.shard_names(), (std::vector<std::string>{"table/part_1"}));
  EXPECT_EQ(service.shard("table/part_1")->num_rows(), 4);
}

TEST(ParameterService, KeepsRestoredShardsThatWereAskedFor) {
  ParameterService service;
  service.restore(part("table/part_0", {0, 3}));
  service.handle(encode_request(PullShards{{{"table/part_0", {}}}}));
  EXPECT_THROW(create(service, {.shard = "table/part_0",
                                .variable = "table",
                                .rows = {0, 4},
                                .values = torch::zeros({4}),
                                .initial = std::nullopt,
                                .rule = SgdRule{}}),
               InvalidArgument);
  EXPECT_TRUE(service.shard("table/part_0")->pull().values.equal(torch::full({3}, 7.F)));
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
